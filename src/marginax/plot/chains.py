"""Chains of a sampler: traces, ranks, autocorrelation, energy. Values have axes (chain, draw)."""

from typing import Any

import numpy as np
from jaxtyping import Bool, Num

from marginax.evaluate.convergence import autocovariance, fraction_of_energy

# Okabe and Ito's colours, which differ also for colour-blind eyes, ordered so that neighbours do too.
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999999", "#000000")


def plot_trace(
    ax: Any,
    values: Num[np.ndarray, "chain draw"],
    *,
    diverging: Bool[np.ndarray, "chain draw"] | None = None,
    name: str = "value",
) -> Any:
    """One quantity along each chain: chains that agree look like one fuzzy band.

    Args:
        ax: matplotlib Axes.
        values: of the quantity.
        diverging: which draws ended a divergent trajectory, marked at the bottom.
        name: of the quantity.

    Returns:
        The Axes.
    """
    chains, draws = values.shape
    for chain in range(chains):
        ax.plot(
            values[chain], color=COLORS[chain % 8], lw=0.7, alpha=0.9 if chains < 3 else 0.7, label=f"chain {chain}"
        )
    if diverging is not None:
        places = np.flatnonzero(np.asarray(diverging).any(axis=0))
        if len(places):
            height = np.full(len(places), 0.015)
            ax.plot(
                places,
                height,
                "|",
                color="black",
                ms=8,
                transform=ax.get_xaxis_transform(),
                label="divergent",
                zorder=3,
            )
    ax.set(xlim=(0, max(draws - 1, 1)), xlabel="draw", ylabel=name)
    _legend_of_chains(ax)
    return ax


def plot_rank(ax: Any, values: Num[np.ndarray, "chain draw"], *, num_bins: int = 20, name: str = "value") -> Any:
    """Histogram of each chain's ranks among the draws of all: flat if the chains draw from the same distribution.

    Chains are rows above each other. The dashed lines are where flat bars would end, the grey bands hold 95% of the
    bars of independent draws.

    Args:
        ax: matplotlib Axes.
        values: of the quantity.
        num_bins: bars per chain.
        name: of the quantity.

    Returns:
        The Axes.
    """
    from scipy import stats

    chains, draws = values.shape
    ranks = (stats.rankdata(values, method="ordinal").reshape(values.shape) - 0.5) / values.size
    edges = np.linspace(0, 1, num_bins + 1)
    heights = np.stack([np.histogram(row, edges)[0] for row in ranks]) * num_bins / draws  # 1 on average
    row = 1.15 * max(2.0, heights.max())
    low, high = stats.binom(draws, 1 / num_bins).ppf([0.025, 0.975]) * num_bins / draws
    for chain in range(chains):
        floor = (chains - 1 - chain) * row
        ax.fill_between([0, 1], floor + low, floor + high, color="0.5", alpha=0.2, lw=0, zorder=1)
        ax.bar(
            edges[:-1],
            heights[chain],
            width=np.diff(edges),
            bottom=floor,
            align="edge",
            color=COLORS[chain % 8],
            alpha=0.75,
            edgecolor="white",
            lw=0.6,
            zorder=2,
        )
        ax.plot([0, 1], [floor + 1, floor + 1], "--", color="black", lw=0.8, zorder=3)
        ax.axhline(floor, color="black", lw=0.6, zorder=3)
    ax.set(xlim=(0, 1), ylim=(0, chains * row), xlabel=f"rank of {name} among all draws")
    ax.set_yticks([(chains - 1 - chain) * row + 1 for chain in range(chains)], [f"chain {c}" for c in range(chains)])
    ax.set_xticks([0, 0.5, 1], ["lowest", "middle", "highest"])
    ax.tick_params(axis="y", length=0)
    return ax


def plot_autocorrelation(
    ax: Any, values: Num[np.ndarray, "chain draw"], *, max_lag: int | None = None, name: str = "value"
) -> Any:
    """How long each chain remembers: the sooner the curves reach the grey band, the more each draw is worth.

    Args:
        ax: matplotlib Axes.
        values: of the quantity.
        max_lag: largest lag shown; by default a tenth of the draws, at least 20 and at most 200.
        name: of the quantity.

    Returns:
        The Axes.
    """
    chains, draws = values.shape
    if max_lag is None:
        max_lag = int(np.clip(draws // 10, 20, 200))
    max_lag = min(max_lag, draws - 1)
    covariance = autocovariance(np.asarray(values, np.float64))
    with np.errstate(divide="ignore", invalid="ignore"):  # a frozen chain has no autocorrelation, and no curve
        correlation = covariance / covariance[:, :1]
    band = 1.96 / np.sqrt(draws)
    ax.fill_between([0, max_lag], -band, band, color="0.5", alpha=0.2, lw=0)
    ax.axhline(0, color="black", lw=0.8)
    marker = "o" if max_lag <= 40 else None
    for chain in range(chains):
        ax.plot(
            correlation[chain, : max_lag + 1],
            color=COLORS[chain % 8],
            lw=1.4,
            marker=marker,
            ms=3,
            label=f"chain {chain}",
        )
    lowest = np.nanmin(correlation[:, : max_lag + 1], initial=0.0)
    ax.set(xlim=(0, max_lag), ylim=(min(-0.2, 1.1 * lowest), 1.05), xlabel="lag", ylabel=f"autocorrelation of {name}")
    _legend_of_chains(ax)
    return ax


def plot_energy(ax: Any, energy: Num[np.ndarray, "chain step"], *, num_bins: int | None = None) -> Any:
    """Energies that a Hamiltonian sampler visited, and how far it gets from one to the next in a step.

    If the second is much narrower than the first, energies are explored slowly: heavy tails or a funnel.

    Args:
        ax: matplotlib Axes.
        energy: at each step; use all steps, not thinned ones.
        num_bins: over the width of the picture; by default more for more steps.

    Returns:
        The Axes.
    """
    energy = np.asarray(energy, np.float64)
    marginal = (energy - energy.mean(axis=1, keepdims=True)).ravel()
    transition = np.diff(energy, axis=1).ravel()
    both = np.concatenate([marginal, transition])
    if num_bins is None:
        num_bins = int(np.clip(2.5 * energy.size ** (1 / 3), 12, 60))
    edges = np.linspace(both.min(), both.max(), num_bins + 1)
    smallest = fraction_of_energy(energy).min()
    for values, color, label in ((marginal, COLORS[0], "energy, centred"), (transition, COLORS[1], "change in a step")):
        ax.hist(values, edges, density=True, color=color, alpha=0.35, lw=0)
        ax.hist(values, edges, density=True, histtype="step", color=color, lw=1.5, label=label)
    ax.set(xlabel="energy", xlim=(edges[0], edges[-1]))
    ax.set_yticks([])
    name = "E-BFMI" if len(energy) == 1 else "smallest E-BFMI"
    ax.legend(frameon=False, title=f"{name} {smallest:.2f}")
    return ax


def _legend_of_chains(ax: Any) -> None:
    """Above the picture, where it hides nothing; a single curve needs none."""
    handles, labels = ax.get_legend_handles_labels()
    if len(labels) < 2:
        return
    legend = ax.legend(
        handles,
        labels,
        ncols=len(labels) if len(labels) <= 5 else -(-len(labels) // 2),
        frameon=False,
        fontsize="small",
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        borderaxespad=0.1,
        handlelength=1.0,
        handletextpad=0.5,
        columnspacing=1.0,
    )
    for line in legend.get_lines():
        line.set(linewidth=2.0, alpha=1.0)
