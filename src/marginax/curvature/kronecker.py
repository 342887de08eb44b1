"""Kronecker factors of the curvature, layer by layer."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from marginax._kernels.random import normal
from marginax.curvature.batch import AbstractBatchCurvature
from marginax.curvature.blocks import BlockCurvature
from marginax.curvature.diagonal import DiagonalCovariance, DiagonalCurvature
from marginax.curvature.hooks import LeafPlan, Plan
from marginax.curvature.jacobians import Jacobian, Outer, Plain, second_moment
from marginax.curvature.operators import AbstractCovariance, AbstractCurvature
from marginax.curvature.structure import AbstractStructure, Extent
from marginax.files import register


class FactorSums(eqx.Module):
    """Second moments of inputs and columns by layer, and squares of the leaves that are in no layer."""

    inputs: dict[int, Array]
    outputs: dict[int, Array]
    count: dict[int, Array]
    plain: dict[int, Array]


@register("structure/kronecker")
class Kronecker(AbstractStructure):
    r"""Kronecker factors (KFAC; Martens & Grosse, 2015): $\frac1N \sum a a^\top \otimes \sum g g^\top$ per weight.

    A weight that is used in several places counts each of them as an example (Eschenhagen et al., 2023: "expand"), but
    over views of an input that a network is averaged over, columns are summed and inputs averaged first ("reduce"). A
    bias is a weight whose input is 1; weights that are in no linear layer or convolution keep their diagonal.
    """

    averages_prior: ClassVar[bool] = True

    @property
    def needs_layers(self) -> bool:
        return True

    def empty(self, plan: Plan, extent: Extent, *, key: PRNGKeyArray) -> FactorSums:
        inputs, outputs, count, plain = {}, {}, {}, {}
        for i, leaf in enumerate(plan.selected):
            if leaf.site is None:
                plain[i] = jnp.zeros(leaf.size)
                continue
            rows, columns = leaf.factors
            outputs[leaf.site], count[leaf.site] = jnp.zeros((rows, rows)), jnp.zeros(())
            if not leaf.is_bias:
                inputs[leaf.site] = jnp.zeros((columns, columns))
        return FactorSums(inputs, outputs, count, plain)

    def add(self, sums: FactorSums, batch: AbstractBatchCurvature, number: int = 0) -> FactorSums:
        """Second moments, once for a weight and its bias."""
        inputs, outputs = dict(sums.inputs), dict(sums.outputs)
        count, plain = dict(sums.count), dict(sums.plain)
        done = set()
        for i, leaf in enumerate(batch.jacobian()):
            if not isinstance(leaf, Outer):
                plain[i] = plain[i] + leaf.squares()
                continue
            leaf = leaf.over_views()
            if leaf.site not in done:
                done.add(leaf.site)
                outputs[leaf.site] = outputs[leaf.site] + second_moment(leaf.columns)
                count[leaf.site] = count[leaf.site] + batch.point.weights.sum() * leaf.columns.shape[2]
            if leaf.inputs is not None:
                rows = leaf.inputs * jnp.sqrt(batch.point.weights)[:, None, None]
                inputs[leaf.site] = inputs[leaf.site] + second_moment(rows)
        return FactorSums(inputs, outputs, count, plain)

    def finalise(self, sums: FactorSums, plan: Plan) -> AbstractCurvature:
        left, right = decompose(sums)

        def block(i: int, leaf: LeafPlan) -> AbstractCurvature:
            if leaf.site is None:
                return DiagonalCurvature(sums.plain[i])
            outputs, basis = left[leaf.site]
            inputs, other = (jnp.ones(1), jnp.ones((1, 1))) if leaf.is_bias else right[leaf.site]
            return KroneckerCurvature(basis, other, outputs[:, None] * inputs[None, :])

        return BlockCurvature(tuple(block(i, leaf) for i, leaf in enumerate(plan.selected)))

    def cost(self, plan: Plan, extent: Extent) -> tuple[int, int]:
        numbers, work = 0, 0
        for leaf in plan.selected:
            rows, columns = leaf.factors if leaf.site is not None else (leaf.size, 1)
            places = 1 if leaf.site is None else plan.places(leaf.site)
            square = 0 if leaf.site is None else rows**2 + columns**2
            numbers += 4 * square + 2 * leaf.size
            work += extent.num_examples * places * (extent.num_columns * rows**2 + columns**2) if square else 0
        return numbers, work


class CorrectedSums(eqx.Module):
    """The factors, their bases, and the diagonal in those."""

    factors: FactorSums
    left: dict[int, Array]
    right: dict[int, Array]
    values: list[Array]


@register("structure/ekfac")
class EKFAC(AbstractStructure):
    """Kronecker factors with corrected eigenvalues (EKFAC; George et al., 2018): exact on the diagonal of their basis.

    A second pass over the data finds the diagonal of the curvature in the eigenbasis of the factors.
    """

    averages_prior: ClassVar[bool] = True

    @property
    def needs_layers(self) -> bool:
        return True

    @property
    def num_passes(self) -> int:
        return 2

    def empty(self, plan: Plan, extent: Extent, *, key: PRNGKeyArray) -> CorrectedSums:
        factors = Kronecker().empty(plan, extent, key=key)
        left, right = (jax.tree.map(lambda v: jnp.eye(v.shape[0]), side) for side in (factors.outputs, factors.inputs))
        return CorrectedSums(factors, left, right, [jnp.zeros(leaf.size) for leaf in plan.selected])

    def add(self, sums: CorrectedSums, batch: AbstractBatchCurvature, number: int = 0) -> CorrectedSums:
        """Factors in the first pass, squares in their basis in the second."""
        if number == 0:
            return replace(sums, factors=Kronecker().add(sums.factors, batch))
        pairs = zip(sums.values, batch.jacobian(), strict=True)
        return replace(sums, values=[total + _rotated(leaf, sums).squares() for total, leaf in pairs])

    def same_as(self, number: int) -> int:
        return number

    def next_pass(self, sums: CorrectedSums, precision: Callable[[], Array]) -> CorrectedSums:
        left, right = ({site: pair[1] for site, pair in side.items()} for side in decompose(sums.factors))
        return replace(sums, left=left, right=right)

    def finalise(self, sums: CorrectedSums, plan: Plan) -> AbstractCurvature:
        def block(leaf: LeafPlan, values: Array) -> AbstractCurvature:
            if leaf.site is None:
                return DiagonalCurvature(values)
            right = jnp.ones((1, 1)) if leaf.is_bias else sums.right[leaf.site]
            return KroneckerCurvature(sums.left[leaf.site], right, values.reshape(leaf.factors))

        return BlockCurvature(tuple(block(*pair) for pair in zip(plan.selected, sums.values, strict=True)))

    def cost(self, plan: Plan, extent: Extent) -> tuple[int, int]:
        numbers, work = Kronecker().cost(plan, extent)
        return 2 * numbers, 4 * work


def decompose(sums: FactorSums) -> tuple[dict[int, tuple[Array, Array]], dict[int, tuple[Array, Array]]]:
    """Eigenvalues and bases of the factors, by layer: of the columns, and of the inputs."""

    def positive(matrix: Array) -> tuple[Array, Array]:
        values, vectors = jnp.linalg.eigh(matrix)
        return jnp.maximum(values, 0.0), vectors

    left = {site: positive(matrix) for site, matrix in sums.outputs.items()}
    right = {site: positive(matrix / sums.count[site]) for site, matrix in sums.inputs.items()}
    return left, right


def _rotated(leaf: Any, sums: CorrectedSums) -> Any:
    if not isinstance(leaf, Outer):
        return leaf
    right = jnp.ones((1, 1)) if leaf.inputs is None else sums.right[leaf.site]
    return leaf.rotated(sums.left[leaf.site], right)


@register("curvature/kronecker")
class KroneckerCurvature(AbstractCurvature):
    r"""Diagonal in the basis $Q_l \otimes Q_r$. The prior's precision is taken as its mean over the leaf.

    Args:
        left: $Q_l$, orthogonal, for the outputs of the layer.
        right: $Q_r$, orthogonal, for its inputs.
        values: on the diagonal in that basis.
    """

    left: Float[Array, "o o"]
    right: Float[Array, "i i"]
    values: Float[Array, "o i"]

    @property
    def size(self) -> int:
        return self.values.size

    def covariance(self, precision: Float[Array, " size"]) -> "KroneckerCovariance":
        return KroneckerCovariance(self.left, self.right, (self.values + jnp.mean(precision)) ** -0.5)

    def scaled(self, factor: Float[Array, ""]) -> "KroneckerCurvature":
        return KroneckerCurvature(self.left, self.right, self.values * factor)


@register("covariance/kronecker")
class KroneckerCovariance(AbstractCovariance):
    r"""Covariance of a matrix W (raveled by rows) that is diagonal in the basis $Q_l \otimes Q_r$.

    Args:
        left: $Q_l$, orthogonal, for the rows.
        right: $Q_r$, orthogonal, for the columns.
        scale: standard deviations in that basis.
    """

    left: Float[Array, "rows rows"]
    right: Float[Array, "columns columns"]
    scale: Float[Array, "rows columns"]

    @property
    def size(self) -> int:
        return self.scale.size

    def sample(self, key: PRNGKeyArray, num: int) -> Float[Array, "num size"]:
        noise = self.scale * normal(key, (num, *self.scale.shape))
        return (self.left @ noise @ self.right.T).reshape(num, -1)

    def log_prob(self, deviation: Float[Array, " size"]) -> Float[Array, ""]:
        rotated = self.left.T @ deviation.reshape(self.scale.shape) @ self.right
        return DiagonalCovariance(self.scale.ravel()).log_prob(rotated.ravel())

    def variances(self) -> Float[Array, " size"]:
        return (self.left**2 @ self.scale**2 @ (self.right**2).T).ravel()

    def spread(self, jacobian: Jacobian) -> Float[Array, "n m m"]:
        (leaf,) = jacobian
        variances = (self.scale**2).ravel()
        if isinstance(leaf, Outer):
            return leaf.rotated(self.left, self.right).spread(variances)
        rows = leaf.dense()
        rotated = self.left.T @ rows.reshape(*rows.shape[:2], *self.scale.shape) @ self.right
        return Plain(rotated.reshape(rows.shape)).spread(variances)
