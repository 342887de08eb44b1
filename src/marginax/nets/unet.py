"""U-Net: images to images of the same size."""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from marginax._keys import Key, as_key
from marginax.files import register
from marginax.nets.arguments import (
    check_activation,
    check_channels,
    check_dropout,
    check_image_shape,
    check_positive_ints,
)
from marginax.nets.convolution import Conv2d, max_pool2d
from marginax.nets.initialisers import Initialiser, default_initialiser, lecun
from marginax.nets.linear import drop
from marginax.nets.normalisation import group_norm


@register("net/unet_level")
class Level(eqx.Module):
    """Two convolutions of 3x3, each followed by normalisation (if there is one) and an activation."""

    convolutions: tuple[Conv2d, Conv2d]
    norms: tuple[eqx.nn.GroupNorm, ...]
    activation: Callable[[Array], Array] = eqx.field(static=True)

    def __call__(self, h: Array, last: bool) -> Array:
        """One image, or many along the last axis if `last`."""
        for i, layer in enumerate(self.convolutions):
            h = layer.call_batch_last(h) if last else layer(h)
            h = self.activation(group_norm(self.norms[i], h) if self.norms else h)
        return h


@register("net/unet")
class UNet(eqx.Module):
    """An encoder and a decoder with skip connections between images of one size (Ronneberger et al., 2015).

    On the way down each level has two convolutions and is followed by max-pooling of 2x2. On the way up features are
    mapped to the channels of the next level (by filters of 1x1), enlarged by repetition, joined by those of the way
    down, and go through two more convolutions. Dropout acts after every level whenever a key is given.

    `mx.Model` has likelihoods of vectors: there, `eqx.nn.Sequential([net, eqx.nn.Lambda(jnp.ravel)])` is a network.

    Args:
        in_shape: (channels, height, width) of an image; height and width are multiples of 2^(levels - 1).
        channels: of each level, from the largest images to the smallest.
        out_channels: of the outputs, such as logits of classes.
        activation: jax.nn.relu, gelu, tanh or another elementwise function.
        groups: of channels that are normalised together, which must divide all `channels`; None for no normalisation.
        dropout: probability of dropping a unit, in [0, 1).
        key: seed or JAX key.

    >>> net = UNet((1, 16, 16), (8, 16), out_channels=2, key=0)
    >>> net(jnp.ones((1, 16, 16))).shape, net.call_batch(jnp.ones((3, 1, 16, 16))).shape
    ((2, 16, 16), (3, 2, 16, 16))
    """

    down: tuple[Level, ...]
    up_convolutions: tuple[Conv2d, ...]
    up: tuple[Level, ...]
    output: Conv2d
    in_shape: tuple[int, int, int] = eqx.field(static=True)
    groups: int | None = eqx.field(static=True)
    dropout: float = eqx.field(static=True)

    def __init__(
        self,
        in_shape: tuple[int, int, int],
        channels: Sequence[int] = (32, 64, 128, 192),
        out_channels: int = 1,
        *,
        activation: Callable[[Array], Array] = jax.nn.relu,
        groups: int | None = 8,
        dropout: float = 0.0,
        key: Key,
    ):
        channels = tuple(channels)
        check_image_shape("in_shape", in_shape)
        check_channels(channels)
        check_positive_ints(out_channels=out_channels, groups=1 if groups is None else groups)
        check_dropout(dropout)
        check_activation(activation)
        multiple = 2 ** (len(channels) - 1)
        if any(size % multiple for size in in_shape[1:]):
            raise ValueError(
                f"in_shape must have height and width that are multiples of {multiple} for {len(channels)} levels, "
                f"got {tuple(in_shape)}: pad the images, or use fewer levels"
            )
        if groups is not None and any(n % groups for n in channels):
            raise ValueError(f"groups must divide all channels {channels}, or be None, got {groups}")
        self.in_shape = (in_shape[0], in_shape[1], in_shape[2])
        self.groups = groups
        self.dropout = float(dropout)
        initialiser = default_initialiser(activation)
        keys = iter(jax.random.split(as_key(key), 3 * len(channels)))

        def level(n_in: int, n_out: int) -> Level:
            first, second = jax.random.split(next(keys))
            convolutions = (_filters(n_in, n_out, initialiser, first), _filters(n_out, n_out, initialiser, second))
            norms = () if groups is None else tuple(eqx.nn.GroupNorm(groups, n_out) for _ in range(2))
            return Level(convolutions, norms, activation)

        self.down = tuple(level(n, m) for n, m in zip((in_shape[0], *channels), channels, strict=False))
        upwards = list(zip(channels[:0:-1], channels[-2::-1], strict=True))
        self.up_convolutions = tuple(Conv2d(n, m, 1, initialiser=lecun(), key=next(keys)) for n, m in upwards)
        self.up = tuple(level(2 * m, m) for _, m in upwards)
        self.output = Conv2d(channels[0], out_channels, 1, initialiser=lecun(), key=next(keys))

    def __call__(self, x: Float[Array, "..."], *, key: Array | None = None) -> Float[Array, "out_channels _ _"]:
        """Outputs for one image of shape `in_shape`, or (height, width) if it has one channel."""
        self._check(x.shape)
        return self._forward(x.reshape(self.in_shape), key, last=False)

    def call_batch(self, xs: Float[Array, "num ..."], *, key: Array | None = None) -> Float[Array, "num out _ _"]:
        """Outputs for many images, as `jax.vmap` of a call gives them, each with a dropout mask of its own."""
        self._check(xs.shape[1:])
        # the examples stay on the last axis all the way: no layer has to transpose
        h = jnp.moveaxis(xs.reshape(-1, *self.in_shape), 0, -1)
        return jnp.moveaxis(self._forward(h, key, last=True), -1, 0)

    def _forward(self, h: Array, key: Array | None, *, last: bool) -> Array:
        skips: list[Array] = []
        for i, level in enumerate(self.down):
            h = drop(level(max_pool2d(h, 2) if i else h, last), self.dropout, key, i)
            skips.append(h)
        for i, (layer, level) in enumerate(zip(self.up_convolutions, self.up, strict=True)):
            # mapped before it is enlarged: the same numbers for a quarter of the work
            h = enlarge(layer.call_batch_last(h) if last else layer(h))
            h = level(jnp.concatenate([skips[-2 - i], h]), last)
            h = drop(h, self.dropout, key, len(self.down) + i)
        return self.output.call_batch_last(h) if last else self.output(h)

    def _check(self, shape: tuple[int, ...]) -> None:
        if shape != self.in_shape and (1, *shape) != self.in_shape:
            raise ValueError(f"x must be an image of shape {self.in_shape}, got {shape}")

    @property
    def stochastic(self) -> bool:
        """Whether a key makes a difference."""
        return self.dropout > 0

    def reinitialise(self, key: Key) -> "UNet":
        """The same architecture with fresh weights."""
        return UNet(
            self.in_shape,
            tuple(level.convolutions[0].weight.shape[0] for level in self.down),
            self.output.weight.shape[0],
            activation=self.down[0].activation,
            groups=self.groups,
            dropout=self.dropout,
            key=key,
        )


def enlarge(x: Float[Array, "channels height width *num"]) -> Float[Array, "channels _ _ *num"]:
    """Every pixel as a block of 2x2.

    >>> enlarge(jnp.array([[[1.0, 2.0]]])).tolist()
    [[[1.0, 1.0, 2.0, 2.0], [1.0, 1.0, 2.0, 2.0]]]
    """
    channels, height, width, *num = x.shape
    blocks = jnp.broadcast_to(x[:, :, None, :, None], (channels, height, 2, width, 2, *num))
    return blocks.reshape(channels, 2 * height, 2 * width, *num)


def _filters(n_in: int, n_out: int, initialiser: Initialiser, key: Array) -> Conv2d:
    return Conv2d(n_in, n_out, 3, padding=1, initialiser=initialiser, key=key)
