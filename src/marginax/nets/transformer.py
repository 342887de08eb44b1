r"""A small transformer over sequences: attention and position-wise networks, normalised before each (pre-norm)."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Num

from marginax._keys import Key, as_key
from marginax.files import register
from marginax.nets.arguments import check_dropout, check_positive_ints
from marginax.nets.initialisers import Initialiser, he, lecun
from marginax.nets.linear import Pointwise, drop, linear
from marginax.nets.normalisation import layer_norm
from marginax.nets.sequences import SequenceInput


def attend(
    queries: Float[Array, "heads size q"],
    keys: Float[Array, "heads size k"],
    values: Float[Array, "heads value_size k"],
    seen: Bool[Array, "q k"],
) -> Float[Array, "heads value_size q"]:
    r"""Scaled dot-product attention: means of the values with weights $\mathrm{softmax}(q^\top k / \sqrt d)$.

    Args:
        queries: of each head, with the steps last.
        keys: likewise.
        values: likewise.
        seen: which keys a query sees; one that sees none has the plain mean of all values.

    >>> q = jnp.zeros((1, 2, 1))
    >>> attend(q, jnp.ones((1, 2, 3)), jnp.arange(3.0).reshape(1, 1, 3), jnp.array([[True, False, True]])).tolist()
    [[[1.0]]]
    """
    scores = jnp.einsum("hdq,hdk->hqk", queries, keys) / math.sqrt(queries.shape[1])
    weights = jax.nn.softmax(jnp.where(seen, scores, jnp.finfo(scores.dtype).min), axis=-1)
    return jnp.einsum("hqk,hdk->hdq", weights, values)


def sinusoids(size: int, num_steps: int) -> Float[Array, "size num_steps"]:
    """Positions as sines and cosines of wavelengths from 2 pi to 20,000 pi (Vaswani et al., 2017).

    >>> sinusoids(4, 3)[:, 0].tolist()
    [0.0, 0.0, 1.0, 1.0]
    """
    num_waves = (size + 1) // 2
    rates = 10_000.0 ** (-jnp.arange(num_waves) / num_waves)
    angles = rates[:, None] * jnp.arange(num_steps)
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)])[:size]


@register("net/transformer_block")
class TransformerBlock(eqx.Module):
    """Attention, then two linear maps with a GELU between them at every step; both are added to what comes in."""

    attention_norm: eqx.nn.LayerNorm
    projections: Pointwise
    attention_output: Pointwise
    norm: eqx.nn.LayerNorm
    hidden: Pointwise
    output: Pointwise
    num_heads: int = eqx.field(static=True)

    def __init__(self, size: int, hidden: int, num_heads: int, depth: int, *, ragged: bool, key: Array):
        first, second, third, fourth = jax.random.split(key, 4)
        # the sum over the branches of all blocks keeps the size of one
        branch = Initialiser(1.0 / math.sqrt(2 * depth))
        self.attention_norm, self.norm = eqx.nn.LayerNorm(size), eqx.nn.LayerNorm(size)
        self.projections = Pointwise(size, 3 * size, ragged=ragged, key=first)
        self.attention_output = Pointwise(size, size, ragged=ragged, initialiser=branch, key=second)
        self.hidden = Pointwise(size, hidden, ragged=ragged, initialiser=he(), key=third)
        self.output = Pointwise(hidden, size, ragged=ragged, initialiser=branch, key=fourth)
        self.num_heads = num_heads

    def __call__(
        self, h: Float[Array, "size steps"], seen: Bool[Array, "steps steps"], rate: float, key: Array | None
    ) -> Float[Array, "size steps"]:
        """The steps of one sequence."""
        size, steps = h.shape
        projected = self.projections(layer_norm(self.attention_norm, h))
        queries, keys, values = projected.reshape(3, self.num_heads, -1, steps)
        h = h + drop(self.attention_output(attend(queries, keys, values, seen).reshape(size, steps)), rate, key, 0)
        return h + drop(self.output(jax.nn.gelu(self.hidden(layer_norm(self.norm, h)))), rate, key, 1)


@register("net/transformer")
class Transformer(eqx.Module):
    """A pre-norm transformer encoder over sequences; causal, if wanted (Vaswani et al., 2017; Xiong et al., 2020).

    Positions are sinusoids, so sequences may have any length. Dropout acts, whenever a key is given, on the embedded
    steps and on what attention and the position-wise networks add to them.

    Args:
        in_size: number of features of a step.
        out_size: number of outputs.
        size: number of features inside, a multiple of `num_heads`.
        depth: number of blocks.
        num_heads: of attention.
        hidden: width of the position-wise networks, by default 4 * size.
        causal: whether a step sees only itself and those before it.
        num_tokens: if steps are tokens 0, 1, ..., how many there are; each becomes a vector of `in_size` numbers.
        padded: whether sequences are padded to one length: then a token < 0 is padding; without tokens, a step has one
            more number, the last, which is 1 if the step is there and 0 if it is padding.
        every_step: whether there are outputs for every step (zeros at padding), or for the mean over the steps alone.
        dropout: probability of being dropped, in [0, 1).
        key: seed or JAX key.

    >>> Transformer(3, 5, size=16, key=0)(jnp.ones((20, 3))).shape
    (20, 5)
    >>> classifier = Transformer(8, 2, size=16, num_tokens=10, padded=True, every_step=False, key=0)
    >>> classifier.call_batch(jnp.array([[3, 1, 4, 1], [5, 9, -1, -1]])).shape
    (2, 2)
    """

    reader: SequenceInput
    inputs: Pointwise
    blocks: tuple[TransformerBlock, ...]
    norm: eqx.nn.LayerNorm
    output: Pointwise | eqx.nn.Linear
    causal: bool = eqx.field(static=True)
    every_step: bool = eqx.field(static=True)
    dropout: float = eqx.field(static=True)

    def __init__(
        self,
        in_size: int,
        out_size: int,
        *,
        size: int = 64,
        depth: int = 2,
        num_heads: int = 4,
        hidden: int | None = None,
        causal: bool = False,
        num_tokens: int | None = None,
        padded: bool = False,
        every_step: bool = True,
        dropout: float = 0.0,
        key: Key,
    ):
        check_positive_ints(in_size=in_size, out_size=out_size, size=size, depth=depth, num_heads=num_heads)
        hidden = 4 * size if hidden is None else hidden
        check_positive_ints(hidden=hidden)
        check_dropout(dropout)
        if size % num_heads:
            raise ValueError(f"size must be a multiple of num_heads = {num_heads}, got {size}")
        first, second, third, last = jax.random.split(as_key(key), 4)
        self.reader = SequenceInput(in_size, num_tokens=num_tokens, padded=padded, key=first)
        self.inputs = Pointwise(in_size, size, ragged=padded, key=second)
        self.blocks = tuple(
            TransformerBlock(size, hidden, num_heads, depth, ragged=padded, key=k)
            for k in jax.random.split(third, depth)
        )
        self.norm = eqx.nn.LayerNorm(size)
        self.output = (
            Pointwise(size, out_size, ragged=padded, key=last) if every_step else linear(lecun(), size, out_size, last)
        )
        self.causal, self.every_step, self.dropout = bool(causal), bool(every_step), float(dropout)

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
        num_steps = present.shape[0]
        seen = jnp.broadcast_to(present, (num_steps, num_steps))
        if self.causal:
            seen = seen & jnp.tri(num_steps, dtype=bool)
        h = self.inputs(features)
        h = drop(h + sinusoids(h.shape[0], num_steps).astype(h.dtype), self.dropout, key, 0)
        for i, block in enumerate(self.blocks):
            h = block(h, seen, self.dropout, None if key is None else jax.random.fold_in(key, 1 + i))
        h = layer_norm(self.norm, h)
        if self.every_step:
            return jnp.where(present[:, None], self.output(h).T, 0.0)
        return self.output(jnp.sum(jnp.where(present, h, 0.0), 1) / jnp.maximum(present.sum(), 1))

    def call_batch(
        self,
        xs: Num[Array, "num steps *features"],
        *,
        mask: Bool[Array, "num steps"] | None = None,
        key: Array | None = None,
    ) -> Float[Array, "num *places out_size"]:
        """Outputs of many sequences, each with dropout of its own."""
        keys = None if key is None else jax.random.split(key, xs.shape[0])
        return jax.vmap(lambda x, m, k: self(x, mask=m, key=k))(xs, mask, keys)

    @property
    def stochastic(self) -> bool:
        """Whether a key makes a difference."""
        return self.dropout > 0

    def reinitialise(self, key: Key) -> "Transformer":
        """The same architecture with fresh weights."""
        return Transformer(
            self.reader.in_size,
            self.output.weight.shape[0],
            size=self.inputs.weight.shape[0],
            depth=len(self.blocks),
            num_heads=self.blocks[0].num_heads,
            hidden=self.blocks[0].hidden.weight.shape[0],
            causal=self.causal,
            num_tokens=self.reader.num_tokens,
            padded=self.reader.padded,
            every_step=self.every_step,
            dropout=self.dropout,
            key=key,
        )
