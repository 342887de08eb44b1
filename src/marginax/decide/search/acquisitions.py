r"""Where to evaluate a function next, to find its minimum: rules that score points by what is believed of them.

Of several points in a batch, each is chosen as if the ones before it had come out as expected: that leaves the mean as
it is and takes away variance, for normal beliefs in closed form (the "kriging believer" of Ginsbourger et al., 2010).
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import log_ndtr
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from marginax.decide.search.surrogates import AbstractBelief
from marginax.files import register

_JITTER = 1e-5
_FAR = -20.0  # where the tail's expansion is better than what float32 leaves of the difference


class AbstractSearchRule(eqx.Module):
    """A rule that says which point of a function to look at."""

    @abc.abstractmethod
    def score(self, mean: Float[Array, ""], std: Float[Array, ""], best: Float[Array, ""]) -> Float[Array, ""]:
        """Of a value that is believed to have this mean and standard deviation; higher is looked at first."""

    @property
    def is_drawn(self) -> bool:
        """Whether points are the minima of functions that are drawn, in place of those of a score."""
        return False


@register("search_rule/expected_improvement")
class ExpectedImprovement(AbstractSearchRule):
    """By how much a value is expected to lie below the best so far; scores are its logarithm (Ament et al., 2023)."""

    def score(self, mean: Float[Array, ""], std: Float[Array, ""], best: Float[Array, ""]) -> Float[Array, ""]:
        return log_expected_improvement(-mean, std, -best)


@register("search_rule/lower_confidence_bound")
class LowerConfidenceBound(AbstractSearchRule):
    """How far down a value may lie: its mean less `beta` standard deviations (Srinivas et al., 2010).

    Args:
        beta: standard deviations; 0 looks at means alone.
    """

    beta: float = 2.0

    def __check_init__(self):
        if not self.beta >= 0:
            raise ValueError(f"beta must be >= 0, got {self.beta}")

    def score(self, mean: Float[Array, ""], std: Float[Array, ""], best: Float[Array, ""]) -> Float[Array, ""]:
        return self.beta * std - mean


@register("search_rule/thompson_sampling")
class ThompsonSampling(AbstractSearchRule):
    """The minimum of a function that is drawn; of a batch, of one function each."""

    @property
    def is_drawn(self) -> bool:
        return True

    def score(self, mean: Float[Array, ""], std: Float[Array, ""], best: Float[Array, ""]) -> Float[Array, ""]:
        """Minus the value of the function."""
        return -mean


def log_expected_improvement(mean: Float[Array, ""], std: Float[Array, ""], best: Float[Array, ""]) -> Float[Array, ""]:
    r"""Log of the mean of what exceeds the best so far, with its digits and its gradient far below it, too.

    >>> round(float(log_expected_improvement(jnp.array(0.0), jnp.array(1.0), jnp.array(0.0))), 4)
    -0.9189
    """
    u = (mean - best) / std
    near, tail, far = jnp.maximum(u, -1.0), jnp.clip(u, _FAR, -1.0), jnp.minimum(u, _FAR)
    above = jnp.log(norm.pdf(near) + near * norm.cdf(near))
    ratio = jnp.exp(log_ndtr(tail) - norm.logpdf(tail))
    below = norm.logpdf(tail) + jnp.log1p(tail * ratio)
    beyond = norm.logpdf(far) - 2.0 * jnp.log(-far) + jnp.log1p(-3.0 / far**2)
    return jnp.log(std) + jnp.where(u > -1.0, above, jnp.where(u > _FAR, below, beyond))


def score_at(
    rule: AbstractSearchRule,
    belief: AbstractBelief,
    u: Float[Array, " d"],
    best: Float[Array, ""],
    pending: Float[Array, "k d"],
) -> Float[Array, ""]:
    """The score of a point, where those that are pending come out as expected."""
    mean, covariance = belief.joint(jnp.concatenate([u[None], pending]))
    tiny = jnp.finfo(mean.dtype).eps * jnp.maximum(covariance[0, 0], 1e-6) + 1e-12
    if not len(pending):
        return rule.score(mean[0], jnp.sqrt(jnp.maximum(covariance[0, 0], tiny)), best)
    own, cross = covariance[1:, 1:], covariance[1:, 0]
    gain = cross @ jnp.linalg.solve(own + _JITTER * jnp.eye(len(own), dtype=own.dtype), cross)
    variance = jnp.maximum(covariance[0, 0] - gain, tiny)
    return rule.score(mean[0], jnp.sqrt(variance), jnp.minimum(best, jnp.min(mean[1:])))


@eqx.filter_jit
def score_all(
    rule: AbstractSearchRule,
    belief: AbstractBelief,
    u: Float[Array, "m d"],
    best: Float[Array, ""],
    pending: Float[Array, "k d"],
) -> Float[Array, " m"]:
    """Of many points."""
    return jax.vmap(lambda each: score_at(rule, belief, each, best, pending))(u)


@eqx.filter_jit
def score_and_slope(
    rule: AbstractSearchRule,
    belief: AbstractBelief,
    u: Float[Array, " d"],
    best: Float[Array, ""],
    pending: Float[Array, "k d"],
) -> tuple[Float[Array, ""], Float[Array, " d"]]:
    """Of a point, for climbing."""
    return jax.value_and_grad(lambda each: score_at(rule, belief, each, best, pending))(u)
