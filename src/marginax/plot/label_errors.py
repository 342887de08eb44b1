"""Labels that may be wrong, and annotators who err."""

from typing import Any

import numpy as np

from marginax.plot.chains import COLORS
from marginax.posterior.hidden_labels import Confusion

_MOST_NAMES = 25  # that have room below an axis


def plot_label_errors(
    ax: Any, errors: Any, wrong: Any = None, *, color: str = COLORS[0], label: str | None = None
) -> Any:
    """Labels from the most to the least probably wrong, and how many wrong ones are expected among the first.

    Args:
        ax: matplotlib Axes, which are returned.
        errors: from `posterior.label_errors`; where they are NaN there is no label.
        wrong: which labels are wrong, where that is known: their number is drawn dashed.
        color: of the lines.
        label: in the legend, before the expected number of wrong labels.

    >>> import matplotlib.pyplot as plt
    >>> ax = plot_label_errors(plt.figure().gca(), [0.9, 0.1, 0.5], [True, False, False], label="digits")
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['digits, 1.5 of 3 expected', 'found: 1']
    """
    chances = np.asarray(errors, np.float64).ravel()
    known = ~np.isnan(chances)
    if not known.any() or np.any((chances[known] < 0) | (chances[known] > 1)):
        raise ValueError(f"errors must be probabilities, of one label at least, got shape {np.shape(errors)}")
    order = np.argsort(-chances[known], kind="stable")
    ranked = chances[known][order]
    place = np.arange(1, len(ranked) + 1)
    name = f"{ranked.sum():.3g} of {len(ranked)} expected"
    ax.plot(place, np.cumsum(ranked), color=color, lw=1.6, label=name if label is None else f"{label}, {name}")
    if wrong is not None:
        truth = np.asarray(wrong)
        if truth.dtype != bool or truth.shape != np.shape(errors):
            raise ValueError(f"wrong must be boolean of shape {np.shape(errors)} as errors, got {truth.shape}")
        found = truth.ravel()[known][order]
        ax.plot(place, np.cumsum(found), "--", color="black", lw=1.0, label=f"found: {found.sum()}")
    ax.set(xlim=(0, len(ranked)), xlabel="labels looked at, the most suspicious first", ylabel="wrong ones among them")
    ax.set_ylim(bottom=0)
    ax.legend(frameon=False, fontsize="small")
    return ax


def plot_annotators(ax: Any, confusion: Confusion, *, color: str = COLORS[0]) -> Any:
    """Accuracy of each annotator with its interval, the best first.

    Args:
        ax: matplotlib Axes, which are returned.
        confusion: from `posterior.confusion()` of `mx.likelihoods.Annotators`.
        color: of the points.

    >>> import matplotlib.pyplot as plt
    >>> draws = np.array([[[[0.6, 0.4], [0.4, 0.6]], [[0.9, 0.1], [0.1, 0.9]]]])
    >>> ax = plot_annotators(plt.figure().gca(), Confusion(draws))
    >>> [text.get_text() for text in ax.get_xticklabels()]
    ['1', '0']
    """
    accuracy = confusion.accuracy
    if accuracy.ndim != 1:
        raise ValueError(f"confusion must be that of several annotators, got {confusion!r}")
    low, high = confusion.accuracy_interval
    order = np.argsort(-accuracy, kind="stable")
    place = np.arange(len(order))
    bars = np.maximum([(accuracy - low)[order], (high - accuracy)[order]], 0)
    few = len(order) <= _MOST_NAMES
    ax.errorbar(place, accuracy[order], bars, fmt="o", color=color, ms=4 if few else 2, capsize=2 if few else 0, lw=1)
    ax.axhline(1 / confusion.draws.shape[-1], color="black", lw=1.0, ls="--")
    ax.set_xticks(place if few else [], [str(each) for each in order] if few else [])
    ax.set(xlabel="annotator" if few else f"{len(order)} annotators, the best first", ylim=(0, 1.02))
    ax.set_ylabel("accuracy (dashed: guessing)")
    return ax
