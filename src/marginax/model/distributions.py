"""Elementwise probability distributions, shared by likelihoods, priors and predictions.

Small on purpose: parameters are array leaves that broadcast, everything works under jit, vmap and grad, and
densities stay accurate in float32 far into the tails and for large parameters.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr, ndtri
from jax.typing import ArrayLike
from jaxtyping import Array, PRNGKeyArray

from marginax.files import register
from marginax.model.distribution import AbstractDistribution, as_floating, full_shape
from marginax.model.outcome import Outcome
from marginax.model.positive import Gamma, HalfCauchy, HalfNormal, InverseGamma, LogNormal
from marginax.model.tails import bisect_log, gamma_sf, log1p_square, log_gamma_ratio, log_poisson, student_sf

__all__ = [
    "AbstractDistribution",
    "Bernoulli",
    "Categorical",
    "Gamma",
    "HalfCauchy",
    "HalfNormal",
    "InverseGamma",
    "Laplace",
    "LogNormal",
    "Normal",
    "Poisson",
    "StudentT",
]

_LOG_2PI = 1.8378770664093453
_LOG_2 = 0.6931471805599453
_LOG_PI = 1.1447298858494002


@register("distribution/normal")
class Normal(AbstractDistribution):
    """Gaussian with mean `loc` and standard deviation `scale`.

    >>> Normal(1.0, 2.0).affine(10.0, 3.0).mean.item()
    13.0
    """

    loc: Array = eqx.field(converter=as_floating)
    scale: Array = eqx.field(converter=as_floating)

    @property
    def mean(self) -> Array:
        return self.loc + jnp.zeros_like(self.scale)

    @property
    def variance(self) -> Array:
        return jnp.square(self.scale) + jnp.zeros_like(self.loc)

    def log_prob(self, value: ArrayLike) -> Array:
        z = (value - self.loc) / self.scale
        return -0.5 * jnp.square(z) - jnp.log(self.scale) - 0.5 * _LOG_2PI

    def cdf(self, value: ArrayLike) -> Array:
        return ndtr((value - self.loc) / self.scale)

    def icdf(self, q: ArrayLike) -> Array:
        return self.loc + self.scale * ndtri(as_floating(q))

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        noise = jax.random.normal(key, full_shape(shape, self.loc, self.scale), self.loc.dtype)
        return self.loc + self.scale * noise

    def affine(self, shift: ArrayLike, factor: ArrayLike) -> "Normal":
        return Normal(shift + factor * self.loc, jnp.abs(factor) * self.scale)


@register("distribution/student_t")
class StudentT(AbstractDistribution):
    """Student's t with `df` degrees of freedom around `loc`.

    The mean is NaN for df <= 1 and the variance infinite for df <= 2; `icdf` is not differentiable in df.

    >>> StudentT(1.0, 0.0, 1.0).cdf(1.0).round(5).item()
    0.75
    """

    df: Array = eqx.field(converter=as_floating)
    loc: Array = eqx.field(converter=as_floating)
    scale: Array = eqx.field(converter=as_floating)

    @property
    def mean(self) -> Array:
        return jnp.where(self.df > 1, self.loc, jnp.nan) + jnp.zeros_like(self.scale)

    @property
    def variance(self) -> Array:
        finite = self.df > 2
        ratio = jnp.where(finite, self.df / jnp.where(finite, self.df - 2, 1), jnp.inf)
        return jnp.square(self.scale) * ratio + jnp.zeros_like(self.loc)

    def log_prob(self, value: ArrayLike) -> Array:
        z = (value - self.loc) / self.scale
        peak = log_gamma_ratio(0.5 * self.df) - 0.5 * (jnp.log(self.df) + _LOG_PI) - jnp.log(self.scale)
        return peak - 0.5 * (self.df + 1) * log1p_square(jnp.asarray(z / jnp.sqrt(self.df)))

    def cdf(self, value: ArrayLike) -> Array:
        z = (value - self.loc) / self.scale
        tail = student_sf(self.df, jnp.abs(z))
        return jnp.where(z < 0, tail, 1 - tail)

    def icdf(self, q: ArrayLike) -> Array:
        q = as_floating(q)
        tail = jnp.minimum(q, 1 - q)
        size = jnp.where(tail < 0.5, bisect_log(lambda z: -student_sf(self.df, z), -tail, self.df), 0)
        z = jax.lax.stop_gradient(jnp.where(q < 0.5, -size, size))
        slope = jnp.exp(jax.lax.stop_gradient(StudentT(self.df, 0.0, 1.0).log_prob(z)))
        step = (q - jax.lax.stop_gradient(q)) / jnp.where(slope > 0, slope, jnp.inf)  # zero, but carries dq
        return self.loc + self.scale * (z + step)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        full = full_shape(shape, self.df, self.loc, self.scale)
        return self.loc + self.scale * jax.random.t(key, self.df, full, self.loc.dtype)

    def affine(self, shift: ArrayLike, factor: ArrayLike) -> "StudentT":
        return StudentT(self.df, shift + factor * self.loc, jnp.abs(factor) * self.scale)


@register("distribution/laplace")
class Laplace(AbstractDistribution):
    """Double exponential; the variance is twice the square of `scale`.

    >>> Laplace(0.0, 1.0).icdf(0.5).item()
    0.0
    """

    loc: Array = eqx.field(converter=as_floating)
    scale: Array = eqx.field(converter=as_floating)

    @property
    def mean(self) -> Array:
        return self.loc + jnp.zeros_like(self.scale)

    @property
    def variance(self) -> Array:
        return 2 * jnp.square(self.scale) + jnp.zeros_like(self.loc)

    def log_prob(self, value: ArrayLike) -> Array:
        return -jnp.abs((value - self.loc) / self.scale) - jnp.log(self.scale) - _LOG_2

    def cdf(self, value: ArrayLike) -> Array:
        z = (value - self.loc) / self.scale
        tail = 0.5 * jnp.exp(-jnp.abs(z))
        return jnp.where(z < 0, tail, 1 - tail)

    def icdf(self, q: ArrayLike) -> Array:
        q = as_floating(q)
        size = -_LOG_2 - jnp.log(jnp.minimum(q, 1 - q))
        return self.loc + self.scale * jnp.where(q < 0.5, -size, size)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        noise = jax.random.laplace(key, full_shape(shape, self.loc, self.scale), self.loc.dtype)
        return self.loc + self.scale * noise

    def affine(self, shift: ArrayLike, factor: ArrayLike) -> "Laplace":
        return Laplace(shift + factor * self.loc, jnp.abs(factor) * self.scale)


@register("distribution/poisson")
class Poisson(AbstractDistribution):
    """Counts with expectation `rate`.

    >>> Poisson(2.0).log_prob(0).round(4).item()
    -2.0
    """

    outcome: ClassVar[Outcome] = Outcome.COUNT
    rate: Array = eqx.field(converter=as_floating)

    @property
    def mean(self) -> Array:
        return self.rate

    @property
    def variance(self) -> Array:
        return self.rate

    def log_prob(self, value: ArrayLike) -> Array:
        count = jnp.maximum(value, 0).astype(self.rate.dtype)
        return jnp.where(jnp.asarray(value) < 0, -jnp.inf, log_poisson(count, self.rate))

    def cdf(self, value: ArrayLike) -> Array:
        floor = jnp.floor(value).astype(self.rate.dtype)
        return jnp.where(floor < 0, 0, gamma_sf(jnp.maximum(floor, 0) + 1, self.rate))

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        return jax.random.poisson(key, self.rate, full_shape(shape, self.rate))


@register("distribution/bernoulli")
class Bernoulli(AbstractDistribution):
    """Zero or one, with log odds `logits` of a one.

    >>> Bernoulli(0.0).mean.item()
    0.5
    """

    outcome: ClassVar[Outcome] = Outcome.LABELS
    logits: Array = eqx.field(converter=as_floating)

    @property
    def class_logits(self) -> Array | None:
        """Of no and yes, where there is one question."""
        if self.logits.shape[-1:] != (1,):
            return None
        return jnp.concatenate([jnp.zeros_like(self.logits), self.logits], axis=-1)

    @property
    def mean(self) -> Array:
        return jax.nn.sigmoid(self.logits)

    @property
    def variance(self) -> Array:
        return jax.nn.sigmoid(self.logits) * jax.nn.sigmoid(-self.logits)

    def log_prob(self, value: ArrayLike) -> Array:
        return -jax.nn.softplus(jnp.where(jnp.asarray(value) > 0.5, -self.logits, self.logits))

    def cdf(self, value: ArrayLike) -> Array:
        value = jnp.asarray(value)
        return jnp.where(value < 0, 0, jnp.where(value < 1, jax.nn.sigmoid(-self.logits), 1))

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        return jax.random.bernoulli(key, self.mean, full_shape(shape, self.logits)).astype(int)

    def sample_logits(self, key: PRNGKeyArray) -> Array:
        """The same every time: they are known."""
        return self.logits


@register("distribution/categorical")
class Categorical(AbstractDistribution):
    """One of K classes; the last axis of `logits` runs over classes, and values are labels 0..K-1.

    >>> Categorical(jnp.zeros(4)).probs.tolist()
    [0.25, 0.25, 0.25, 0.25]
    """

    outcome: ClassVar[Outcome] = Outcome.CLASS
    logits: Array = eqx.field(converter=as_floating)

    @property
    def class_logits(self) -> Array:
        return self.logits

    @property
    def log_probs(self) -> Array:
        """Log probability of every class."""
        return jax.nn.log_softmax(self.logits, axis=-1)

    @property
    def probs(self) -> Array:
        """Probability of every class."""
        return jax.nn.softmax(self.logits, axis=-1)

    def log_prob(self, value: ArrayLike) -> Array:
        labels = jnp.asarray(value)
        shape = jnp.broadcast_shapes(labels.shape, self.logits.shape[:-1])
        labels = jnp.broadcast_to(labels, shape).astype(int)[..., None]
        logits = jnp.broadcast_to(self.log_probs, (*shape, self.logits.shape[-1]))
        return jnp.take_along_axis(logits, labels, axis=-1)[..., 0]

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        return jax.random.categorical(key, self.logits, shape=(*shape, *self.logits.shape[:-1]))
