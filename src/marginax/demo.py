"""The demo: ten measurements of y = 3x, a gap, and the question what y is at x = 7, answered by every method."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure

from marginax.data import standardise
from marginax.infer import IVON, SWAG, VI, AbstractMethod, BayesByBackprop, fit
from marginax.infer.catalogue import Entry, catalogue
from marginax.model import Model, likelihoods, priors
from marginax.nets import MLP
from marginax.plot import plot_band
from marginax.predict import AbstractNumberPrediction
from marginax.report import Picture, Section, Table, write_page

X = np.array([1.1, 2.3, 3.3, 3.9, 9.6, 10.1, 11.3, 4.7, 8.2, 5.9])
QUESTION = 7.0
GRID = np.linspace(-3.0, 16.0, 191)
_ASKED = int(np.abs(GRID - QUESTION).argmin())  # the question is one of the points of the grid

# With 25 times as many weights as measurements the best bound of independent weights is found by ignoring the data, and
# ten rows in one batch leave SGD no noise to wander by.
_ON_TEN_POINTS: dict[str, tuple[str, AbstractMethod]] = {
    "VI": ("T = 0.2", VI(temperature=0.2)),
    "BayesByBackprop": ("T = 0.2", BayesByBackprop(temperature=0.2)),
    "IVON": ("T = 0.2", IVON(temperature=0.2)),
    "SWAG": ("batches of 2", SWAG(batch_size=2)),
}


@dataclass(frozen=True)
class Answer:
    """What one method says."""

    name: str
    prediction: AbstractNumberPrediction
    seconds: float

    def row(self) -> tuple[str, ...]:
        """Cells of the table."""
        lower, upper = self.prediction.interval(0.9)
        epistemic, aleatoric = np.sqrt(self.prediction.epistemic[_ASKED]), np.sqrt(self.prediction.aleatoric[_ASKED])
        return (
            self.name,
            f"{self.prediction.mean[_ASKED]:.2f}",
            f"{lower[_ASKED]:.2f} to {upper[_ASKED]:.2f}",
            f"{epistemic:.2f}",
            f"{aleatoric:.2f}",
            f"{self.seconds:.1f}",
        )


HEADER = ("method", f"y at {QUESTION:g}", "90% interval", "epistemic", "aleatoric", "seconds")  # the parts as sd


def measure() -> tuple[np.ndarray, np.ndarray]:
    """The experiment: y = 3x with noise that grows with x."""
    noise = np.random.default_rng(3).normal(size=len(X))
    return X[:, None], 3.0 * X + (0.2 + 0.12 * X) * noise


def ask(method: AbstractMethod, name: str, *, key: int = 0) -> Answer:
    """Fit by one method and predict on a grid."""
    x, y = measure()
    net = MLP(in_size=1, hidden=(50,), out_size=2, activation=jax.nn.silu, key=key)
    noise = likelihoods.FromNetwork(min_scale=0.02)
    model = Model(net, likelihood=likelihoods.Gaussian(scale=noise), prior=priors.Normal())
    began = time.perf_counter()
    posterior = fit(model, standardise((x, y)), method, key=key, progress=False)
    # As many networks for every sampler: what one method has compiled serves the next.
    prediction: Any = posterior.predict(GRID[:, None], num_samples=400)
    answer = Answer(name, prediction, 0.0)
    answer.row()
    return replace(answer, seconds=time.perf_counter() - began)


def draw(answers: list[Answer], *, columns: int) -> Figure:
    """One panel per method, on the same axes."""
    columns = min(columns, len(answers))
    rows = -(-len(answers) // columns)
    figure = Figure((2.6 * columns, 2.4 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for ax, answer in zip(axes.flat, answers, strict=False):
        plot_band(ax, GRID, answer.prediction, data=measure())
        ax.plot(GRID, 3 * GRID, ":", color="black", lw=1, label="y = 3x")
        ax.axvline(QUESTION, color="C3", lw=1, ls="--", label=f"x = {QUESTION:g}?")
        ax.set_title(answer.name, fontsize=11)
        ax.set_ylim(-25, 70)
        ax.set_xlim(GRID[0], GRID[-1])
    for ax in axes.flat[len(answers) :]:
        ax.axis("off")
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=10)
    for ax in axes[-1]:
        ax.set_xlabel("x")
    for ax in axes[:, 0]:
        ax.set_ylabel("y")
    return figure


def write_report(answers: list[Answer], path: Path) -> None:
    """One self-contained HTML page with the table and the picture."""
    table = Table(HEADER, tuple(answer.row() for answer in answers))
    lead = (
        f"Ten noisy measurements of y = 3x, none between x = 5.9 and 8.2. The truth is {3 * QUESTION:g}. Epistemic is "
        "what more data could remove, aleatoric the noise of a new measurement, both as standard deviations."
    )
    picture = Picture(draw(answers, columns=3), "Predictions of every method with bands")
    sections = [Section("Every method's answer", (table,)), Section("Every method's picture", (picture,))]
    write_page(path, f"What is y at x = {QUESTION:g}, and how sure are we?", sections, lead=lead)


def num_methods() -> int:
    """How many methods will be asked."""
    return len(catalogue())


def run(directory: Path, *, done: Callable[[], None] = lambda: None) -> list[Answer]:
    """Ask every method, and write picture and report.

    Args:
        directory: for the files; made if it is not there.
        done: called whenever a method has answered.
    """
    directory.mkdir(parents=True, exist_ok=True)

    def answer(entry: Entry) -> Answer:
        how, method = _ON_TEN_POINTS.get(entry.name, ("", entry.method))
        found = ask(method, f"{entry.name}, {how}" if how else entry.name)
        done()
        return found

    with ThreadPoolExecutor(2) as pool:  # most of the time goes into compiling, which waits for no other thread
        answers = list(pool.map(answer, catalogue()))
    picture, report = directory / "demo.png", directory / "report.html"
    draw(answers, columns=6).savefig(picture, dpi=140)
    write_report(answers, report)
    return answers
