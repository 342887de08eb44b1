r"""The Metropolis-adjusted Langevin algorithm (Besag, 1994; Roberts & Tweedie, 1996): exact, full batch.

The proposal is a step of Langevin dynamics, $\theta' = \theta + \tfrac{\epsilon^2}{2} R R^\top \nabla \log p(\theta)
+ \epsilon R \xi$, accepted with the Metropolis-Hastings probability. That is Hamiltonian Monte Carlo with a single
leapfrog step: the energy error equals minus the log of the ratio of densities times proposals, and so it is computed.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from marginax._kernels.random import normal, uniform
from marginax.infer.catalogue import register_method
from marginax.infer.flat import Density
from marginax.infer.mcmc.adaptation import DiagonalMetric, Metric, MetricSqrt, choose
from marginax.infer.mcmc.hamiltonian import HMCState, IntegratorState, acceptance_of, leapfrog
from marginax.infer.mcmc.sampler import AbstractSampler, SamplerInfo

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

    Args:
        num_warmup: adaptation steps.
        num_samples: kept draws per chain.
        thin: steps per kept draw.
        target_acceptance: mean acceptance that the step size aims at; 0.574 is best in many dimensions.
        metric: `DiagonalMetric()`, or `DenseMetric()` for up to some hundreds of correlated parameters.
    """

    num_warmup: int = 2000
    num_samples: int = 1000
    thin: int = 10
    target_acceptance: float = 0.574
    metric: Metric = eqx.field(default_factory=DiagonalMetric)

    def move(
        self,
        density: Density,
        place: HMCState,
        step_size: Array,
        metric_sqrt: MetricSqrt,
        extra: PyTree,
        *,
        key: PRNGKeyArray,
    ) -> tuple[HMCState, SamplerInfo, PyTree]:
        """Propose along the gradient, accept or stay."""
        del extra
        start = IntegratorState(place, normal(key, place.position.shape, place.position.dtype))
        end = leapfrog(density, start, step_size, metric_sqrt)
        acceptance, diverging = acceptance_of(end.energy - start.energy)
        accepted = uniform(key, 0, stream=_ACCEPT) < acceptance
        new = choose(accepted, end.state, place)
        info = SamplerInfo(
            log_density=new.log_density,
            acceptance=acceptance,
            energy=jnp.where(accepted, end.energy, start.energy),
            diverging=diverging,
            num_leapfrog=jnp.ones((), jnp.int32),
            step_size=step_size,
        )
        return new, info, None
