r"""What is kept of the curvature: sums over the data, one batch at a time, then a matrix in a structure.

For a layer with inputs $a$ and pulled-back columns $g$, the block of its weight is
$\sum_{nm} (\sum_t g_{nmt} \otimes a_{nt})(\cdot)^\top$; the structures differ in what they keep of it.
"""

import abc
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from marginax._kernels.random import normal
from marginax.curvature.hooks import LeafPlan, Plan
from marginax.curvature.jacobians import (
    Jacobian,
    as_one_layer,
    dense_rows,
    gram,
    is_one_layer,
    unpack_gram,
)
from marginax.curvature.kinds import BatchCurvature, Hessian
from marginax.curvature.results import (
    AbstractCurvature,
    BlockCurvature,
    DenseCurvature,
    DiagonalCurvature,
    ReducedCurvature,
)
from marginax.files import register


@dataclass(frozen=True)
class Extent:
    """How much there is to sum over.

    Args:
        num_examples: in the data.
        batch_size: of a pass.
        num_columns: for each example.
    """

    num_examples: int
    batch_size: int
    num_columns: int


class AbstractStructure(eqx.Module):
    """Sums over the data, in one or more passes, then a curvature."""

    @property
    def num_passes(self) -> int:
        """Passes over the data."""
        return 1

    @abc.abstractmethod
    def empty(self, plan: Plan, extent: Extent, *, key: PRNGKeyArray) -> Any:
        """Sums before the first batch."""

    @abc.abstractmethod
    def add(self, sums: Any, batch: BatchCurvature, turn: int) -> Any:
        """Sums after a batch of a pass: `turn` counts passes from 0."""

    def turn(self, sums: Any) -> Any:
        """What one pass leaves for the next."""
        return sums

    def step_of(self, turn: int) -> int:
        """The pass that does the same as this one, so that it is compiled once."""
        del turn
        return 0

    @abc.abstractmethod
    def result(self, sums: Any, plan: Plan) -> AbstractCurvature:
        """The curvature from the sums over all data."""

    @abc.abstractmethod
    def cost(self, plan: Plan, extent: Extent) -> tuple[int, int]:
        """Numbers to be held at a time, and multiplications in all, besides those through the network."""


@register("structure/diagonal")
class Diagonal(AbstractStructure):
    """The diagonal alone: every weight by itself."""

    def empty(self, plan: Plan, extent: Extent, *, key: PRNGKeyArray) -> Array:
        """One number per weight."""
        del extent, key
        return jnp.zeros(plan.size)

    def add(self, sums: Array, batch: BatchCurvature, turn: int = 0) -> Array:
        """Squares."""
        del turn
        return sums + batch.diagonal()

    def result(self, sums: Array, plan: Plan) -> AbstractCurvature:
        """Leaf by leaf."""
        parts = jnp.split(sums, list(accumulate(leaf.size for leaf in plan.moving))[:-1])
        return BlockCurvature(tuple(DiagonalCurvature(part) for part in parts))

    def cost(self, plan: Plan, extent: Extent) -> tuple[int, int]:
        """Linear."""
        return 3 * plan.size, extent.num_examples * extent.num_columns * plan.size


@register("structure/dense")
class Dense(AbstractStructure):
    """All of it: exact, and quadratic in the number of weights."""

    def empty(self, plan: Plan, extent: Extent, *, key: PRNGKeyArray) -> Array:
        """A square matrix, or blocks of it for a single layer."""
        del key
        return _empty_gram(plan, tuple(range(len(plan.moving))), extent)

    def add(self, sums: Array, batch: BatchCurvature, turn: int = 0) -> Array:
        """The batch's own matrix."""
        del turn
        return sums + (batch.matrix() if isinstance(batch.kind, Hessian) else _gram(batch.jacobian()))

    def result(self, sums: Array, plan: Plan) -> AbstractCurvature:
        """As it is."""
        return _dense(sums, plan, tuple(range(len(plan.moving))))

    def cost(self, plan: Plan, extent: Extent) -> tuple[int, int]:
        """The matrix, its factor and room to work."""
        work = extent.num_examples * extent.num_columns * plan.size**2
        return 4 * plan.size**2, work + plan.size**3


@register("structure/block_diagonal")
class BlockDiagonal(AbstractStructure):
    """A dense block for each layer, its weight and bias together; layers are independent."""

    def empty(self, plan: Plan, extent: Extent, *, key: PRNGKeyArray) -> list[Array]:
        """A square matrix per layer."""
        del key
        return [_empty_gram(plan, leaves, extent) for leaves in _layers(plan)]

    def add(self, sums: list[Array], batch: BatchCurvature, turn: int = 0) -> list[Array]:
        """Each layer's own matrix."""
        del turn
        layers = _layers(batch.plan)
        if isinstance(batch.kind, Hessian):
            sizes = self._sizes(batch.plan)
            ends = accumulate(sizes)
            parts = [batch.matrix(slice(end - size, end)) for end, size in zip(ends, sizes, strict=True)]
        else:
            jacobian = batch.jacobian()
            parts = [_gram(tuple(jacobian[i] for i in leaves)) for leaves in layers]
        return [total + part for total, part in zip(sums, parts, strict=True)]

    def result(self, sums: list[Array], plan: Plan) -> AbstractCurvature:
        """Blocks."""
        pairs = zip(sums, _layers(plan), strict=True)
        return BlockCurvature(tuple(_dense(total, plan, leaves) for total, leaves in pairs))

    def cost(self, plan: Plan, extent: Extent) -> tuple[int, int]:
        """As dense, layer by layer."""
        sizes, rows = self._sizes(plan), extent.num_examples * extent.num_columns
        return 4 * sum(n**2 for n in sizes), sum(rows * n**2 + n**3 for n in sizes)

    def _sizes(self, plan: Plan) -> list[int]:
        return [sum(plan.moving[i].size for i in leaves) for leaves in _layers(plan)]


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
        for name, value, least in (("rank", self.rank, 1), ("num_passes", self.num_passes, 2)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be an int >= {least}, got {value!r}")
        if isinstance(self.num_spare, bool) or not isinstance(self.num_spare, int) or self.num_spare < 0:
            raise ValueError(f"num_spare must be an int >= 0, got {self.num_spare!r}")

    def empty(self, plan: Plan, extent: Extent, *, key: PRNGKeyArray) -> DirectionSums:
        """Random directions."""
        del extent
        shape = (plan.size, self._width(plan))
        return DirectionSums(jnp.linalg.qr(normal(key, shape))[0], jnp.zeros(shape))

    def add(self, sums: DirectionSums, batch: BatchCurvature, turn: int = 0) -> DirectionSums:
        """Products with all directions."""
        del turn
        return DirectionSums(sums.basis, sums.product + batch.product(sums.basis))

    def turn(self, sums: DirectionSums) -> DirectionSums:
        """The products are the better directions."""
        return DirectionSums(jnp.linalg.qr(sums.product)[0], jnp.zeros_like(sums.product))

    def result(self, sums: DirectionSums, plan: Plan) -> AbstractCurvature:
        """The best that the directions hold (Rayleigh and Ritz)."""
        del plan
        inner = sums.basis.T @ sums.product
        values, vectors = jnp.linalg.eigh(0.5 * (inner + inner.T))
        kept = slice(max(0, values.shape[0] - self.rank), None)
        return ReducedCurvature(sums.basis @ (vectors[:, kept] * jnp.sqrt(jnp.maximum(values[kept], 0.0))))

    def cost(self, plan: Plan, extent: Extent) -> tuple[int, int]:
        """Linear in weights, with one network's derivative per direction."""
        width = self._width(plan)
        work = self.num_passes * width * (4 * extent.num_examples * plan.size + width * plan.size)
        return 5 * plan.size * width, work

    def _width(self, plan: Plan) -> int:
        return min(self.rank + self.num_spare, plan.size)


class RowSums(eqx.Module):
    """All pulled-back columns, and how many are there."""

    rows: Array
    num: Array


@register("structure/function_space")
class FunctionSpace(AbstractStructure):
    """All of the curvature, held by examples instead of by weights: the Gaussian process view, for small data.

    The network is linear in its weights around the mode, so its outputs are a Gaussian process whose kernel is the
    product of derivatives, and the covariance is exact at a cost that grows with examples, not with weights squared.
    """

    def empty(self, plan: Plan, extent: Extent, *, key: PRNGKeyArray) -> RowSums:
        """Room for a row per example and column."""
        del key
        num_batches = -(-extent.num_examples // extent.batch_size)
        num_rows = num_batches * extent.batch_size * extent.num_columns
        return RowSums(jnp.zeros((num_rows, plan.size)), jnp.zeros((), jnp.int32))

    def add(self, sums: RowSums, batch: BatchCurvature, turn: int = 0) -> RowSums:
        """The rows of the batch."""
        del turn
        rows = dense_rows(batch.jacobian())
        flat = rows.reshape(-1, rows.shape[-1]).astype(sums.rows.dtype)
        rows = jax.lax.dynamic_update_slice_in_dim(sums.rows, flat, sums.num, 0)
        return RowSums(rows, sums.num + flat.shape[0])

    def result(self, sums: RowSums, plan: Plan) -> AbstractCurvature:
        """Rows are the factor."""
        del plan
        return ReducedCurvature(sums.rows.T)

    def cost(self, plan: Plan, extent: Extent) -> tuple[int, int]:
        """Linear in weights, quadratic in rows."""
        rows = extent.num_examples * extent.num_columns
        return 4 * rows * plan.size, rows**2 * plan.size


def _gram(jacobian: Jacobian) -> Array:
    """Packed for a single layer, as `_empty_gram` has it."""
    layer = as_one_layer(jacobian)
    return gram(jacobian) if layer is None else layer.packed_gram()


def _is_packed(plan: Plan, leaves: tuple[int, ...]) -> bool:
    parts = [plan.moving[i] for i in leaves]
    if plan.num_entries is not None or not is_one_layer([(leaf.site, leaf.is_bias) for leaf in parts]):
        return False
    return plan.places(parts[0].site or 0) == 1


def _empty_gram(plan: Plan, leaves: tuple[int, ...], extent: Extent) -> Array:
    parts = [plan.moving[i] for i in leaves]
    if extent.num_columns and _is_packed(plan, leaves):
        outputs, width = parts[0].factors[0], sum(leaf.factors[1] for leaf in parts)
        return jnp.zeros((outputs * (outputs + 1) // 2, width, width))
    size = plan.size if plan.num_entries is not None else sum(leaf.size for leaf in parts)
    return jnp.zeros((size, size))


def _dense(sums: Array, plan: Plan, leaves: tuple[int, ...]) -> DenseCurvature:
    """Unpacked, and symmetric to the last digit."""
    if sums.ndim == 3:
        sums = unpack_gram(sums, plan.moving[leaves[0]].factors[0], len(leaves))
    return DenseCurvature(0.5 * (sums + sums.T))


def _layers(plan: Plan) -> list[tuple[int, ...]]:
    """The leaves that move, by layer: those under one parent, one after the other."""
    groups: list[list[int]] = []
    parents: list[str] = []
    for i, leaf in enumerate(plan.moving):
        parent = _parent(leaf)
        if not parents or parents[-1] != parent:
            groups.append([])
            parents.append(parent)
        groups[-1].append(i)
    return [tuple(group) for group in groups]


def _parent(leaf: LeafPlan) -> str:
    return leaf.path.rpartition("/")[0]
