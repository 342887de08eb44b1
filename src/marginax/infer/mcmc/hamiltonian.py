r"""Hamiltonian dynamics in coordinates of unit scale.

With $z = R^{-1}\theta$ and velocity $v \sim N(0, I)$ the energy is $H = -\log p(\theta) + \tfrac12 v^\top v$, and the
leapfrog integrator

$v_{1/2} = v + \tfrac{\epsilon}{2} R^\top \nabla \log p(\theta), \quad \theta' = \theta + \epsilon R v_{1/2}, \quad
v' = v_{1/2} + \tfrac{\epsilon}{2} R^\top \nabla \log p(\theta')$

is reversible, keeps volume, and its energy error is of second order in $\epsilon$.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from marginax.infer.flat import Density, Vector
from marginax.infer.mcmc.adaptation import MetricSqrt, apply_sqrt, apply_sqrt_transposed

MAX_ENERGY_ERROR = 1000.0  # beyond it a trajectory counts as diverging (as in Stan)


class HMCState(eqx.Module):
    """A position, its log density and the gradient there."""

    position: Vector
    log_density: Float[Array, ""]
    gradient: Vector


class IntegratorState(eqx.Module):
    """A place and a velocity."""

    state: HMCState
    velocity: Vector

    @property
    def energy(self) -> Float[Array, ""]:
        """Potential plus kinetic."""
        return 0.5 * jnp.vdot(self.velocity, self.velocity) - self.state.log_density


def state_at(density: Density, position: Vector) -> HMCState:
    """Evaluate the density at a position."""
    return HMCState(position, *density(position))


def leapfrog(
    density: Density, integrator_state: IntegratorState, step_size: Array | float, metric_sqrt: MetricSqrt
) -> IntegratorState:
    """One step of the integrator; a negative step size goes back in time."""
    half = integrator_state.velocity + 0.5 * step_size * apply_sqrt_transposed(
        metric_sqrt, integrator_state.state.gradient
    )
    place = state_at(density, integrator_state.state.position + step_size * apply_sqrt(metric_sqrt, half))
    return IntegratorState(place, half + 0.5 * step_size * apply_sqrt_transposed(metric_sqrt, place.gradient))


def integrate(
    density: Density,
    integrator_state: IntegratorState,
    step_size: Array | float,
    metric_sqrt: MetricSqrt,
    num_steps: Int[Array, ""] | int,
) -> IntegratorState:
    """Several steps; their number need not be known when compiling."""
    return jax.lax.fori_loop(0, num_steps, lambda _, m: leapfrog(density, m, step_size, metric_sqrt), integrator_state)


def acceptance_of(energy_error: Float[Array, ""]) -> tuple[Float[Array, ""], Bool[Array, ""]]:
    """Metropolis probability of a rise in energy, and whether the trajectory diverged; NaN counts as infinite."""
    error = jnp.where(jnp.isnan(energy_error), jnp.inf, energy_error)
    return jnp.exp(jnp.minimum(0.0, -error)), error > MAX_ENERGY_ERROR
