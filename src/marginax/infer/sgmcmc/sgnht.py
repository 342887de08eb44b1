r"""Stochastic-gradient Nose-Hoover thermostat (Ding et al., 2014).

$v' = (1-\zeta)v + \eta \hat\nabla \log p + \sqrt{2\alpha\eta T}\,\xi, \quad \theta' = \theta + v', \quad
\zeta' = \zeta + \tfrac1d v'^\top v' / \eta \cdot \kappa - \kappa T$

The friction $\zeta$ adapts until the velocities have the right temperature, so that the unknown noise of minibatch
gradients is damped away. $\kappa$ is the thermostat's rate; the paper's choice is $\kappa = \eta$ in these units.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

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


class Thermostat(eqx.Module):
    """Velocity and friction."""

    velocity: Params
    friction: Float[Array, ""]


@register_method(
    "method/sgnht",
    gives="as SGHMC, with a thermostat",
    use_when="as SGHMC, when the noise of batches is felt",
    cost="MAP and 6,000 steps per chain",
    order=200,
)
class SGNHT(AbstractStochasticSampler):
    r"""Stochastic-gradient Nose-Hoover thermostat.

    Args:
        step_size: $\eta$: a number, `PolynomialDecay(...)`, or None to set it from the curvature.
        friction: $\alpha$: of the injected noise, and the thermostat's start.
        rate: $\kappa$: how fast the thermostat answers.
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
    rate: float = 0.01
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
        if not self.rate > 0:
            raise ValueError(f"rate must be > 0, got {self.rate}")

    def default_step_size(self, curvature: Array, num_examples: int) -> Array:
        """As in SGHMC."""
        del num_examples
        return 0.1 / curvature

    def first_memory(self, params: Params) -> Thermostat:
        """At rest, with the friction of the injected noise."""
        return Thermostat(jax.tree.map(jnp.zeros_like, params), jnp.asarray(self.friction, float))

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
        """Friction, gradient, noise; move; then let the friction answer to the temperature."""
        value, gradient = self.gradient(model, state, batch)
        spread = jnp.sqrt(2.0 * self.friction * step_size * temperature)
        friction = state.memory.friction
        noise = normal_like(key, state.params)
        velocity = jax.tree.map(
            lambda v, g, n: (1.0 - friction) * v + step_size * g + spread * n, state.memory.velocity, gradient, noise
        )
        params = jax.tree.map(jnp.add, state.params, velocity)
        warmth = mean_square(velocity) / step_size
        memory = Thermostat(velocity, friction + self.rate * (warmth - temperature))
        new = eqx.tree_at(lambda s: (s.params, s.memory), state, (params, memory))
        return new, StochasticInfo(value, step_size, warmth)
