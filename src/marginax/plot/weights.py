"""Weights of a network: where they are, and how sure the posterior is of them."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from marginax.decide import signal_to_noise
from marginax.plot.chains import COLORS
from marginax.posterior import AbstractPosterior, Draws, Mixture, Stochastic


def plot_weights(
    ax: Any,
    posterior: AbstractPosterior,
    *,
    num_bins: int = 60,
    color: str = COLORS[0],
    label: str | None = None,
) -> Any:
    """Histogram of the random weights at the centre of the posterior; several in one picture compare methods.

    Args:
        ax: matplotlib Axes, which are returned.
        posterior: of any kind; of draws, means are shown.
        num_bins: bars.
        color: of the bars.
        label: for a legend.

    >>> import marginax as mx
    >>> import matplotlib.pyplot as plt
    >>> model = mx.Model(mx.nets.MLP(2, (16,), 1, key=0), mx.likelihoods.Gaussian(scale=0.1))
    >>> draws = jax.tree.map(lambda leaf: leaf[None, None], model.initial(1))
    >>> plot_weights(plt.figure().gca(), mx.posterior.Draws(model, draws)).get_xlabel()
    'weight'
    """
    _draw_histogram(ax, _centres(posterior), num_bins, color, label)
    ax.set(xlabel="weight", ylabel="density")
    return ax


def plot_signal_to_noise(
    ax: Any,
    posterior: AbstractPosterior,
    *,
    fractions: Sequence[float | int] = (0.75,),
    num_bins: int = 60,
    color: str = COLORS[0],
) -> Any:
    r"""Histogram of the weights' signal-to-noise ratios in decibels, $10 \log_{10} |\mu| / \sigma$.

    To the left of a dashed line are the weights that `mx.decide.prune` removes (Blundell et al., 2015, figure 6); in a
    mixture, about so, since each component has its own. Weights that have been removed before count, but have no bar.

    Args:
        ax: matplotlib Axes, which are returned.
        posterior: as in `mx.decide.prune`.
        fractions: of the weights, with a line each.
        num_bins: bars.
        color: of the bars.

    >>> import marginax as mx
    >>> import matplotlib.pyplot as plt
    >>> model = mx.Model(mx.nets.MLP(2, (16,), 1, key=0), mx.likelihoods.Gaussian(scale=0.1))
    >>> covariance = mx.curvature.DiagonalCovariance(jax.numpy.full(65, 0.1))
    >>> ax = plot_signal_to_noise(plt.figure().gca(), mx.posterior.Gaussian(model, model.initial(1), covariance))
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['75% removed']
    """
    for fraction in fractions:
        if not 0 <= fraction < 1:
            raise ValueError(f"fractions must be in [0, 1), got {fraction}")
    ratios = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(signal_to_noise(posterior))])
    with np.errstate(divide="ignore"):
        decibels = np.sort(10 * np.log10(ratios))
    shown = decibels[np.isfinite(decibels)]
    if not shown.size:
        raise ValueError("posterior must have a weight with mean and spread, got none")
    _draw_histogram(ax, shown, num_bins, color, None)
    places = np.clip(decibels, shown[0], shown[-1])
    for i, fraction in enumerate(fractions):
        num_removed = round(fraction * places.size)
        between = places[max(num_removed - 1, 0) : num_removed + 1].mean()
        ax.axvline(between, color=COLORS[5 - i % 5], lw=1.5, ls="--", label=f"{100 * fraction:g}% removed")
    ax.set(xlabel=r"signal-to-noise ratio $|\mu|/\sigma$ (dB)", ylabel="density")
    if fractions:  # above the picture, where it hides nothing
        ax.legend(
            ncols=min(len(fractions), 3),
            frameon=False,
            fontsize="small",
            loc="lower center",
            bbox_to_anchor=(0.5, 1.0),
            borderaxespad=0.1,
            handlelength=1.4,
            handletextpad=0.5,
            columnspacing=1.0,
        )
    return ax


def _centres(posterior: AbstractPosterior) -> Float[np.ndarray, " weight"]:
    """Weights of the mean network, or of the networks with noise inside."""
    if isinstance(posterior, Mixture):
        return np.concatenate([_centres(part) for part in posterior.components])
    if isinstance(posterior, Draws):
        network = jax.tree.map(lambda leaf: np.mean(leaf, axis=0), posterior.flat().network)
    else:
        network = posterior.starting_points(posterior.num_chains if isinstance(posterior, Stochastic) else 1).network
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(network)])


def _draw_histogram(ax: Any, values: np.ndarray, num_bins: int, color: str, label: str | None) -> None:
    edges = np.histogram_bin_edges(values, num_bins)
    ax.hist(values, edges, density=True, color=color, alpha=0.35, lw=0)
    ax.hist(values, edges, density=True, histtype="step", color=color, lw=1.5, label=label)
