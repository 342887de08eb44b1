r"""What a context says about targets: one vector for all of them (deep sets), or one for each (attention).

Deep sets (Zaheer et al., 2017): $r = \frac{1}{|C|} \sum_{i \in C} h(x_i, y_i)$. Attention (Kim et al., 2019):
$r(x) = \sum_{i \in C} w_i(x)\, h(x_i, y_i)$, $w(x) = \text{softmax}(k(x_i)^\top k(x) / \sqrt d)$, in several heads.
"""

import abc
import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from marginax._keys import Key, as_key
from marginax.files import register
from marginax.latent.mixture import check_num
from marginax.latent.neural_process.tasks import Points
from marginax.model.distributions import Normal
from marginax.nets import MLP, call_batched

_LEAST_SCALE = 0.1  # of the latent variables, so that the divergence between two contexts stays finite


class AbstractEncoder(eqx.Module):
    """A network from a context and inputs of targets to a vector for each target. Field: `out_size`, of that vector."""

    out_size: eqx.AbstractVar[int]

    sees_inputs: ClassVar[bool] = True
    """Whether the decoder is to be told the inputs of targets as well."""

    @abc.abstractmethod
    def __call__(self, context: Points, x: Float[Array, "b m dx"]) -> Float[Array, "b m r"]:
        """For b functions at once; targets do not know of each other."""

    def spanning(self, width: float) -> "AbstractEncoder":
        """The encoder for tasks whose inputs lie within this width of each other, where it has to know."""
        return self

    def check(self, x_size: int) -> None:
        """Raise if inputs cannot have this size."""


@register("latent/deep_set")
class DeepSet(AbstractEncoder):
    """The mean over the context of a network of its points.

    Args:
        x_size: columns of x.
        y_size: columns of y.
        width: of hidden layers, and of the representation.
        num_layers: hidden layers.
        key: seed or JAX key.
    """

    points: MLP
    out_size: int = eqx.field(static=True)

    def __init__(self, x_size: int, y_size: int, width: int = 64, num_layers: int = 3, *, key: Key):
        self.points = _hidden(x_size + y_size, width, num_layers, width, key)
        self.out_size = width

    def __call__(self, context: Points, x: Float[Array, "b m dx"]) -> Float[Array, "b m r"]:
        pooled = self.pool(context)
        return jnp.broadcast_to(pooled[:, None], (*x.shape[:2], pooled.shape[-1]))

    def pool(self, context: Points) -> Float[Array, "b r"]:
        """The representation of each function; zeros for an empty context."""
        return masked_mean(over_points(self.points, context.x, context.y), context.mask)


@register("latent/cross_attention")
class CrossAttention(AbstractEncoder):
    """Every target looks at the context by multi-head dot-product attention, with keys and queries from inputs alone.

    Points of the context do not attend to each other: what Kim et al. (2019) call self-attention is left out.

    Args:
        x_size: columns of x.
        y_size: columns of y.
        width: of hidden layers, and of the representation.
        num_layers: hidden layers.
        num_heads: which must divide the width.
        key: seed or JAX key.
    """

    inputs: MLP
    points: MLP
    mix: MLP
    num_heads: int = eqx.field(static=True)
    out_size: int = eqx.field(static=True)

    def __init__(self, x_size: int, y_size: int, width: int = 64, num_layers: int = 3, *, num_heads: int = 4, key: Key):
        check_num("num_heads", num_heads)
        if width % num_heads:
            raise ValueError(f"num_heads must divide width={width}, got {num_heads}")
        for_inputs, for_points, for_mix = jax.random.split(as_key(key), 3)
        self.inputs = _hidden(x_size, width, 2, width, for_inputs)
        self.points = _hidden(x_size + y_size, width, num_layers, width, for_points)
        self.mix = MLP(width, (), width, key=for_mix)
        self.num_heads, self.out_size = num_heads, width

    def __call__(self, context: Points, x: Float[Array, "b m dx"]) -> Float[Array, "b m r"]:
        keys, queries = (self._heads(over_points(self.inputs, at)) for at in (context.x, x))
        values = self._heads(over_points(self.points, context.x, context.y))
        heads = jnp.einsum("bhmn,bnhd->bmhd", attention_weights(queries, keys, context.mask), values)
        return over_points(self.mix, heads.reshape(*x.shape[:2], self.out_size))

    def _heads(self, vectors: Float[Array, "b n r"]) -> Float[Array, "b n h d"]:
        return vectors.reshape(*vectors.shape[:2], self.num_heads, -1)


@register("latent/latent_encoder")
class LatentEncoder(eqx.Module):
    """The normal belief about the latent vector of a function given some of its points.

    Args:
        x_size: columns of x.
        y_size: columns of y.
        width: of hidden layers.
        num_layers: hidden layers of the network of points.
        latent_size: dimensions of the latent vector.
        key: seed or JAX key.
    """

    pooled: DeepSet
    belief: MLP
    latent_size: int = eqx.field(static=True)

    def __init__(
        self, x_size: int, y_size: int, width: int = 64, num_layers: int = 3, *, latent_size: int = 32, key: Key
    ):
        check_num("latent_size", latent_size)
        for_points, for_belief = jax.random.split(as_key(key))
        self.pooled = DeepSet(x_size, y_size, width, num_layers, key=for_points)
        self.belief = _hidden(width, width, 1, 2 * latent_size, for_belief)
        self.latent_size = latent_size

    def __call__(self, points: Points) -> Normal:
        """Of b functions at once, axes (b, latent_size)."""
        mean, raw = jnp.split(call_batched(self.belief, self.pooled.pool(points)), 2, axis=-1)
        return Normal(mean, _LEAST_SCALE + (1.0 - _LEAST_SCALE) * jax.nn.sigmoid(raw))


def masked_mean(values: Float[Array, "b n r"], mask: Float[Array, "b n"]) -> Float[Array, "b r"]:
    """The mean over real points; zero where there are none.

    >>> masked_mean(jnp.array([[[1.0], [3.0], [9.0]]]), jnp.array([[1.0, 1.0, 0.0]])).tolist()
    [[2.0]]
    """
    return jnp.einsum("bn,bnr->br", mask, values) / jnp.maximum(jnp.sum(mask, 1), 1.0)[:, None]


def attention_weights(
    queries: Float[Array, "b m h d"], keys: Float[Array, "b n h d"], mask: Float[Array, "b n"]
) -> Float[Array, "b h m n"]:
    """How much each target looks at each point of the context; they sum to one, or are zero without a context."""
    here = mask[:, None, None, :]
    scores = jnp.einsum("bmhd,bnhd->bhmn", queries, keys) / math.sqrt(queries.shape[-1])
    return here * jax.nn.softmax(jnp.where(here > 0, scores, -1e30), axis=-1)


def over_points(network: MLP, *parts: Float[Array, "b n _"]) -> Float[Array, "b n k"]:
    """Outputs of a network for all points of all functions."""
    joined = jnp.concatenate(parts, axis=-1)
    rows = call_batched(network, joined.reshape(-1, joined.shape[-1]))
    return rows.reshape(*joined.shape[:2], -1)


def _hidden(in_size: int, width: int, num_layers: int, out_size: int, key: Key) -> MLP:
    check_num("num_layers", num_layers)
    check_num("width", width)
    return MLP(in_size, (width,) * num_layers, out_size, key=key)
