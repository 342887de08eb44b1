"""What networks over sequences share: tokens or features come in, with or without padding."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Num

from marginax._kernels.random import normal
from marginax._keys import Key, as_key
from marginax.files import register
from marginax.nets.arguments import check_positive_ints


@register("net/embedding")
class Embedding(eqx.Module):
    """A vector for each of a number of tokens.

    A number that is no token gives NaN, not the vector of another token. Tokens may come as floats, since `mx.Model`
    has all inputs as floats.

    Args:
        num_tokens: how many there are; they are 0, 1, ...
        size: of the vectors, which start standard normal.
        key: seed or JAX key.

    >>> Embedding(20, 8, key=0)(jnp.array([[3, 1, 4], [1, 5, 9]])).shape
    (2, 3, 8)
    """

    weight: Float[Array, "*stack num_tokens size"]

    def __init__(self, num_tokens: int, size: int, *, key: Key):
        check_positive_ints(num_tokens=num_tokens, size=size)
        self.weight = normal(as_key(key), (num_tokens, size))

    def __call__(self, tokens: Num[Array, "*places"], *, key: Array | None = None) -> Float[Array, "*places size"]:
        """The vectors of tokens; `key` is ignored."""
        index = tokens.astype(jnp.int32)
        is_token = (index >= 0) & (index < self.weight.shape[0]) & (index == tokens)
        return jnp.where(is_token[..., None], self.weight[jnp.where(is_token, index, 0)], jnp.nan)


@register("net/sequence_input")
class SequenceInput(eqx.Module):
    """Reads a sequence, for a network: its features, with the steps last, and which steps are there.

    Args:
        in_size: number of features of a step.
        num_tokens: if the steps are tokens, how many tokens there are; each becomes `in_size` numbers.
        padded: whether sequences are padded to one length: then a token < 0 is padding; without tokens, a step has one
            more number, the last, which is 1 if the step is there and 0 if it is padding.
        key: seed or JAX key.

    >>> features, mask = SequenceInput(2, padded=True, key=0)(jnp.array([[0.1, 0.2, 1.0], [0.0, 0.0, 0.0]]))
    >>> features.shape, mask.tolist()
    ((2, 2), [True, False])
    """

    embedding: Embedding | None
    in_size: int = eqx.field(static=True)
    padded: bool = eqx.field(static=True)

    def __init__(self, in_size: int, *, num_tokens: int | None = None, padded: bool = False, key: Key):
        check_positive_ints(in_size=in_size, num_tokens=1 if num_tokens is None else num_tokens)
        self.embedding = None if num_tokens is None else Embedding(num_tokens, in_size, key=key)
        self.in_size = in_size
        self.padded = bool(padded)

    @property
    def num_tokens(self) -> int | None:
        """How many tokens there are, if steps are tokens."""
        return None if self.embedding is None else self.embedding.weight.shape[0]

    def __call__(
        self, x: Num[Array, "..."], mask: Bool[Array, "..."] | None = None
    ) -> tuple[Float[Array, "in_size *places"], Bool[Array, "*places"]]:
        """Features of one sequence (steps, ...) or of many (num, steps, ...), and which steps are there."""
        num_features = self.in_size + (self.padded and self.embedding is None)
        if self.embedding is None and (x.ndim < 2 or x.shape[-1] != num_features):
            last = ", the last of them 1 or 0: whether the step is there" if self.padded else ""
            raise ValueError(f"x must have shape (steps, {num_features}){last}, got {x.shape}")
        if self.embedding is None:
            present: Any = x[..., -1] > 0.5 if self.padded else jnp.ones(x.shape[:-1], bool)
            features = x[..., : self.in_size]
        else:
            present = x >= 0 if self.padded else jnp.ones(x.shape, bool)
            features = self.embedding(jnp.where(present, x, 0))
        if mask is not None:
            if mask.shape != present.shape:
                raise ValueError(f"mask must have shape {present.shape}, one flag for each step, got {mask.shape}")
            present = present & mask
        # where there is padding there may be anything, also NaN, which zero gradients would not survive
        return jnp.moveaxis(jnp.where(present[..., None], features, 0.0), -1, 0), present
