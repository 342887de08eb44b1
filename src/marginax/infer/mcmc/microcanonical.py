r"""Microcanonical dynamics in coordinates of unit scale (Robnik, De Luca, Silverstein & Seljak, 2023).

The chain moves at unit speed, $\dot z = u$, $\dot u = (I - u u^\top) \nabla \log p / (d - 1)$, $|u| = 1$, which keeps
the energy $E = (d - 1) \log |p| - \log p(\theta)$ and visits the posterior's typical set. The integrator is the
minimal-norm splitting B A B A B with two gradients a step (McLachlan, 1995; Takaishi & de Forcrand, 2006); its B is
exact, and gives the change of the kinetic part of the energy with it.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from marginax.infer.flat import Density, Vector
from marginax.infer.mcmc.adaptation import MetricSqrt, apply_sqrt, apply_sqrt_transposed
from marginax.infer.mcmc.hamiltonian import IntegratorState, state_at

_LAMBDA = 0.1931833275037836


def unit(vector: Vector) -> Vector:
    """The direction of a vector."""
    return vector / jnp.maximum(jnp.linalg.norm(vector), 1e-30)


def isokinetic_step(
    density: Density, integrator_state: IntegratorState, step_size: Array | float, metric_sqrt: MetricSqrt
) -> tuple[IntegratorState, Float[Array, ""]]:
    """One step of the integrator, and the error of energy that it makes."""
    shares = jnp.asarray([1.0 - 2.0 * _LAMBDA, _LAMBDA])
    direction, kinetic = kick(
        integrator_state.velocity,
        apply_sqrt_transposed(metric_sqrt, integrator_state.state.gradient),
        _LAMBDA * step_size,
    )

    def drift_and_kick(i: Array, carry: tuple[IntegratorState, Array]) -> tuple[IntegratorState, Array]:
        integrator_state, kinetic = carry
        place = state_at(
            density,
            integrator_state.state.position + 0.5 * step_size * apply_sqrt(metric_sqrt, integrator_state.velocity),
        )
        direction, gained = kick(
            integrator_state.velocity, apply_sqrt_transposed(metric_sqrt, place.gradient), shares[i] * step_size
        )
        return IntegratorState(place, direction), kinetic + gained

    # A loop of two, so that the network's gradient is compiled once.
    end, kinetic = jax.lax.fori_loop(
        0, 2, drift_and_kick, (IntegratorState(integrator_state.state, direction), kinetic)
    )
    return end, kinetic - end.state.log_density + integrator_state.state.log_density


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
