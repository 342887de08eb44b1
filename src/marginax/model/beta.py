"""The distribution of a probability."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.scipy.special import betainc, betaln
from jax.typing import ArrayLike
from jaxtyping import Array, PRNGKeyArray

from marginax.files import register
from marginax.model.distribution import AbstractDistribution, as_floating, full_shape


@register("distribution/beta")
class Beta(AbstractDistribution):
    """Numbers between 0 and 1: a share that was seen `a` times against `b`.

    >>> Beta(1.0, 3.0).mean.item(), Beta(1.0, 1.0).log_prob(0.3).item()
    (0.25, 0.0)
    """

    a: Array = eqx.field(converter=as_floating)
    b: Array = eqx.field(converter=as_floating)

    def __check_init__(self):
        for name in ("a", "b"):
            value = getattr(self, name)
            if not isinstance(value, Tracer) and not bool(jnp.all((value > 0) & jnp.isfinite(value))):
                raise ValueError(f"{name} must be > 0 and finite, got {value}")

    @property
    def mean(self) -> Array:
        return self.a / (self.a + self.b)

    @property
    def variance(self) -> Array:
        return self.mean * (1 - self.mean) / (self.a + self.b + 1)

    def log_prob(self, value: ArrayLike) -> Array:
        value = as_floating(value)
        inside = (value > 0) & (value < 1)
        value = jnp.where(inside, value, 0.5)
        log_density = (self.a - 1) * jnp.log(value) + (self.b - 1) * jnp.log1p(-value) - betaln(self.a, self.b)
        return jnp.where(inside, log_density, -jnp.inf)

    def log_prob_of_logit(self, logit: ArrayLike) -> Array:
        """Log density of the logit of the value: that of the value times p (1 - p).

        >>> Beta(1.0, 1.0).log_prob_of_logit(0.0).item()  # log of 1/4
        -1.386...
        """
        logit = as_floating(logit)
        each = self.a * jax.nn.log_sigmoid(logit) + self.b * jax.nn.log_sigmoid(-logit)
        return each - betaln(self.a, self.b)

    def cdf(self, value: ArrayLike) -> Array:
        return betainc(self.a, self.b, jnp.clip(as_floating(value), 0, 1))

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        return jax.random.beta(key, self.a, self.b, full_shape(shape, self.a, self.b))
