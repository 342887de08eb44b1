"""The process of one contestant: reads an amount of work per line, answers with the seconds it took.

    python -m benchmarks.harness.worker mlp_step 0 1      entry, group, contestant

Requests and answers are JSON lines; answers carry a mark, because libraries print too. Only the standard library is
imported here, everything else by the contestant itself.
"""

import importlib
import importlib.metadata
import json
import platform
import sys
import time

from benchmarks.harness.entry import Entry

MARK = "@benchmark "


def answer(content: object) -> None:
    """Write one line to the arena."""
    print(MARK + json.dumps(content), flush=True)


def main(name: str, group: str, index: str) -> None:
    """Build the contestant, then work on demand until the input ends."""
    entry: Entry = importlib.import_module(f"benchmarks.entries.{name}").ENTRY
    contestant = entry.groups[int(group)].contestants[int(index)]
    run = contestant.start()
    versions = {"python": platform.python_version()}
    versions |= {package: importlib.metadata.version(package) for package in contestant.packages}
    answer({"versions": versions})
    for line in sys.stdin:
        units = json.loads(line)["units"]
        began = time.perf_counter()
        if units:
            run(units)
        answer({"seconds": time.perf_counter() - began})


if __name__ == "__main__":
    main(*sys.argv[1:])
