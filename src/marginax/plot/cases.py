"""Held-out cases in order, each with its prediction and what was observed: for inputs of any number of dimensions."""

from typing import Any

import numpy as np
from jaxtyping import Int

from marginax.plot.chains import COLORS
from marginax.predict.reading import read_numbers, read_one_class


def plot_cases(ax: Any, prediction: Any, y: Any, *, level: float = 0.9, most: int = 150, output: int = 0) -> Any:
    """Cases by predicted mean: interval, the part of it that more data could remove, and what was observed.

    Targets outside of their interval stand out; a fraction 1 - level of them should be.

    Args:
        ax: matplotlib Axes, which are returned.
        prediction: of numbers, samples (s, n), or a pair (mean, std).
        y: targets.
        level: of the intervals.
        most: cases that are drawn, evenly spaced among all.
        output: which one, where targets have several.

    >>> import matplotlib.pyplot as plt
    >>> ax = plot_cases(plt.figure().gca(), (np.array([2.0, 1.0]), np.ones(2)), [2.5, 9.0])
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['90% interval', 'mean', 'observed', 'observed, outside']
    """
    numbers = read_numbers(prediction, name="cases")
    targets = numbers.check(y).reshape(len(numbers), -1)[:, output]
    lower, upper = (np.reshape(end, (len(targets), -1))[:, output] for end in numbers.interval(level))
    mean = np.reshape(numbers.mean, (len(targets), -1))[:, output]
    rows = _some(np.argsort(mean, kind="stable"), most)
    place = np.arange(len(rows))
    width = float(np.clip(220 / len(rows), 1.0, 6.0))
    ax.vlines(place, lower[rows], upper[rows], color=COLORS[0], alpha=0.3, lw=width, label=f"{level:.0%} interval")
    if numbers.knows_draws:
        spread = np.sqrt(np.reshape(numbers.epistemic, (len(targets), -1))[:, output])
        low, high = mean - spread, mean + spread
        ax.vlines(place, low[rows], high[rows], color=COLORS[0], alpha=0.6, lw=width, label="epistemic, 1 sd")
    ax.plot(place, mean[rows], color=COLORS[0], lw=1.2, label="mean")
    inside = ((lower <= targets) & (targets <= upper))[rows]
    size = 4 if len(rows) <= 60 else 2.6
    ax.plot(place[inside], targets[rows][inside], "o", color="black", ms=size, mew=0, label="observed")
    if not inside.all():
        seen = targets[rows][~inside]
        ax.plot(place[~inside], seen, "D", color=COLORS[5], ms=size + 1, mew=0, label="observed, outside")
    ax.set(xlim=(-1, len(rows)), xlabel="case, by predicted mean", xticks=[])
    _legend(ax)
    return ax


def plot_class_cases(ax: Any, prediction: Any, y: Any, *, most: int = 150) -> Any:
    """Cases by the probability that was given to the observed class, with one standard deviation over the draws.

    Args:
        ax: matplotlib Axes, which are returned.
        prediction: of classes, or probabilities (n, k), or (n,) for two classes.
        y: labels.
        most: cases that are drawn, evenly spaced among all.

    >>> import matplotlib.pyplot as plt
    >>> ax = plot_class_cases(plt.figure().gca(), [0.9, 0.2, 0.4], [1, 0, 1])
    >>> ax.lines[0].get_ydata().tolist(), ax.lines[1].get_ydata().tolist()
    ([0.8, 0.9], [0.4])
    """
    classes = read_one_class(prediction, name="cases")
    labels = classes.check(y)
    probs = _of_class(classes.probs, labels)
    rows = _some(np.argsort(probs, kind="stable"), most)
    place = np.arange(len(rows))
    if classes.knows_draws:
        sd = _of_class(np.sqrt(classes.epistemic_variance), labels)[rows]
        ends = np.clip([probs[rows] - sd, probs[rows] + sd], 0, 1)
        width = float(np.clip(220 / len(rows), 1.0, 6.0))
        ax.vlines(place, ends[0], ends[1], color=COLORS[0], alpha=0.35, lw=width, label="1 sd over draws")
    right = (classes.labels == labels)[rows]
    size = 4 if len(rows) <= 60 else 2.6
    ax.plot(place[right], probs[rows][right], "o", color="black", ms=size, mew=0, label="answer right")
    ax.plot(place[~right], probs[rows][~right], "D", color=COLORS[5], ms=size + 1, mew=0, label="answer wrong")
    ax.set(xlim=(-1, len(rows)), ylim=(0, 1.02), xlabel="case", ylabel="probability of what was observed", xticks=[])
    _legend(ax)
    return ax


def _of_class(values: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return np.take_along_axis(values, labels[:, None], axis=1)[:, 0]


def _some(order: Int[np.ndarray, " n"], most: int) -> Int[np.ndarray, " m"]:
    """At most so many, evenly spaced, first and last included."""
    if isinstance(most, bool) or not isinstance(most, int) or most < 2:
        raise ValueError(f"most must be an int >= 2, got {most!r}")
    return order if len(order) <= most else order[np.linspace(0, len(order) - 1, most).round().astype(int)]


def _legend(ax: Any) -> None:
    """Above the picture, where it hides nothing."""
    num = len(ax.get_legend_handles_labels()[1])
    ax.legend(
        ncols=num if num <= 3 else -(-num // 2),
        frameon=False,
        fontsize="small",
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        borderaxespad=0.1,
        handlelength=1.2,
        columnspacing=1.2,
    )
