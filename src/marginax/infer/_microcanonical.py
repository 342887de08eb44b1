r"""Microcanonical dynamics in coordinates of unit scale (Robnik, De Luca, Silverstein & Seljak, 2023).

The chain moves at unit speed, $\dot z = u$, $\dot u = (I - u u^\top) \nabla \log p / (d - 1)$, $|u| = 1$, which keeps
the energy $E = (d - 1) \log |p| - \log p(\theta)$ and visits the posterior's typical set. The integrator is the
minimal-norm splitting B A B A B with two gradients a step (McLachlan, 1995; Takaishi & de Forcrand, 2006); its B is
exact, and gives the change of the kinetic part of the energy with it.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from marginax.infer._adaptation import Root, stretch, stretch_gradient
from marginax.infer._flat import Density, Vector
from marginax.infer._hamiltonian import Motion, place_at

_LAMBDA = 0.1931833275037836


def unit(vector: Vector) -> Vector:
    """The direction of a vector."""
    return vector / jnp.maximum(jnp.linalg.norm(vector), 1e-30)


def glide(density: Density, motion: Motion, step_size: Array | float, root: Root) -> tuple[Motion, Float[Array, ""]]:
    """One step of the integrator, and the error of energy that it makes."""
    shares = jnp.asarray([1.0 - 2.0 * _LAMBDA, _LAMBDA])
    direction, kinetic = kick(motion.velocity, stretch_gradient(root, motion.place.gradient), _LAMBDA * step_size)

    def drift_and_kick(i: Array, carry: tuple[Motion, Array]) -> tuple[Motion, Array]:
        motion, kinetic = carry
        place = place_at(density, motion.place.position + 0.5 * step_size * stretch(root, motion.velocity))
        direction, gained = kick(motion.velocity, stretch_gradient(root, place.gradient), shares[i] * step_size)
        return Motion(place, direction), kinetic + gained

    # A loop of two, so that the network's gradient is compiled once.
    end, kinetic = jax.lax.fori_loop(0, 2, drift_and_kick, (Motion(motion.place, direction), kinetic))
    return end, kinetic - end.place.log_density + motion.place.log_density


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
