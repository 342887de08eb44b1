r"""Barker's proposal (Livingstone & Zanella, 2022): exact, full batch, a gradient that cannot throw the chain far.

In coordinates of unit scale, every coordinate proposes a step of random size $z_i \sim N(0, \epsilon^2)$ and takes it
forwards with probability $1 / (1 + e^{-z_i g_i})$, $g$ the gradient, and backwards otherwise. The gradient chooses
directions only, so steps do not grow with it as those of Langevin dynamics do, and adaptation is forgiving. Accepted
with probability $\min\big(1, \tfrac{p(\theta')}{p(\theta)} \prod_i \tfrac{1 + e^{-d_i g_i}}{1 + e^{d_i g'_i}}\big)$,
$d$ the step that was taken.
"""

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray, PyTree

from marginax._kernels.random import normal, uniform
from marginax.infer.catalogue import register_method
from marginax.infer.flat import Density
from marginax.infer.mcmc.adaptation import apply_sqrt, apply_sqrt_transposed, choose
from marginax.infer.mcmc.integrators import HMCState, acceptance_of, state_at
from marginax.infer.mcmc.sampler import AbstractSampler, SamplerInfo, Tuning

_ACCEPT, _DIRECTIONS = 1, 2  # streams of random numbers within a move


@register_method(
    "method/barker",
    gives="draws of the posterior itself",
    use_when="exact, one gradient a step, and scales that are hard to tune for",
    cost="12,000 gradients per chain",
    order=245,
)
class Barker(AbstractSampler):
    """Barker's proposal with window adaptation of step size and scale.

    Takes what every `AbstractSampler` takes, and:

    Args:
        target_acceptance: mean acceptance that the step size aims at; on normals, jumps at 0.4 to 0.6 are within
            a tenth of the longest.
    """

    num_warmup: int = 2000
    num_samples: int = 1000
    thin: int = 10
    target_acceptance: float = 0.4

    def move(
        self, density: Density, state: HMCState, tuning: Tuning, *, key: PRNGKeyArray
    ) -> tuple[HMCState, SamplerInfo, PyTree]:
        size = tuning.step_size * normal(key, state.position.shape, state.position.dtype)
        slope = apply_sqrt_transposed(tuning.metric_sqrt, state.gradient)
        draws = uniform(key, jnp.arange(size.size), stream=_DIRECTIONS)
        step = jnp.where(draws < jax.nn.sigmoid(size * slope), size, -size)
        new = state_at(density, state.position + apply_sqrt(tuning.metric_sqrt, step))
        back = apply_sqrt_transposed(tuning.metric_sqrt, new.gradient)
        directions = jnp.sum(jax.nn.softplus(-step * slope) - jax.nn.softplus(step * back))
        acceptance, _ = acceptance_of(state.log_density - new.log_density - directions)
        new = choose(uniform(key, 0, stream=_ACCEPT) < acceptance, new, state)
        return new, SamplerInfo(new.log_density, acceptance, tuning.step_size), None
