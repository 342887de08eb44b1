r"""Random-walk Metropolis-Hastings (Metropolis et al., 1953; Hastings, 1970): exact, full batch, no gradients.

$\theta' = \theta + \epsilon R \xi$ with $\xi \sim N(0, I)$ is accepted with probability
$\min(1, p(\theta' \mid D) / p(\theta \mid D))$.
"""

import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from marginax._kernels.random import normal, uniform
from marginax.data import Batch
from marginax.infer.catalogue import register_method
from marginax.infer.flat import Density, Vector, log_density_of
from marginax.infer.mcmc.adaptation import apply_sqrt, choose
from marginax.infer.mcmc.integrators import HMCState, acceptance_of, state_at
from marginax.infer.mcmc.sampler import AbstractSampler, SamplerInfo, Tuning
from marginax.model import AbstractModel
from marginax.model.abstract import Params

_ACCEPT = 1  # stream of random numbers within a move


@register_method(
    "method/metropolis_hastings",
    gives="draws of the posterior itself, no gradients",
    use_when="exact without gradients; tiny models",
    cost="60,000 densities per chain",
    order=250,
)
class MetropolisHastings(AbstractSampler):
    """Random-walk Metropolis-Hastings with window adaptation of step size and scale.

    Takes what every `AbstractSampler` takes, and:

    Args:
        target_acceptance: mean acceptance that the step size aims at; 0.234 is best in many dimensions.
    """

    num_warmup: int = 10_000
    num_samples: int = 1000
    thin: int = 50
    target_acceptance: float = 0.234

    def density(self, model: AbstractModel, batch: Batch, like: Params) -> Density:
        """The log density alone: the gradient is not needed, and left at zero."""
        log_density = log_density_of(model, batch, like, self.temperature)

        def without_gradient(position: Vector) -> tuple[Array, Vector]:
            return log_density(position), jnp.zeros_like(position)

        return without_gradient

    def move(
        self, density: Density, state: HMCState, tuning: Tuning, *, key: PRNGKeyArray
    ) -> tuple[HMCState, SamplerInfo, PyTree]:
        noise = normal(key, state.position.shape, state.position.dtype)
        proposal = state_at(density, state.position + tuning.step_size * apply_sqrt(tuning.metric_sqrt, noise))
        acceptance, _ = acceptance_of(state.log_density - proposal.log_density)
        new = choose(uniform(key, 0, stream=_ACCEPT) < acceptance, proposal, state)
        return new, SamplerInfo(new.log_density, acceptance, tuning.step_size), None
