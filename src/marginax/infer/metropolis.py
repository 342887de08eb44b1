r"""Random-walk Metropolis-Hastings (Metropolis et al., 1953; Hastings, 1970): exact, full batch, no gradients.

$\theta' = \theta + \epsilon R \xi$ with $\xi \sim N(0, I)$ is accepted with probability
$\min(1, p(\theta' \mid D) / p(\theta \mid D))$.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from marginax._random import normal, uniform
from marginax.data import Batch
from marginax.files import register
from marginax.infer._adaptation import DiagonalScale, Root, Scale, choose, stretch
from marginax.infer._flat import Density, Vector, log_density_of
from marginax.infer._hamiltonian import Place, acceptance_of, place_at
from marginax.infer._sampler import AbstractSampler, SamplerInfo
from marginax.model import Model, Params

_ACCEPT = 1  # stream of random numbers within a move


@register("method/metropolis_hastings")
class MetropolisHastings(AbstractSampler):
    """Random-walk Metropolis-Hastings with window adaptation of step size and scale.

    Args:
        num_warmup: adaptation steps.
        num_samples: kept draws per chain.
        thin: steps per kept draw.
        target_acceptance: mean acceptance that the step size aims at; 0.234 is best in many dimensions.
        scale: `DiagonalScale()`, or `DenseScale()` for up to some hundreds of correlated parameters.
    """

    num_warmup: int = 10_000
    num_samples: int = 1000
    thin: int = 50
    target_acceptance: float = 0.234
    scale: Scale = eqx.field(default_factory=DiagonalScale)

    def density(self, model: Model, batch: Batch, like: Params) -> Density:
        """The log density alone: the gradient is not needed, and left at zero."""
        log_density = log_density_of(model, batch, like)

        def without_gradient(position: Vector) -> tuple[Array, Vector]:
            return log_density(position), jnp.zeros_like(position)

        return without_gradient

    def move(
        self, density: Density, place: Place, step_size: Array, root: Root, extra: PyTree, *, key: PRNGKeyArray
    ) -> tuple[Place, SamplerInfo, PyTree]:
        """Propose nearby, accept or stay."""
        del extra
        noise = normal(key, place.position.shape, place.position.dtype)
        proposal = place_at(density, place.position + step_size * stretch(root, noise))
        acceptance, _ = acceptance_of(place.log_density - proposal.log_density)
        new = choose(uniform(key, 0, stream=_ACCEPT) < acceptance, proposal, place)
        return new, SamplerInfo(new.log_density, acceptance, step_size), None
