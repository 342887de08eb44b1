r"""Counts that vary more than Poisson's: $\mathrm{Var}\,y = \mu + \mu^2 / r$."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betainc, betaln
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PRNGKeyArray

from marginax.files import register
from marginax.model.distribution import AbstractDistribution, as_floating, full_shape
from marginax.model.distributions import LogNormal
from marginax.model.likelihoods.abstract import AbstractLikelihood, Unknowns, check_width
from marginax.model.likelihoods.discrete import check_counts
from marginax.model.numpyro_distribution import from_numpyro
from marginax.model.outcome import Outcome
from marginax.model.scale import Positive, check_scale, initial_log_scale, log_prior_of_log


@register("distribution/negative_binomial")
class NegativeBinomialCounts(AbstractDistribution):
    """A Poisson count whose rate is a gamma number: mean `mu`, and the gamma's shape `concentration`.

    >>> NegativeBinomialCounts(3.0, 2.0).variance.item()  # 3 + 3^2 / 2
    7.5
    """

    outcome: ClassVar[Outcome] = Outcome.COUNT
    mu: Array = eqx.field(converter=as_floating)
    concentration: Array = eqx.field(converter=as_floating)

    @property
    def mean(self) -> Array:
        return self.mu + jnp.zeros_like(self.concentration)

    @property
    def variance(self) -> Array:
        return self.mu + jnp.square(self.mu) / self.concentration

    def log_prob(self, value: ArrayLike) -> Array:
        count = jnp.maximum(value, 0).astype(self.mu.dtype)
        ways = -jnp.log(count + self.concentration) - betaln(count + 1, self.concentration)
        # log r / (r + mu) and log mu / (r + mu), exact also where r is large
        failure = -jnp.log1p(self.mu / self.concentration)
        success = -jnp.log1p(self.concentration / self.mu)
        terms = ways + self.concentration * failure + jnp.where(count > 0, count * success, 0)
        return jnp.where(jnp.asarray(value) < 0, -jnp.inf, terms)

    def cdf(self, value: ArrayLike) -> Array:
        floor = jnp.floor(value).astype(self.mu.dtype)
        chance = self.concentration / (self.concentration + self.mu)
        return jnp.where(floor < 0, 0, betainc(self.concentration, jnp.maximum(floor, 0) + 1, chance))

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        rates, counts = jax.random.split(key)
        full = full_shape(shape, self.mu, self.concentration)
        rate = jax.random.gamma(rates, self.concentration, full, self.mu.dtype) * self.mu / self.concentration
        return jax.random.poisson(counts, rate, full)


def _default_concentration() -> Positive:
    """95% between 0.4 and 19: from far more variable than Poisson's counts to nearly those."""
    return LogNormal(1.0, 1.0)


@register("likelihood/negative_binomial")
class NegativeBinomial(AbstractLikelihood):
    r"""Overdispersed counts: the network gives the log mean per target, $\mathrm{Var}\,y = \mu + \mu^2 / r$.

    Args:
        concentration: $r$: a number if it is known, a distribution of positive values if it is to be learned, one per
            output. Poisson's counts are the limit of a large one.

    >>> NegativeBinomial(concentration=2.0).num_targets(3)
    3
    """

    concentration: float | Positive | Array = eqx.field(default_factory=_default_concentration, converter=from_numpyro)

    def __check_init__(self):
        check_scale(self.concentration, name="concentration")

    def num_targets(self, output_size: int) -> int:
        return output_size

    def outcome(self, output_size: int) -> Outcome:
        return Outcome.COUNT

    def check(self, output_size: int, y: np.ndarray) -> None:
        check_width(output_size, output_size, y)
        check_counts(y, None, "NegativeBinomial()")

    def init(self, output_size: int) -> Unknowns:
        if isinstance(self.concentration, Positive):
            return {"log_concentration": initial_log_scale(self.concentration, (output_size,))}
        return {}

    def log_prior(self, unknowns: Unknowns) -> Float[Array, ""]:
        if isinstance(self.concentration, Positive):
            return log_prior_of_log(self.concentration, unknowns["log_concentration"])
        return jnp.zeros(())

    def distribution(self, output: Float[Array, "*n k"], unknowns: Unknowns) -> NegativeBinomialCounts:
        known = self.concentration
        value = jnp.exp(unknowns["log_concentration"]) if isinstance(known, Positive) else known
        return NegativeBinomialCounts(jnp.exp(output), jnp.broadcast_to(value, output.shape))

    def fisher(self, output: Float[Array, "n k"], unknowns: Unknowns) -> Float[Array, "n k k"]:
        r"""$\mu r / (\mu + r)$ of the log mean."""
        counts = self.distribution(output, unknowns)
        return jax.vmap(jnp.diag)(counts.mu / (1 + counts.mu / counts.concentration))
