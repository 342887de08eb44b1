"""Single weights, chosen by a first pass over the data."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from marginax.curvature.batch import AbstractBatchCurvature
from marginax.curvature.diagonal import Diagonal
from marginax.curvature.hooks import Plan
from marginax.curvature.operators import AbstractCurvature
from marginax.curvature.structure import AbstractStructure, Extent
from marginax.model import AbstractSubset


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

    def next_pass(self, sums: ChosenSums, precision: Float[Array, " size"]) -> ChosenSums:
        return replace(sums, index=self.subset.choose(precision + sums.diagonal))

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
