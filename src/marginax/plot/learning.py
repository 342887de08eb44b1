"""Active learning: what labels buy."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from marginax.decide import LearningCurve
from marginax.plot.chains import COLORS


def plot_learning_curves(
    ax: Any, curves: Mapping[str, LearningCurve | Sequence[LearningCurve]], *, target: float | None = None
) -> Any:
    """Error against the number of labels: the mean over repeats, and a band of one standard deviation.

    Args:
        ax: matplotlib Axes, which are returned.
        curves: by name: a curve, or its repeats, from `mx.decide.learn_actively`.
        target: an error to reach, a dashed line.

    >>> import matplotlib.pyplot as plt
    >>> curve = LearningCurve().add(20, error=0.4).add(30, error=0.2)
    >>> ax = plot_learning_curves(plt.figure().gca(), {"BALD": [curve, curve]})
    >>> ax.lines[0].get_xdata().tolist(), ax.get_legend().get_texts()[0].get_text()
    ([20, 30], 'BALD (2 repeats)')
    """
    if not curves:
        raise ValueError("curves must have at least one entry, got none")
    for i, (name, repeats) in enumerate(curves.items()):
        repeats = [repeats] if isinstance(repeats, LearningCurve) else list(repeats)
        num_labels, errors = _align(name, repeats)
        color, mean = COLORS[i % len(COLORS)], errors.mean(axis=0)
        if len(repeats) > 1:
            spread = errors.std(axis=0, ddof=1)
            ax.fill_between(num_labels, mean - spread, mean + spread, color=color, alpha=0.18, lw=0)
        label = f"{name} ({len(repeats)} repeats)" if len(repeats) > 1 else name
        ax.plot(num_labels, mean, color=color, lw=1.6, marker="o" if len(num_labels) <= 40 else None, ms=3, label=label)
    if target is not None:
        ax.axhline(target, color="black", lw=1.0, ls="--", zorder=1)
    ax.set(xlabel="labels", ylabel="error on test data")
    ax.set_ylim(bottom=0)
    ax.legend(frameon=False, fontsize="small")
    return ax


def _align(name: str, repeats: list[LearningCurve]) -> tuple[np.ndarray, np.ndarray]:
    """Errors of all repeats at the numbers of labels that every one of them has."""
    if not repeats or not all(isinstance(curve, LearningCurve) for curve in repeats):
        raise TypeError(f"curves must be LearningCurve objects or lists of them, got {repeats!r} for {name!r}")
    shared = repeats[0].num_labels
    for curve in repeats[1:]:
        shared = np.intersect1d(shared, curve.num_labels)
    if not len(shared):
        raise ValueError(f"curves of {name!r} must share some numbers of labels, got repeats that share none")
    errors = np.stack([curve.error[np.searchsorted(curve.num_labels, shared)] for curve in repeats])
    if np.isnan(errors).any():
        raise ValueError(f"curves of {name!r} must have errors: give learn_actively test=(x, y)")
    return shared, errors
