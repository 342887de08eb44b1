"""Whole matrices: of all weights, or of those of each layer."""

from itertools import accumulate
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from marginax._kernels.random import normal
from marginax.curvature.batch import AbstractBatchCurvature, OuterProducts
from marginax.curvature.blocks import BlockCurvature
from marginax.curvature.hooks import Plan
from marginax.curvature.jacobians import Jacobian, Outer, dense_rows, gram
from marginax.curvature.operators import AbstractCovariance, AbstractCurvature, normal_log_prob
from marginax.curvature.structure import AbstractStructure, Extent
from marginax.files import register


@register("structure/dense")
class Dense(AbstractStructure):
    """All of it: exact, and quadratic in the number of weights."""

    takes_any_prior: ClassVar[bool] = True

    def empty(self, plan: Plan, extent: Extent, *, key: PRNGKeyArray) -> Array:
        return _empty_gram(plan, tuple(range(len(plan.selected))), extent)

    def add(self, sums: Array, batch: AbstractBatchCurvature, number: int = 0) -> Array:
        return sums + (_gram(batch.rows) if isinstance(batch, OuterProducts) else batch.matrix())

    def finalise(self, sums: Array, plan: Plan) -> AbstractCurvature:
        return _dense(sums, plan, tuple(range(len(plan.selected))))

    def cost(self, plan: Plan, extent: Extent) -> tuple[int, int]:
        """The matrix, its factor and room to work."""
        work = extent.num_examples * extent.num_columns * plan.size**2
        return 4 * plan.size**2, work + plan.size**3


@register("structure/block_diagonal")
class BlockDiagonal(AbstractStructure):
    """A dense block for each layer, its weight and bias together; layers are independent."""

    def empty(self, plan: Plan, extent: Extent, *, key: PRNGKeyArray) -> list[Array]:
        return [_empty_gram(plan, leaves, extent) for leaves in plan.layers()]

    def add(self, sums: list[Array], batch: AbstractBatchCurvature, number: int = 0) -> list[Array]:
        plan = batch.point.plan
        if isinstance(batch, OuterProducts):
            parts = [_gram(tuple(batch.rows[i] for i in leaves)) for leaves in plan.layers()]
        else:
            sizes = self._sizes(plan)
            parts = [batch.matrix(slice(end - size, end)) for end, size in zip(accumulate(sizes), sizes, strict=True)]
        return [total + part for total, part in zip(sums, parts, strict=True)]

    def finalise(self, sums: list[Array], plan: Plan) -> AbstractCurvature:
        pairs = zip(sums, plan.layers(), strict=True)
        return BlockCurvature(tuple(_dense(total, plan, leaves) for total, leaves in pairs))

    def cost(self, plan: Plan, extent: Extent) -> tuple[int, int]:
        sizes, rows = self._sizes(plan), extent.num_examples * extent.num_columns
        return 4 * sum(n**2 for n in sizes), sum(rows * n**2 + n**3 for n in sizes)

    def _sizes(self, plan: Plan) -> list[int]:
        return [sum(plan.selected[i].size for i in leaves) for leaves in plan.layers()]


@register("curvature/dense")
class DenseCurvature(AbstractCurvature):
    """All entries.

    Args:
        matrix: symmetric.
    """

    matrix: Float[Array, "size size"]

    @property
    def size(self) -> int:
        return self.matrix.shape[0]

    def covariance(self, precision: Float[Array, " size"]) -> "DenseCovariance":
        """By a Cholesky factor of the inverse, which is that of the matrix with its order reversed, inverted.

        Rows and columns are scaled to a diagonal of ones first, which costs nothing and keeps digits.
        """
        return self.covariance_with(jnp.diag(precision))

    def covariance_with(self, precision: Float[Array, "size size"]) -> "DenseCovariance":
        total = self.matrix + precision
        scale = jnp.diag(total) ** -0.5
        reverse = jnp.linalg.cholesky((scale[:, None] * total * scale)[::-1, ::-1])[::-1, ::-1]
        return DenseCovariance(scale[:, None] * inverse_of_triangle(reverse.T))

    def scaled(self, factor: Float[Array, ""]) -> "DenseCurvature":
        return DenseCurvature(self.matrix * factor)


@register("covariance/dense")
class DenseCovariance(AbstractCovariance):
    """A full matrix by its Cholesky factor.

    Args:
        cholesky: lower triangular L with covariance L L'.
    """

    cholesky: Float[Array, "size size"]

    @property
    def size(self) -> int:
        return self.cholesky.shape[0]

    def sample(self, key: PRNGKeyArray, num: int) -> Float[Array, "num size"]:
        return normal(key, (num, self.size)) @ self.cholesky.T

    def log_prob(self, deviation: Float[Array, " size"]) -> Float[Array, ""]:
        return normal_log_prob(self.cholesky, deviation)

    def variances(self) -> Float[Array, " size"]:
        return jnp.sum(self.cholesky**2, axis=1)

    def leading(self, num: int) -> "DenseCovariance":
        return DenseCovariance(self.cholesky[:num, :num])

    def spread(self, jacobian: Jacobian) -> Float[Array, "n m m"]:
        """Rows through the factor; those of a single layer are never written out."""
        layer = as_one_layer(jacobian)
        if layer is None:
            rows = dense_rows(jacobian) @ self.cholesky
            return jnp.einsum("nmp,nlp->nml", rows, rows)
        outputs, width = layer.columns.shape[-1], layer.inputs.shape[-1]
        factor = jnp.zeros_like(self.cholesky).at[layer.order].set(self.cholesky)
        through = jnp.einsum("ni,oip->nop", layer.inputs, factor.reshape(outputs, width, -1))
        between = jnp.einsum("nop,nqp->noq", through, through)
        return layer.columns @ between @ layer.columns.swapaxes(1, 2)


def inverse_of_triangle(matrix: Float[Array, "size size"]) -> Float[Array, "size size"]:
    """Of a lower triangular matrix, by halves: most of the work is products of matrices, which use all cores."""
    size = matrix.shape[0]
    if size <= 256:
        return jax.scipy.linalg.solve_triangular(matrix, jnp.eye(size, dtype=matrix.dtype), lower=True)
    half = size // 2
    first, last = inverse_of_triangle(matrix[:half, :half]), inverse_of_triangle(matrix[half:, half:])
    below = -last @ (matrix[half:, :half] @ first)
    return jnp.block([[first, jnp.zeros((half, size - half), matrix.dtype)], [below, last]])


# ---- a single layer that is used once: its gram matrix is held by pairs of outputs


class LayerColumns(eqx.Module):
    """Derivatives with respect to a single layer, used once: its inputs have a 1 at the end if there is a bias."""

    columns: Float[Array, "n m o"]
    inputs: Float[Array, "n i"]
    order: Int[Array, " size"]

    def packed_gram(self) -> Float[Array, "pairs i i"]:
        """The gram matrix by pairs of outputs: columns only enter through products, of which there are few."""
        rows, others = jnp.triu_indices(self.columns.shape[-1])
        products = jnp.einsum("nmq,nmq->nq", self.columns[..., rows], self.columns[..., others])
        return jnp.einsum("nq,ni,nj->qij", products, self.inputs, self.inputs)


def as_one_layer(jacobian: Jacobian) -> LayerColumns | None:
    """A single layer, if that is all there is."""
    leaves = [leaf for leaf in jacobian if isinstance(leaf, Outer) and not leaf.is_shared]
    if len(leaves) < len(jacobian) or not _is_one_layer([(leaf.site, leaf.inputs is None) for leaf in leaves]):
        return None
    ones = jnp.ones((leaves[0].columns.shape[0], 1), leaves[0].columns.dtype)
    inputs = jnp.concatenate([ones if leaf.inputs is None else leaf.inputs[:, 0] for leaf in leaves], axis=1)
    order = _layer_order(leaves[0].shape[0], inputs.shape[1], len(leaves))
    return LayerColumns(leaves[0].columns[:, :, 0], inputs, order)


def _gram(jacobian: Jacobian) -> Array:
    """Packed for a single layer, as `_empty_gram` has it."""
    layer = as_one_layer(jacobian)
    return gram(jacobian) if layer is None else layer.packed_gram()


def _empty_gram(plan: Plan, leaves: tuple[int, ...], extent: Extent) -> Array:
    parts = [plan.selected[i] for i in leaves]
    one_layer = _is_one_layer([(leaf.site, leaf.is_bias) for leaf in parts])
    if extent.num_columns and one_layer and plan.places(parts[0].site or 0) == 1:
        outputs, width = parts[0].factors[0], sum(leaf.factors[1] for leaf in parts)
        return jnp.zeros((outputs * (outputs + 1) // 2, width, width))
    size = sum(leaf.size for leaf in parts)
    return jnp.zeros((size, size))


def _dense(sums: Array, plan: Plan, leaves: tuple[int, ...]) -> DenseCurvature:
    """Unpacked, and symmetric to the last digit."""
    if sums.ndim == 3:
        sums = _unpack_gram(sums, plan.selected[leaves[0]].factors[0], len(leaves))
    return DenseCurvature(0.5 * (sums + sums.T))


def _unpack_gram(packed: Float[Array, "pairs i i"], num_outputs: int, num_leaves: int) -> Float[Array, "size size"]:
    """The matrix of raveled weights, then biases, from its packed form."""
    width = packed.shape[-1]
    rows, others = jnp.triu_indices(num_outputs)
    full = jnp.zeros((num_outputs, num_outputs, width, width), packed.dtype)
    full = full.at[rows, others].set(packed).at[others, rows].set(packed)  # blocks are symmetric
    matrix = full.transpose(0, 2, 1, 3).reshape(num_outputs * width, -1)
    order = _layer_order(num_outputs, width, num_leaves)
    return matrix[order][:, order]


def _is_one_layer(leaves: list[tuple[int | None, bool]]) -> bool:
    """Whether these (site, is bias) are a weight, a bias, or a weight and then its bias."""
    sites, biases = {site for site, _ in leaves}, [bias for _, bias in leaves]
    return len(sites) == 1 and None not in sites and biases in ([False], [True], [False, True])


def _layer_order(num_outputs: int, num_inputs: int, num_leaves: int) -> Int[Array, " size"]:
    """Where raveled weights, then biases, are in a matrix of outputs and inputs whose last input is the 1."""
    places = jnp.arange(num_outputs * num_inputs).reshape(num_outputs, num_inputs)
    return jnp.concatenate([places[:, :-1].ravel(), places[:, -1]]) if num_leaves == 2 else places.ravel()
