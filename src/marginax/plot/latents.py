"""Where examples are in the space of latents."""

from typing import Any

import numpy as np

from marginax.plot.chains import COLORS
from marginax.posterior import AbstractPosterior


def latent_map(
    ax: Any,
    posterior: AbstractPosterior,
    x: Any,
    labels: Any = None,
    *,
    axes: tuple[int, int] | None = None,
    size: float = 6.0,
) -> Any:
    """Mean latents of examples in two dimensions, coloured by label.

    Args:
        ax: matplotlib Axes, which are returned.
        posterior: of a model with an encoder, such as `mx.latent.VAE`.
        x: examples.
        labels: of each example.
        axes: which two latents; by default the two whose means vary most.
        size: of points.

    >>> import marginax as mx
    >>> import matplotlib.pyplot as plt
    >>> x = np.random.default_rng(0).random((60, 4)) < 0.5
    >>> nets = mx.nets.MLP(4, (), 4, key=0), mx.nets.MLP(2, (), 4, key=1)
    >>> vae = mx.fit(mx.latent.VAE(*nets, latent_size=2), x, mx.infer.MAP(num_epochs=1), key=0)
    >>> ax = latent_map(plt.figure().gca(), vae, x, x[:, 0])
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['False', 'True']
    """
    if not hasattr(posterior.model.queries, "encode"):
        raise TypeError(f"posterior must be of a model with an encoder, got one of {type(posterior.model).__name__}")
    mean = posterior.encode(x).mean
    if mean.shape[1] < 2:
        raise ValueError("posterior must have at least two latents for a map, got 1")
    first, second = np.sort(np.argsort(-mean.var(0))[:2]) if axes is None else axes
    if labels is None:
        ax.scatter(mean[:, first], mean[:, second], s=size, color=COLORS[0], lw=0)
    else:
        labels = np.asarray(labels)
        if labels.shape != (len(mean),):
            raise ValueError(f"labels must have one of each of the {len(mean)} examples, got shape {labels.shape}")
        for i, label in enumerate(np.unique(labels)):
            chosen = labels == label
            color = COLORS[i] if i < len(COLORS) else f"C{i % 10}"
            ax.scatter(mean[chosen, first], mean[chosen, second], s=size, color=color, lw=0, label=str(label))
        ax.legend(frameon=False, fontsize="small", markerscale=2)
    ax.set(xlabel=f"latent {first}", ylabel=f"latent {second}")
    return ax
