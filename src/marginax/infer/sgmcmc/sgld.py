r"""Stochastic-gradient Langevin dynamics (Welling & Teh, 2011).

$\theta' = \theta + \tfrac{\epsilon}{2} \hat\nabla \log p(\theta \mid D) + \sqrt{\epsilon T}\, \xi$

With a constant step the law that is reached has more spread than the posterior: for a Gaussian posterior of variance
$s^2$ it is $s^2 (1 + \epsilon V / 4) / (1 - \epsilon / (4 s^2))$, with $V$ the variance of the minibatch gradient; the
tests hold us to that. With a `PolynomialDecay` step it vanishes in the limit.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from marginax._kernels.random import normal_like, uniform
from marginax.data import Batch
from marginax.files import register
from marginax.infer.catalogue import register_method
from marginax.infer.sgmcmc.diffusion import AbstractStochasticSampler, StochasticInfo, StochasticState, bounded
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

    Takes what every `AbstractStochasticSampler` takes, and:

    Args:
        correction: None, or `MinibatchMetropolis()` for an accept step on the batch (biased).
    """

    correction: MinibatchMetropolis | None = eqx.field(default=None, kw_only=True)

    def default_step_size(self, curvature: Array, num_examples: int) -> Array:
        """The stiffest direction gets 1 / (1 - 0.25 / 4), about 7% more variance."""
        return 0.25 / curvature

    def update(self, params, memory, gradient, step_size, temperature, key):
        spread = jnp.sqrt(step_size * temperature)
        noise = normal_like(key, params)
        return jax.tree.map(lambda p, g, n: p + 0.5 * step_size * g + spread * n, params, gradient, noise), memory, {}

    def move(
        self,
        model: AbstractModel,
        state: StochasticState,
        batch: Batch,
        step_size: Array,
        temperature: Any,
        *,
        key: Any,
        longest: Array | None = None,
    ) -> tuple[StochasticState, StochasticInfo]:
        """A step of the dynamics, which the correction takes back at times."""
        value, gradient = self.gradient(model, state, batch)
        gradient = bounded(gradient, longest)
        params, _, _ = self.update(state.params, None, gradient, step_size, temperature, key)
        new = eqx.tree_at(lambda s: (s.params, s.count), state, (params, state.count + 1))
        if self.correction is None:
            return new, StochasticInfo(value, step_size)
        there, back = self.gradient(model, new, batch)
        ratio = (there - value) / temperature + log_proposal(params, state.params, back, step_size, temperature)
        ratio = ratio - log_proposal(state.params, params, gradient, step_size, temperature)
        acceptance = jnp.exp(jnp.minimum(0.0, jnp.where(jnp.isnan(ratio), -jnp.inf, ratio)))
        accepted = uniform(key, 0, stream=_ACCEPT) < acceptance
        chosen = jax.tree.map(lambda a, b: jnp.where(accepted, a, b), params, state.params)
        new = eqx.tree_at(lambda s: s.params, new, chosen)
        return new, StochasticInfo(jnp.where(accepted, there, value), step_size, acceptance=acceptance)


def log_proposal(
    start: Params, end: Params, gradient: Params, step_size: Array, temperature: Array | float
) -> Float[Array, ""]:
    """Log density of the proposal from start to end, up to a constant."""
    misses = jax.tree.map(lambda a, b, g: jnp.sum((b - a - 0.5 * step_size * g) ** 2), start, end, gradient)
    return -sum(jax.tree.leaves(misses)) / (2.0 * step_size * temperature)
