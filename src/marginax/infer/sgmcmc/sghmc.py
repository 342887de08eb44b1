r"""Stochastic-gradient Hamiltonian Monte Carlo (Chen, Fox & Guestrin, 2014).

$v' = (1-\alpha)v + \eta \hat\nabla \log p + \sqrt{2\alpha\eta T}\,\xi, \quad \theta' = \theta + v'$
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from marginax._kernels.random import normal_like
from marginax.data import Batch
from marginax.infer.catalogue import register_method
from marginax.infer.map import MAP
from marginax.infer.sgmcmc.diffusion import (
    AbstractStochasticSampler,
    ControlVariates,
    StepSizeChoice,
    StochasticInfo,
    StochasticState,
    mean_square,
)
from marginax.model import AbstractModel
from marginax.model.abstract import Params


@register_method(
    "method/sghmc",
    gives="as SGLD, with momentum",
    use_when="large data: the sampler on minibatches to begin with",
    cost="MAP and 6,000 steps per chain",
    order=190,
)
class SGHMC(AbstractStochasticSampler):
    r"""Stochastic-gradient HMC: SGLD with momentum.

    Args:
        step_size: $\eta$: a number, `PolynomialDecay(...)`, or None to set it from the curvature.
        friction: $\alpha$ in (0, 1]; 1 is SGLD with a step of $2\eta$.
        temperature: of the posterior.
        num_warmup: steps from which nothing is kept.
        num_samples: kept draws per chain.
        thin: steps per kept draw.
        batch_size: examples per step, or None for all.
        variance_reduction: None, or `ControlVariates()`.
        training: how the start is found when `init=` does not give one.
    """

    step_size: StepSizeChoice = None
    friction: float = 0.1
    temperature: float = 1.0
    num_warmup: int = 1000
    num_samples: int = 100
    thin: int = 50
    batch_size: int | None = 128
    variance_reduction: ControlVariates | None = None
    training: MAP | None = eqx.field(default_factory=MAP)

    def __check_init__(self):
        if not 0 < self.friction <= 1:
            raise ValueError(f"friction must be in (0, 1], got {self.friction}")

    def default_step_size(self, curvature: Array, num_examples: int) -> Array:
        """Well inside the stable range, which ends at 2 (2 - friction)."""
        del num_examples
        return 0.1 / curvature

    def first_memory(self, params: Params) -> Params:
        """Velocity, at rest."""
        return jax.tree.map(jnp.zeros_like, params)

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
        """Friction, gradient, noise; then move."""
        value, gradient = self.gradient(model, state, batch)
        spread = jnp.sqrt(2.0 * self.friction * step_size * temperature)
        noise = normal_like(key, state.params)
        velocity = jax.tree.map(
            lambda v, g, n: (1.0 - self.friction) * v + step_size * g + spread * n, state.memory, gradient, noise
        )
        params = jax.tree.map(jnp.add, state.params, velocity)
        new = eqx.tree_at(lambda s: (s.params, s.memory), state, (params, velocity))
        return new, StochasticInfo(value, step_size, mean_square(velocity) / step_size)
