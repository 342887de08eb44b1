r"""Which matrix stands for the curvature of the negative log likelihood.

- `GGN`: $\sum_n J_n^\top F_n J_n$, generalised Gauss-Newton, with the Fisher information $F_n$ of the outputs.
- `EmpiricalFisher`: $\sum_n g_n g_n^\top$ of the gradients at the data; cheap, and no curvature far from the truth.
- `MonteCarloFisher`: gradients at targets drawn from the model; the GGN in expectation, at the price of one column.
- `Hessian`: the second derivative itself, which need not be positive.

All but the last are sums of outer products $C_n C_n^\top$ of columns that are pulled back from the outputs.
"""

import abc
import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from marginax.curvature.hooks import Columns, Plan, moving_part, pull_back
from marginax.curvature.jacobians import Jacobian, gram, take_entries
from marginax.data import Batch
from marginax.files import register
from marginax.model import Model, Params


class AbstractKind(eqx.Module):
    """What is summed over the data."""

    @abc.abstractmethod
    def num_columns(self, output_size: int) -> int:
        """Columns per example."""

    @abc.abstractmethod
    def columns(self, model: Model, params: Params) -> Columns:
        """(outputs, target, key) of an example -> columns whose outer products are the curvature of the outputs."""


@register("curvature_kind/ggn")
class GGN(AbstractKind):
    """Generalised Gauss-Newton: the Fisher information of the outputs, exactly."""

    def num_columns(self, output_size: int) -> int:
        """As many as outputs; fewer where the information has no full rank."""
        return output_size

    def columns(self, model: Model, params: Params) -> Columns:
        """A root of the Fisher information."""
        return lambda output, y, key: model.likelihood.fisher_root(output, params.likelihood)


@register("curvature_kind/empirical_fisher")
class EmpiricalFisher(AbstractKind):
    """Outer products of the gradients at the observed targets."""

    def num_columns(self, output_size: int) -> int:
        """One."""
        del output_size
        return 1

    def columns(self, model: Model, params: Params) -> Columns:
        """The gradient of the log likelihood."""
        return lambda output, y, key: _score(model, params, output, y)[:, None]


@register("curvature_kind/monte_carlo_fisher")
class MonteCarloFisher(AbstractKind):
    """Outer products of gradients at targets that the model draws: unbiased for the GGN.

    Args:
        num_samples: targets per example.
    """

    num_samples: int = 1

    def __check_init__(self):
        if isinstance(self.num_samples, bool) or not isinstance(self.num_samples, int) or self.num_samples < 1:
            raise ValueError(f"num_samples must be an int >= 1, got {self.num_samples!r}")

    def num_columns(self, output_size: int) -> int:
        """One for each target."""
        del output_size
        return self.num_samples

    def columns(self, model: Model, params: Params) -> Columns:
        """Gradients at fresh targets."""

        def draw(output: Array, y: Array, key: PRNGKeyArray) -> Array:
            targets = model.likelihood.distribution(output, params.likelihood).sample(key, (self.num_samples,))
            targets = targets.reshape(self.num_samples, *y.shape)
            scores = jax.vmap(lambda target: _score(model, params, output, target))(targets)
            return scores.T / math.sqrt(self.num_samples)

        return draw


@register("curvature_kind/hessian")
class Hessian(AbstractKind):
    """The second derivative of the negative log likelihood, by products with vectors; for `Dense` and the like."""

    def num_columns(self, output_size: int) -> int:
        """None: it is no sum of outer products."""
        del output_size
        return 0

    def columns(self, model: Model, params: Params) -> Columns:
        """Refuse."""
        raise ValueError(
            "kind Hessian() is no sum of outer products: choose Dense(), BlockDiagonal(), Diagonal() or "
            "LowRank() as structure, or kind GGN()"
        )


def _score(model: Model, params: Params, output: Array, y: Array) -> Float[Array, " k"]:
    return jax.grad(lambda f: model.likelihood.log_prob(f[None], y[None], params.likelihood)[0])(output)


class BatchCurvature(eqx.Module):
    """The curvature of one batch, in whatever form it is wanted; nothing is computed before.

    Args:
        kind: which matrix.
        model: what it is the curvature of.
        params: where.
        plan: which leaves, and how they are differentiated.
        batch: the data.
        weights: of the rows, 0 or 1.
        key: for kinds that draw.
        index: single weights that are asked for, among those of all leaves.
    """

    kind: AbstractKind
    model: Model
    params: Params
    plan: Plan = eqx.field(static=True)
    batch: Batch
    weights: Float[Array, " n"]
    key: PRNGKeyArray
    index: Int[Array, " moving"] | None = None

    def _pulled(self) -> tuple[Array, Jacobian]:
        columns = self.kind.columns(self.model, self.params)
        return pull_back(self.model, self.params, self.plan, self.batch.x, self.batch.y, columns, self.key)

    def log_likelihood(self) -> Float[Array, ""]:
        """Of the rows that count, from the same forward pass as the columns."""
        if isinstance(self.kind, Hessian):
            return self.weights @ self.model.log_likelihood(self.params, self.batch)
        output = self._pulled()[0]
        return self.weights @ self.model.likelihood.log_prob(output, self.batch.y, self.params.likelihood)

    def jacobian(self) -> Jacobian:
        """Columns of all rows, pulled back to the leaves that move."""
        pulled = self._pulled()[1]
        moving = moving_part(pulled) if self.index is None else (take_entries(pulled, self.index),)
        return tuple(leaf.weighted(self.weights) for leaf in moving)

    def product(self, directions: Float[Array, "size r"]) -> Float[Array, "size r"]:
        """The matrix times vectors, without the matrix."""
        if isinstance(self.kind, Hessian):
            return jax.vmap(self._hessian_product, 1, 1)(directions)
        columns = self.kind.columns(self.model, self.params)
        keys = jax.random.split(self.key, self.batch.size)
        outputs, along = jax.linearize(self._outputs, self._start)
        roots = jax.vmap(columns)(outputs, self.batch.y, keys)
        back = jax.linear_transpose(along, self._start)

        def one(direction: Array) -> Array:
            change = along(direction) * self.weights[:, None]
            return back(jnp.einsum("nkm,nlm,nl->nk", roots, roots, change))[0]

        return jax.vmap(one, 1, 1)(directions)

    def matrix(self, part: slice = slice(None)) -> Float[Array, "block block"]:
        """The matrix of all weights that move, or of some consecutive ones."""
        if isinstance(self.kind, Hessian):
            start, stop, _ = part.indices(self.plan.size)
            return self.rows(start, stop)[:, start:stop]
        return gram(self.jacobian())[part, part]

    def rows(self, start: int, stop: int) -> Float[Array, "block size"]:
        """Rows of the matrix by products with unit vectors, a few at a time."""
        size = self.plan.size

        def row(i: Array) -> Array:
            return self.product(jax.nn.one_hot(i, size, dtype=self.weights.dtype)[:, None])[:, 0]

        return jax.lax.map(row, jnp.arange(start, stop), batch_size=64)

    def diagonal(self) -> Float[Array, " size"]:
        """The diagonal alone."""
        if isinstance(self.kind, Hessian):
            size = self.plan.size

            def entry(i: Array) -> Array:
                unit = jax.nn.one_hot(i, size, dtype=self.weights.dtype)
                return self.product(unit[:, None])[:, 0] @ unit

            return jax.lax.map(entry, jnp.arange(size), batch_size=64)
        return jnp.concatenate([leaf.squares() for leaf in self.jacobian()])

    @property
    def _start(self) -> Float[Array, " size"]:
        return jnp.zeros(self.plan.size, self.weights.dtype)

    def _moved(self, step: Float[Array, " size"]) -> Params:
        network = place(step, self.params.network, self.plan, self.index)
        return Params(network, self.params.likelihood, self.params.prior)

    def _outputs(self, step: Float[Array, " size"]) -> Float[Array, "n k"]:
        return self.model.output(self._moved(step), self.batch.x)

    def _hessian_product(self, direction: Float[Array, " size"]) -> Float[Array, " size"]:
        def loss(step: Array) -> Array:
            return -self.weights @ self.model.log_likelihood(self._moved(step), self.batch)

        return jax.jvp(jax.grad(loss), (self._start,), (direction,))[1]


def place(step: Float[Array, " size"], network: PyTree, plan: Plan, index: Array | None = None) -> PyTree:
    """The network with a step added to the weights that move."""
    flat, unravel = ravel_pytree(network)
    step = step.astype(flat.dtype)
    if index is not None:
        return unravel(flat.at[index].add(step))
    start = 0
    for where in plan.index():
        length = where.stop - where.start
        flat = flat.at[where].add(step[start : start + length])
        start += length
    return unravel(flat)
