r"""Structured covariances of zero-mean normals over raveled parameters: sample and log density in O(structure)."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from marginax._kernels.random import normal
from marginax.curvature.jacobians import Jacobian, as_one_layer, dense_rows
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
    def spread(self, jacobian: Jacobian) -> Float[Array, "n m m"]:
        """Covariance of what depends on the parameters through these derivatives."""

    @abc.abstractmethod
    def dense(self) -> Float[Array, "size size"]:
        """The matrix itself, for small sizes and tests."""


@register("covariance/diagonal")
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

    def spread(self, jacobian: Jacobian) -> Float[Array, "n m m"]:
        """Sum over leaves."""
        variances = jnp.split(self.scale**2, np.cumsum([leaf.size for leaf in jacobian])[:-1])
        return sum_of([leaf.spread(part) for leaf, part in zip(jacobian, variances, strict=True)])

    def dense(self) -> Float[Array, "size size"]:
        """Variances on the diagonal."""
        return jnp.diag(self.scale**2)


@register("covariance/low_rank")
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

    def spread(self, jacobian: Jacobian) -> Float[Array, "n m m"]:
        """Of both parts."""
        shared = dense_rows(jacobian) @ self.factor
        return DiagonalCovariance(self.scale).spread(jacobian) + jnp.einsum("nmr,nlr->nml", shared, shared)

    def dense(self) -> Float[Array, "size size"]:
        """Written out."""
        return jnp.diag(self.scale**2) + self.factor @ self.factor.T


@register("covariance/reduced")
class ReducedCovariance(AbstractCovariance):
    r"""$D (I - V\,\mathrm{diag}(r)\,V^	op) D$: independent parameters that are known better in a few directions.

    The inverse of a diagonal matrix plus one of low rank.

    Args:
        scale: diagonal of D, the standard deviations without the directions.
        basis: V, orthonormal columns.
        reduction: r, the share of the variance that is gone, in [0, 1).
    """

    scale: Float[Array, " size"]
    basis: Float[Array, "size rank"]
    reduction: Float[Array, " rank"]

    @property
    def size(self) -> int:
        """Number of parameters."""
        return self.scale.shape[0]

    def sample(self, key: PRNGKeyArray, num: int) -> Float[Array, "num size"]:
        """White noise, shortened along the directions."""
        noise = normal(key, (num, self.size))
        shorter = ((noise @ self.basis) * (jnp.sqrt(1.0 - self.reduction) - 1.0)) @ self.basis.T
        return self.scale * (noise + shorter)

    def log_prob(self, deviation: Float[Array, " size"]) -> Float[Array, ""]:
        """As for independent parameters, and what the directions add."""
        left = 1.0 - self.reduction
        along = (deviation / self.scale) @ self.basis
        more = -0.5 * jnp.sum(along**2 * self.reduction / left + jnp.log(left))
        return DiagonalCovariance(self.scale).log_prob(deviation) + more

    def variances(self) -> Float[Array, " size"]:
        """Without the matrix."""
        return self.scale**2 * (1.0 - self.basis**2 @ self.reduction)

    def keep(self, kept: Bool[Array, " size"]) -> "KeptCovariance":
        """Behind a mask."""
        return KeptCovariance(self, kept)

    def spread(self, jacobian: Jacobian) -> Float[Array, "n m m"]:
        """That of independent parameters, less what is known."""
        rows = dense_rows(jacobian) * self.scale
        along = rows @ self.basis
        gone = jnp.einsum("nmr,nlr->nml", along * self.reduction, along)
        return jnp.einsum("nmp,nlp->nml", rows, rows) - gone

    def dense(self) -> Float[Array, "size size"]:
        """Written out."""
        inner = jnp.eye(self.size) - (self.basis * self.reduction) @ self.basis.T
        return self.scale[:, None] * inner * self.scale


@register("covariance/dense")
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

    def dense(self) -> Float[Array, "size size"]:
        """L L'."""
        return self.cholesky @ self.cholesky.T


@register("covariance/kept")
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

    def spread(self, jacobian: Jacobian) -> Float[Array, "n m m"]:
        """By the rows written out, and the matrix (for small sizes)."""
        rows = dense_rows(jacobian)
        return jnp.einsum("nmp,pq,nlq->nml", rows, self.dense(), rows)

    def dense(self) -> Float[Array, "size size"]:
        """Zeros in the rows and columns of the others."""
        return jnp.where(self.kept[:, None] & self.kept, self.covariance.dense(), 0.0)


def sum_of(parts: list[Array]) -> Array:
    """Of arrays of one shape."""
    return sum(parts[1:], parts[0])
