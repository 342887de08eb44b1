"""A target around an uncertain output, the noise being uncertain as well: linear models with unknown noise."""

import equinox as eqx
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, PRNGKeyArray

from marginax.files import register
from marginax.model.distribution import AbstractDistribution, as_floating
from marginax.model.distributions import StudentT


@register("distribution/student_t_outputs")
class StudentTOutputs(AbstractDistribution):
    r"""$y \sim t_\nu(\mu, s^2 (1 + v))$, where v is the share of what is not known about the mean.

    `variance` is that of the noise alone, as it is of every component of a mixture; `epistemic_variance` is the rest.

    Args:
        df: $\nu$.
        loc: $\mu$.
        scale: $s$.
        spread: $v$, the variance of the mean in units of the noise's.

    >>> y = StudentTOutputs(4.0, jnp.zeros(1), jnp.ones(1), jnp.full(1, 3.0))
    >>> y.epistemic_variance.item(), y.variance.item(), round(y.cdf(jnp.array([2.0])).item(), 4)
    (6.0, 2.0, 0.813)
    """

    df: Array = eqx.field(converter=as_floating)
    loc: Array = eqx.field(converter=as_floating)
    scale: Array = eqx.field(converter=as_floating)
    spread: Array = eqx.field(converter=as_floating)

    @property
    def mean(self) -> Array:
        return self._marginal.mean

    @property
    def variance(self) -> Array:
        return StudentT(self.df, self.loc, self.scale).variance

    @property
    def epistemic_variance(self) -> Array:
        """Variance of the mean."""
        return self.spread * self.variance

    @property
    def _marginal(self) -> StudentT:
        return StudentT(self.df, self.loc, self.scale * jnp.sqrt(1.0 + self.spread))

    def log_prob(self, value: ArrayLike) -> Array:
        return self._marginal.log_prob(value)

    def cdf(self, value: ArrayLike) -> Array:
        return self._marginal.cdf(value)

    def icdf(self, q: ArrayLike) -> Array:
        return self._marginal.icdf(q)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        return self._marginal.sample(key, shape)

    def affine(self, shift: ArrayLike, factor: ArrayLike) -> "StudentTOutputs":
        return StudentTOutputs(self.df, shift + factor * self.loc, jnp.abs(factor) * self.scale, self.spread)
