r"""Structured covariances of zero-mean normals over raveled parameters: sample and log density in O(structure)."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from marginax._random import normal
from marginax.files import register

_LOG_2PI = 1.8378770664093453


class AbstractCovariance(eqx.Module):
    """A covariance matrix that may be too big to write down."""

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """Number of parameters."""

    @abc.abstractmethod
    def sample(self, key: PRNGKeyArray, num: int) -> Float[Array, "num size"]:
        """Draws of the zero-mean normal."""

    @abc.abstractmethod
    def log_prob(self, deviation: Float[Array, " size"]) -> Float[Array, ""]:
        """Log density at a deviation from the mean."""

    @abc.abstractmethod
    def variances(self) -> Float[Array, " size"]:
        """The diagonal, without the matrix."""

    @abc.abstractmethod
    def keep(self, kept: Bool[Array, " size"]) -> "AbstractCovariance":
        """The same for the parameters that are kept; the others stay at their mean, and weigh nothing."""

    @abc.abstractmethod
    def dense(self) -> Float[Array, "size size"]:
        """The matrix itself, for small sizes and tests."""


@register
class DiagonalCovariance(AbstractCovariance):
    """Independent parameters.

    Args:
        scale: standard deviations; a parameter with 0 stays at its mean.
    """

    scale: Float[Array, " size"]

    @property
    def size(self) -> int:
        """Number of parameters."""
        return self.scale.shape[0]

    def sample(self, key: PRNGKeyArray, num: int) -> Float[Array, "num size"]:
        """Scaled white noise."""
        return self.scale * normal(key, (num, self.size))

    def log_prob(self, deviation: Float[Array, " size"]) -> Float[Array, ""]:
        """Sum of normal log densities."""
        moves = self.scale != 0
        scale = jnp.where(moves, self.scale, 1.0)
        return jnp.sum(jnp.where(moves, -0.5 * (deviation / scale) ** 2 - jnp.log(scale) - 0.5 * _LOG_2PI, 0.0))

    def variances(self) -> Float[Array, " size"]:
        """Squares of the scale."""
        return self.scale**2

    def keep(self, kept: Bool[Array, " size"]) -> "DiagonalCovariance":
        """No scale for the others."""
        return DiagonalCovariance(jnp.where(kept, self.scale, 0.0))

    def dense(self) -> Float[Array, "size size"]:
        """Variances on the diagonal."""
        return jnp.diag(self.scale**2)


@register
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
        """Number of parameters."""
        return self.scale.shape[0]

    def sample(self, key: PRNGKeyArray, num: int) -> Float[Array, "num size"]:
        """White noise in both parts."""
        own, shared = jax.random.split(key)
        noise = normal(shared, (num, self.factor.shape[1]))
        return self.scale * normal(own, (num, self.size)) + noise @ self.factor.T

    def log_prob(self, deviation: Float[Array, " size"]) -> Float[Array, ""]:
        """By the Woodbury identity and the determinant lemma."""
        moves = (self.scale != 0) | jnp.any(self.factor != 0, axis=1)
        scale = jnp.where(moves, self.scale, 1.0)
        white = self.factor / scale[:, None]
        inner = jnp.eye(self.factor.shape[1]) + white.T @ white
        chol = jnp.linalg.cholesky(inner)
        z = jnp.where(moves, deviation / scale, 0.0)
        half = jax.scipy.linalg.solve_triangular(chol, white.T @ z, lower=True)
        log_det = 2 * jnp.sum(jnp.log(scale)) + 2 * jnp.sum(jnp.log(jnp.diag(chol)))
        return -0.5 * (z @ z - half @ half + log_det + jnp.sum(moves) * _LOG_2PI)

    def variances(self) -> Float[Array, " size"]:
        """Of both parts."""
        return self.scale**2 + jnp.sum(self.factor**2, axis=1)

    def keep(self, kept: Bool[Array, " size"]) -> "LowRankCovariance":
        """Neither part for the others."""
        return LowRankCovariance(jnp.where(kept, self.scale, 0.0), jnp.where(kept[:, None], self.factor, 0.0))

    def dense(self) -> Float[Array, "size size"]:
        """Written out."""
        return jnp.diag(self.scale**2) + self.factor @ self.factor.T


@register
class DenseCovariance(AbstractCovariance):
    """A full matrix by its Cholesky factor.

    Args:
        cholesky: lower triangular L with covariance L L'.
    """

    cholesky: Float[Array, "size size"]

    @property
    def size(self) -> int:
        """Number of parameters."""
        return self.cholesky.shape[0]

    def sample(self, key: PRNGKeyArray, num: int) -> Float[Array, "num size"]:
        """White noise through the factor."""
        return normal(key, (num, self.size)) @ self.cholesky.T

    def log_prob(self, deviation: Float[Array, " size"]) -> Float[Array, ""]:
        """By a triangular solve."""
        z = jax.scipy.linalg.solve_triangular(self.cholesky, deviation, lower=True)
        log_det = 2 * jnp.sum(jnp.log(jnp.diag(self.cholesky)))
        return -0.5 * (z @ z + log_det + self.size * _LOG_2PI)

    def variances(self) -> Float[Array, " size"]:
        """Squares of L, summed by rows."""
        return jnp.sum(self.cholesky**2, axis=1)

    def keep(self, kept: Bool[Array, " size"]) -> "KeptCovariance":
        """Behind a mask."""
        return KeptCovariance(self, kept)

    def dense(self) -> Float[Array, "size size"]:
        """L L'."""
        return self.cholesky @ self.cholesky.T


@register
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

    def dense(self) -> Float[Array, "size size"]:
        """Written out."""
        basis = jnp.kron(self.left, self.right)
        return (basis * self.scale.ravel() ** 2) @ basis.T


@register
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

    def dense(self) -> Float[Array, "size size"]:
        """Zeros."""
        return jnp.zeros((self.num, self.num))


@register
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

    def dense(self) -> Float[Array, "size size"]:
        """Blocks on the diagonal."""
        return jax.scipy.linalg.block_diag(*(block.dense() for block in self.blocks))


@register
class KeptCovariance(AbstractCovariance):
    """Some parameters of another covariance; the others stay at their mean.

    Args:
        covariance: of all parameters.
        kept: which ones move.
    """

    covariance: AbstractCovariance
    kept: Bool[Array, " size"]

    @property
    def size(self) -> int:
        """Number of parameters, kept or not."""
        return self.covariance.size

    def sample(self, key: PRNGKeyArray, num: int) -> Float[Array, "num size"]:
        """Draws for all, of which some count."""
        return jnp.where(self.kept, self.covariance.sample(key, num), 0.0)

    def log_prob(self, deviation: Float[Array, " size"]) -> Float[Array, ""]:
        """Marginal of those that are kept, by the matrix (for small sizes); ones stand in for the others."""
        matrix = self.dense() + jnp.diag(jnp.where(self.kept, 0.0, 1.0))
        whole = DenseCovariance(jnp.linalg.cholesky(matrix)).log_prob(jnp.where(self.kept, deviation, 0.0))
        return whole + 0.5 * _LOG_2PI * jnp.sum(~self.kept)

    def variances(self) -> Float[Array, " size"]:
        """Zeros for the others."""
        return jnp.where(self.kept, self.covariance.variances(), 0.0)

    def keep(self, kept: Bool[Array, " size"]) -> "KeptCovariance":
        """What is kept both times."""
        return KeptCovariance(self.covariance, self.kept & kept)

    def dense(self) -> Float[Array, "size size"]:
        """Zeros in the rows and columns of the others."""
        return jnp.where(self.kept[:, None] & self.kept, self.covariance.dense(), 0.0)
