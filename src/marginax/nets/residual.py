"""What residual networks over images share: their blocks, and the way through them."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from marginax.files import register
from marginax.nets.arguments import check_activation, check_dropout, check_image_shape, check_positive_ints
from marginax.nets.conv_coders import sizes_of_levels
from marginax.nets.convolution import Conv2d
from marginax.nets.initialisers import Initialiser
from marginax.nets.linear import drop, linear_batch_last
from marginax.nets.normalisation import (
    AbstractNormalisation,
    ThresholdedLinear,
    activate,
    check_normalisation,
    normalise,
)


class AbstractBlock(eqx.Module):
    """Two convolutions of 3x3, whose result is added to what comes in.

    What comes in is mapped by filters of 1x1 where channels or sizes differ.

    Args:
        in_channels: of what comes in.
        out_channels: of what goes out.
        stride: of the first convolution.
        normalisation: of what the convolutions give or take.
        activation: where the normalisation has no unit of its own.
        initialiser: of the weights.
        key: JAX key.
    """

    convolutions: eqx.AbstractVar[tuple[Conv2d, Conv2d]]
    shortcut: eqx.AbstractVar[Conv2d | None]

    @abc.abstractmethod
    def __call__(self, h: Array, rate: float, key: Array | None, *, last: bool) -> Array:
        """One image, or many along the last axis if `last`; dropout acts between the convolutions."""


@register("net/residual_block")
class ResidualBlock(AbstractBlock):
    """Convolutions, each with normalisation; an activation between them and one after the sum (He et al., 2016a)."""

    convolutions: tuple[Conv2d, Conv2d]
    norms: tuple[Any, Any]
    units: tuple[ThresholdedLinear | None, ThresholdedLinear | None]
    shortcut: Conv2d | None
    shortcut_norm: Any
    activation: Callable[[Array], Array] = eqx.field(static=True)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        stride: int,
        normalisation: AbstractNormalisation,
        activation: Callable[[Array], Array] | None,
        initialiser: Initialiser,
        *,
        key: Array,
    ):
        self.convolutions, self.shortcut = _convolutions(in_channels, out_channels, stride, initialiser, key)
        self.norms = normalisation.layer(out_channels), normalisation.layer(out_channels)
        self.shortcut_norm = None if self.shortcut is None else normalisation.layer(out_channels)
        self.units = unit_of(normalisation, activation, out_channels), unit_of(normalisation, activation, out_channels)
        self.activation = activation or jax.nn.relu

    def __call__(self, h: Array, rate: float, key: Array | None, *, last: bool) -> Array:
        rest = h
        if self.shortcut is not None:
            rest = normalise(self.shortcut_norm, convolve(self.shortcut, h, last=last))
        h = normalise(self.norms[0], convolve(self.convolutions[0], h, last=last))
        h = drop(activate(self.units[0], self.activation, h), rate, key, 0)
        h = normalise(self.norms[1], convolve(self.convolutions[1], h, last=last))
        return activate(self.units[1], self.activation, rest + h)


@register("net/pre_activation_block")
class PreActivationBlock(AbstractBlock):
    """Normalisation and activation before each convolution, nothing after the sum (He et al., 2016b)."""

    convolutions: tuple[Conv2d, Conv2d]
    norms: tuple[Any, Any]
    units: tuple[ThresholdedLinear | None, ThresholdedLinear | None]
    shortcut: Conv2d | None
    activation: Callable[[Array], Array] = eqx.field(static=True)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        stride: int,
        normalisation: AbstractNormalisation,
        activation: Callable[[Array], Array] | None,
        initialiser: Initialiser,
        *,
        key: Array,
    ):
        self.convolutions, self.shortcut = _convolutions(in_channels, out_channels, stride, initialiser, key)
        self.norms = normalisation.layer(in_channels), normalisation.layer(out_channels)
        self.units = unit_of(normalisation, activation, in_channels), unit_of(normalisation, activation, out_channels)
        self.activation = activation or jax.nn.relu

    def __call__(self, h: Array, rate: float, key: Array | None, *, last: bool) -> Array:
        rest, h = h, activate(self.units[0], self.activation, normalise(self.norms[0], h))
        if self.shortcut is not None:
            rest = convolve(self.shortcut, h, last=last)
        h = normalise(self.norms[1], convolve(self.convolutions[0], h, last=last))
        h = drop(activate(self.units[1], self.activation, h), rate, key, 0)
        return rest + convolve(self.convolutions[1], h, last=last)


class AbstractResidual(eqx.Module):
    """A convolution, blocks, the mean over all pixels, and a linear layer.

    Args:
        in_shape: (channels, height, width) of an image.
        out_size: number of outputs.
        depth: number of layers with weights on the longest way.
        channels: of the first stage; each stage has twice as many as the one before, and images of half the size.
        normalisation: `GroupNormalisation()`, or `FilterResponse()` with its thresholded linear units.
        activation: elementwise function; by default that of the normalisation, or ReLU.
        dropout: probability of dropping a unit between the convolutions of a block, in [0, 1), whenever a key is given.
        key: seed or JAX key.
    """

    stem: eqx.AbstractVar[Conv2d]
    blocks: eqx.AbstractVar[tuple[Any, ...]]
    norm: eqx.AbstractVar[Any]
    unit: eqx.AbstractVar[ThresholdedLinear | None]
    output: eqx.AbstractVar[eqx.nn.Linear]
    in_shape: eqx.AbstractVar[tuple[int, int, int]]
    dropout: eqx.AbstractVar[float]

    @abc.abstractmethod
    def before(self, h: Array, *, last: bool) -> Array:
        """What goes into the blocks."""

    @abc.abstractmethod
    def after(self, h: Array) -> Array:
        """What is averaged over the pixels."""

    def __call__(self, x: Float[Array, "..."], *, key: Array | None = None) -> Float[Array, " out_size"]:
        """Outputs of one image of shape `in_shape`, or (height, width) if it has one channel."""
        self._check(x.shape)
        return self.output(self._features(x.reshape(self.in_shape), key, last=False))

    def call_batch(self, xs: Float[Array, "num ..."], *, key: Array | None = None) -> Float[Array, "num out_size"]:
        """Outputs of many images, as `jax.vmap` of a call gives them, each with a dropout mask of its own."""
        self._check(xs.shape[1:])
        # the examples stay on the last axis all the way: no layer has to transpose
        h = jnp.moveaxis(xs.reshape(-1, *self.in_shape), 0, -1)
        return linear_batch_last(self.output, self._features(h, key, last=True)).T

    def _features(self, h: Array, key: Array | None, *, last: bool) -> Float[Array, "channels *num"]:
        h = self.before(h, last=last)
        for i, block in enumerate(self.blocks):
            h = block(h, self.dropout, None if key is None else jax.random.fold_in(key, i), last=last)
        return self.after(h).mean((1, 2))

    def _check(self, shape: tuple[int, ...]) -> None:
        if shape != self.in_shape and (1, *shape) != self.in_shape:
            raise ValueError(f"x must be an image of shape {self.in_shape}, got {shape}")

    @property
    def stochastic(self) -> bool:
        """Whether a key makes a difference."""
        return self.dropout > 0


def check_residual(
    in_shape: Any, out_size: Any, channels: Any, dropout: Any, normalisation: Any, activation: Any, num_stages: int
) -> None:
    """Checks of what all residual networks are made with."""
    check_image_shape("in_shape", in_shape)
    check_positive_ints(out_size=out_size, channels=channels)
    check_dropout(dropout)
    check_normalisation(normalisation)
    if activation is not None:
        check_activation(activation)
    normalisation.check_sizes(tuple(in_shape), sizes_of_levels(in_shape, num_stages - 1)[-1])


def stack(
    block: type[Any],
    in_channels: int,
    stages: list[tuple[int, int]],
    normalisation: AbstractNormalisation,
    activation: Callable[[Array], Array] | None,
    initialiser: Initialiser,
    *,
    key: Array,
) -> tuple[Any, ...]:
    """Blocks of stages, each given by its number of blocks and its channels; all but the first halve the images."""
    keys = iter(jax.random.split(key, sum(num for num, _ in stages)))
    blocks, n_in = [], in_channels
    for i, (num, channels) in enumerate(stages):
        for j in range(num):
            stride = 2 if i > 0 and j == 0 else 1
            blocks.append(block(n_in, channels, stride, normalisation, activation, initialiser, key=next(keys)))
            n_in = channels
    return tuple(blocks)


def filters(n_in: int, n_out: int, size: int, stride: int, initialiser: Initialiser, key: Array) -> Conv2d:
    """A convolution that keeps heights and widths, or halves them; normalisation has the constants."""
    return Conv2d(n_in, n_out, size, stride, size // 2, use_bias=False, initialiser=initialiser, key=key)


def convolve(layer: Any, h: Array, *, last: bool) -> Array:
    """Of one image, or of many along the last axis."""
    return layer.call_batch_last(h) if last else layer(h)


def unit_of(normalisation: AbstractNormalisation, activation: Any, channels: int) -> ThresholdedLinear | None:
    """The activation with weights that belongs to the normalisation, unless another is wanted."""
    return normalisation.unit(channels) if activation is None else None


def _convolutions(
    n_in: int, n_out: int, stride: int, initialiser: Initialiser, key: Array
) -> tuple[tuple[Conv2d, Conv2d], Conv2d | None]:
    first, second, third = jax.random.split(key, 3)
    pair = filters(n_in, n_out, 3, stride, initialiser, first), filters(n_out, n_out, 3, 1, initialiser, second)
    if stride == 1 and n_in == n_out:
        return pair, None
    return pair, filters(n_in, n_out, 1, stride, initialiser, third)
