"""Does what a posterior does not know grow away from the data? Every method, on one input and on two moons.

    make bench NAME=distance                       all methods; draws docs/images/distance.png
    make bench NAME="distance NUTS MCDropout"      some

One input: 60 measurements of a sine in two clusters; the standard deviation of the mean over draws, at the data and at
growing distances from them. Two moons: mutual information at the data and on circles around them, whose radii are in
standard deviations of the inputs. Methods have their defaults. Points (MLE, MAP) have no such part and are left out.

The prior of the moons is Normal(1.0), chosen after the default one: with that, networks underfit (accuracy 0.885), and
for seven of the ten methods asked first mutual information did not grow.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.harness import report
from benchmarks.harness.race import verdict

DISTANCES = (1.0, 2.0, 4.0)  # from the outermost measurements
RADII = (2.0, 3.0, 6.0)
PICTURE = Path(__file__).resolve().parents[2] / "docs" / "images" / "distance.png"


@dataclass(frozen=True)
class Answer:
    """A posterior, and what it does not know: first at the data, then further and further away."""

    posterior: Any
    epistemic: np.ndarray

    @property
    def grows(self) -> bool:
        """Whether it is larger everywhere else than at the data."""
        return bool((self.epistemic[1:] > self.epistemic[0]).all())


def sine() -> tuple[np.ndarray, np.ndarray]:
    """Measurements around -1 and 1."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-1.6, -0.6, 30), rng.uniform(0.6, 1.6, 30)])[:, None]
    return x, np.sin(2 * x[:, 0]) + 0.1 * rng.normal(size=60)


def moons() -> tuple[np.ndarray, np.ndarray]:
    """Two moons of 100 points each, standardised."""
    from sklearn.datasets import make_moons

    x, y = make_moons(200, noise=0.1, random_state=0)
    return (x - x.mean(axis=0)) / x.std(axis=0), y


def ask_sine(method: Any) -> Answer:
    """Epistemic standard deviations of numbers."""
    import jax

    import marginax as mx

    x, y = sine()
    net = mx.nets.MLP(1, (50,), 1, activation=jax.nn.silu, key=0)
    model = mx.Model(net, likelihood=mx.likelihoods.Gaussian(scale=0.1))
    posterior = mx.fit(model, (x, y), method, key=0, progress=False)
    places = [x, *(np.array([[x.min() - distance], [x.max() + distance]]) for distance in DISTANCES)]
    return Answer(posterior, np.array([np.sqrt(posterior.predict(at).epistemic).mean() for at in places]))


def ask_moons(method: Any) -> Answer:
    """Mutual information of classes."""
    import marginax as mx

    x, y = moons()
    model = mx.Model(mx.nets.MLP(2, (50,), 2, key=0), mx.likelihoods.Categorical(), mx.priors.Normal(1.0))
    posterior = mx.fit(model, (x, y), method, key=0, progress=False)
    angles = np.linspace(0, 2 * np.pi, 64, endpoint=False)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    places = [x, *(radius * circle for radius in RADII)]
    return Answer(posterior, np.array([posterior.predict(at).mutual_information.mean() for at in places]))


def methods() -> dict[str, Any]:
    """Every method that is more than a point, by name."""
    from marginax.infer.catalogue import catalogue

    return {entry.name: entry.method for entry in catalogue() if entry.name not in ("MLE", "MAP")}


def main(arguments: list[str]) -> None:
    """Ask, print, draw, save."""
    known = methods()
    parser = argparse.ArgumentParser(prog="python -m benchmarks distance", description=__doc__)
    parser.add_argument("names", nargs="*", default=list(known), help=", ".join(known))
    options = parser.parse_args(arguments)
    console, answers = report.console(), {}
    with report.progress(console) as say:
        for name in options.names:
            say(name)
            answers[name] = ask_sine(known[name]), ask_moons(known[name])
    table = Table(title="what is not known, at the data and away from them", title_justify="left")
    columns = ["", "one input: at the data", *(f"+{d:g}" for d in DISTANCES)]
    for column in [*columns, "two moons: at the data", *(f"radius {r:g}" for r in RADII)]:
        table.add_column(column, justify="left" if not column else "right")
    for name, (line, plane) in answers.items():
        table.add_row(name, *(f"{v:.3f}" for v in line.epistemic), *(f"{v:.4f}" for v in plane.epistemic))
    console.print(table)
    rows = {name: [answer.epistemic.tolist() for answer in pair] for name, pair in answers.items()}
    found = {"title": "What is not known grows away from the data", "rows": rows}
    found["claims"] = claims(found, console)
    if options.names == list(known):
        draw(answers)
        console.print("drawn: docs/images/distance.png")
        path = report.write("distance", found)
        console.print(f"saved: benchmarks/results/{path.name}")


def claims(record: dict[str, Any], console: Any) -> list[dict[str, Any]]:
    """The methods for which it is larger everywhere else than at the data, on both problems."""
    grows = [all(min(row[1:]) > row[0] for row in pair) for pair in record["rows"].values()]
    return [verdict("methods whose uncertainty grows", sum(grows), len(grows), console, at_most=False)]


def draw(answers: dict[str, tuple[Answer, Answer]]) -> None:
    """Two panels for each method: bands over the sine, mutual information around the moons."""
    from matplotlib.figure import Figure

    import marginax as mx

    wide = 3
    rows = -(-len(answers) // wide)
    figure = Figure(figsize=(4.4 * wide, 1.7 * rows), layout="constrained")
    axes = figure.subplots(rows, 2 * wide, squeeze=False)
    grid = np.linspace(-5.0, 5.0, 201)
    for i, (name, (line, plane)) in enumerate(answers.items()):
        left, right = axes[i // wide, 2 * (i % wide) : 2 * (i % wide) + 2]
        mx.plot.plot_band(left, grid, line.posterior.predict(grid[:, None]))
        left.plot(*(np.ravel(part) for part in sine()), "k.", ms=2)
        left.set(ylim=(-3.5, 3.5), xlim=(-5, 5))
        mx.plot.plot_boundary(
            right, plane.posterior, x=moons()[0], y=moons()[1], of=lambda p: p.mutual_information, margin=2.0
        )
        left.set_title(name, fontsize=9, loc="left")
        for ax in (left, right):
            ax.tick_params(labelsize=6)
    for ax in axes.flat[2 * len(answers) :]:
        ax.axis("off")
    figure.savefig(PICTURE, dpi=80)
