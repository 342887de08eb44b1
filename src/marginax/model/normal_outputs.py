"""A target with normal noise around an output that is itself normal: the closed-form prediction of linear models."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, PRNGKeyArray

from marginax.files import register
from marginax.model.distribution import AbstractDistribution, as_floating
from marginax.model.distributions import Normal


@register("distribution/normal_outputs")
class NormalOutputs(AbstractDistribution):
    r"""$y \sim N(\mu, C + \mathrm{diag}(s^2))$, where C is what is not known about the mean.

    `variance` is that of the noise alone, as it is of every component of a mixture; `epistemic_variance` is the rest.

    Args:
        loc: $\mu$, outputs along the last axis.
        covariance: C.
        scale: $s$.

    >>> y = NormalOutputs(jnp.zeros(1), jnp.full((1, 1), 3.0), jnp.ones(1))
    >>> y.epistemic_variance.item(), y.variance.item(), round(y.cdf(jnp.array([2.0])).item(), 4)
    (3.0, 1.0, 0.8413)
    """

    loc: Array = eqx.field(converter=as_floating)
    covariance: Array = eqx.field(converter=as_floating)
    scale: Array = eqx.field(converter=as_floating)

    @property
    def mean(self) -> Array:
        return self.loc

    @property
    def variance(self) -> Array:
        return jnp.square(self.scale) + jnp.zeros_like(self.loc)

    @property
    def epistemic_variance(self) -> Array:
        """Variance of the mean."""
        return jnp.diagonal(self.covariance, axis1=-2, axis2=-1)

    @property
    def _marginal(self) -> Normal:
        return Normal(self.loc, jnp.sqrt(self.variance + jnp.maximum(self.epistemic_variance, 0.0)))

    @property
    def _root(self) -> Array:
        noise = self.variance[..., None] * jnp.eye(self.loc.shape[-1], dtype=self.loc.dtype)
        return jnp.linalg.cholesky(self.covariance + noise)

    def log_prob(self, value: ArrayLike) -> Array:
        """Joint over the outputs, with a last axis of 1."""
        if self.loc.shape[-1] == 1:
            return self._marginal.log_prob(value)
        root = self._root
        away = jnp.broadcast_to(value - self.loc, self.loc.shape)
        z = jax.scipy.linalg.solve_triangular(root, away[..., None], lower=True)[..., 0]
        pivots = jnp.diagonal(root, axis1=-2, axis2=-1)
        return jnp.sum(Normal(0.0, 1.0).log_prob(z) - jnp.log(pivots), axis=-1, keepdims=True)

    def cdf(self, value: ArrayLike) -> Array:
        return self._marginal.cdf(value)

    def icdf(self, q: ArrayLike) -> Array:
        return self._marginal.icdf(q)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        noise = jax.random.normal(key, (*shape, *self.loc.shape), self.loc.dtype)
        return self.loc + jnp.einsum("...ij,...j->...i", self._root, noise)

    def affine(self, shift: ArrayLike, factor: ArrayLike) -> "NormalOutputs":
        factor = jnp.broadcast_to(jnp.asarray(factor), self.loc.shape[-1:])
        covariance = self.covariance * factor[:, None] * factor
        return NormalOutputs(shift + factor * self.loc, covariance, jnp.abs(factor) * self.scale)
