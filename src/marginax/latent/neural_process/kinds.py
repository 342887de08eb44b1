"""The published neural processes."""

from typing import Any

import jax

from marginax._keys import Key, as_key
from marginax.latent.neural_process.convolution import ConvolutionalEncoder
from marginax.latent.neural_process.encoders import CrossAttention, DeepSet, LatentEncoder
from marginax.latent.neural_process.process import NeuralProcess


def CNP(
    x_size: int = 1, y_size: int = 1, *, width: int = 64, num_layers: int = 3, key: Key, **more: Any
) -> NeuralProcess:
    """Conditional neural process (Garnelo et al., 2018a): the mean over the context of a network of its points.

    Fast, and smooth; it underfits near points of the context, as all it knows of them is in one vector.

    Args:
        x_size: columns of x.
        y_size: columns of y.
        width: of hidden layers and of the representation.
        num_layers: hidden layers of encoder and decoder.
        key: seed or JAX key of the first weights.
        **more: `num_context`, `min_scale` and `prior` of `NeuralProcess`.

    >>> import numpy as np
    >>> import marginax as mx
    >>> tasks = mx.testing.gaussian_process_tasks(16, 10, key=0)
    >>> process = mx.fit(CNP(width=8, key=0), tasks, mx.infer.MAP(num_epochs=10), key=1)
    >>> prediction = process.condition(([0.0, 1.0], [0.5, 0.2])).predict(np.linspace(-2, 2, 5))
    >>> prediction.mean.shape, bool((prediction.std > 0).all())
    ((5,), True)
    """
    encoding, decoding = jax.random.split(as_key(key))
    encoder = DeepSet(x_size, y_size, width, num_layers, key=encoding)
    return NeuralProcess(encoder, hidden=(width,) * num_layers, x_size=x_size, y_size=y_size, key=decoding, **more)


def LatentNP(
    x_size: int = 1,
    y_size: int = 1,
    *,
    width: int = 64,
    num_layers: int = 3,
    latent_size: int = 32,
    key: Key,
    **more: Any,
) -> NeuralProcess:
    """Neural process (Garnelo et al., 2018b): a normal latent vector for each function, so that functions can be drawn.

    Args:
        x_size: columns of x.
        y_size: columns of y.
        width: of hidden layers.
        num_layers: hidden layers of encoder and decoder.
        latent_size: dimensions of the latent vector.
        key: seed or JAX key of the first weights.
        **more: `num_context`, `min_scale` and `prior` of `NeuralProcess`.

    >>> LatentNP(width=8, latent_size=4, key=0).networks.latent.latent_size
    4
    """
    encoding, decoding = jax.random.split(as_key(key))
    latent = LatentEncoder(x_size, y_size, width, num_layers, latent_size=latent_size, key=encoding)
    hidden = (width,) * num_layers
    return NeuralProcess(None, latent, hidden=hidden, x_size=x_size, y_size=y_size, key=decoding, **more)


def AttentiveNP(
    x_size: int = 1,
    y_size: int = 1,
    *,
    width: int = 64,
    num_layers: int = 3,
    num_heads: int = 4,
    latent_size: int | None = None,
    key: Key,
    **more: Any,
) -> NeuralProcess:
    """Attentive neural process (Kim et al., 2019): every target looks at the points of the context that matter to it.

    Args:
        x_size: columns of x.
        y_size: columns of y.
        width: of hidden layers and of the representation.
        num_layers: hidden layers of encoder and decoder.
        num_heads: of the attention.
        latent_size: dimensions of a latent vector besides; None for none, and a likelihood without a bound.
        key: seed or JAX key of the first weights.
        **more: `num_context`, `min_scale` and `prior` of `NeuralProcess`.

    >>> AttentiveNP(x_size=2, width=8, num_heads=2, key=0).networks.latent is None
    True
    """
    attending, encoding, decoding = jax.random.split(as_key(key), 3)
    encoder = CrossAttention(x_size, y_size, width, num_layers, num_heads=num_heads, key=attending)
    latent = None
    if latent_size is not None:
        latent = LatentEncoder(x_size, y_size, width, num_layers, latent_size=latent_size, key=encoding)
    hidden = (width,) * num_layers
    return NeuralProcess(encoder, latent, hidden=hidden, x_size=x_size, y_size=y_size, key=decoding, **more)


def ConvCNP(
    y_size: int = 1,
    *,
    width: int = 32,
    num_layers: int = 6,
    kernel_size: int = 7,
    points_per_unit: float = 16.0,
    key: Key,
    **more: Any,
) -> NeuralProcess:
    """Convolutional conditional neural process (Gordon et al., 2020) on a line: predictions move with the data.

    The best of them where what holds here holds elsewhere (time series, stationary processes): it needs fewer
    tasks, and goes on beyond the inputs that it has seen.

    Args:
        y_size: columns of y; x has one.
        width: channels.
        num_layers: convolutions.
        kernel_size: of each, an odd number. They must reach as far as points of a function know of each other.
        points_per_unit: of the grid; a unit is the standard deviation of inputs within a task.
        key: seed or JAX key of the first weights.
        **more: `num_context`, `min_scale` and `prior` of `NeuralProcess`.

    >>> len(ConvCNP(width=8, num_layers=2, key=0).networks.encoder.layers)
    2
    """
    encoding, decoding = jax.random.split(as_key(key))
    encoder = ConvolutionalEncoder(
        y_size, width, num_layers, kernel_size=kernel_size, points_per_unit=points_per_unit, key=encoding
    )
    return NeuralProcess(encoder, hidden=(width,), y_size=y_size, key=decoding, **more)
