"""Careless and hostile inputs through the estimators, `mx.fit` and the command line: none may be silently wrong.

    make bench NAME=careless                      all cases; those with `method="auto"` take up to a minute each
    make bench NAME="careless --quick"            without those
    make bench NAME="careless --only scale file"  some kinds

A case ends well in one of two ways. It is answered: predictions are finite, their log density of 200 fresh rows is at
most 0.1 nats per row below that of a constant (where the data are linear, at most 0.15 below that of a linear model),
90% intervals cover at least 70% and are at most 20 standard deviations wide. Or it is refused: one message that names
the argument and what is wrong with it, within two seconds of processor time, before anything is compiled. Each case
says which of the two is right for it; where no good answer can be had and a refusal is too much, a warning must say so.
The exit code is 1 if any case is wrong.
"""

import argparse
import sys
from collections import Counter
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.harness import report
from benchmarks.harness.careless_case import ANSWERED, REFUSED, WRONG, Case, Compilations, Verdict, judge

WORDS = (ANSWERED, REFUSED, WRONG)


def main(arguments: list[str]) -> None:
    """Run the cases, print counts and what went wrong, save the record."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks careless", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="without the cases of method='auto'")
    parser.add_argument("--only", nargs="*", default=[], help="kinds of cases (default all)")
    parser.add_argument("--named", default="", help="cases whose name holds this text")
    options = parser.parse_args(arguments)
    cases = [each for each in all_cases() if not (options.quick and each.dear)]
    if unknown := set(options.only) - {each.kind for each in cases}:
        parser.error(f"no such kind: {', '.join(sorted(unknown))}")
    cases = [each for each in cases if each.kind in (options.only or [each.kind]) and options.named in each.name]
    console = report.console()
    with report.progress(console) as say:
        verdicts = run(cases, say)
    show(verdicts, console)
    if not (options.only or options.named):
        path = report.write("careless_quick" if options.quick else "careless", record(verdicts))
        console.print(f"saved: benchmarks/results/{path.name}")
    if any(each.word == WRONG for each in verdicts):
        sys.exit(1)


def all_cases() -> list[Case]:
    """Those of all files."""
    from benchmarks.harness import careless_arrays, careless_files, careless_rows, careless_targets, careless_values

    modules = (careless_values, careless_rows, careless_targets, careless_arrays, careless_files)
    return [case for module in modules for case in module.CASES]


def run(cases: list[Case], say: Any = lambda text: None) -> list[Verdict]:
    """One after the other."""
    from marginax._compilation import use_compilation_cache

    use_compilation_cache()
    compilations = Compilations()
    verdicts = []
    for i, case in enumerate(cases):
        verdicts.append(judge(case, compilations))
        found = verdicts[-1]
        say(f"{i + 1}/{len(cases)} {case.kind}: {case.name} ({found.seconds:.1f} s) {found.word}: {found.story[:160]}")
    return verdicts


def counts(verdicts: list[Verdict]) -> dict[str, Counter[str]]:
    """How many cases of each kind came out how."""
    found: dict[str, Counter[str]] = {}
    for each in verdicts:
        found.setdefault(each.case.kind, Counter())[each.word] += 1
    return found


def show(verdicts: list[Verdict], console: Console) -> None:
    """The counts, and every wrong case."""
    table = Table(title=f"{len(verdicts)} careless cases", title_justify="left")
    for header in ("kind", "cases", *WORDS):
        table.add_column(header, justify="left" if header == "kind" else "right")
    found = counts(verdicts)
    for kind, each in found.items():
        table.add_row(kind, str(each.total()), *(str(each[word]) for word in WORDS))
    total = sum(found.values(), Counter())
    table.add_section()
    table.add_row("all", str(total.total()), *(str(total[word]) for word in WORDS))
    console.print(table)
    for each in verdicts:
        if each.word == WRONG:
            console.print(f"wrong: {each.case.kind}: {each.case.name}: {each.story}", style="red", markup=False)


def record(verdicts: list[Verdict]) -> dict[str, Any]:
    """What is kept of a run."""
    cases = [
        {"kind": v.case.kind, "name": v.case.name, "expected": v.case.expect, "outcome": v.word, "story": v.story}
        for v in verdicts
    ]
    return {
        "title": "careless and hostile inputs",
        "counts": {kind: {word: each[word] for word in WORDS} for kind, each in counts(verdicts).items()},
        "seconds": round(sum(each.seconds for each in verdicts), 1),
        "cases": cases,
    }
