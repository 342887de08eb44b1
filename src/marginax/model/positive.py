"""Distributions of positive quantities: priors of scales, rates and precisions."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr, ndtri
from jax.typing import ArrayLike
from jaxtyping import Array, PRNGKeyArray

from marginax.files import register
from marginax.model.distribution import AbstractDistribution, as_floating, full_shape
from marginax.model.tails import bisect_log, gamma_cdf, gamma_sf, log1p_square, log_poisson

_LOG_2PI = 1.8378770664093453
_LOG_2 = 0.6931471805599453
_LOG_PI = 1.1447298858494002


def _on_positive(value: ArrayLike) -> tuple[Array, Array]:
    """Whether each value is positive, and the values with the others replaced to keep gradients finite."""
    value = as_floating(value)
    positive = value > 0
    return positive, jnp.where(positive, value, 1)


@register("distribution/half_normal")
class HalfNormal(AbstractDistribution):
    """The absolute value of a centred Gaussian.

    >>> HalfNormal(2.0).log_prob(-1.0).item()
    -inf
    """

    scale: Array = eqx.field(converter=as_floating)

    @property
    def mean(self) -> Array:
        return self.scale * (2 / jnp.pi) ** 0.5

    @property
    def variance(self) -> Array:
        return jnp.square(self.scale) * (1 - 2 / jnp.pi)

    def log_prob(self, value: ArrayLike) -> Array:
        z = as_floating(value) / self.scale
        log_density = -0.5 * jnp.square(z) - jnp.log(self.scale) - 0.5 * _LOG_2PI + _LOG_2
        return jnp.where(z < 0, -jnp.inf, log_density)

    def cdf(self, value: ArrayLike) -> Array:
        return jax.lax.erf(jnp.maximum(value / self.scale, 0) * 0.5**0.5)

    def icdf(self, q: ArrayLike) -> Array:
        return self.scale * jax.lax.erf_inv(as_floating(q)) * 2**0.5

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        return self.scale * jnp.abs(jax.random.normal(key, full_shape(shape, self.scale), self.scale.dtype))


@register("distribution/half_cauchy")
class HalfCauchy(AbstractDistribution):
    """The absolute value of a centred Cauchy: half of it lies above `scale`, and it has no mean.

    >>> HalfCauchy(2.0).cdf(2.0).round(6).item()
    0.5
    """

    scale: Array = eqx.field(converter=as_floating)

    @property
    def mean(self) -> Array:
        return jnp.full_like(self.scale, jnp.inf)

    @property
    def variance(self) -> Array:
        return jnp.full_like(self.scale, jnp.inf)

    def log_prob(self, value: ArrayLike) -> Array:
        z = as_floating(value) / self.scale
        return jnp.where(z < 0, -jnp.inf, _LOG_2 - _LOG_PI - jnp.log(self.scale) - log1p_square(z))

    def cdf(self, value: ArrayLike) -> Array:
        return 2 / jnp.pi * jnp.arctan(jnp.maximum(value / self.scale, 0))

    def icdf(self, q: ArrayLike) -> Array:
        return self.scale * jnp.tan(jnp.pi / 2 * as_floating(q))

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        return self.scale * jnp.abs(jax.random.cauchy(key, full_shape(shape, self.scale), self.scale.dtype))


@register("distribution/log_normal")
class LogNormal(AbstractDistribution):
    """Its logarithm is Gaussian with mean `loc` and standard deviation `scale`.

    >>> LogNormal(0.0, 1.0).icdf(0.5).item()
    1.0
    """

    loc: Array = eqx.field(converter=as_floating)
    scale: Array = eqx.field(converter=as_floating)

    @property
    def mean(self) -> Array:
        return jnp.exp(self.loc + 0.5 * jnp.square(self.scale))

    @property
    def variance(self) -> Array:
        square = jnp.square(self.scale)
        return jnp.expm1(square) * jnp.exp(2 * self.loc + square)

    @property
    def median(self) -> Array:
        return jnp.exp(self.loc)

    def log_prob(self, value: ArrayLike) -> Array:
        positive, value = _on_positive(value)
        log_value = jnp.log(value)
        z = (log_value - self.loc) / self.scale
        log_density = -0.5 * jnp.square(z) - jnp.log(self.scale) - 0.5 * _LOG_2PI - log_value
        return jnp.where(positive, log_density, -jnp.inf)

    def cdf(self, value: ArrayLike) -> Array:
        positive, value = _on_positive(value)
        return jnp.where(positive, ndtr((jnp.log(value) - self.loc) / self.scale), 0)

    def icdf(self, q: ArrayLike) -> Array:
        return jnp.exp(self.loc + self.scale * ndtri(as_floating(q)))

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        noise = jax.random.normal(key, full_shape(shape, self.loc, self.scale), self.loc.dtype)
        return jnp.exp(self.loc + self.scale * noise)


@register("distribution/gamma")
class Gamma(AbstractDistribution):
    """Gamma with mean concentration / rate, on values > 0.

    >>> Gamma(3.0, 2.0).mean.item()
    1.5
    """

    concentration: Array = eqx.field(converter=as_floating)
    rate: Array = eqx.field(converter=as_floating)

    @property
    def mean(self) -> Array:
        return self.concentration / self.rate

    @property
    def variance(self) -> Array:
        return self.concentration / jnp.square(self.rate)

    def log_prob(self, value: ArrayLike) -> Array:
        positive, value = _on_positive(value)
        log_density = log_poisson(self.concentration, self.rate * value) + jnp.log(self.concentration / value)
        return jnp.where(positive, log_density, -jnp.inf)

    def cdf(self, value: ArrayLike) -> Array:
        return gamma_cdf(self.concentration, jnp.maximum(value * self.rate, 0))

    def icdf(self, q: ArrayLike) -> Array:
        a = self.concentration
        return bisect_log(lambda v: gamma_cdf(a, v), as_floating(q), a) / self.rate

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        full = full_shape(shape, self.concentration, self.rate)
        return jax.random.gamma(key, self.concentration, full, self.concentration.dtype) / self.rate


@register("distribution/inverse_gamma")
class InverseGamma(AbstractDistribution):
    """The reciprocal of a Gamma(concentration, scale) variable, on values > 0.

    >>> InverseGamma(3.0, 4.0).mean.item()
    2.0
    """

    concentration: Array = eqx.field(converter=as_floating)
    scale: Array = eqx.field(converter=as_floating)

    @property
    def mean(self) -> Array:
        less = self.concentration - 1
        return jnp.where(less > 0, self.scale / jnp.where(less > 0, less, 1), jnp.inf)

    @property
    def variance(self) -> Array:
        less = self.concentration - 2
        return jnp.where(less > 0, jnp.square(self.mean) / jnp.where(less > 0, less, 1), jnp.inf)

    def log_prob(self, value: ArrayLike) -> Array:
        positive, value = _on_positive(value)
        log_density = log_poisson(self.concentration, self.scale / value) + jnp.log(self.concentration / value)
        return jnp.where(positive, log_density, -jnp.inf)

    def cdf(self, value: ArrayLike) -> Array:
        positive, value = _on_positive(value)
        return jnp.where(positive, gamma_sf(self.concentration, self.scale / value), 0)

    def icdf(self, q: ArrayLike) -> Array:
        a = self.concentration
        return self.scale / bisect_log(lambda v: -gamma_sf(a, v), -as_floating(q), a)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        full = full_shape(shape, self.concentration, self.scale)
        return self.scale / jax.random.gamma(key, self.concentration, full, self.concentration.dtype)
