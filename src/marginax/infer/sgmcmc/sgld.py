r"""Stochastic-gradient Langevin dynamics (Welling & Teh, 2011).

$\theta' = \theta + \tfrac{\epsilon}{2} \hat\nabla \log p(\theta \mid D) + \sqrt{\epsilon T}\, \xi$

With a constant step the law that is reached has more spread than the posterior: for a Gaussian posterior of variance
$s^2$ it is $s^2 (1 + \epsilon V / 4) / (1 - \epsilon / (4 s^2))$, with $V$ the variance of the minibatch gradient; the
tests hold us to that. With a `PolynomialDecay` step it vanishes in the limit.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from marginax._kernels.random import normal_like, uniform
from marginax.data import Batch
from marginax.files import register
from marginax.infer.catalogue import register_method
from marginax.infer.map import MAP
from marginax.infer.sgmcmc.diffusion import (
    AbstractStochasticSampler,
    ControlVariates,
    StepSizeChoice,
    StochasticInfo,
    StochasticState,
)
from marginax.model import AbstractModel
from marginax.model.abstract import Params

_ACCEPT = 0xFFFF  # stream of random numbers, beyond those of the leaves


@register("sgmcmc/minibatch_metropolis")
class MinibatchMetropolis(eqx.Module):
    """Accept or refuse each proposal by its Metropolis-Hastings ratio on the minibatch.

    Biased: the ratio of a batch, scaled up by N/B, is a noisy guess of that of all the data, and an accept step that
    treats it as exact widens the posterior. It keeps a chain with too long steps from flying off, and is here because
    courses teach it.
    """


@register_method(
    "method/sgld",
    gives="draws near the posterior, from minibatches",
    use_when="large data: the simplest sampler on minibatches",
    cost="MAP and 6,000 steps per chain",
    order=170,
)
class SGLD(AbstractStochasticSampler):
    """Stochastic-gradient Langevin dynamics.

    Args:
        step_size: a number, `PolynomialDecay(...)`, or None to set it from the curvature.
        temperature: of the posterior; 1 is Bayes, 0 is gradient ascent.
        num_warmup: steps from which nothing is kept.
        num_samples: kept draws per chain.
        thin: steps per kept draw.
        batch_size: examples per step, or None for all.
        correction: None, or `MinibatchMetropolis()` for an accept step on the batch (biased).
        variance_reduction: None, or `ControlVariates()`.
        training: how the start is found when `init=` does not give one.
    """

    step_size: StepSizeChoice = None
    temperature: float = 1.0
    num_warmup: int = 1000
    num_samples: int = 100
    thin: int = 50
    batch_size: int | None = 128
    correction: MinibatchMetropolis | None = None
    variance_reduction: ControlVariates | None = None
    training: MAP | None = eqx.field(default_factory=MAP)

    def default_step_size(self, curvature: Array, num_examples: int) -> Array:
        """The stiffest direction gets 1 / (1 - 0.25 / 4), about 7% more variance."""
        del num_examples
        return 0.25 / curvature

    def first_memory(self, params: Params) -> None:
        """Nothing."""
        del params

    def move(
        self,
        model: AbstractModel,
        state: StochasticState,
        batch: Batch,
        step_size: Array,
        temperature: Array | float,
        *,
        key: PRNGKeyArray,
    ) -> tuple[StochasticState, StochasticInfo]:
        """Up the gradient, and noise."""
        value, gradient = self.gradient(model, state, batch)
        spread = jnp.sqrt(step_size * temperature)
        noise = normal_like(key, state.params)
        params = jax.tree.map(lambda p, g, n: p + 0.5 * step_size * g + spread * n, state.params, gradient, noise)
        new = eqx.tree_at(lambda s: s.params, state, params)
        if self.correction is None:
            return new, StochasticInfo(value, step_size)
        there, back = self.gradient(model, new, batch)
        ratio = (there - value) / temperature + log_proposal(params, state.params, back, step_size, temperature)
        ratio = ratio - log_proposal(state.params, params, gradient, step_size, temperature)
        acceptance = jnp.exp(jnp.minimum(0.0, jnp.where(jnp.isnan(ratio), -jnp.inf, ratio)))
        accepted = uniform(key, 0, stream=_ACCEPT) < acceptance
        new = jax.tree.map(lambda a, b: jnp.where(accepted, a, b), new, state)
        return new, StochasticInfo(jnp.where(accepted, there, value), step_size, acceptance=acceptance)


def log_proposal(
    start: Params, end: Params, gradient: Params, step_size: Array, temperature: Array | float
) -> Float[Array, ""]:
    """Log density of the proposal from start to end, up to a constant."""
    misses = jax.tree.map(lambda a, b, g: jnp.sum((b - a - 0.5 * step_size * g) ** 2), start, end, gradient)
    return -sum(jax.tree.leaves(misses)) / (2.0 * step_size * temperature)
