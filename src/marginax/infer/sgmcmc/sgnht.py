r"""Stochastic-gradient Nose-Hoover thermostat (Ding et al., 2014).

$v' = (1-\zeta)v + \eta \hat\nabla \log p + \sqrt{2\alpha\eta T}\,\xi, \quad \theta' = \theta + v', \quad
\zeta' = \zeta + \tfrac1d v'^\top v' / \eta \cdot \kappa - \kappa T$

The friction $\zeta$ adapts until the velocities have the right temperature, so that the unknown noise of minibatch
gradients is damped away. $\kappa$ is how fast the thermostat answers; the paper's choice is
$\kappa = \eta$ in these units.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from marginax._kernels.random import normal_like
from marginax.infer.catalogue import register_method
from marginax.infer.sgmcmc.diffusion import AbstractStochasticSampler, mean_square
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

    Takes what every `AbstractStochasticSampler` takes, and:

    Args:
        friction: $\alpha$: of the injected noise, and the thermostat's start.
        coupling: $\kappa$: how fast the thermostat answers.
    """

    friction: float = 0.1
    coupling: float = 0.01

    def __check_init__(self):
        if not 0 < self.friction <= 1:
            raise ValueError(f"friction must be in (0, 1], got {self.friction}")
        if not self.coupling > 0:
            raise ValueError(f"coupling must be > 0, got {self.coupling}")

    def default_step_size(self, curvature: Array, num_examples: int) -> Array:
        return 0.1 / curvature

    def first_memory(self, params: Params, num_examples: int) -> Thermostat:
        """At rest, with the friction of the injected noise."""
        return Thermostat(jax.tree.map(jnp.zeros_like, params), jnp.asarray(self.friction, float))

    def update(self, params, memory, gradient, step_size, temperature, key):
        """Friction, gradient, noise; move; then let the friction answer to the temperature."""
        spread = jnp.sqrt(2.0 * self.friction * step_size * temperature)
        velocity = jax.tree.map(
            lambda v, g, n: (1.0 - memory.friction) * v + step_size * g + spread * n,
            memory.velocity,
            gradient,
            normal_like(key, params),
        )
        warmth = mean_square(velocity) / step_size
        memory = Thermostat(velocity, memory.friction + self.coupling * (warmth - temperature))
        return jax.tree.map(jnp.add, params, velocity), memory, {"temperature": warmth}
