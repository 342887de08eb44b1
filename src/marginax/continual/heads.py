"""A network with an output layer for each task."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from marginax.files import register
from marginax.nets import as_network


@register("continual/multi_head")
class MultiHead(eqx.Module):
    """One body, several heads: outputs of the network in equal parts, of which the last entry of an input chooses one.

    Weights of heads that no row of the data chooses keep the prior, or what they were.

    Args:
        network: of the other entries, with outputs for all heads, one after the other.
        num_heads: how many.

    >>> import marginax as mx
    >>> net = MultiHead(mx.nets.MLP(3, (4,), 10, key=0), num_heads=5)
    >>> net(jnp.zeros(4)).shape
    (2,)
    """

    network: eqx.Module
    num_heads: int = eqx.field(static=True)

    def __init__(self, network: Any, num_heads: int):
        """Check the number."""
        if isinstance(num_heads, bool) or not isinstance(num_heads, int) or num_heads < 1:
            raise ValueError(f"num_heads must be an int >= 1, got {num_heads!r}")
        self.network, self.num_heads = as_network(network), num_heads

    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        network: Any = self.network
        output = network(x[:-1])
        if output.shape[0] % self.num_heads:
            raise ValueError(f"network must have outputs for {self.num_heads} heads alike, got {output.shape[0]}")
        return output.reshape(self.num_heads, -1)[x[-1].astype(jnp.int32)]
