"""The posterior of one chain as a function of one vector, for samplers that do much arithmetic on whole positions.

A network is a handful of arrays; a sampler's vector operations on each of them apart would be a handful of tiny loops
instead of one.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from marginax.data import Batch
from marginax.model import AbstractModel
from marginax.model.abstract import Params

Vector = Float[Array, " d"]
Density = Callable[[Vector], tuple[Float[Array, ""], Vector]]  # log density and its gradient


def ravel(params: Params) -> Vector:
    """All parameters in one vector, leaf by leaf."""
    # The barrier keeps XLA from fusing what made the leaves into the copy, where it would be computed per element.
    leaves = jax.lax.optimization_barrier(jax.tree.leaves(params))
    return jnp.concatenate([leaf.reshape(-1) for leaf in leaves])


def unravel(vector: Vector, like: Params) -> Params:
    """The inverse of `ravel`, in the shapes and types of `like`."""
    leaves, treedef = jax.tree.flatten(like)
    parts, start = [], 0
    for leaf in leaves:
        part = jax.lax.slice_in_dim(vector, start, start + leaf.size)
        parts.append(part.reshape(leaf.shape).astype(leaf.dtype))
        start += leaf.size
    return jax.tree.unflatten(treedef, jax.lax.optimization_barrier(parts))


def num_coordinates(params: Params) -> int:
    """Length of the vector."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def log_density_of(
    model: AbstractModel, batch: Batch, like: Params, temperature: Array | float = 1.0
) -> Callable[[Vector], Float[Array, ""]]:
    """The log density over a temperature, as a function of a vector."""
    return lambda vector: model.log_density(unravel(vector, like), batch) / temperature


def density_of(model: AbstractModel, batch: Batch, like: Params, temperature: Array | float = 1.0) -> Density:
    """The log density over a temperature, and its gradient, as a function of a vector."""

    def density(vector: Vector) -> tuple[Float[Array, ""], Vector]:
        value, gradient = jax.value_and_grad(lambda params: model.log_density(params, batch))(unravel(vector, like))
        return value / temperature, ravel(gradient) / temperature

    return density
