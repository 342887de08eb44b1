"""Decisions: what refusing buys, whether intervals and sets cover, and how large the sets are."""

from typing import Any

import numpy as np
from jaxtyping import Bool

from marginax.decide import RiskCoverage
from marginax.plot.chains import COLORS


def plot_risk_coverage(ax: Any, curve: RiskCoverage, *, color: str = COLORS[0], label: str | None = None) -> Any:
    """Risk of the accepted against the fraction that is accepted; several in one picture compare uncertainties.

    The dashed line is the best order there could be: smallest losses first.

    Args:
        ax: matplotlib Axes, which are returned.
        curve: from `mx.decide.risk_coverage`.
        color: of the lines.
        label: in the legend, before the area under the curve.

    >>> import matplotlib.pyplot as plt
    >>> curve = RiskCoverage([0.1, 0.4, 0.3, 0.2], [0, 1, 0, 1])
    >>> ax = plot_risk_coverage(plt.figure().gca(), curve, label="entropy")
    >>> ax.get_legend().get_texts()[0].get_text()
    'entropy, AURC 0.333'
    """
    num = np.arange(1, len(curve.losses) + 1)
    ax.plot(num / len(num), np.cumsum(np.sort(curve.losses)) / num, "--", color=color, lw=1.0, alpha=0.7)
    name = f"AURC {curve.aurc:.3g}" if label is None else f"{label}, AURC {curve.aurc:.3g}"
    marker = "o" if len(curve.coverage) <= 40 else None
    ax.plot(curve.coverage, curve.risk, color=color, lw=1.6, marker=marker, ms=3, label=name)
    ax.set(xlim=(0, 1), xlabel="coverage: fraction accepted", ylabel="risk: mean loss of the accepted")
    ax.set_ylim(bottom=min(0.0, float(curve.risk.min())))
    ax.legend(frameon=False, fontsize="small")
    return ax


def plot_group_coverage(
    ax: Any, covered: Bool[np.ndarray, " n"], groups: Any, *, level: float = 0.9, color: str = COLORS[0]
) -> Any:
    """Coverage of each group with its 95% confidence interval, beside the level that was asked for.

    Args:
        ax: matplotlib Axes, which are returned.
        covered: whether each target is in its interval or set.
        groups: of the targets: regions, classes, sizes of the sets.
        level: that was asked for, the dashed line.
        color: of the points.

    >>> import matplotlib.pyplot as plt
    >>> ax = plot_group_coverage(plt.figure().gca(), np.array([True, True, False]), ["north", "north", "south"])
    >>> [text.get_text().split() for text in ax.get_xticklabels()]
    [['north', 'n', '=', '2'], ['south', 'n', '=', '1']]
    """
    from scipy import stats

    hits, labels = np.asarray(covered), np.asarray(groups)
    if hits.dtype != bool or hits.ndim != 1 or not hits.size:
        raise ValueError(f"covered must be boolean of shape (n,), got an array of {hits.dtype} of shape {hits.shape}")
    if labels.shape != hits.shape:
        raise ValueError(f"groups must have shape {hits.shape} as covered has, got {labels.shape}")
    names, rows = np.unique(labels, return_inverse=True)
    num = np.bincount(rows)
    num_hit = np.bincount(rows, weights=hits).astype(int)
    share = num_hit / num
    low, high = np.transpose(
        [stats.binomtest(k, n).proportion_ci(0.95, method="exact") for k, n in zip(num_hit, num, strict=True)]
    )
    places = np.arange(len(names))
    ax.axhline(level, color="black", lw=1.0, ls="--", label=f"{level:.0%} asked for", zorder=1)
    ax.errorbar(
        places, share, [share - low, high - share], fmt="o", color=color, ms=5, capsize=3, label="covered", zorder=2
    )
    ax.set_xticks(places, [f"{name}\nn = {count}" for name, count in zip(names, num, strict=True)])
    ax.set(xlim=(-0.5, len(names) - 0.5), ylim=(min(0.5, low.min()) - 0.02, 1.02), ylabel="coverage")
    ax.legend(frameon=False, fontsize="small", loc="lower left")
    return ax


def plot_set_sizes(ax: Any, sets: Bool[np.ndarray, "n k"], *, color: str = COLORS[0], label: str | None = None) -> Any:
    """How often sets have each size, from none to all classes; the dotted line is the mean.

    Args:
        ax: matplotlib Axes, which are returned.
        sets: from `ConformalSets.sets`.
        color: of the bars.
        label: in a legend, before the mean size.

    >>> import matplotlib.pyplot as plt
    >>> ax = plot_set_sizes(plt.figure().gca(), np.array([[True, False], [True, True]]))
    >>> [bar.get_height().item() for bar in ax.patches]
    [0.0, 0.5, 0.5]
    """
    members = np.asarray(sets)
    if members.dtype != bool or members.ndim != 2 or not members.size:
        raise ValueError(f"sets must be boolean of shape (n, k), got an array of {members.dtype} of {members.shape}")
    sizes = members.sum(axis=1)
    shares = np.bincount(sizes, minlength=members.shape[1] + 1) / len(sizes)
    mean = f"mean size {sizes.mean():.3g}"
    ax.bar(np.arange(len(shares)), shares, width=0.8, color=color, alpha=0.6, lw=0)
    ax.axvline(sizes.mean(), color=color, lw=1.5, ls=":", label=mean if label is None else f"{label}, {mean}")
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.set(
        xlim=(-0.6, sizes.max() + 0.6),
        ylim=(0, 1.15 * shares.max()),
        xlabel="classes in the set",
        ylabel="fraction of inputs",
    )
    ax.legend(frameon=False, fontsize="small")
    return ax
