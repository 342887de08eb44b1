"""`make faults`: all attacks on all kinds of work, a table at the end; a cell that is done is not done again."""

import argparse
import concurrent.futures
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.faults.attacks import ATTACKS, OUTCOMES, size_of
from tests.faults.cell import run_cell
from tests.faults.work import works

RESULTS = Path(".faults") / "results.jsonl"


def table(cells: list[dict[str, Any]]) -> str:
    """Attacks, and how often they came to what."""
    lines = ["| attack | cases | " + " | ".join(OUTCOMES) + " | seconds |", "|---" * (len(OUTCOMES) + 3) + "|"]
    for attack in [*ATTACKS, "all"]:
        own = [cell for cell in cells if attack in (cell["attack"], "all")]
        counts = sum((Counter(cell["counts"]) for cell in own), Counter())
        values = [counts.total(), *(counts[outcome] for outcome in OUTCOMES), round(sum(c["seconds"] for c in own))]
        lines.append(f"| {attack} | " + " | ".join(f"{value:,}" for value in values) + " |")
    return "\n".join(lines)


def main() -> int:
    """Run what is not done yet, print the table; 1 if anything was lost or wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", type=float, default=1.0, help="of the cases")
    parser.add_argument("--only", default=":", help="ATTACK:WORK, either may be left out")
    parser.add_argument("--again", action="store_true", help="forget what was done before")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    options = parser.parse_args()
    RESULTS.parent.mkdir(exist_ok=True)
    if options.again:
        RESULTS.unlink(missing_ok=True)
    done = [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    cells, waiting = [], []
    wanted = [each or None for each in options.only.partition(":")[::2]]
    for name in works():  # cells of a kind of work share what is compiled
        for attack in ATTACKS:
            if wanted[0] not in (None, attack) or wanted[1] not in (None, name):
                continue
            place = {"attack": attack, "work": name, "seed": options.seed, "num": size_of(attack, options.share)}
            cell = None if options.only != ":" else next((c for c in done if place.items() <= c.items()), None)
            waiting.append(tuple(place.values())) if cell is None else cells.append(cell)
    for cell in cells:
        say(cell, options.share)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as cache:
        # compiled programs are shared by all processes: what is tested is what they write, and not what compiles
        os.environ |= {"JAX_COMPILATION_CACHE_DIR": cache, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
        context = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(options.jobs, context) as pool:
            for future in concurrent.futures.as_completed([pool.submit(run_cell, *place) for place in waiting]):
                cells.append(future.result())
                with RESULTS.open("a") as file:
                    file.write(json.dumps(cells[-1]) + "\n")
                say(cells[-1], options.share)
    print(table(cells))
    minutes = (time.monotonic() - began) / 60
    print(
        f"{len(waiting)} of {len(cells)} cells in {minutes:.0f} minutes, {options.jobs} at a time, seed {options.seed}"
    )
    return int(any(cell["failures"] for cell in cells))


def say(cell: dict[str, Any], share: float) -> None:
    """What came of a cell; of failures, the first ones and how to see them again."""
    said = ", ".join(f"{count} {outcome}" for outcome, count in cell["counts"].items())
    print(f"{cell['attack']:9} {cell['work']:14} seed {cell['seed']}: {said} ({cell['seconds']} s)", flush=True)
    for failure in cell["failures"][:5]:
        print(f"    {failure}", flush=True)
    if cell["failures"]:
        again = f"--only {cell['attack']}:{cell['work']} --seed {cell['seed']} --share {share:g}"
        print(f"    python -m tests.faults {again}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
