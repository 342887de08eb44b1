"""Are digits strange to a network that knows clothes? Fashion-MNIST in, MNIST out of distribution.

    make bench NAME=ood
    make bench NAME="ood --epochs 10"

LeNet: one network, an ensemble of five, and dropout after every layer (20 draws); 5,000 test images of each kind.
Published AUROC: softmax of one network 0.843, of an ensemble of five 0.861, DUQ 0.955 (van Amersfoort et al., 2020).
"""

import argparse
import time
from typing import Any

from rich.table import Table

from benchmarks.harness import report
from benchmarks.harness.race import verdict

LEAST = 0.90
SEEN = 10_000  # training images that the density of features is fitted to


def main(arguments: list[str]) -> None:
    """Train, score, print a table, save the record."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks ood", description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--rate", type=float, default=0.25, help="of dropout (default 0.25)")
    options = parser.parse_args(arguments)
    import marginax as mx
    from marginax.evaluate import (
        Energy,
        Entropy,
        Mahalanobis,
        MaxProbability,
        MutualInformation,
        accuracy,
        nll,
        separate,
    )

    (x, y), (x_test, y_test) = mx.data.load_fashion_mnist("train"), mx.data.load_fashion_mnist("test")
    x_test, y_test, digits = x_test[::2], y_test[::2], mx.data.load_mnist("test")[0][::2]
    training = {"num_epochs": options.epochs, "optimiser": mx.infer.Adam(1e-3)}

    def fit(method: Any, dropout: float = 0.0, chains: int = 1) -> Any:
        model = mx.Model(
            mx.nets.LeNet(dropout=dropout, key=0),
            likelihood=mx.likelihoods.Categorical(),
            prior=mx.priors.Normal(1.0),
        )
        return mx.fit(model, (x, y), method, num_chains=chains, key=0)

    began = time.perf_counter()
    ensemble = fit(mx.infer.MAP(**training), chains=5)
    seconds = {"ensemble of 5": time.perf_counter() - began}
    began = time.perf_counter()
    dropout = fit(mx.infer.MCDropout(**training), dropout=options.rate)
    seconds["MC dropout"] = time.perf_counter() - began
    single = mx.posterior.Draws(model=ensemble.model, params=_first_chain(ensemble.params), spec=ensemble.spec)
    scores = {
        "entropy": Entropy(),
        "max probability": MaxProbability(),
        "mutual information": MutualInformation(),
        "energy": Energy(),
        "Mahalanobis": Mahalanobis((x[:SEEN], y[:SEEN])),
    }
    table = Table(title=f"Fashion-MNIST against MNIST, {options.epochs} epochs: AUROC", title_justify="left")
    for column in ("", "accuracy %", "NLL", *scores):
        table.add_column(column, justify="left" if not column else "right")
    record: dict[str, Any] = {}
    for name, posterior in (("one network", single), ("ensemble of 5", ensemble), ("MC dropout", dropout)):
        num = 20 if name == "MC dropout" else None
        prediction, strange = (posterior.predict(images, num_samples=num) for images in (x_test, digits))
        areas = {}
        for score, how in scores.items():
            if score in ("energy", "Mahalanobis"):
                areas[score] = separate(how.scores(posterior, x_test), how.scores(posterior, digits)).auroc
            elif score != "mutual information" or not posterior.is_point:
                areas[score] = separate(how.of(prediction), how.of(strange)).auroc
        record[name] = {
            "accuracy": float(accuracy(prediction, y_test)),
            "nll": float(nll(prediction, y_test)),
            "auroc": {score: float(area) for score, area in areas.items()},
        }
        cells = [
            f"{areas[score].value:.3f} ± {areas[score].standard_error:.3f}" if score in areas else ""
            for score in scores
        ]
        table.add_row(name, f"{100 * record[name]['accuracy']:.2f}", f"{record[name]['nll']:.3f}", *cells)
    console = report.console()
    console.print(table)
    found = {"title": table.title, "rows": record, "seconds": seconds}
    path = report.write("ood", found | {"claims": claims(found, console)})
    console.print(f"saved: benchmarks/results/{path.name}")


def claims(record: dict[str, Any], console: Any) -> list[dict[str, Any]]:
    """The best score of each posterior that was trained for this."""
    found = []
    for name in record["seconds"]:
        best, area = max(record["rows"][name]["auroc"].items(), key=lambda item: item[1])
        found.append(verdict(f"{name}: AUROC by {best}", area, LEAST, console, at_most=False))
    return found


def _first_chain(params: Any) -> Any:
    import jax

    return jax.tree.map(lambda leaf: leaf[:1], params)
