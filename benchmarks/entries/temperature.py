"""Temperature scaling of a network that was trained for too long, on Fashion-MNIST.

    make bench NAME=temperature

An MLP of two hidden layers of 400 units, by maximum likelihood on 55,000 images until it knows them by heart; the
calibrators see the 5,000 that were kept back, and all are judged by the 10,000 test images. Expected calibration error
with 15 bins, as in Guo et al. (2017).
"""

import argparse
import time
from typing import Any

from rich.table import Table

from benchmarks.harness import report
from benchmarks.harness.race import verdict

HELD_OUT = 5_000
MOST_ECE = 0.02


def main(arguments: list[str]) -> None:
    """Train, calibrate, print a table, save the record."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks temperature", description=__doc__)
    parser.add_argument("--epochs", type=int, default=40)
    options = parser.parse_args(arguments)
    import marginax as mx
    from marginax.calibrate import BayesianTemperature, Temperature, VectorScaling
    from marginax.evaluate import EqualWidth, accuracy, ece, nll

    (x, y), (x_test, y_test) = mx.data.load_fashion_mnist("train"), mx.data.load_fashion_mnist("test")
    x, x_test = x.reshape(len(x), -1), x_test.reshape(len(x_test), -1)
    model = mx.Model(
        mx.nets.MLP(784, (400, 400), 10, key=0), likelihood=mx.likelihoods.Categorical(), prior=mx.priors.Flat()
    )
    began = time.perf_counter()
    method = mx.infer.MLE(num_epochs=options.epochs, optimiser=mx.infer.Adam(1e-3))
    posterior = mx.fit(model, (x[HELD_OUT:], y[HELD_OUT:]), method, key=0)
    seconds = time.perf_counter() - began
    seen = posterior.predict(x[HELD_OUT : 2 * HELD_OUT])
    held_out, before = posterior.predict(x[:HELD_OUT]), posterior.predict(x_test)
    rows = {"as trained": before}
    for how in (Temperature(), BayesianTemperature(), VectorScaling()):
        rows[type(how).__name__] = mx.calibrate.recalibrate(held_out, y[:HELD_OUT], how)(before)
    console, record = report.console(), {}
    table = Table(title=f"MLP on Fashion-MNIST, {options.epochs} epochs, {seconds:.0f} s", title_justify="left")
    for column in ("", "ECE %", "accuracy %", "NLL"):
        table.add_column(column, justify="left" if not column else "right")
    for name, prediction in rows.items():
        scores = ece(prediction, y_test, bins=EqualWidth(15)), accuracy(prediction, y_test), nll(prediction, y_test)
        record[name] = dict(zip(("ece", "accuracy", "nll"), map(float, scores), strict=True))
        cells = [f"{100 * s.value:.2f} ± {100 * s.standard_error:.2f}" for s in scores[:2]]
        table.add_row(name, *cells, f"{scores[2].value:.4f} ± {scores[2].standard_error:.4f}")
    console.print(table)
    known = float(accuracy(seen, y[HELD_OUT : 2 * HELD_OUT]))
    console.print(f"accuracy on images it was trained on: {100 * known:.2f}%")
    found = {"title": table.title, "rows": record, "trained_on": known}
    found["changed"] = int((rows["Temperature"].labels != before.labels).sum())
    path = report.write("temperature", found | {"claims": claims(found, console)})
    console.print(f"saved: benchmarks/results/{path.name}")


def claims(record: dict[str, Any], console: Any) -> list[dict[str, Any]]:
    """Calibrated by temperature, and every answer as before."""
    return [
        verdict("ECE after temperature scaling", record["rows"]["Temperature"]["ece"], MOST_ECE, console),
        verdict("answers that it changes", record["changed"], 0, console),
    ]
