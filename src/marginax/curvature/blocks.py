"""Operators made of others: blocks one after the other, and some of the parameters."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from marginax.curvature.jacobians import Jacobian, Zero, sum_of, take_entries
from marginax.curvature.operators import AbstractCovariance, AbstractCurvature
from marginax.files import register


@register("curvature/block")
class BlockCurvature(AbstractCurvature):
    """Independent blocks, one after the other.

    Args:
        blocks: of consecutive weights.
    """

    blocks: tuple[AbstractCurvature, ...]

    @property
    def size(self) -> int:
        return sum(block.size for block in self.blocks)

    def covariance(self, precision: Float[Array, " size"]) -> "BlockCovariance":
        pairs = zip(self.blocks, _split(precision, self.blocks), strict=True)
        return BlockCovariance(tuple(block.covariance(part) for block, part in pairs))

    def scaled(self, factor: Float[Array, ""]) -> "BlockCurvature":
        return BlockCurvature(tuple(block.scaled(factor) for block in self.blocks))


@register("covariance/block")
class BlockCovariance(AbstractCovariance):
    """Independent blocks, one after the other.

    Args:
        blocks: covariances of consecutive parameters.
    """

    blocks: tuple[AbstractCovariance, ...]

    @property
    def size(self) -> int:
        return sum(block.size for block in self.blocks)

    def sample(self, key: PRNGKeyArray, num: int) -> Float[Array, "num size"]:
        parts = [block.sample(jax.random.fold_in(key, i), num) for i, block in enumerate(self.blocks)]
        return jnp.concatenate(parts, axis=1)

    def log_prob(self, deviation: Float[Array, " size"]) -> Float[Array, ""]:
        total, start = jnp.zeros(()), 0
        for block in self.blocks:
            total = total + block.log_prob(deviation[start : start + block.size])
            start += block.size
        return total

    def variances(self) -> Float[Array, " size"]:
        return jnp.concatenate([block.variances() for block in self.blocks])

    def leading(self, num: int) -> AbstractCovariance:
        """Whole blocks, and the beginning of one."""
        kept, left = [], num
        for block in self.blocks:
            if left:
                kept.append(block.leading(min(left, block.size)))
                left -= kept[-1].size
        return kept[0] if len(kept) == 1 else BlockCovariance(tuple(kept))

    def keep(self, kept: Bool[Array, " size"]) -> "BlockCovariance":
        pairs = zip(self.blocks, _split(kept, self.blocks), strict=True)
        return BlockCovariance(tuple(block.keep(part) for block, part in pairs))

    def spread(self, jacobian: Jacobian) -> Float[Array, "n m m"]:
        """Sum over blocks; each takes as many leaves as it has parameters."""
        leaves, parts = list(jacobian), []
        for block in self.blocks:
            own, size = [], 0
            while size < block.size:
                own.append(leaves.pop(0))
                size += own[-1].size
            assert size == block.size, "a block ends within a leaf"
            parts.append(block.spread(tuple(own)))
        return sum_of(parts)

    def dense(self) -> Float[Array, "size size"]:
        return jax.scipy.linalg.block_diag(*(block.dense() for block in self.blocks))


@register("covariance/fixed")
class FixedCovariance(AbstractCovariance):
    """Parameters that stay at their mean.

    Args:
        num: how many.
    """

    num: int

    @property
    def size(self) -> int:
        return self.num

    def sample(self, key: PRNGKeyArray, num: int) -> Float[Array, "num size"]:
        return jnp.zeros((num, self.num))

    def log_prob(self, deviation: Float[Array, " size"]) -> Float[Array, ""]:
        return jnp.zeros(())

    def variances(self) -> Float[Array, " size"]:
        return jnp.zeros(self.num)

    def leading(self, num: int) -> "FixedCovariance":
        return FixedCovariance(num)

    def keep(self, kept: Bool[Array, " size"]) -> "FixedCovariance":
        return self

    def spread(self, jacobian: Jacobian) -> Float[Array, "n m m"]:
        num, width = jacobian[0].extent
        return jnp.zeros((num, width, width))

    def dense(self) -> Float[Array, "size size"]:
        return jnp.zeros((self.num, self.num))


@register("covariance/subset")
class SubsetCovariance(AbstractCovariance):
    """Some parameters are random, in the order of another covariance; the others stay at their mean.

    Args:
        covariance: of those that are random.
        index: their places among all parameters.
        num: number of all parameters.
    """

    covariance: AbstractCovariance
    index: Int[Array, " random"]
    num: int

    @property
    def size(self) -> int:
        return self.num

    def sample(self, key: PRNGKeyArray, num: int) -> Float[Array, "num size"]:
        draws = self.covariance.sample(key, num)
        return jnp.zeros((num, self.num), draws.dtype).at[:, self.index].set(draws)

    def log_prob(self, deviation: Float[Array, " size"]) -> Float[Array, ""]:
        return self.covariance.log_prob(deviation[self.index])

    def variances(self) -> Float[Array, " size"]:
        return jnp.zeros(self.num).at[self.index].set(self.covariance.variances())

    def leading(self, num: int) -> "SubsetCovariance":
        """Where all that is random comes first."""
        if bool(jnp.any(self.index >= num)):
            raise ValueError(f"SubsetCovariance has random parameters after the first {num}")
        return SubsetCovariance(self.covariance, self.index, num)

    def keep(self, kept: Bool[Array, " size"]) -> "SubsetCovariance":
        return SubsetCovariance(self.covariance.keep(kept[self.index]), self.index, self.num)

    def spread(self, jacobian: Jacobian) -> Float[Array, "n m m"]:
        """By whole leaves where those are random as a whole, else by single entries."""
        random = tuple(leaf for leaf in jacobian if not isinstance(leaf, Zero))
        if sum(leaf.size for leaf in random) == self.covariance.size:
            return self.covariance.spread(random)
        return self.covariance.spread((take_entries(jacobian, self.index),))

    def dense(self) -> Float[Array, "size size"]:
        inner = self.covariance.dense()
        return jnp.zeros((self.num, self.num), inner.dtype).at[self.index[:, None], self.index].set(inner)


def _split(values: Array, blocks: tuple[AbstractCovariance | AbstractCurvature, ...]) -> list[Array]:
    return jnp.split(values, np.cumsum([block.size for block in blocks])[:-1])
