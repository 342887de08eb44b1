"""The diagonal alone: every weight by itself."""

from itertools import accumulate

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from marginax._kernels.random import normal
from marginax.curvature.batch import AbstractBatchCurvature
from marginax.curvature.blocks import BlockCurvature
from marginax.curvature.hooks import Plan
from marginax.curvature.jacobians import Jacobian, sum_of
from marginax.curvature.operators import LOG_2PI, AbstractCovariance, AbstractCurvature
from marginax.curvature.structure import AbstractStructure, Extent
from marginax.files import register


@register("structure/diagonal")
class Diagonal(AbstractStructure):
    """The diagonal alone: every weight by itself."""

    def empty(self, plan: Plan, extent: Extent, *, key: PRNGKeyArray) -> Array:
        del extent, key
        return jnp.zeros(plan.size)

    def add(self, sums: Array, batch: AbstractBatchCurvature, number: int = 0) -> Array:
        del number
        return sums + batch.diagonal()

    def finalise(self, sums: Array, plan: Plan) -> AbstractCurvature:
        """Leaf by leaf."""
        parts = jnp.split(sums, list(accumulate(leaf.size for leaf in plan.selected))[:-1])
        return BlockCurvature(tuple(DiagonalCurvature(part) for part in parts))

    def cost(self, plan: Plan, extent: Extent) -> tuple[int, int]:
        return 3 * plan.size, extent.num_examples * extent.num_columns * plan.size


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

    def keep(self, kept: Bool[Array, " size"]) -> "DiagonalCovariance":
        return DiagonalCovariance(jnp.where(kept, self.scale, 0.0))

    def spread(self, jacobian: Jacobian) -> Float[Array, "n m m"]:
        variances = jnp.split(self.scale**2, np.cumsum([leaf.size for leaf in jacobian])[:-1])
        return sum_of([leaf.spread(part) for leaf, part in zip(jacobian, variances, strict=True)])
