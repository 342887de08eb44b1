"""LeNet, the small convolutional network for small images."""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from marginax._keys import Key, as_key
from marginax.files import register
from marginax.nets.arguments import check_activation, check_dropout, check_image_shape, check_positive_ints
from marginax.nets.convolution import Conv2d, max_pool2d
from marginax.nets.initialisers import Initialiser, default_initialiser
from marginax.nets.linear import drop, linear, linear_batch_last
from marginax.nets.narrowing import cut_layer, narrowed_width

KERNEL = 5
POOL = 2
_INCREASING = (jax.nn.relu, jax.nn.softplus, jax.nn.sigmoid, jax.nn.tanh, jnp.tanh, jax.nn.elu)


@register("net/lenet")
class LeNet(eqx.Module):
    """Convolutions with max-pooling, then one hidden fully connected layer (LeCun et al., 1998).

    Every convolution has filters of 5x5 and no padding, and is followed by pooling of 2x2; with the default sizes
    this is the network of many Bayesian comparisons on MNIST. Call it on one image, or on many with `jax.vmap` or
    `call_batch`. Dropout acts after every layer but the last whenever a key is given and is off without one.

    Args:
        in_shape: (channels, height, width) of an image.
        channels: number of filters of each convolution.
        hidden: width of the fully connected layer.
        out_size: number of outputs.
        activation: jax.nn.relu, gelu, tanh or another elementwise function.
        dropout: probability of dropping a unit, in [0, 1).
        key: seed or JAX key.

    >>> net = LeNet(key=0)
    >>> net(jnp.ones((28, 28))).shape, net.call_batch(jnp.ones((7, 1, 28, 28))).shape
    ((10,), (7, 10))
    """

    convolutions: tuple[Conv2d, ...]
    hidden: eqx.nn.Linear
    output: eqx.nn.Linear
    in_shape: tuple[int, int, int] = eqx.field(static=True)
    activation: Callable[[Array], Array] = eqx.field(static=True)
    dropout: float = eqx.field(static=True)

    def __init__(
        self,
        in_shape: tuple[int, int, int] = (1, 28, 28),
        channels: tuple[int, ...] = (20, 50),
        hidden: int = 500,
        out_size: int = 10,
        *,
        activation: Callable[[Array], Array] = jax.nn.relu,
        dropout: float = 0.0,
        key: Key,
    ):
        channels = tuple(channels)
        check_image_shape("in_shape", in_shape)
        check_positive_ints(channels=channels, hidden=hidden, out_size=out_size)
        check_dropout(dropout)
        check_activation(activation)
        self.in_shape = (in_shape[0], in_shape[1], in_shape[2])
        self.activation = activation
        self.dropout = float(dropout)
        self.convolutions, self.hidden, self.output = _layers(
            in_shape, channels, hidden, out_size, default_initialiser(activation), key
        )

    def __call__(self, x: Float[Array, "..."], *, key: Array | None = None) -> Float[Array, " out_size"]:
        """Outputs of one image of shape `in_shape`, or (height, width) if it has one channel."""
        self._check(x.shape)
        h = x.reshape(self.in_shape)
        for i, layer in enumerate(self.convolutions):
            h = self._drop(self._activate_and_pool(layer(h)), i, key)
        h = self.activation(self.hidden(h.ravel()))
        return self.output(self._drop(h, len(self.convolutions), key))

    def call_batch(self, xs: Float[Array, "num ..."], *, key: Array | None = None) -> Float[Array, "num out_size"]:
        """Outputs of many images, as `jax.vmap` of a call gives them, each with a dropout mask of its own."""
        self._check(xs.shape[1:])
        # The examples stay on the last axis all the way: no layer has to transpose.
        h = jnp.moveaxis(xs.reshape(-1, *self.in_shape), 0, -1)
        for i, layer in enumerate(self.convolutions):
            h = self._drop(self._activate_and_pool(layer.call_batch_last(h)), i, key)
        h = self.activation(linear_batch_last(self.hidden, h.reshape(-1, h.shape[-1])))
        return linear_batch_last(self.output, self._drop(h, len(self.convolutions), key)).T

    def _check(self, shape: tuple[int, ...]) -> None:
        if shape != self.in_shape and (1, *shape) != self.in_shape:
            raise ValueError(f"x must be an image of shape {self.in_shape}, got {shape}")

    def _activate_and_pool(self, h: Array) -> Array:
        # The maximum commutes with an increasing function, which then has a quarter of the work.
        if self.activation in _INCREASING:
            return self.activation(max_pool2d(h, POOL))
        return max_pool2d(self.activation(h), POOL)

    def _drop(self, h: Array, layer: int, key: Array | None) -> Array:
        return drop(h, self.dropout, key, layer)

    @property
    def stochastic(self) -> bool:
        """Whether a key makes a difference."""
        return self.dropout > 0

    def reinitialise(self, key: Key) -> "LeNet":
        """The same architecture with fresh weights."""
        channels = tuple(layer.weight.shape[0] for layer in self.convolutions)
        return LeNet(
            self.in_shape,
            channels,
            self.hidden.weight.shape[0],
            self.output.weight.shape[0],
            activation=self.activation,
            dropout=self.dropout,
            key=key,
        )

    def narrowed(self, fraction: float) -> "LeNet":
        """With this fraction of the filters and hidden units (see `mx.nets.narrowed`)."""
        initialiser, num, convolutions = default_initialiser(self.activation), self.in_shape[0], []
        for layer in self.convolutions:
            width = narrowed_width(layer.weight.shape[0], fraction)
            convolutions.append(cut_layer(layer, width, num, initialiser))
            num = width
        num_places = self.hidden.weight.shape[1] // self.convolutions[-1].weight.shape[0]  # of each feature map
        width = narrowed_width(self.hidden.weight.shape[0], fraction)
        hidden = cut_layer(self.hidden, width, num * num_places, initialiser)
        output = cut_layer(self.output, self.output.weight.shape[0], width, initialiser)
        parts = tuple(convolutions), hidden, output
        return eqx.tree_at(lambda net: (net.convolutions, net.hidden, net.output), self, parts)


def _layers(
    in_shape: tuple[int, ...],
    channels: tuple[int, ...],
    hidden: int,
    out_size: int,
    initialiser: Initialiser,
    key: Key,
) -> tuple[tuple[Conv2d, ...], eqx.nn.Linear, eqx.nn.Linear]:
    keys = jax.random.split(as_key(key), len(channels) + 2)
    sizes, num, convolutions = in_shape[1:], in_shape[0], []
    for num_filters, k in zip(channels, keys, strict=False):
        convolutions.append(Conv2d(num, num_filters, KERNEL, key=k, initialiser=initialiser))
        sizes, num = tuple((n - KERNEL + 1) // POOL for n in sizes), num_filters
        if min(sizes) < 1:
            raise ValueError(f"in_shape {in_shape} is too small for {len(channels)} convolutions of {KERNEL}x{KERNEL}")
    flat = num * math.prod(sizes)
    return (
        tuple(convolutions),
        linear(initialiser, flat, hidden, keys[-2]),
        linear(initialiser, hidden, out_size, keys[-1]),
    )
