"""How wide: a scale is a number, a distribution to learn it from, or something the network says."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Float

from marginax.files import register
from marginax.model.distributions import Gamma, HalfCauchy, HalfNormal, InverseGamma, LogNormal
from marginax.model.numpyro_distribution import NumPyroDistribution

Positive = HalfNormal | HalfCauchy | LogNormal | Gamma | InverseGamma | NumPyroDistribution


@register("likelihood/from_network")
class FromNetwork(eqx.Module):
    """The network gives the scale beside the mean: outputs are (means, raw scales), scale = softplus(raw) + floor.

    Args:
        min_scale: the floor, in the units of the (standardised) target; it keeps the density bounded.
    """

    min_scale: float = 1e-3

    def __check_init__(self):
        if not self.min_scale >= 0:
            raise ValueError(f"min_scale must be >= 0, got {self.min_scale}")


def check_scale(scale: object, *, name: str = "scale") -> None:
    """Refuse numbers that are not positive and objects that are no scale."""
    if isinstance(scale, Positive | FromNetwork):
        return
    if isinstance(scale, bool) or not isinstance(scale, int | float | jax.Array):
        raise TypeError(
            f"{name} must be a positive number, a distribution such as mx.priors.LogNormal(-1.0, 1.0), "
            f"or FromNetwork(), got {scale!r}"
        )
    if not isinstance(scale, Tracer) and not (bool(scale > 0) and bool(scale < float("inf"))):
        raise ValueError(f"{name} must be > 0 and finite, got {scale}")


@eqx.filter_jit
def initial_log_scale(prior: Positive, shape: tuple[int, ...]) -> Float[Array, "..."]:
    """Start a learned scale at the median of its prior."""
    return jnp.broadcast_to(jnp.log(prior.median), shape)


def log_prior_of_log(prior: Positive, log_scale: Float[Array, "..."]) -> Float[Array, ""]:
    """Log density of log(s) when s has the given prior: the Jacobian of the exponential is s."""
    return jnp.sum(prior.log_prob(jnp.exp(log_scale)) + log_scale)
