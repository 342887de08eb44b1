"""Laplace with the prior as it is by default, and with its precisions tuned by evidence, on the UCI sets.

    make bench NAME=evidence                        all sets, 20 splits
    make bench NAME="evidence boston --splits 5"

The protocol is that of `uci`: 50 hidden units, standardised data, the noise learned with the weights. The default prior
and the one tuned afterwards are around the same network; online tuning trains its own, for as many steps: 15,000, since
the evidence is that of a mode, and the 4,000 of `mx.infer.MAP` end before it on the larger sets.
"""

import argparse
import time
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.entries.uci import PUBLISHED
from benchmarks.harness import report

NAMES = ("Kronecker", "last layer")
NUM_STEPS = 15_000
COLUMNS = ("default prior", "tuned afterwards", "tuned online")


def main(arguments: list[str]) -> None:
    """Negative log-likelihoods on the sets asked for, and on how many of them tuning wins."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks evidence", description=__doc__)
    parser.add_argument("sets", nargs="*", default=list(PUBLISHED), help=", ".join(PUBLISHED))
    parser.add_argument("--splits", type=int, default=20, help="how many of the 20 splits (default all)")
    options = parser.parse_args(arguments)
    console = report.console()
    record: dict[str, Any] = {}
    for name in options.sets:
        began = time.perf_counter()
        with report.progress(console) as say:
            scores = []
            for index in range(options.splits):
                say(f"{name}: split {index + 1}/{options.splits}")
                scores.append(one_split(name, index))
        record[name] = {"nll": np.array(scores).tolist(), "seconds": round(time.perf_counter() - began, 1)}
    show(record, console)
    path = report.write("evidence", record)
    console.print(f"saved: benchmarks/results/{path.name}")


def one_split(name: str, index: int) -> list[list[float]]:
    """Negative log-likelihood by approximation, under each prior."""
    import marginax as mx

    x, y, x_test, y_test = mx.data.load_uci(name).split(index)
    net = mx.nets.MLP(in_size=x.shape[1], hidden=(50,), out_size=1, key=index)
    model = mx.Model(net, likelihood=mx.likelihoods.Gaussian())
    data = mx.data.standardise((x, y))
    training = mx.infer.MAP(num_epochs=-(-NUM_STEPS * 128 // len(x)))
    mode = mx.fit(model, data, training, key=index, progress=False)
    results = []
    for structure, subset in ((mx.curvature.Kronecker(), mx.All()), (mx.curvature.Dense(), mx.LastLayer())):
        method = mx.infer.Laplace(structure=structure, subset=subset)
        posterior = mx.fit(model, data, method, init=mode, key=index, progress=False)
        online = mx.infer.Laplace(structure=structure, subset=subset, tuning=mx.infer.Online(), training=training)
        ways = (
            posterior,
            posterior.tuned(mx.infer.Evidence()),
            mx.fit(model, data, online, key=index, progress=False),
        )
        results.append([float(-np.mean(way.predict(x_test).log_prob(y_test))) for way in ways])
    return results


def show(record: dict[str, Any], console: Any) -> None:
    """A table for each approximation; differences have the standard error of paired splits."""
    for i, name in enumerate(NAMES):
        table = Table(title=f"{name}: negative log-likelihood", title_justify="left")
        for column in ("", *COLUMNS, "afterwards - default", "online - default"):
            table.add_column(column, justify="left" if not column else "right")
        wins = np.zeros(2, int)
        for dataset, entry in record.items():
            scores = np.array(entry["nll"])[:, i]
            gains = scores[:, 1:] - scores[:, :1]
            wins += gains.mean(axis=0) < 0
            error = gains.std(axis=0, ddof=min(1, len(gains) - 1)) / np.sqrt(len(gains))
            differences = [f"{m:+.4f} ± {e:.4f}" for m, e in zip(gains.mean(axis=0), error, strict=True)]
            table.add_row(dataset, *(f"{m:.3f}" for m in scores.mean(axis=0)), *differences)
        console.print(table)
        for way, count in zip(COLUMNS[1:], wins, strict=True):
            word = "[green]met[/green]" if count >= 5 else "[red]missed[/red]"
            console.print(f"{way}: better on {count} of {len(record)} sets, target at least 5 of 7: {word}")
