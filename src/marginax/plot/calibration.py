"""Calibration and out-of-distribution scores: what was predicted beside what happened."""

from typing import Any

import numpy as np

from marginax._keys import Key
from marginax.evaluate import AbstractBins, EqualWidth, OODResult, ece, pit
from marginax.evaluate.bins import check_bins
from marginax.plot.chains import COLORS
from marginax.predict.checks import check_count, check_levels
from marginax.predict.reading import read_classes, read_numbers


def plot_reliability(
    ax: Any,
    prediction: Any,
    y: Any,
    *,
    bins: AbstractBins = EqualWidth(),
    color: str = COLORS[0],
    label: str | None = None,
) -> Any:
    """Accuracy against confidence, bin by bin, with 95% confidence intervals; calibrated is the dashed diagonal.

    Args:
        ax: matplotlib Axes, which are returned.
        prediction: of classes or labels, or probabilities (n, k), or (n,) for two classes.
        y: labels.
        bins: which confidences are judged together.
        color: of the points.
        label: in the legend, before the expected calibration error.

    >>> import matplotlib.pyplot as plt
    >>> ax = plot_reliability(plt.figure().gca(), [0.9, 0.9, 0.9, 0.2], [1, 1, 0, 0], label="before")
    >>> ax.get_legend().get_texts()[0].get_text()
    'before, ECE 0.23 ± 0.14'
    """
    from scipy import stats

    classes = read_classes(prediction, name="reliability")
    correct, confidence = (classes.labels == classes.check(y)).ravel(), classes.confidence.ravel()
    _, rows = np.unique(check_bins(bins).assign(confidence), return_inverse=True)
    num = np.bincount(rows)
    hits = np.bincount(rows, correct).astype(int)
    low, high = np.transpose(
        [stats.binomtest(k, n).proportion_ci(0.95, method="exact") for k, n in zip(hits, num, strict=True)]
    )
    share, middle = hits / num, np.bincount(rows, confidence) / num
    _diagonal(ax)
    error = f"ECE {ece(prediction, y, bins=bins).text}"  # in the same words as tables
    name = error if label is None else f"{label}, {error}"
    ax.errorbar(
        middle,
        share,
        [share - low, high - share],
        fmt="o-",
        color=color,
        ms=4,
        lw=1.4,
        capsize=2,
        elinewidth=0.8,
        label=name,
    )
    ax.set(xlim=(min(0.45, middle.min() - 0.05), 1.01), ylim=(0, 1.02), xlabel="confidence", ylabel="accuracy")
    ax.legend(frameon=False, fontsize="small", loc="best")
    return ax


def plot_pit(
    ax: Any,
    prediction: Any,
    y: Any,
    *,
    num_bins: int = 20,
    key: Key | None = None,
    color: str = COLORS[0],
    label: str | None = None,
) -> Any:
    """Histogram of the probability integral transform: flat, within the grey 95% band, if calibrated.

    A hump in the middle is a prediction that is too wide, high ends one that is too narrow.

    Args:
        ax: matplotlib Axes, which are returned.
        prediction: of numbers, samples (s, n), or a pair (mean, std).
        y: targets.
        num_bins: of the histogram.
        key: an int seed or a JAX key, for counts and samples; see `mx.evaluate.pit`.
        color: of the bars.
        label: in a legend.

    >>> import matplotlib.pyplot as plt
    >>> ax = plot_pit(plt.figure().gca(), (np.zeros(4), np.ones(4)), [-1.0, -0.1, 0.1, 1.0], num_bins=2)
    >>> ax.patches[-1].get_data().values.tolist()
    [1.0, 1.0]
    """
    from scipy import stats

    check_count(num_bins, "num_bins")
    values = pit(prediction, y, key=key).ravel()
    heights, edges = np.histogram(values, bins=num_bins, range=(0.0, 1.0))
    low, high = stats.binom.interval(0.95, len(values), 1 / num_bins)
    scale = num_bins / len(values)
    if not any(line.get_gid() == "uniform" for line in ax.lines):
        ax.axhspan(low * scale, high * scale, color="black", alpha=0.1, lw=0)
        ax.axhline(1.0, color="black", lw=1.0, ls="--", gid="uniform")
    ax.stairs(heights * scale, edges, color=color, lw=1.4, fill=False, label=label)
    ax.stairs(heights * scale, edges, color=color, alpha=0.25, fill=True)
    ax.set(xlim=(0, 1), xlabel="predicted probability of less", ylabel="density")
    ax.set_ylim(bottom=0)
    if label is not None:
        ax.legend(frameon=False, fontsize="small")
    return ax


def plot_coverage(
    ax: Any,
    prediction: Any,
    y: Any,
    *,
    levels: Any = tuple(np.arange(1, 20) / 20),
    color: str = COLORS[0],
    label: str | None = None,
) -> Any:
    """Fraction of targets in central intervals against the probability that the intervals claim.

    The grey band is where 95% of calibrated predictions are, level by level. Below the diagonal, intervals are too
    narrow.

    Args:
        ax: matplotlib Axes, which are returned.
        prediction: of numbers, samples (s, n), or a pair (mean, std); outputs of a row are pooled.
        y: targets.
        levels: probabilities of the intervals, strictly between 0 and 1.
        color: of the line.
        label: in a legend.

    >>> import matplotlib.pyplot as plt
    >>> ax = plot_coverage(plt.figure().gca(), (np.zeros(4), np.ones(4)), [0.0, 0.5, 1.0, 3.0], levels=[0.5, 0.9])
    >>> ax.lines[-1].get_ydata().tolist()
    [0.5, 0.75]
    """
    from scipy import stats

    at = np.sort(check_levels(levels))
    numbers = read_numbers(prediction, name="coverage")
    targets = numbers.check(y)
    ends = numbers.quantile(np.concatenate([0.5 - at / 2, 0.5 + at / 2]))
    lower, upper = np.split(ends, 2)
    inside = ((lower <= targets) & (targets <= upper)).reshape(len(at), -1)
    if not ax.collections:
        grid = np.linspace(0.001, 0.999, 200)
        low, high = stats.binom.interval(0.95, len(targets), grid)
        ax.fill_between(grid, low / len(targets), high / len(targets), color="black", alpha=0.1, lw=0)
    _diagonal(ax)
    ax.plot(at, inside.mean(axis=1), "o-", color=color, ms=4, lw=1.4, label=label)
    ax.set(xlim=(0, 1), ylim=(0, 1.01), xlabel="probability of the interval", ylabel="fraction of targets inside")
    if label is not None:
        ax.legend(frameon=False, fontsize="small", loc="upper left")
    return ax


def plot_ood(
    ax: Any, result: OODResult, *, num_bins: int = 40, colors: tuple[str, str] = (COLORS[0], COLORS[5])
) -> Any:
    """Histograms of the scores in and out of distribution; 95% of the former are below the dotted line.

    Args:
        ax: matplotlib Axes, which are returned.
        result: from `mx.evaluate.ood`.
        num_bins: of the histograms.
        colors: of the two.

    >>> import matplotlib.pyplot as plt
    >>> from marginax.evaluate import separate
    >>> ax = plot_ood(plt.figure().gca(), separate([0.1, 0.2, 0.3], [0.25, 0.9]))
    >>> ax.get_title()
    'AUROC 0.833'
    """
    both = np.concatenate([result.scores_in, result.scores_out])
    finite = both[np.isfinite(both)]
    if not finite.size:
        raise ValueError("result must hold finite scores to be drawn, got none")
    edges = np.histogram_bin_edges(finite, num_bins)
    for scores, color, name in zip((result.scores_in, result.scores_out), colors, ("in", "out of"), strict=True):
        heights = np.histogram(scores, edges)[0] / (len(scores) * np.diff(edges))
        ax.stairs(heights, edges, color=color, alpha=0.4, fill=True, label=f"{name} distribution")
    bound = np.quantile(result.scores_in, 0.95, method="inverted_cdf")
    ax.axvline(bound, color=colors[0], lw=1.2, ls=":", label=f"FPR95 {float(result.fpr95):.3g}")
    ax.set(xlabel="score, larger out of distribution", ylabel="density", title=f"AUROC {float(result.auroc):.3g}")
    ax.set_ylim(bottom=0)
    ax.legend(frameon=False, fontsize="small")
    return ax


def _diagonal(ax: Any) -> None:
    if not any(line.get_gid() == "diagonal" for line in ax.lines):
        ax.plot([0, 1], [0, 1], color="black", lw=1.0, ls="--", zorder=1, gid="diagonal")
