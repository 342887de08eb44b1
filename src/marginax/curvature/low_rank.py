"""Few directions: the largest eigenvalues, or a row for each example."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from marginax._kernels.random import normal
from marginax.curvature.batch import AbstractBatchCurvature
from marginax.curvature.diagonal import DiagonalCovariance
from marginax.curvature.hooks import Plan
from marginax.curvature.jacobians import Jacobian, dense_rows
from marginax.curvature.operators import LOG_2PI, AbstractCovariance, AbstractCurvature
from marginax.curvature.structure import AbstractStructure, Extent
from marginax.files import register


class DirectionSums(eqx.Module):
    """Directions, and the curvature times these."""

    basis: Array
    product: Array


@register("structure/low_rank")
class LowRank(AbstractStructure):
    """The largest eigenvalues and their eigenvectors, by products with vectors: no matrix is ever held.

    Subspace iteration from random directions (Halko, Martinsson & Tropp, 2011): a pass over the data multiplies all
    directions at a time.

    Args:
        rank: how many directions are kept.
        num_passes: over the data; more for eigenvalues that fall slowly.
        num_spare: further directions that help to find those.
    """

    rank: int = 20
    num_passes: int = 3
    num_spare: int = 10

    def __check_init__(self):
        for name, least in (("rank", 1), ("num_passes", 2), ("num_spare", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be an int >= {least}, got {value!r}")

    def empty(self, plan: Plan, extent: Extent, *, key: PRNGKeyArray) -> DirectionSums:
        shape = (plan.size, self._width(plan))
        return DirectionSums(jnp.linalg.qr(normal(key, shape))[0], jnp.zeros(shape))

    def add(self, sums: DirectionSums, batch: AbstractBatchCurvature, number: int = 0) -> DirectionSums:
        return DirectionSums(sums.basis, sums.product + batch.product(sums.basis))

    def next_pass(self, sums: DirectionSums, precision: Callable[[], Array]) -> DirectionSums:
        return DirectionSums(jnp.linalg.qr(sums.product)[0], jnp.zeros_like(sums.product))

    def finalise(self, sums: DirectionSums, plan: Plan) -> AbstractCurvature:
        """The best that the directions hold (Rayleigh and Ritz)."""
        inner = sums.basis.T @ sums.product
        values, vectors = jnp.linalg.eigh(0.5 * (inner + inner.T))
        kept = slice(max(0, values.shape[0] - self.rank), None)
        return ReducedCurvature(sums.basis @ (vectors[:, kept] * jnp.sqrt(jnp.maximum(values[kept], 0.0))))

    def cost(self, plan: Plan, extent: Extent) -> tuple[int, int]:
        width = self._width(plan)
        work = self.num_passes * width * (4 * extent.num_examples * plan.size + width * plan.size)
        return 5 * plan.size * width, work

    def _width(self, plan: Plan) -> int:
        return min(self.rank + self.num_spare, plan.size)


class RowSums(eqx.Module):
    """A row for each example and column, and how many are there."""

    rows: Array
    num: Array


@register("structure/function_space")
class FunctionSpace(AbstractStructure):
    """All of the curvature, held by examples instead of by weights: the Gaussian process view, for small data.

    The network is linear in its weights around the mode, so its outputs are a Gaussian process whose kernel is the
    product of derivatives, and the covariance is exact at a cost that grows with examples, not with weights squared.
    """

    def empty(self, plan: Plan, extent: Extent, *, key: PRNGKeyArray) -> RowSums:
        num_batches = -(-extent.num_examples // extent.batch_size)
        num_rows = num_batches * extent.batch_size * extent.num_columns
        return RowSums(jnp.zeros((num_rows, plan.size)), jnp.zeros((), jnp.int32))

    def add(self, sums: RowSums, batch: AbstractBatchCurvature, number: int = 0) -> RowSums:
        rows = dense_rows(batch.jacobian())
        flat = rows.reshape(-1, rows.shape[-1]).astype(sums.rows.dtype)
        rows = jax.lax.dynamic_update_slice_in_dim(sums.rows, flat, sums.num, 0)
        return RowSums(rows, sums.num + flat.shape[0])

    def finalise(self, sums: RowSums, plan: Plan) -> AbstractCurvature:
        return ReducedCurvature(sums.rows.T)

    def cost(self, plan: Plan, extent: Extent) -> tuple[int, int]:
        rows = extent.num_examples * extent.num_columns
        return 4 * rows * plan.size, rows**2 * plan.size


@register("curvature/low_rank")
class ReducedCurvature(AbstractCurvature):
    r"""$G G^\top$ with few columns in G: few directions of which the data say anything.

    Args:
        factor: G.
    """

    factor: Float[Array, "size rank"]

    @property
    def size(self) -> int:
        return self.factor.shape[0]

    def covariance(self, precision: Float[Array, " size"]) -> "ReducedCovariance":
        """Under a flat prior, directions that were not kept count as the weakest of those that were."""
        factor, weakest = self._less_the_weakest()
        flat = ~jnp.any(precision > 0)
        scale = jnp.where(flat, weakest, precision) ** -0.5
        factor = jnp.where(flat, factor, self.factor)
        basis, values, _ = jnp.linalg.svd(scale[:, None] * factor, full_matrices=False)
        return ReducedCovariance(scale, basis, values**2 / (1.0 + values**2))

    def _less_the_weakest(self) -> tuple[Float[Array, "size rank"], Float[Array, ""]]:
        """A factor of what the matrix has above its smallest eigenvalue but 0, where columns are orthogonal."""
        values = jnp.sum(self.factor**2, axis=0)
        weakest = jnp.min(jnp.where(values > 1e-6 * jnp.max(values), values, jnp.inf))
        return self.factor * jnp.sqrt(jnp.maximum(1.0 - weakest / jnp.maximum(values, weakest), 0.0)), weakest

    def scaled(self, factor: Float[Array, ""]) -> "ReducedCurvature":
        return ReducedCurvature(self.factor * jnp.sqrt(factor))


@register("covariance/reduced")
class ReducedCovariance(AbstractCovariance):
    r"""$D (I - V\,\mathrm{diag}(r)\,V^\top) D$: independent parameters that are known better in a few directions.

    The inverse of a diagonal matrix plus one of low rank.

    Args:
        scale: diagonal of D, the standard deviations without the directions.
        basis: V, orthonormal columns.
        reduction: r, the share of the variance that is gone, in [0, 1).
    """

    scale: Float[Array, " size"]
    basis: Float[Array, "size rank"]
    reduction: Float[Array, " rank"]

    @property
    def size(self) -> int:
        return self.scale.shape[0]

    def sample(self, key: PRNGKeyArray, num: int) -> Float[Array, "num size"]:
        noise = normal(key, (num, self.size))
        shorter = ((noise @ self.basis) * (jnp.sqrt(1.0 - self.reduction) - 1.0)) @ self.basis.T
        return self.scale * (noise + shorter)

    def log_prob(self, deviation: Float[Array, " size"]) -> Float[Array, ""]:
        """As for independent parameters, and what the directions add."""
        left = 1.0 - self.reduction
        along = (deviation / self.scale) @ self.basis
        more = -0.5 * jnp.sum(along**2 * self.reduction / left + jnp.log(left))
        return DiagonalCovariance(self.scale).log_prob(deviation) + more

    def variances(self) -> Float[Array, " size"]:
        return self.scale**2 * (1.0 - self.basis**2 @ self.reduction)

    def spread(self, jacobian: Jacobian) -> Float[Array, "n m m"]:
        """What is left along the directions, and all of the rest: a sum of squares, where a difference would cancel."""
        rows = dense_rows(jacobian) * self.scale
        along = rows @ self.basis
        across = rows - along @ self.basis.T
        left = jnp.einsum("nmr,nlr->nml", along * (1.0 - self.reduction), along)
        return jnp.einsum("nmp,nlp->nml", across, across) + left


@register("covariance/low_rank")
class LowRankCovariance(AbstractCovariance):
    r"""$\mathrm{diag}(s^2) + U U^\top$ with few columns in U.

    Args:
        scale: $s$, standard deviations of the diagonal part; a parameter with 0 here and in U stays at its mean.
        factor: $U$.
    """

    scale: Float[Array, " size"]
    factor: Float[Array, "size rank"]

    @property
    def size(self) -> int:
        return self.scale.shape[0]

    def sample(self, key: PRNGKeyArray, num: int) -> Float[Array, "num size"]:
        own, shared = jax.random.split(key)
        noise = normal(shared, (num, self.factor.shape[1]))
        return self.scale * normal(own, (num, self.size)) + noise @ self.factor.T

    def log_prob(self, deviation: Float[Array, " size"]) -> Float[Array, ""]:
        """By the Woodbury identity and the determinant lemma."""
        random = (self.scale != 0) | jnp.any(self.factor != 0, axis=1)
        scale = jnp.where(random, self.scale, 1.0)
        white = self.factor / scale[:, None]
        inner = jnp.eye(self.factor.shape[1]) + white.T @ white
        chol = jnp.linalg.cholesky(inner)
        z = jnp.where(random, deviation / scale, 0.0)
        half = jax.scipy.linalg.solve_triangular(chol, white.T @ z, lower=True)
        log_det = 2 * jnp.sum(jnp.log(scale)) + 2 * jnp.sum(jnp.log(jnp.diag(chol)))
        return -0.5 * (z @ z - half @ half + log_det + jnp.sum(random) * LOG_2PI)

    def variances(self) -> Float[Array, " size"]:
        return self.scale**2 + jnp.sum(self.factor**2, axis=1)

    def leading(self, num: int) -> "LowRankCovariance":
        return LowRankCovariance(self.scale[:num], self.factor[:num])

    def keep(self, kept: Bool[Array, " size"]) -> "LowRankCovariance":
        return LowRankCovariance(jnp.where(kept, self.scale, 0.0), jnp.where(kept[:, None], self.factor, 0.0))

    def spread(self, jacobian: Jacobian) -> Float[Array, "n m m"]:
        shared = dense_rows(jacobian) @ self.factor
        return DiagonalCovariance(self.scale).spread(jacobian) + jnp.einsum("nmr,nlr->nml", shared, shared)
