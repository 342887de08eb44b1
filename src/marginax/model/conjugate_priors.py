r"""Priors of logits and log rates under which counts have posteriors in closed form."""

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Float, PRNGKeyArray

from marginax.files import register
from marginax.model.prior import AbstractPrior, Hyper, Leaf
from marginax.model.scale import check_scale


@register("prior/log_gamma")
class LogGamma(AbstractPrior):
    r"""$e^w \sim \text{Gamma}(\alpha, \beta)$: conjugate to Poisson counts whose log rate is w.

    With one rate for all, the softmax of such weights has a Dirichlet distribution with parameters $\alpha$.

    Args:
        concentration: $\alpha$, a number or one for each weight of the leaf.
        rate: $\beta$.

    >>> prior = LogGamma(2.0, 3.0)
    >>> float(prior.log_prob(jnp.zeros(1), Leaf("w", (1,), None), {}).round(4))  # 3^2 exp(-3)
    -0.8028
    """

    concentration: float | Array = 1.0
    rate: float | Array = 1.0

    def __check_init__(self):
        _check_positive(self, "concentration", "rate")

    def log_prob(self, value: Array, leaf: Leaf, hyper: Hyper) -> Float[Array, ""]:
        """The density of w itself: that of its exponential times the Jacobian."""
        alpha = jnp.asarray(self.concentration, value.dtype)
        constant = alpha * jnp.log(self.rate) - jax.lax.lgamma(alpha)
        return jnp.sum(constant + alpha * value - self.rate * jnp.exp(value))

    def expected_log_prob(self, mean: Array, scale: Array, leaf: Leaf, hyper: Hyper) -> Float[Array, ""]:
        return self.log_prob(mean, leaf, hyper) - jnp.sum(self.rate * jnp.exp(mean) * jnp.expm1(0.5 * scale**2))

    def sample(self, leaf: Leaf, hyper: Hyper, *, key: PRNGKeyArray) -> Array:
        return jax.random.loggamma(key, self.concentration, leaf.shape) - jnp.log(self.rate)


@register("prior/logit_beta")
class LogitBeta(AbstractPrior):
    r"""$1 / (1 + e^{-w}) \sim \text{Beta}(a, b)$: conjugate to flips of a coin whose logit is w.

    Args:
        heads: $a$, a number or one for each weight of the leaf; a coin seen to fall on heads a times, and on tails b.
        tails: $b$.

    >>> float(jnp.exp(LogitBeta().log_prob(jnp.zeros(1), Leaf("w", (1,), None), {})))  # p (1 - p) at p = 1/2
    0.25
    """

    heads: float | Array = 1.0
    tails: float | Array = 1.0

    def __check_init__(self):
        _check_positive(self, "heads", "tails")

    def log_prob(self, value: Array, leaf: Leaf, hyper: Hyper) -> Float[Array, ""]:
        """The density of w itself: that of the chance of heads times p (1 - p)."""
        heads, tails = (jnp.asarray(part, value.dtype) for part in (self.heads, self.tails))
        constant = jax.lax.lgamma(heads + tails) - jax.lax.lgamma(heads) - jax.lax.lgamma(tails)
        return jnp.sum(constant + heads * jax.nn.log_sigmoid(value) + tails * jax.nn.log_sigmoid(-value))

    def sample(self, leaf: Leaf, hyper: Hyper, *, key: PRNGKeyArray) -> Array:
        """A difference of the logs of two gamma numbers."""
        first, second = jax.random.split(key)
        return jax.random.loggamma(first, self.heads, leaf.shape) - jax.random.loggamma(second, self.tails, leaf.shape)


def _check_positive(prior: AbstractPrior, *names: str) -> None:
    for name in names:
        value = getattr(prior, name)
        if isinstance(value, jax.Array) and value.ndim:
            if not isinstance(value, Tracer) and not bool(jnp.all((value > 0) & jnp.isfinite(value))):
                raise ValueError(f"{name} must be > 0 and finite, got {value}")
        else:
            check_scale(value, name=name)
