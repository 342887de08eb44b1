"""Linear maps of vectors, and of the features at every step or position of a sequence."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from marginax._keys import Key, as_key
from marginax.files import register
from marginax.nets.arguments import check_positive_ints
from marginax.nets.initialisers import Initialiser, lecun


@register("net/pointwise")
class Pointwise(eqx.Module):
    """The same linear map at every place of an array whose features come first: (in, places) -> (out, places).

    For sequences this is one matrix product for all steps. Methods that know layers treat it as a convolution with
    filters of size 1: all places share the weights.

    Args:
        in_size: number of features.
        out_size: number of outputs at each place.
        use_bias: whether each output has an additive constant.
        ragged: whether some places may be padding. Kronecker factors would count those as data, so the weights of a
            ragged layer keep their diagonal.
        initialiser: of the weights, by default LeCun's. Biases start at 0.
        key: seed or JAX key.

    >>> Pointwise(3, 8, key=0)(jnp.ones((3, 20))).shape
    (8, 20)
    """

    weight: Float[Array, "*stack out_size in_size"]
    bias: Float[Array, "*stack out_size"] | None
    ragged: bool = eqx.field(static=True)

    def __init__(
        self,
        in_size: int,
        out_size: int,
        *,
        use_bias: bool = True,
        ragged: bool = False,
        initialiser: Initialiser | None = None,
        key: Key,
    ):
        check_positive_ints(in_size=in_size, out_size=out_size)
        self.weight = (initialiser or lecun())((out_size, in_size), key=as_key(key))
        self.bias = jnp.zeros(out_size) if use_bias else None
        self.ragged = bool(ragged)

    def __call__(self, x: Float[Array, "in_size *places"], *, key: Array | None = None) -> Float[Array, "out *places"]:
        """The outputs at all places; `key` is ignored."""
        y = jnp.tensordot(self.weight, x, 1)
        return y if self.bias is None else y + jnp.expand_dims(self.bias, tuple(range(1, y.ndim)))

    def call_batch_last(self, xs: Float[Array, "in_size *places num"]) -> Float[Array, "out *places num"]:
        """The same for many examples along the last axis, which are more places."""
        return self(xs)


def linear(initialiser: Initialiser, in_size: int, out_size: int, key: Array) -> eqx.nn.Linear:
    """A linear layer with these initial weights, and biases of 0."""
    empty = eqx.filter_eval_shape(eqx.nn.Linear, in_size, out_size, key=key)
    weights = initialiser((out_size, in_size), key=key), jnp.zeros(out_size)
    return eqx.tree_at(lambda layer: (layer.weight, layer.bias), empty, weights)


def linear_batch_last(layer: eqx.Module, h: Float[Array, "in_size num"]) -> Float[Array, "out_size num"]:
    """A linear layer, or what stands in for one, on examples along the last axis."""
    if not isinstance(layer, eqx.nn.Linear):
        return layer.call_batch_last(h)  # pyright: ignore[reportAttributeAccessIssue]
    y = layer.weight @ h
    return y if layer.bias is None else y + layer.bias[:, None]


def drop(h: Array, rate: float, key: Array | None, place: int) -> Array:
    """Dropout: entries are zero with probability `rate`, and the others grow so that the mean stays; off without a key.

    Args:
        h: any array.
        rate: probability of being dropped.
        key: of the network's call.
        place: number of the place in the network, so that places differ in their noise.
    """
    if key is None or rate == 0:
        return h
    kept = jax.random.bernoulli(jax.random.fold_in(key, place), 1.0 - rate, h.shape)
    return jnp.where(kept, h / (1.0 - rate), 0.0)
