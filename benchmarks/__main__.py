"""`python -m benchmarks NAME`: run one benchmark, print its table, save its record under benchmarks/results.

`python -m benchmarks figures` writes the pages that show the records.
"""

import argparse
import importlib
import os
import pkgutil
import sys

from benchmarks import entries
from benchmarks.harness import arena, figures, report

NAMES = tuple(module.name for module in pkgutil.iter_modules(entries.__path__))


def main(arguments: list[str]) -> None:
    """Run the benchmark that the first argument names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Ours against named peers.")
    parser.add_argument("name", choices=NAMES, help="which benchmark")
    parser.add_argument("--repeats", type=int, default=9, help="interleaved repeats (default 9)")
    parser.add_argument(
        "--patience", type=float, default=120, help="seconds for times to be taken again on a busy machine (120)"
    )
    if not arguments:
        parser.print_help()
        raise SystemExit(2)
    if arguments == ["figures"]:
        figures.main()
        return
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    module = importlib.import_module(f"benchmarks.entries.{arguments[0]}") if arguments[0] in NAMES else None
    if module is not None and not hasattr(module, "ENTRY"):  # not a race but a table of its own
        module.main(arguments[1:])
        return
    options = parser.parse_args(arguments)
    assert module is not None
    console = report.console()
    with report.progress(console) as say:
        results = arena.compete(options.name, module.ENTRY, options.repeats, options.patience, say)
    report.show(module.ENTRY, results, console)
    path = report.save(options.name, module.ENTRY, results)
    console.print(f"saved: benchmarks/results/{path.name}")


if __name__ == "__main__":
    main(sys.argv[1:])
