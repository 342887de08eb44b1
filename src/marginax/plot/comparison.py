"""Methods side by side."""

from collections.abc import Callable
from typing import Any

import numpy as np

from marginax._extras import require
from marginax.evaluate import Comparison, Proportion
from marginax.evaluate.comparison import better_of
from marginax.model.outcome import Outcome
from marginax.plot.bands import plot_band
from marginax.plot.calibration import plot_coverage, plot_reliability
from marginax.plot.chains import COLORS, distinct_colors
from marginax.posterior import AbstractPosterior
from marginax.predict import AbstractClassPrediction
from marginax.predict.reading import read_one_class

_GRID = 120
_COLUMNS = 2  # letters stay legible where the page is a phone's


def plot_pareto(ax: Any, comparison: Comparison, *, score: str = "nll", cost: str = "seconds") -> Any:
    """A score against a cost; methods on the line are beaten by none that costs less.

    Args:
        ax: matplotlib Axes, which are returned.
        comparison: from `mx.evaluate.compare`.
        score: that has a best, such as "nll", "rmse" or "accuracy".
        cost: "seconds", "predict_seconds", "megabytes" or "num_stored".
    """
    values, costs = comparison.values_of(score), comparison.values_of(cost)
    names = [name for name in values if name in costs]
    sign = -1.0 if better_of(score) == "more" else 1.0
    names.sort(key=lambda name: (costs[name], sign * values[name]))
    front, least = [], np.inf
    for name in names:
        if sign * values[name] < least:
            least = sign * values[name]
            front.append(name)
    ax.step(
        [costs[name] for name in front],
        [values[name] for name in front],
        where="post",
        color="black",
        lw=1.0,
        ls="--",
        zorder=1,
    )
    colors = distinct_colors(len(comparison))
    for i, name in enumerate(comparison):
        if name in names:
            error = _bar(comparison[name].scores.get(score))
            color = colors[i]
            ax.errorbar(costs[name], values[name], error, fmt="o", color=color, ms=6, elinewidth=0.8, capsize=2)
            ax.annotate(name, (costs[name], values[name]), xytext=(5, 4), textcoords="offset points", fontsize="small")
    ax.set(xscale="log", xlabel=cost.replace("_", " "), ylabel=score.replace("_", " "))
    ax.margins(x=0.2)
    return ax


def _bar(score: Any) -> Any:
    """Length of an error bar: the standard error, or of a proportion those to the ends of its interval."""
    if isinstance(score, Proportion):
        low, high = score.interval
        return [[score.value - low], [high - score.value]]
    return 0.0 if score is None else score.standard_error


def plot_boundary(
    ax: Any,
    posterior: AbstractPosterior,
    *,
    x: Any,
    y: Any = None,
    of: Callable[[AbstractClassPrediction], np.ndarray] | None = None,
    margin: float = 1.0,
) -> Any:
    """What a classifier of two inputs says everywhere around the data.

    Two classes: the probability of the second, with its 50% line. More classes: the confidence of the answer.

    Args:
        ax: matplotlib Axes, which are returned.
        posterior: over networks with two inputs.
        x: inputs of the data, shape (n, 2): what the picture shows.
        y: their classes, as colours of the points.
        of: what to show instead: a function of the prediction, such as `lambda p: p.mutual_information`.
        margin: around the data, as a part of their range.
    """
    x = np.asarray(x)
    if x.ndim != 2 or x.shape[1] != 2:
        raise ValueError(f"x must have shape (n, 2) to be drawn in the plane, got {x.shape}")
    low, high = x.min(axis=0), x.max(axis=0)
    room = margin * (high - low) / 2
    sides = [np.linspace(a - r, b + r, _GRID) for a, b, r in zip(low, high, room, strict=True)]
    plane = np.stack(np.meshgrid(*sides), axis=-1).reshape(-1, 2)
    prediction = read_one_class(posterior.predict(plane), name="a decision boundary", remedy="use plot_band")
    two = prediction.probs.shape[1] == 2
    shown = of(prediction) if of is not None else prediction.probs[:, 1] if two else prediction.confidence
    field = np.asarray(shown).reshape(_GRID, _GRID)
    limits = {} if of is not None else {"vmin": 0.0 if two else 1 / prediction.probs.shape[1], "vmax": 1.0}
    colours = "RdBu_r" if of is None and two else "viridis"
    ax.imshow(
        field, origin="lower", extent=(*sides[0][[0, -1]], *sides[1][[0, -1]]), aspect="auto", cmap=colours, **limits
    )
    answers = prediction.probs[:, 1].reshape(_GRID, _GRID) if two else prediction.labels.reshape(_GRID, _GRID)
    levels = [0.5] if two else np.arange(prediction.probs.shape[1] - 1) + 0.5
    if answers.min() < levels[-1] and answers.max() > levels[0]:
        ax.contour(sides[0], sides[1], answers, levels=levels, colors="black", linewidths=1.0)
    if y is not None:
        for i, label in enumerate(np.unique(y)):
            rows = np.asarray(y) == label
            ax.plot(*x[rows].T, "o", ms=2.5, mec="white", mew=0.3, color=COLORS[i % len(COLORS)], label=str(label))
    return ax


def draw_comparison(comparison: Comparison, data: tuple[Any, Any] | None = None) -> dict[str, Any]:
    """The pictures that suit a comparison, by title, as matplotlib figures.

    The score against the seconds; calibration of every method; bands over one input, or boundaries over two.

    Args:
        comparison: from `mx.evaluate.compare`.
        data: training data (x, y) to show as points; by default the test data.
    """
    Figure = require("matplotlib.figure").Figure

    x, y = (comparison.test.x, comparison.test.y) if data is None else data
    x, y = np.asarray(x), np.asarray(y)
    names = list(comparison.posteriors)
    predictions = {name: comparison.posteriors[name].predict(comparison.test.x) for name in names}
    outcome = next(iter(predictions.values())).outcome
    classes, numbers = outcome is Outcome.CLASS, outcome.is_number
    pareto = Figure(figsize=(6.4, 4.0), layout="constrained")
    figures = {"Score against time": pareto}
    plot_pareto(pareto.subplots(), comparison)

    def panels(title: str, draw: Callable[[Any, str], Any]) -> None:
        rows = -(-len(names) // _COLUMNS)
        columns = min(_COLUMNS, len(names))
        figure = Figure(figsize=(2.6 * columns, 2.5 * rows), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
        for ax, name in zip(axes.flat, names, strict=False):
            draw(ax, name)
            ax.set_title(name if len(name) <= 28 else f"{name[:27]}…", fontsize="medium")
        for ax in axes.flat[len(names) :]:
            ax.axis("off")
        figures[title] = figure

    if classes:
        panels("Reliability", lambda ax, name: plot_reliability(ax, predictions[name], comparison.test.y))
    if numbers and comparison.test.y.ndim == 1:
        panels("Coverage of intervals", lambda ax, name: plot_coverage(ax, predictions[name], comparison.test.y))
        if x.ndim == 2 and x.shape[1] == 1:
            room = 0.3 * np.ptp(x)
            grid = np.linspace(x.min() - room, x.max() + room, 200)[:, None]

            def band(ax: Any, name: str) -> None:
                prediction: Any = comparison.posteriors[name].predict(grid)
                plot_band(ax, grid[:, 0], prediction, data=(x[:, 0], y))

            panels("Predictions", band)
    if classes and x.ndim == 2 and x.shape[1] == 2:
        panels("Decision boundaries", lambda ax, name: plot_boundary(ax, comparison.posteriors[name], x=x, y=y))
    return figures
