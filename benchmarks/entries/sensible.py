"""Is every method sensible with no arguments? The whole catalogue on eleven small problems.

    make bench NAME=sensible                             all: hours
    make bench NAME="sensible --methods VI NUTS"         some methods
    make bench NAME="sensible --problems sine moons"     some problems

Problems, and what sensible means on each, are in benchmarks/harness/sensible_problems.py: two moons, a sine, ten noisy
points, 300 digits, 300 rows of each of seven UCI sets. The model is `mx.Model(network, likelihood)`, the method is as
the catalogue has it. What was done is kept in .bench while the code is the same, and a second call goes on.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.harness import report
from benchmarks.harness.environments import ROOT, tree_of
from benchmarks.harness.sensible_problems import problems, says_so


def main(arguments: list[str]) -> None:
    """Fit every method to every problem, print what is not sensible, save the record."""
    from marginax.infer.catalogue import catalogue

    methods = {entry.name: entry.method for entry in catalogue()}
    parser = argparse.ArgumentParser(prog="python -m benchmarks sensible", description=__doc__)
    parser.add_argument("--methods", nargs="*", default=list(methods), choices=list(methods))
    parser.add_argument("--problems", nargs="*", default=list(problems()), choices=list(problems()))
    options = parser.parse_args(arguments)
    console, folder = report.console(), ROOT / ".bench" / "sensible" / tree_of("src")
    folder.mkdir(parents=True, exist_ok=True)
    results: dict[str, dict[str, Any]] = {}
    with report.progress(console) as say:
        for problem in options.problems:
            for name in options.methods:
                say(f"{problem}: {name}")
                found = _kept(folder / f"{problem}-{name}.json", problem, methods[name])
                results.setdefault(name, {})[problem] = found
    show(results, console)
    if options.methods == list(methods) and options.problems == list(problems()):
        path = report.write("sensible", {"results": results})
        console.print(f"saved: benchmarks/results/{path.name}")


def _kept(path: Path, name: str, method: Any) -> dict[str, Any]:
    if not path.exists():
        began, problem = time.perf_counter(), problems()[name]
        posterior = problem.fit(method)
        finding, seconds = problem.judge(method, posterior), time.perf_counter() - began
        said = bool(finding.faults) and says_so(posterior)
        found = {**finding.scores, "faults": finding.faults, "says_so": said, "seconds": seconds}
        path.write_text(json.dumps(found))
    return json.loads(path.read_text())


def show(results: dict[str, dict[str, Any]], console: Any) -> None:
    """Negative log densities; what is not sensible in red, and in words below."""
    columns = list(next(iter(results.values())))
    table = Table(title="negative log density of test rows with no arguments; red: not sensible")
    for header in ("method", *columns):
        table.add_column(header, justify="left" if header == "method" else "right")
    faults = []
    for name, by_problem in results.items():
        cells = []
        for problem, found in by_problem.items():
            cell = f"{found['nll']:.2f}"
            cells.append(f"[red]{cell}[/red]" if found["faults"] else cell)
            said = ", and says so" if found["says_so"] else ""
            faults += [f"{name} on {problem}: not {fault}{said}" for fault in found["faults"]]
        table.add_row(name, *cells)
    console.print(table)
    total = sum(len(by_problem) for by_problem in results.values())
    wrong = sum(bool(found["faults"]) for by_problem in results.values() for found in by_problem.values())
    console.print(f"sensible: {total - wrong} of {total}")
    for line in faults:
        console.print(line)
