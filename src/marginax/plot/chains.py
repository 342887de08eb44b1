"""Chains of a sampler, by ArviZ: traces, ranks, autocorrelation; and energies. Values have axes (chain, draw)."""

import warnings
from typing import Any

import numpy as np
from jaxtyping import Bool, Num

from marginax._extras import require
from marginax.evaluate.convergence import fraction_of_energy

# Okabe and Ito's colours, which differ also for colour-blind eyes, ordered so that neighbours do too.
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999999", "#000000")
_MORE_COLORS = ("#7A4FC9", "#7FB000", "#8C510A", "#E7298A")  # for up to twelve; as legible on light and dark pages


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
    arviz, chains = require("arviz"), len(values)
    spare = require("matplotlib.figure").Figure().subplots()  # of the densities that ArviZ draws beside the traces
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of Matplotlib 3.11, about ArviZ
        arviz.plot_trace(
            arviz.from_dict({name: values}, sample_stats=None if diverging is None else {"diverging": diverging}),
            axes=np.array([[spare, ax]]),
            divergences=None if diverging is None else "bottom",
            chain_prop={"color": distinct_colors(chains)},
            trace_kwargs={"linewidth": 0.7, "alpha": 0.9 if chains < 3 else 0.7},
            show=False,
        )
    for i, line in enumerate(ax.lines[:chains]):
        line.set_label(f"chain {i}")
    for i, line in enumerate(ax.lines[chains:]):
        line.set(markersize=8, label="_nolegend_" if i else "divergent")
    ax.set(title="", xlabel="draw", ylabel=name)
    _legend_of_chains(ax)
    return ax


def plot_rank(ax: Any, values: Num[np.ndarray, "chain draw"], *, num_bins: int = 20, name: str = "value") -> Any:
    """Histogram of each chain's ranks among the draws of all: flat if the chains draw from the same distribution.

    Chains are rows above each other. The dashed lines are where flat bars would end.

    Args:
        ax: matplotlib Axes.
        values: of the quantity.
        num_bins: bars per chain.
        name: of the quantity.

    Returns:
        The Axes.
    """
    chains = len(values)
    require("arviz").plot_rank({name: values}, bins=num_bins, colors=distinct_colors(chains), ax=ax, show=False)
    ax.set(title="", xlim=(0, values.size), xlabel=f"rank of {name} among all draws", ylabel="")
    ax.set_yticks(ax.get_yticks(), [f"chain {chain}" for chain in range(chains)])
    ax.set_xticks([0, values.size / 2, values.size], ["lowest", "middle", "highest"])
    ax.xaxis.label.set_size(require("matplotlib").rcParams["axes.labelsize"])
    ax.tick_params(axis="y", length=0)
    return ax


def plot_autocorrelation(
    ax: Any, values: Num[np.ndarray, "chain draw"], *, max_lag: int | None = None, name: str = "value"
) -> Any:
    """How long each chain remembers: the sooner the curves reach the grey band, the more each draw is worth.

    The correlations are ArviZ's; its picture has an Axes for each chain, this one has them all in one.

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
    with np.errstate(divide="ignore", invalid="ignore"):  # a frozen chain has no autocorrelation, and no curve
        correlation = require("arviz").autocorr(np.asarray(values, np.float64))
    band = 1.96 / np.sqrt(draws)
    ax.fill_between([0, max_lag], -band, band, color="0.5", alpha=0.2, lw=0)
    ax.axhline(0, color="black", lw=0.8)
    marker, colors = "o" if max_lag <= 40 else None, distinct_colors(chains)
    for chain in range(chains):
        ax.plot(
            correlation[chain, : max_lag + 1],
            color=colors[chain],
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


def distinct_colors(num: int) -> list[str]:
    """A colour for each of several curves, none of them twice; above twelve, evenly spaced over a rainbow.

    >>> len(set(distinct_colors(10))), len(set(distinct_colors(64)))
    (10, 64)
    """
    known = [*COLORS, *_MORE_COLORS]
    if num <= len(known):
        return known[:num]
    matplotlib = require("matplotlib")
    rainbow = matplotlib.colormaps["turbo"](np.linspace(0.05, 0.95, num))
    return [matplotlib.colors.to_hex(color) for color in rainbow]


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
