"""Covariances made of others: blocks, some of the parameters, and Kronecker products."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from marginax._kernels.random import normal
from marginax.curvature.covariances import AbstractCovariance, DiagonalCovariance, KeptCovariance, sum_of
from marginax.curvature.jacobians import Jacobian, Outer, Plain, Zero, take_entries
from marginax.files import register


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
        """Number of parameters."""
        return self.scale.size

    def sample(self, key: PRNGKeyArray, num: int) -> Float[Array, "num size"]:
        """Scaled white noise, turned into place."""
        noise = self.scale * normal(key, (num, *self.scale.shape))
        return (self.left @ noise @ self.right.T).reshape(num, -1)

    def log_prob(self, deviation: Float[Array, " size"]) -> Float[Array, ""]:
        """Turn back, then independent normals."""
        turned = self.left.T @ deviation.reshape(self.scale.shape) @ self.right
        return DiagonalCovariance(self.scale.ravel()).log_prob(turned.ravel())

    def variances(self) -> Float[Array, " size"]:
        """Squares of the basis times those of the scale."""
        return (self.left**2 @ self.scale**2 @ (self.right**2).T).ravel()

    def keep(self, kept: Bool[Array, " size"]) -> "KeptCovariance":
        """Behind a mask."""
        return KeptCovariance(self, kept)

    def spread(self, jacobian: Jacobian) -> Float[Array, "n m m"]:
        """Turn the derivatives, then independent weights."""
        (leaf,) = jacobian
        variances = (self.scale**2).ravel()
        if isinstance(leaf, Outer):
            return leaf.turned(self.left, self.right).spread(variances)
        rows = leaf.dense()
        turned = self.left.T @ rows.reshape(*rows.shape[:2], *self.scale.shape) @ self.right
        return Plain(turned.reshape(rows.shape)).spread(variances)

    def dense(self) -> Float[Array, "size size"]:
        """Written out."""
        basis = jnp.kron(self.left, self.right)
        return (basis * self.scale.ravel() ** 2) @ basis.T


@register("covariance/fixed")
class FixedCovariance(AbstractCovariance):
    """Parameters that stay at their mean.

    Args:
        num: how many.
    """

    num: int

    @property
    def size(self) -> int:
        """Number of parameters."""
        return self.num

    def sample(self, key: PRNGKeyArray, num: int) -> Float[Array, "num size"]:
        """No deviation."""
        del key
        return jnp.zeros((num, self.num))

    def log_prob(self, deviation: Float[Array, " size"]) -> Float[Array, ""]:
        """Nothing to weigh."""
        del deviation
        return jnp.zeros(())

    def variances(self) -> Float[Array, " size"]:
        """Zeros."""
        return jnp.zeros(self.num)

    def keep(self, kept: Bool[Array, " size"]) -> "FixedCovariance":
        """None moves."""
        del kept
        return self

    def spread(self, jacobian: Jacobian) -> Float[Array, "n m m"]:
        """Nothing spreads."""
        num, width = jacobian[0].extent
        return jnp.zeros((num, width, width))

    def dense(self) -> Float[Array, "size size"]:
        """Zeros."""
        return jnp.zeros((self.num, self.num))


@register("covariance/block")
class BlockCovariance(AbstractCovariance):
    """Independent blocks, one after the other.

    Args:
        blocks: covariances of consecutive parameters.
    """

    blocks: tuple[AbstractCovariance, ...]

    @property
    def size(self) -> int:
        """Number of parameters."""
        return sum(block.size for block in self.blocks)

    def sample(self, key: PRNGKeyArray, num: int) -> Float[Array, "num size"]:
        """Each block by itself."""
        parts = [block.sample(jax.random.fold_in(key, i), num) for i, block in enumerate(self.blocks)]
        return jnp.concatenate(parts, axis=1)

    def log_prob(self, deviation: Float[Array, " size"]) -> Float[Array, ""]:
        """Sum over blocks."""
        total, start = jnp.zeros(()), 0
        for block in self.blocks:
            total = total + block.log_prob(deviation[start : start + block.size])
            start += block.size
        return total

    def variances(self) -> Float[Array, " size"]:
        """Those of the blocks."""
        return jnp.concatenate([block.variances() for block in self.blocks])

    def keep(self, kept: Bool[Array, " size"]) -> "BlockCovariance":
        """Each block by itself."""
        parts = jnp.split(kept, np.cumsum([block.size for block in self.blocks])[:-1])
        return BlockCovariance(tuple(block.keep(part) for block, part in zip(self.blocks, parts, strict=True)))

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
        """Blocks on the diagonal."""
        return jax.scipy.linalg.block_diag(*(block.dense() for block in self.blocks))


@register("covariance/subset")
class SubsetCovariance(AbstractCovariance):
    """Some parameters move, in the order of another covariance; the others stay at their mean.

    Args:
        covariance: of those that move.
        index: their places among all parameters.
        num: number of all parameters.
    """

    covariance: AbstractCovariance
    index: Int[Array, " moving"]
    num: int

    @property
    def size(self) -> int:
        """Number of all parameters."""
        return self.num

    def sample(self, key: PRNGKeyArray, num: int) -> Float[Array, "num size"]:
        """Draws in their places, zeros in the others."""
        draws = self.covariance.sample(key, num)
        return jnp.zeros((num, self.num), draws.dtype).at[:, self.index].set(draws)

    def log_prob(self, deviation: Float[Array, " size"]) -> Float[Array, ""]:
        """Of those that move."""
        return self.covariance.log_prob(deviation[self.index])

    def variances(self) -> Float[Array, " size"]:
        """Zeros for the others."""
        return jnp.zeros(self.num).at[self.index].set(self.covariance.variances())

    def keep(self, kept: Bool[Array, " size"]) -> "SubsetCovariance":
        """Those that are kept among those that move."""
        return SubsetCovariance(self.covariance.keep(kept[self.index]), self.index, self.num)

    def spread(self, jacobian: Jacobian) -> Float[Array, "n m m"]:
        """By whole leaves where those move as a whole, else by single entries."""
        moving = tuple(leaf for leaf in jacobian if not isinstance(leaf, Zero))
        if sum(leaf.size for leaf in moving) == self.covariance.size:
            return self.covariance.spread(moving)
        return self.covariance.spread((take_entries(jacobian, self.index),))

    def dense(self) -> Float[Array, "size size"]:
        """Zeros in the rows and columns of the others."""
        inner = self.covariance.dense()
        return jnp.zeros((self.num, self.num), inner.dtype).at[self.index[:, None], self.index].set(inner)
