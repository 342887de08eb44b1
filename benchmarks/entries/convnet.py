"""A Bayesian convnet on MNIST: LeNet with dropout after every layer, its average over draws against weight scaling.

    make bench NAME=convnet
    make bench NAME="convnet --epochs 5 --set fashion_mnist"

Gal & Ghahramani (2015). Weight scaling is one pass without dropout through the same weights. Which of the two explains
the test labels better depends on the rate: at 0.5 and 0.25 ten epochs leave the average less sure than it could be, at
0.1 the single pass is too sure.
"""

import argparse
import time

import numpy as np
from rich.table import Table

from benchmarks.harness import report


def main(arguments: list[str]) -> None:
    """Train, predict both ways, print a table, save the record."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks convnet", description=__doc__)
    parser.add_argument("--set", default="mnist", choices=("mnist", "fashion_mnist"))
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--rate", type=float, default=0.1, help="of dropout (default 0.1)")
    parser.add_argument("--samples", type=int, default=50, help="draws to average over (default 50)")
    options = parser.parse_args(arguments)
    import jax

    import marginax as mx

    load = {"mnist": mx.data.load_mnist, "fashion_mnist": mx.data.load_fashion_mnist}[options.set]
    (x, y), (x_test, y_test) = load("train"), load("test")
    model = mx.Model(
        mx.nets.LeNet(dropout=options.rate, key=0),
        likelihood=mx.likelihoods.Categorical(),
        prior=mx.priors.Normal(1.0),
    )
    began = time.perf_counter()
    method = mx.infer.MCDropout(num_epochs=options.epochs, optimiser=mx.infer.Adam(1e-3))
    posterior = mx.fit(model, (x, y), method, key=0)
    trained = time.perf_counter() - began
    scaled = mx.posterior.Draws(
        model=model, params=jax.tree.map(lambda leaf: leaf[:, None], posterior.params), spec=posterior.spec
    )
    console, rows = report.console(), {}
    table = Table(title=f"LeNet with dropout {options.rate:g}, {options.set}, {options.epochs} epochs, {trained:.0f} s")
    for column in ("prediction", "error %", "NLL"):
        table.add_column(column, justify="left" if column == "prediction" else "right")
    for name, prediction in (
        (f"average of {options.samples} draws", posterior.predict(x_test, num_samples=options.samples)),
        ("weight scaling", scaled.predict(x_test)),
    ):
        error = 100 * float(np.mean(prediction.labels != y_test))
        nll = -float(np.mean(prediction.log_prob(y_test)))
        rows[name] = {"error": error, "nll": nll}
        table.add_row(name, f"{error:.2f}", f"{nll:.4f}")
    console.print(table)
    average, single = (row["nll"] for row in rows.values())
    word = "[green]met[/green]" if average < single else "[red]missed[/red]"
    console.print(f"the average has the lower NLL: {word}")
    path = report.write(f"convnet_{options.set}", {"title": table.title, "rows": rows, "seconds": round(trained, 1)})
    console.print(f"saved: benchmarks/results/{path.name}")
