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
    r"""The network gives the scale beside the mean: outputs are (means, raw scales $r$).

    The scale is $\mathrm{softplus}(g r + o) + s_{\min}$. Weights wide enough for the mean would let the noise be
    anything before data; gain and offset put it around a third of the (standardised) target's deviation, as the learned
    noise of a Gaussian is. They were chosen on validation rows of five UCI sets, with 40 and with all rows.

    Args:
        min_scale: the floor, in the units of the (standardised) target; it keeps the density bounded.
        gain: $g$, > 0.
        offset: $o$.

    >>> float(FromNetwork().of(jnp.zeros(())).round(3))
    0.314
    """

    min_scale: float = 1e-3
    gain: float = 0.5
    offset: float = -1.0

    def __check_init__(self):
        if not self.min_scale >= 0:
            raise ValueError(f"min_scale must be >= 0, got {self.min_scale}")
        if not self.gain > 0:
            raise ValueError(f"gain must be > 0, got {self.gain}")

    def of(self, raw: Float[Array, "..."]) -> Float[Array, "..."]:
        """The scale that a raw output means."""
        return jax.nn.softplus(self.gain * raw + self.offset) + self.min_scale

    def slope(self, raw: Float[Array, "..."]) -> Float[Array, "..."]:
        """Its derivative."""
        return self.gain * jax.nn.sigmoid(self.gain * raw + self.offset)


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
