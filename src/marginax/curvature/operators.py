r"""Positive matrices over raveled weights, in structures that may be too big to write down.

- A *curvature* H is what a structure finalises to: what the data say, without the prior, so that the prior can be
  changed afterwards without another pass over the data.
- A *covariance* is that of a zero-mean normal: sampled, and its density found, in O(structure). With the precision
  $\Lambda$ of a prior, `curvature.covariance(precision)` is $(H + \Lambda)^{-1}$; SWAG and variational posteriors
  have covariances of their own.

Each structure has its file (`diagonal`, `kronecker`, `dense`, `low_rank`) with both operators in it.
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from marginax.curvature.jacobians import Jacobian, Plain, dense_rows
from marginax.files import register

LOG_2PI = 1.8378770664093453


class AbstractCovariance(eqx.Module):
    """The covariance matrix of a zero-mean normal."""

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
    def spread(self, jacobian: Jacobian) -> Float[Array, "n m m"]:
        r"""$J \Sigma J^\top$: covariance of what depends on the parameters through this jacobian."""

    def dense(self) -> Float[Array, "size size"]:
        """The matrix itself, for small sizes and tests."""
        return self.spread((Plain(jnp.eye(self.size)[None]),))[0]

    def keep(self, kept: Bool[Array, " size"]) -> "AbstractCovariance":
        """The same for the parameters that are kept; the others stay at their mean, and weigh nothing."""
        return KeptCovariance(self, kept)

    def leading(self, num: int) -> "AbstractCovariance":
        """That of the first parameters alone, whatever the others are."""
        if num == self.size:
            return self
        raise ValueError(f"{type(self).__name__} cannot be cut after {num} of its {self.size} parameters")


class AbstractCurvature(eqx.Module):
    """The curvature of the negative log likelihood over some of the weights."""

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """Number of weights."""

    @abc.abstractmethod
    def covariance(self, precision: Float[Array, " size"]) -> AbstractCovariance:
        """Inverse of the matrix plus a diagonal one, the precision of the prior."""

    def covariance_with(self, precision: Float[Array, "size size"]) -> AbstractCovariance:
        """Inverse of the matrix plus any other, for structures that can hold it."""
        raise ValueError(f"{type(self).__name__} cannot hold a prior whose weights depend on each other: use Dense()")

    @abc.abstractmethod
    def scaled(self, factor: Float[Array, ""]) -> "AbstractCurvature":
        """The matrix times a number."""


@register("covariance/kept")
class KeptCovariance(AbstractCovariance):
    """Some parameters of another covariance; the others stay at their mean. Density and spread are for small sizes.

    Args:
        covariance: of all parameters.
        kept: which ones are random.
    """

    covariance: AbstractCovariance
    kept: Bool[Array, " size"]

    @property
    def size(self) -> int:
        return self.covariance.size

    def sample(self, key: PRNGKeyArray, num: int) -> Float[Array, "num size"]:
        return jnp.where(self.kept, self.covariance.sample(key, num), 0.0)

    def log_prob(self, deviation: Float[Array, " size"]) -> Float[Array, ""]:
        """Marginal of those that are kept, by the matrix; ones stand in for the others."""
        matrix = self.dense() + jnp.diag(jnp.where(self.kept, 0.0, 1.0))
        whole = normal_log_prob(jnp.linalg.cholesky(matrix), jnp.where(self.kept, deviation, 0.0))
        return whole + 0.5 * LOG_2PI * jnp.sum(~self.kept)

    def variances(self) -> Float[Array, " size"]:
        return jnp.where(self.kept, self.covariance.variances(), 0.0)

    def spread(self, jacobian: Jacobian) -> Float[Array, "n m m"]:
        rows = dense_rows(jacobian)
        return jnp.einsum("nmp,pq,nlq->nml", rows, self.dense(), rows)

    def dense(self) -> Float[Array, "size size"]:
        return jnp.where(self.kept[:, None] & self.kept, self.covariance.dense(), 0.0)

    def keep(self, kept: Bool[Array, " size"]) -> "KeptCovariance":
        return KeptCovariance(self.covariance, self.kept & kept)


def normal_log_prob(cholesky: Float[Array, "size size"], deviation: Float[Array, " size"]) -> Float[Array, ""]:
    """Log density of the zero-mean normal whose covariance has this Cholesky factor."""
    z = jax.scipy.linalg.solve_triangular(cholesky, deviation, lower=True)
    log_det = 2 * jnp.sum(jnp.log(jnp.diag(cholesky)))
    return -0.5 * (z @ z + log_det + cholesky.shape[0] * LOG_2PI)
