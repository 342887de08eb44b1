r"""A network that is linear in its weights: $f_\theta(x) \approx f_{\hat\theta}(x) + J(x)(\theta - \hat\theta)$."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from marginax.model import Model, Params


class Displaced(eqx.Module):
    """Parameters, and the point around which the network is linearised."""

    centre: Params
    params: Params


class Linearised(eqx.Module):
    """The model with its network linearised; what it is asked about are `Displaced` parameters."""

    model: Model

    def predictive(self, params: Displaced, x: Array, *, key: Any = None) -> Any:
        """The likelihood's distribution at the linearised outputs."""
        del key
        centre = params.centre

        def output(network: Any) -> Array:
            return self.model.output(eqx.tree_at(lambda p: p.network, centre, network), x)

        step = jax.tree.map(jnp.subtract, params.params.network, centre.network)
        value, change = jax.jvp(output, (centre.network,), (step,))
        return self.model.likelihood.distribution(value + change, params.params.likelihood)
