"""Curvature of the log prior: priors act on each weight by itself, so it is diagonal."""

import jax
import jax.numpy as jnp

from marginax.model import Model, Params


def prior_precision(model: Model, params: Params) -> Params:
    """Minus the second derivative of the log prior of every weight."""

    def slope(network):
        return jax.grad(lambda n: model.log_prior(Params(n, params.likelihood, params.prior)))(network)

    ones = jax.tree.map(jnp.ones_like, params.network)
    _, bend = jax.jvp(slope, (params.network,), (ones,))
    return Params(jax.tree.map(jnp.negative, bend), {}, {})
