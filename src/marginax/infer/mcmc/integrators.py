r"""Integrators of Hamiltonian and of microcanonical dynamics, in coordinates of unit scale $z = R^{-1}\theta$.

Hamiltonian: with velocity $v \sim N(0, I)$ the energy is $H = -\log p(\theta) + \tfrac12 v^\top v$, and the leapfrog
integrator

$v_{1/2} = v + \tfrac{\epsilon}{2} R^\top \nabla \log p(\theta), \quad \theta' = \theta + \epsilon R v_{1/2}, \quad
v' = v_{1/2} + \tfrac{\epsilon}{2} R^\top \nabla \log p(\theta')$

is reversible, keeps volume, and its energy error is of second order in $\epsilon$.

Microcanonical (Robnik, De Luca, Silverstein & Seljak, 2023): the chain moves at unit speed, $\dot z = u$,
$\dot u = (I - u u^\top) \nabla \log p / (d - 1)$, $|u| = 1$, which keeps the energy $E = (d - 1) \log |p| - \log
p(\theta)$ and visits the posterior's typical set. The integrator is the minimal-norm splitting B A B A B with two
gradients a step (McLachlan, 1995; Takaishi & de Forcrand, 2006); its B is exact, and gives the change of the kinetic
part of the energy with it.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from marginax.infer.flat import Density, Vector
from marginax.infer.mcmc.adaptation import MetricSqrt, apply_sqrt, apply_sqrt_transposed, choose

MAX_ENERGY_ERROR = 1000.0  # beyond it a trajectory counts as diverging (as in Stan)
_LAMBDA = 0.1931833275037836


class HMCState(eqx.Module):
    """A position, its log density and the gradient there."""

    position: Vector
    log_density: Float[Array, ""]
    gradient: Vector


class IntegratorState(eqx.Module):
    """A position and a velocity; in microcanonical dynamics the velocity is a direction."""

    state: HMCState
    velocity: Vector

    @property
    def energy(self) -> Float[Array, ""]:
        """Potential plus kinetic, of Hamiltonian dynamics."""
        return 0.5 * jnp.vdot(self.velocity, self.velocity) - self.state.log_density


def state_at(density: Density, position: Vector) -> HMCState:
    """Evaluate the density at a position."""
    return HMCState(position, *density(position))


# ---- Hamiltonian


def leapfrog(
    density: Density, start: IntegratorState, step_size: Array | float, metric_sqrt: MetricSqrt
) -> IntegratorState:
    """One step of the integrator; a negative step size goes back in time."""
    half = start.velocity + 0.5 * step_size * apply_sqrt_transposed(metric_sqrt, start.state.gradient)
    state = state_at(density, start.state.position + step_size * apply_sqrt(metric_sqrt, half))
    return IntegratorState(state, half + 0.5 * step_size * apply_sqrt_transposed(metric_sqrt, state.gradient))


def integrate(
    density: Density,
    start: IntegratorState,
    step_size: Array | float,
    metric_sqrt: MetricSqrt,
    num_steps: Int[Array, ""] | int,
) -> IntegratorState:
    """Several steps; their number need not be known when compiling."""
    return jax.lax.fori_loop(0, num_steps, lambda _, at: leapfrog(density, at, step_size, metric_sqrt), start)


def acceptance_of(energy_error: Float[Array, ""]) -> tuple[Float[Array, ""], Bool[Array, ""]]:
    """Metropolis probability of a rise in energy, and whether the trajectory diverged; NaN counts as infinite."""
    error = jnp.where(jnp.isnan(energy_error), jnp.inf, energy_error)
    return jnp.exp(jnp.minimum(0.0, -error)), error > MAX_ENERGY_ERROR


class Accepted(eqx.Module):
    """How an accept step went: its probability, the energy afterwards, and whether the trajectory diverged."""

    acceptance: Float[Array, ""]
    energy: Float[Array, ""]
    diverging: Bool[Array, ""]


def accept(start: IntegratorState, end: IntegratorState, draw: Array) -> tuple[HMCState, Accepted]:
    """The end of a trajectory with the Metropolis probability, its start otherwise; `draw` is uniform on [0, 1)."""
    acceptance, diverging = acceptance_of(end.energy - start.energy)
    accepted = draw < acceptance
    energy = jnp.where(accepted, end.energy, start.energy)
    return choose(accepted, end.state, start.state), Accepted(acceptance, energy, diverging)


# ---- microcanonical


def unit(vector: Vector) -> Vector:
    """The direction of a vector."""
    return vector / jnp.maximum(jnp.linalg.norm(vector), 1e-30)


def isokinetic_step(
    density: Density, start: IntegratorState, step_size: Array | float, metric_sqrt: MetricSqrt
) -> tuple[IntegratorState, Float[Array, ""]]:
    """One step of the integrator, and the error of energy that it makes."""
    shares = jnp.asarray([1.0 - 2.0 * _LAMBDA, _LAMBDA])
    gradient = apply_sqrt_transposed(metric_sqrt, start.state.gradient)
    direction, kinetic = kick(start.velocity, gradient, _LAMBDA * step_size)

    def drift_and_kick(i: Array, carry: tuple[IntegratorState, Array]) -> tuple[IntegratorState, Array]:
        at, kinetic = carry
        state = state_at(density, at.state.position + 0.5 * step_size * apply_sqrt(metric_sqrt, at.velocity))
        gradient = apply_sqrt_transposed(metric_sqrt, state.gradient)
        direction, gained = kick(at.velocity, gradient, shares[i] * step_size)
        return IntegratorState(state, direction), kinetic + gained

    # A loop of two, so that the network's gradient is compiled once.
    end, kinetic = jax.lax.fori_loop(0, 2, drift_and_kick, (IntegratorState(start.state, direction), kinetic))
    return end, kinetic - end.state.log_density + start.state.log_density


def kick(direction: Vector, gradient: Vector, step_size: Array | float) -> tuple[Vector, Float[Array, ""]]:
    """Turn the direction towards the gradient; exact for a constant gradient. Also the kinetic energy gained."""
    rank = max(direction.size - 1, 1)
    norm = jnp.linalg.norm(gradient)
    towards = gradient / jnp.maximum(norm, 1e-30)
    angle = step_size * norm / rank
    cosine = jnp.vdot(towards, direction)
    decay = jnp.exp(-angle)
    turned = towards * (1.0 - decay) * (1.0 + decay + cosine * (1.0 - decay)) + 2.0 * decay * direction
    gained = rank * (angle - jnp.log(2.0) + jnp.log(1.0 + cosine + (1.0 - cosine) * decay**2))
    return unit(turned), gained


def refresh(direction: Vector, noise: Vector, step_size: Array, length: Array) -> Vector:
    """Forget part of the direction: all of it over a path of about `length`."""
    strength = jnp.sqrt(jnp.expm1(2.0 * step_size / length) / direction.size)
    return unit(direction + strength * noise)
