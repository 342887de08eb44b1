"""Methods side by side on one UCI set: what each is worth, and what it costs.

    make bench NAME=methods                     concrete, split 0
    make bench NAME="methods energy --split 1"

One hidden layer of 50 units, noise that is the same everywhere, methods with their defaults, one after another in one
process. Wall seconds include compilation and depend on how busy others keep the machine (the record says how busy they
did); processor seconds, of fit, predictions and scores, hardly do.
"""

import argparse
import os
import time

import numpy as np
from rich.table import Table

from benchmarks.harness import report

METHODS = (
    "MAP",
    "Laplace",
    "SWAG",
    "MCDropout",
    "IVON",
    "VI",
    "DeepEnsemble",
    "AnchoredEnsemble",
    "SGHMC",
    "MCLMC",
    "MILE",
)
SCORES = ("rmse", "nll", "crps", "coverage", "calibration_error")


def main(arguments: list[str]) -> None:
    """Compare, print the table, save the record."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks methods", description=__doc__)
    parser.add_argument("set", nargs="?", default="concrete", help="a name that mx.data.load_uci takes")
    parser.add_argument("--split", type=int, default=0, help="which of the 20 splits (default 0)")
    options = parser.parse_args(arguments)
    import marginax as mx

    x, y, x_test, y_test = mx.data.load_uci(options.set, options.split)
    net = mx.nets.MLP(in_size=x.shape[1], hidden=(50,), out_size=1, key=0)
    model = mx.Model(net, likelihood=mx.likelihoods.Gaussian())
    console = report.console()
    began, worked = time.perf_counter(), []
    with report.progress(console) as show:

        def say(name: str) -> None:
            worked.append(time.process_time())
            show(name)

        comparison = mx.evaluate.compare(
            model,
            mx.data.standardise((x, y)),
            [getattr(mx.infer, name)() for name in METHODS],
            test=(x_test, y_test),
            key=0,
            progress=False,
            callback=say,
        )
    seconds = time.perf_counter() - began
    worked.append(time.process_time())
    processor = dict(zip(comparison, np.diff(worked).tolist(), strict=True))
    header, lines = comparison.table()
    table = Table(
        *header,
        "processor s",
        title=f"{options.set}, split {options.split}: {comparison.heading}",
        title_justify="left",
    )
    for line in lines:
        table.add_row(*line, f"{processor[line[0]]:.1f}")
    console.print(table)
    load = os.getloadavg()[1]
    console.print(f"{seconds:.0f} s, of a processor {sum(processor.values()):.0f} s; load average {load:.1f}")
    rows = {
        name: {
            "seconds": round(row.seconds, 2),
            "processor_seconds": round(processor[name], 2),
            "predict_seconds": round(row.predict_seconds, 2),
            "num_stored": row.num_stored,
            "scores": {s: {"value": row.scores[s].value, "error": row.scores[s].standard_error} for s in SCORES},
        }
        for name, row in comparison.items()
        if row.failure is None
    }
    title = f"{options.set}, split {options.split}, 50 hidden units"
    record = {"title": title, "rows": rows, "seconds": round(seconds, 1), "load_average": round(load, 2)}
    path = report.write("methods", record)
    console.print(f"saved: benchmarks/results/{path.name}")
