"""The curvature of the log likelihood of one batch, in whatever form a structure wants it."""

import abc
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PRNGKeyArray

from marginax.curvature.hooks import Columns, Plan, pull_back, selected_part
from marginax.curvature.jacobians import Jacobian, gram, take_entries
from marginax.data import Batch
from marginax.model.abstract import Params


class Point(eqx.Module):
    """Where the curvature is taken, and for which data and weights.

    Args:
        model: what it is the curvature of; columns need an `mx.Model`, the Hessian any model.
        params: where.
        plan: which leaves, and how they are differentiated.
        batch: the data.
        weights: of the rows, besides those that the data give them: 0 or 1.
        key: for kinds that draw.
        index: single weights of those leaves, where it is not all of them.
    """

    model: Any
    params: Params
    plan: Plan = eqx.field(static=True)
    batch: Batch
    weights: Float[Array, " n"]
    key: PRNGKeyArray
    index: Int[Array, " chosen"] | None = None

    @property
    def size(self) -> int:
        """Number of weights."""
        return self.plan.size if self.index is None else self.index.shape[0]

    @property
    def no_step(self) -> Float[Array, " size"]:
        """Zeros."""
        return jnp.zeros(self.size, self.weights.dtype)

    def moved(self, step: Float[Array, " size"]) -> Params:
        """Parameters with a step added to the weights."""
        flat, unravel = ravel_pytree(self.model.weights(self.params))
        step = step.astype(flat.dtype)
        if self.index is not None:
            return self.model.with_weights(self.params, unravel(flat.at[self.index].add(step)))
        start = 0
        for where in self.plan.slices():
            length = where.stop - where.start
            flat = flat.at[where].add(step[start : start + length])
            start += length
        return self.model.with_weights(self.params, unravel(flat))


class AbstractBatchCurvature(eqx.Module):
    """The curvature of one batch."""

    point: eqx.AbstractVar[Point]

    @abc.abstractmethod
    def jacobian(self) -> Jacobian:
        """Rows whose outer products sum to the matrix; an error where it is no such sum."""

    @abc.abstractmethod
    def log_likelihood(self) -> Float[Array, ""]:
        """Of the rows that count."""

    @abc.abstractmethod
    def product(self, directions: Float[Array, "size r"]) -> Float[Array, "size r"]:
        """The matrix times vectors, without the matrix."""

    @abc.abstractmethod
    def matrix(self, part: slice = slice(None)) -> Float[Array, "block block"]:
        """The matrix of all weights, or of some consecutive ones."""

    @abc.abstractmethod
    def diagonal(self) -> Float[Array, " size"]:
        """The diagonal alone."""

    @abc.abstractmethod
    def of_weights(self, index: Int[Array, " chosen"]) -> "AbstractBatchCurvature":
        """The same for single weights."""


class OuterProducts(AbstractBatchCurvature):
    """A sum of outer products of columns, from one forward and backward pass through the network."""

    point: Point
    rows: Jacobian
    outputs: Float[Array, "n k"]
    columns: Columns

    @classmethod
    def at(cls, point: Point, columns: Columns) -> "OuterProducts":
        """The network is traced here, once for all that is asked afterwards."""
        batch = point.batch
        point = replace(point, weights=batch.weigh(point.weights))
        outputs, rows = pull_back(point.model, point.params, point.plan, batch.x, batch.y, columns, point.key)
        jacobian = tuple(leaf.weighted(point.weights) for leaf in selected_part(rows))
        return cls(point, jacobian, outputs, columns)

    def jacobian(self) -> Jacobian:
        return self.rows

    def log_likelihood(self) -> Float[Array, ""]:
        point = self.point
        return point.weights @ point.model.likelihood.log_prob(self.outputs, point.batch.y, point.params.likelihood)

    def product(self, directions: Float[Array, "size r"]) -> Float[Array, "size r"]:
        point = self.point
        keys = jax.random.split(point.key, point.batch.size)
        outputs, jvp = jax.linearize(lambda step: point.model.output(point.moved(step), point.batch.x), point.no_step)
        roots = jax.vmap(self.columns)(outputs, point.batch.y, keys)
        vjp = jax.linear_transpose(jvp, point.no_step)

        def one(direction: Array) -> Array:
            change = jvp(direction) * point.weights[:, None]
            return vjp(jnp.einsum("nkm,nlm,nl->nk", roots, roots, change))[0]

        return jax.vmap(one, 1, 1)(directions)

    def matrix(self, part: slice = slice(None)) -> Float[Array, "block block"]:
        return gram(self.rows)[part, part]

    def diagonal(self) -> Float[Array, " size"]:
        return jnp.concatenate([leaf.squares() for leaf in self.rows])

    def of_weights(self, index: Int[Array, " chosen"]) -> "OuterProducts":
        return replace(self, point=replace(self.point, index=index), rows=(take_entries(self.rows, index),))


class SecondDerivative(AbstractBatchCurvature):
    """The Hessian of the negative log likelihood, by products with vectors, for any model."""

    point: Point

    def jacobian(self) -> Jacobian:
        raise ValueError(
            "kind Hessian() is no sum of outer products: choose Dense(), BlockDiagonal(), Diagonal() or "
            "LowRank() as structure, or kind GGN()"
        )

    def log_likelihood(self) -> Float[Array, ""]:
        return self.point.weights @ self.point.model.log_likelihood(self.point.params, self.point.batch)

    def product(self, directions: Float[Array, "size r"]) -> Float[Array, "size r"]:
        return jax.vmap(self._product, 1, 1)(directions)

    def matrix(self, part: slice = slice(None)) -> Float[Array, "block block"]:
        """By products with unit vectors, a few at a time."""
        start, stop, _ = part.indices(self.point.size)
        return jax.lax.map(self._row, jnp.arange(start, stop), batch_size=64)[:, start:stop]

    def diagonal(self) -> Float[Array, " size"]:
        return jax.lax.map(lambda i: self._row(i) @ self._unit(i), jnp.arange(self.point.size), batch_size=64)

    def of_weights(self, index: Int[Array, " chosen"]) -> "SecondDerivative":
        return SecondDerivative(replace(self.point, index=index))

    def _unit(self, i: Array) -> Float[Array, " size"]:
        return jax.nn.one_hot(i, self.point.size, dtype=self.point.weights.dtype)

    def _row(self, i: Array) -> Float[Array, " size"]:
        return self.product(self._unit(i)[:, None])[:, 0]

    def _product(self, direction: Float[Array, " size"]) -> Float[Array, " size"]:
        point = self.point

        def loss(step: Array) -> Array:
            return -point.weights @ point.model.log_likelihood(point.moved(step), point.batch)

        return jax.jvp(jax.grad(loss), (point.no_step,), (direction,))[1]
