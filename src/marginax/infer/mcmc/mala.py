r"""The Metropolis-adjusted Langevin algorithm (Besag, 1994; Roberts & Tweedie, 1996): exact, full batch.

The proposal is a step of Langevin dynamics, $\theta' = \theta + \tfrac{\epsilon^2}{2} R R^\top \nabla \log p(\theta)
+ \epsilon R \xi$, accepted with the Metropolis-Hastings probability. That is Hamiltonian Monte Carlo with a single
leapfrog step: the energy error equals minus the log of the ratio of densities times proposals, and so it is computed.
"""

import jax.numpy as jnp
from jaxtyping import PRNGKeyArray, PyTree

from marginax._kernels.random import normal, uniform
from marginax.infer.catalogue import register_method
from marginax.infer.flat import Density
from marginax.infer.mcmc.integrators import HMCState, IntegratorState, accept, leapfrog
from marginax.infer.mcmc.sampler import AbstractSampler, SamplerInfo, Tuning, info_of

_ACCEPT = 1  # stream of random numbers within a move


@register_method(
    "method/mala",
    gives="draws of the posterior itself",
    use_when="exact, one gradient a step; for teaching and tiny models",
    cost="12,000 gradients per chain",
    order=240,
)
class MALA(AbstractSampler):
    """Metropolis-adjusted Langevin algorithm with window adaptation of step size and scale.

    Takes what every `AbstractSampler` takes, and:

    Args:
        target_acceptance: mean acceptance that the step size aims at; 0.574 is best in many dimensions.
    """

    num_warmup: int = 2000
    num_samples: int = 1000
    thin: int = 10
    target_acceptance: float = 0.574

    def move(
        self, density: Density, state: HMCState, tuning: Tuning, *, key: PRNGKeyArray
    ) -> tuple[HMCState, SamplerInfo, PyTree]:
        start = IntegratorState(state, normal(key, state.position.shape, state.position.dtype))
        end = leapfrog(density, start, tuning.step_size, tuning.metric_sqrt)
        new, went = accept(start, end, uniform(key, 0, stream=_ACCEPT))
        return new, info_of(new, went, tuning, jnp.ones((), jnp.int32)), None
