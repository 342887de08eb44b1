r"""What is kept of the curvature: sums over the data, one batch at a time, then a matrix in a structure.

For a layer with inputs $a$ and columns $g$ (derivatives with respect to its outputs), the block of its weight is
$\sum_{nm} (\sum_t g_{nmt} \otimes a_{nt})(\cdot)^\top$; the structures differ in what they keep of it.
"""

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
from jaxtyping import Array, Int, PRNGKeyArray

from marginax.curvature.batch import AbstractBatchCurvature
from marginax.curvature.hooks import Plan
from marginax.curvature.operators import AbstractCurvature


@dataclass(frozen=True)
class Extent:
    """How much there is to sum over.

    Args:
        num_examples: in the data.
        batch_size: of a step.
        num_columns: for each example; 0 for the Hessian, which is no sum of outer products.
    """

    num_examples: int
    batch_size: int
    num_columns: int


class AbstractStructure(eqx.Module):
    """Sums over the data, in one or more passes, then a curvature."""

    takes_any_prior: ClassVar[bool] = False
    """Whether a prior whose weights depend on each other can be added to it."""

    averages_prior: ClassVar[bool] = False
    """Whether of the precisions of a leaf it can take in their mean alone."""

    @abc.abstractmethod
    def empty(self, plan: Plan, extent: Extent, *, key: PRNGKeyArray) -> Any:
        """Sums before the first batch."""

    @abc.abstractmethod
    def add(self, sums: Any, batch: AbstractBatchCurvature, number: int = 0) -> Any:
        """Sums after a batch of a pass: `number` counts passes from 0."""

    @abc.abstractmethod
    def finalise(self, sums: Any, plan: Plan) -> AbstractCurvature:
        """The curvature from the sums over all data."""

    @abc.abstractmethod
    def cost(self, plan: Plan, extent: Extent) -> tuple[int, int]:
        """Numbers to be held at a time, and multiplications in all, besides those through the network."""

    @property
    def needs_layers(self) -> bool:
        """Whether it is about the layers of a network."""
        return False

    @property
    def num_passes(self) -> int:
        """Passes over the data."""
        return 1

    def next_pass(self, sums: Any, precision: Callable[[], Array]) -> Any:
        """What one pass leaves for the next; `precision()` is that of the prior, for structures that ask."""
        return sums

    def same_as(self, number: int) -> int:
        """The first pass that does the same as this one, so that it is compiled once."""
        return 0

    def chosen(self, sums: Any) -> Int[Array, " chosen"] | None:
        """Places of the single weights that the curvature is about, where it is not whole leaves."""
