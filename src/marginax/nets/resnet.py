"""Residual networks for small images: ResNet and its wide relative."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array

from marginax._keys import Key, as_key
from marginax.files import register
from marginax.nets.arguments import check_positive_ints
from marginax.nets.convolution import Conv2d
from marginax.nets.initialisers import default_initialiser, lecun
from marginax.nets.linear import linear
from marginax.nets.normalisation import (
    AbstractNormalisation,
    GroupNormalisation,
    ThresholdedLinear,
    activate,
    normalise,
)
from marginax.nets.residual import (
    AbstractResidual,
    PreActivationBlock,
    ResidualBlock,
    check_residual,
    convolve,
    filters,
    stack,
    unit_of,
)


@register("net/resnet")
class ResNet(AbstractResidual):
    """A residual network for small images (He et al., 2016).

    A depth of 6n + 2 (8, 20, 32, 56, ...) has three stages of n blocks, from 16 channels on: the networks of the paper
    for CIFAR. A depth of 18 has four stages of two blocks, from 64 channels on: the smallest one for ImageNet, with a
    first convolution of 3x3 and no pooling, as small images want it. Where channels change, what is added is mapped by
    filters of 1x1. The normalisation has no state: each example is treated by itself.

    >>> net = ResNet((1, 8, 8), 10, depth=8, channels=8, key=0)
    >>> net(jax.numpy.ones((8, 8))).shape, net.call_batch(jax.numpy.ones((5, 1, 8, 8))).shape
    ((10,), (5, 10))
    """

    stem: Conv2d
    norm: Any
    unit: ThresholdedLinear | None
    blocks: tuple[ResidualBlock, ...]
    output: eqx.nn.Linear
    normalisation: AbstractNormalisation
    in_shape: tuple[int, int, int] = eqx.field(static=True)
    depth: int = eqx.field(static=True)
    activation: Callable[[Array], Array] | None = eqx.field(static=True)
    dropout: float = eqx.field(static=True)

    def __init__(
        self,
        in_shape: tuple[int, int, int] = (3, 32, 32),
        out_size: int = 10,
        *,
        depth: int = 20,
        channels: int | None = None,
        normalisation: AbstractNormalisation | None = None,
        activation: Callable[[Array], Array] | None = None,
        dropout: float = 0.0,
        key: Key,
    ):
        self.normalisation = GroupNormalisation() if normalisation is None else normalisation
        num_blocks, usual = _stages(depth)
        width = usual if channels is None else channels
        check_residual(in_shape, out_size, width, dropout, self.normalisation, activation, len(num_blocks))
        self.in_shape = (in_shape[0], in_shape[1], in_shape[2])
        self.depth, self.activation, self.dropout = depth, activation, float(dropout)
        first, second, last = jax.random.split(as_key(key), 3)
        initialiser = default_initialiser(activation or jax.nn.relu)
        stages = [(num, width * 2**i) for i, num in enumerate(num_blocks)]
        self.stem = filters(in_shape[0], width, 3, 1, initialiser, first)
        self.norm, self.unit = self.normalisation.layer(width), unit_of(self.normalisation, activation, width)
        self.blocks = stack(ResidualBlock, width, stages, self.normalisation, activation, initialiser, key=second)
        self.output = linear(lecun(), stages[-1][1], out_size, last)

    def before(self, h: Array, *, last: bool) -> Array:
        return activate(
            self.unit, self.activation or jax.nn.relu, normalise(self.norm, convolve(self.stem, h, last=last))
        )

    def after(self, h: Array) -> Array:
        return h

    def reinitialise(self, key: Key) -> "ResNet":
        """The same architecture with fresh weights."""
        return ResNet(
            self.in_shape,
            self.output.weight.shape[0],
            depth=self.depth,
            channels=self.stem.weight.shape[0],
            normalisation=self.normalisation,
            activation=self.activation,
            dropout=self.dropout,
            key=key,
        )


@register("net/wide_resnet")
class WideResNet(AbstractResidual):
    """A wide residual network for small images (Zagoruyko & Komodakis, 2016).

    Three stages of n blocks for a depth of 6n + 4, with normalisation and activation before each convolution.

    Args:
        width: factor on the channels of all stages.

    >>> net = WideResNet((1, 8, 8), 10, depth=10, width=2, channels=8, key=0)
    >>> net(jax.numpy.ones((8, 8))).shape, net.blocks[-1].convolutions[1].weight.shape
    ((10,), (64, 64, 3, 3))
    """

    stem: Conv2d
    blocks: tuple[PreActivationBlock, ...]
    norm: Any
    unit: ThresholdedLinear | None
    output: eqx.nn.Linear
    normalisation: AbstractNormalisation
    in_shape: tuple[int, int, int] = eqx.field(static=True)
    depth: int = eqx.field(static=True)
    width: int = eqx.field(static=True)
    activation: Callable[[Array], Array] | None = eqx.field(static=True)
    dropout: float = eqx.field(static=True)

    def __init__(
        self,
        in_shape: tuple[int, int, int] = (3, 32, 32),
        out_size: int = 10,
        *,
        depth: int = 16,
        width: int = 4,
        channels: int = 16,
        normalisation: AbstractNormalisation | None = None,
        activation: Callable[[Array], Array] | None = None,
        dropout: float = 0.0,
        key: Key,
    ):
        self.normalisation = GroupNormalisation() if normalisation is None else normalisation
        check_positive_ints(depth=depth, width=width)
        if depth < 10 or (depth - 4) % 6:
            raise ValueError(f"depth must be 6n + 4 (10, 16, 22, 28, 40, ...), got {depth}")
        check_residual(in_shape, out_size, channels, dropout, self.normalisation, activation, 3)
        self.in_shape = (in_shape[0], in_shape[1], in_shape[2])
        self.depth, self.width = depth, width
        self.activation, self.dropout = activation, float(dropout)
        first, second, last = jax.random.split(as_key(key), 3)
        initialiser = default_initialiser(activation or jax.nn.relu)
        stages = [((depth - 4) // 6, channels * width * 2**i) for i in range(3)]
        self.stem = filters(in_shape[0], channels, 3, 1, initialiser, first)
        self.blocks = stack(
            PreActivationBlock, channels, stages, self.normalisation, activation, initialiser, key=second
        )
        most = stages[-1][1]
        self.norm, self.unit = self.normalisation.layer(most), unit_of(self.normalisation, activation, most)
        self.output = linear(lecun(), most, out_size, last)

    def before(self, h: Array, *, last: bool) -> Array:
        return convolve(self.stem, h, last=last)

    def after(self, h: Array) -> Array:
        return activate(self.unit, self.activation or jax.nn.relu, normalise(self.norm, h))

    def reinitialise(self, key: Key) -> "WideResNet":
        """The same architecture with fresh weights."""
        return WideResNet(
            self.in_shape,
            self.output.weight.shape[0],
            depth=self.depth,
            width=self.width,
            channels=self.stem.weight.shape[0],
            normalisation=self.normalisation,
            activation=self.activation,
            dropout=self.dropout,
            key=key,
        )


def _stages(depth: int) -> tuple[tuple[int, ...], int]:
    """Blocks of each stage of a `ResNet`, and the usual number of channels of the first."""
    check_positive_ints(depth=depth)
    if depth == 18:
        return (2, 2, 2, 2), 64
    if depth < 8 or (depth - 2) % 6:
        raise ValueError(f"depth must be 6n + 2 (8, 20, 32, 44, 56, ...) or 18, got {depth}")
    return ((depth - 2) // 6,) * 3, 16
