"""The diagonal alone: every weight by itself; and single weights that are chosen by it."""

from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from marginax._kernels.random import normal
from marginax.curvature.batch import AbstractBatchCurvature
from marginax.curvature.blocks import BlockCurvature
from marginax.curvature.hooks import Plan
from marginax.curvature.jacobians import Jacobian, sum_of
from marginax.curvature.operators import LOG_2PI, AbstractCovariance, AbstractCurvature
from marginax.curvature.structure import AbstractStructure, Extent
from marginax.files import register
from marginax.model import AbstractSubset


@register("structure/diagonal")
class Diagonal(AbstractStructure):
    """The diagonal alone: every weight by itself."""

    def empty(self, plan: Plan, extent: Extent, *, key: PRNGKeyArray) -> Array:
        return jnp.zeros(plan.size)

    def add(self, sums: Array, batch: AbstractBatchCurvature, number: int = 0) -> Array:
        return sums + batch.diagonal()

    def finalise(self, sums: Array, plan: Plan) -> AbstractCurvature:
        parts = jnp.split(sums, list(accumulate(leaf.size for leaf in plan.selected))[:-1])
        return BlockCurvature(tuple(DiagonalCurvature(part) for part in parts))

    def cost(self, plan: Plan, extent: Extent) -> tuple[int, int]:
        return 3 * plan.size, extent.num_examples * extent.num_columns * plan.size


class ChosenSums(eqx.Module):
    """The diagonal by which weights are chosen, their places, and the sums of the structure for these."""

    diagonal: Array
    index: Int[Array, " chosen"]
    sums: Any


class SingleWeights(AbstractStructure):
    """Another structure, of one pass, for the single weights that a subset chooses by the diagonal of the precision.

    Args:
        structure: of the weights that are chosen.
        subset: that chooses; it knows how many.
    """

    structure: AbstractStructure
    subset: AbstractSubset

    @property
    def num_passes(self) -> int:
        return 2

    def empty(self, plan: Plan, extent: Extent, *, key: PRNGKeyArray) -> ChosenSums:
        num = self._num(plan)
        sums = self.structure.empty(plan.of_weights(num), extent, key=key)
        return ChosenSums(jnp.zeros(plan.size), jnp.zeros(num, jnp.int32), sums)

    def add(self, sums: ChosenSums, batch: AbstractBatchCurvature, number: int = 0) -> ChosenSums:
        if number == 0:
            return replace(sums, diagonal=Diagonal().add(sums.diagonal, batch))
        return replace(sums, sums=self.structure.add(sums.sums, batch.of_weights(sums.index)))

    def same_as(self, number: int) -> int:
        return number

    def next_pass(self, sums: ChosenSums, precision: Callable[[], Array]) -> ChosenSums:
        return replace(sums, index=self.subset.choose(precision() + sums.diagonal))

    def finalise(self, sums: ChosenSums, plan: Plan) -> AbstractCurvature:
        return self.structure.finalise(sums.sums, plan.of_weights(self._num(plan)))

    def chosen(self, sums: ChosenSums) -> Int[Array, " chosen"]:
        return sums.index

    def cost(self, plan: Plan, extent: Extent) -> tuple[int, int]:
        first = Diagonal().cost(plan, extent)
        then = self.structure.cost(plan.of_weights(self._num(plan)), extent)
        return max(first[0], then[0]), first[1] + then[1]

    def _num(self, plan: Plan) -> int:
        num = self.subset.num_chosen
        assert num is not None
        if num > plan.size:
            raise ValueError(f"num_weights must be at most {plan.size}, all there are, got {num}")
        return num


@register("curvature/diagonal")
class DiagonalCurvature(AbstractCurvature):
    """The diagonal alone.

    Args:
        values: on the diagonal.
    """

    values: Float[Array, " size"]

    @property
    def size(self) -> int:
        return self.values.shape[0]

    def covariance(self, precision: Float[Array, " size"]) -> "DiagonalCovariance":
        return DiagonalCovariance((self.values + precision) ** -0.5)

    def scaled(self, factor: Float[Array, ""]) -> "DiagonalCurvature":
        return DiagonalCurvature(self.values * factor)


@register("covariance/diagonal")
class DiagonalCovariance(AbstractCovariance):
    """Independent parameters.

    Args:
        scale: standard deviations; a parameter with 0 stays at its mean.
    """

    scale: Float[Array, " size"]

    @property
    def size(self) -> int:
        return self.scale.shape[0]

    def sample(self, key: PRNGKeyArray, num: int) -> Float[Array, "num size"]:
        return self.scale * normal(key, (num, self.size))

    def log_prob(self, deviation: Float[Array, " size"]) -> Float[Array, ""]:
        random = self.scale != 0
        scale = jnp.where(random, self.scale, 1.0)
        return jnp.sum(jnp.where(random, -0.5 * (deviation / scale) ** 2 - jnp.log(scale) - 0.5 * LOG_2PI, 0.0))

    def variances(self) -> Float[Array, " size"]:
        return self.scale**2

    def leading(self, num: int) -> "DiagonalCovariance":
        return DiagonalCovariance(self.scale[:num])

    def keep(self, kept: Bool[Array, " size"]) -> "DiagonalCovariance":
        return DiagonalCovariance(jnp.where(kept, self.scale, 0.0))

    def spread(self, jacobian: Jacobian) -> Float[Array, "n m m"]:
        variances = jnp.split(self.scale**2, np.cumsum([leaf.size for leaf in jacobian])[:-1])
        return sum_of([leaf.spread(part) for leaf, part in zip(jacobian, variances, strict=True)])
