"""Temporal convolution: causal convolutions over sequences, and a network of dilated ones in residual blocks."""

import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Num

from marginax._keys import Key, as_key
from marginax.files import register
from marginax.nets.arguments import check_channels, check_dropout, check_positive_ints
from marginax.nets.initialisers import Initialiser, he, lecun
from marginax.nets.linear import Pointwise, drop, linear, linear_batch_last
from marginax.nets.sequences import SequenceInput


@register("net/causal_convolution")
class CausalConvolution(eqx.Module):
    """A convolution over steps, which come after the features, that looks back only: (in, steps) -> (out, steps).

    What came before the first step is 0. Examples may follow the steps.

    Args:
        in_size: number of features.
        out_size: number of outputs at each step.
        kernel_size: number of steps that are looked at.
        dilation: distance between them.
        ragged: whether some steps may be padding. Kronecker factors would count those as data, so the weights of a
            ragged layer keep their diagonal.
        initialiser: of the weights, by default He's normal. Biases start at 0.
        key: seed or JAX key.

    >>> layer = CausalConvolution(1, 1, 2, dilation=2, key=0)
    >>> layer.lagged(jnp.arange(1.0, 6.0)[None]).tolist()
    [[0.0, 0.0, 1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0, 5.0]]
    """

    weight: Float[Array, "*stack out_size in_size kernel_size"]
    bias: Float[Array, "*stack out_size"]
    dilation: int = eqx.field(static=True)
    ragged: bool = eqx.field(static=True)

    def __init__(
        self,
        in_size: int,
        out_size: int,
        kernel_size: int,
        *,
        dilation: int = 1,
        ragged: bool = False,
        initialiser: Initialiser | None = None,
        key: Key,
    ):
        check_positive_ints(in_size=in_size, out_size=out_size, kernel_size=kernel_size, dilation=dilation)
        self.weight = (initialiser or he())((out_size, in_size, kernel_size), key=as_key(key))
        self.bias = jnp.zeros(out_size)
        self.dilation, self.ragged = dilation, bool(ragged)

    def __call__(
        self, x: Float[Array, "in_size steps *num"], *, key: Array | None = None
    ) -> Float[Array, "out_size steps *num"]:
        """The outputs at all steps; `key` is ignored."""
        # one product for all lags is faster than one for each
        y = jnp.tensordot(self.weight.reshape(self.weight.shape[0], -1), self.lagged(x), 1)
        return y + jnp.expand_dims(self.bias, tuple(range(1, y.ndim)))

    def call_batch_last(self, xs: Float[Array, "in_size steps num"]) -> Float[Array, "out_size steps num"]:
        """The same for many examples along the last axis."""
        return self(xs)

    def lagged(self, x: Float[Array, "in_size steps *num"]) -> Float[Array, "inputs steps *num"]:
        """What the rows of the weight are multiplied with at each step: for each feature, from the oldest step on."""
        size, num_steps, *num = x.shape
        back = (self.weight.shape[2] - 1) * self.dilation
        long = jnp.pad(x, ((0, 0), (back, 0), *((0, 0) for _ in num)))
        starts = range(0, back + 1, self.dilation)
        lags = [jax.lax.slice_in_dim(long, start, start + num_steps, axis=1) for start in starts]
        return jnp.stack(lags, axis=1).reshape(size * len(lags), num_steps, *num)


@register("net/temporal_block")
class TemporalBlock(eqx.Module):
    """Two causal convolutions of one dilation, whose result is added to what comes in, and ReLUs."""

    convolutions: tuple[CausalConvolution, CausalConvolution]
    shortcut: Pointwise | None

    def __call__(
        self,
        h: Float[Array, "size steps *num"],
        present: Bool[Array, "steps *num"],
        rate: float,
        key: Array | None,
    ) -> Float[Array, "out_size steps *num"]:
        """One sequence, or many along the last axis."""
        rest = h if self.shortcut is None else _call(self.shortcut, h)
        for i, layer in enumerate(self.convolutions):
            # padding stays 0, as what came before the first step is: the layers after this one look at it
            h = jnp.where(present, drop(jax.nn.relu(_call(layer, h)), rate, key, i), 0.0)
        return jnp.where(present, jax.nn.relu(rest + h), 0.0)


@register("net/temporal_convolution")
class TemporalConvolution(eqx.Module):
    """Dilated causal convolutions in residual blocks, for sequences (Bai, Kolter & Koltun, 2018).

    Dilations are 1, 2, 4, ... from block to block, so that `reach` steps are seen by the last. There is no weight
    normalisation; the second convolution of a block starts small instead, so that blocks start near the identity.

    Args:
        in_size: number of features of a step.
        out_size: number of outputs.
        channels: of each block.
        kernel_size: number of steps that a convolution looks at.
        num_tokens: if steps are tokens 0, 1, ..., how many there are; each becomes a vector of `in_size` numbers.
        padded: whether sequences are padded to one length: then a token < 0 is padding; without tokens, a step has one
            more number, the last, which is 1 if the step is there and 0 if it is padding. Padding counts as 0.
        every_step: whether there are outputs for every step (zeros at padding), or for the last step alone.
        dropout: probability of dropping a unit after each convolution, in [0, 1), whenever a key is given.
        key: seed or JAX key.

    >>> net = TemporalConvolution(3, 1, channels=(8, 8), key=0)
    >>> net(jnp.ones((20, 3))).shape, net.reach
    ((20, 1), 13)
    >>> classifier = TemporalConvolution(4, 2, channels=(8,), num_tokens=10, padded=True, every_step=False, key=0)
    >>> classifier.call_batch(jnp.array([[3, 1, 4, 1], [5, 9, -1, -1]])).shape
    (2, 2)
    """

    reader: SequenceInput
    blocks: tuple[TemporalBlock, ...]
    output: Pointwise | eqx.nn.Linear
    every_step: bool = eqx.field(static=True)
    dropout: float = eqx.field(static=True)

    def __init__(
        self,
        in_size: int,
        out_size: int,
        *,
        channels: Sequence[int] = (32, 32, 32, 32),
        kernel_size: int = 3,
        num_tokens: int | None = None,
        padded: bool = False,
        every_step: bool = True,
        dropout: float = 0.0,
        key: Key,
    ):
        channels = tuple(channels)
        check_positive_ints(in_size=in_size, out_size=out_size, kernel_size=kernel_size)
        check_channels(channels)
        check_dropout(dropout)
        first, last, *keys = jax.random.split(as_key(key), 2 + len(channels))
        self.reader = SequenceInput(in_size, num_tokens=num_tokens, padded=padded, key=first)
        branch = Initialiser(1.0 / math.sqrt(len(channels)))  # the sum over all blocks keeps the size of one
        pairs = enumerate(zip((in_size, *channels), channels, strict=False))

        def block(i: int, n_in: int, n_out: int) -> TemporalBlock:
            one, two, three = jax.random.split(keys[i], 3)
            options = {"dilation": 2**i, "ragged": padded}
            layers = (
                CausalConvolution(n_in, n_out, kernel_size, **options, key=one),
                CausalConvolution(n_out, n_out, kernel_size, **options, initialiser=branch, key=two),
            )
            return TemporalBlock(layers, None if n_in == n_out else Pointwise(n_in, n_out, ragged=padded, key=three))

        self.blocks = tuple(block(i, *pair) for i, pair in pairs)
        size = channels[-1]
        self.output = (
            Pointwise(size, out_size, ragged=padded, key=last) if every_step else linear(lecun(), size, out_size, last)
        )
        self.every_step, self.dropout = bool(every_step), float(dropout)

    def __call__(
        self, x: Num[Array, "steps *features"], *, mask: Bool[Array, " steps"] | None = None, key: Array | None = None
    ) -> Float[Array, "*places out_size"]:
        """Outputs of one sequence.

        Args:
            x: the sequence.
            mask: which steps are there; by default all but what `padded` says.
            key: for dropout.
        """
        features, present = self.reader(x, mask)
        h = self._hidden(features, present, key)
        if self.every_step:
            return jnp.where(present[:, None], self.output(h).T, 0.0)
        return self.output(_last(h, present))

    def call_batch(
        self,
        xs: Num[Array, "num steps *features"],
        *,
        mask: Bool[Array, "num steps"] | None = None,
        key: Array | None = None,
    ) -> Float[Array, "num *places out_size"]:
        """Outputs of many sequences, as `jax.vmap` of a call gives them, each with dropout of its own."""
        features, present = self.reader(xs, mask)
        # the sequences come last: every layer is one product of its weights with a matrix
        features, present = features.swapaxes(1, 2), present.T
        h = self._hidden(features, present, key)
        if not self.every_step:
            return linear_batch_last(self.output, _last(h, present)).T
        y = self.output.call_batch_last(h)  # pyright: ignore[reportAttributeAccessIssue]
        return jnp.where(present[None], y, 0.0).transpose(2, 1, 0)

    def _hidden(self, h: Array, present: Array, key: Array | None) -> Float[Array, "size steps *num"]:
        for i, block in enumerate(self.blocks):
            h = block(h, present, self.dropout, None if key is None else jax.random.fold_in(key, i))
        return h

    @property
    def reach(self) -> int:
        """How many steps an output depends on."""
        kernel_size = self.blocks[0].convolutions[0].weight.shape[2]
        return 1 + 2 * (kernel_size - 1) * sum(block.convolutions[0].dilation for block in self.blocks)

    @property
    def stochastic(self) -> bool:
        """Whether a key makes a difference."""
        return self.dropout > 0

    def reinitialise(self, key: Key) -> "TemporalConvolution":
        """The same architecture with fresh weights."""
        return TemporalConvolution(
            self.reader.in_size,
            self.output.weight.shape[0],
            channels=tuple(block.convolutions[0].weight.shape[0] for block in self.blocks),
            kernel_size=self.blocks[0].convolutions[0].weight.shape[2],
            num_tokens=self.reader.num_tokens,
            padded=self.reader.padded,
            every_step=self.every_step,
            dropout=self.dropout,
            key=key,
        )


def _call(layer: Any, h: Float[Array, "size steps *num"]) -> Float[Array, "out_size steps *num"]:
    """A layer, or what stands in for one, on one sequence or on many along the last axis."""
    return layer(h) if h.ndim == 2 else layer.call_batch_last(h)


def _last(h: Float[Array, "size steps *num"], present: Bool[Array, "steps *num"]) -> Float[Array, "size *num"]:
    """At the last step that is there; 0 if none is."""
    steps = jnp.arange(present.shape[0]).reshape(-1, *(1 for _ in present.shape[1:]))
    last = jnp.max(jnp.where(present, steps, -1), axis=0)
    return jnp.sum(jnp.where(steps == last, h, 0.0), axis=1)
