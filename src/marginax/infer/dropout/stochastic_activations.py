r"""Stochastic activations: the units of a network are random, not its weights.

Every hidden unit j is multiplied by a variable $z_j$ with prior $N(1, s_0^2)$ and variational law $N(m_j, s_j^2)$, both
learned; the weights are at their mode (a node-based Bayesian network: Trinh, Heinonen, Acerbi & Kaski, 2022). The bound
is that of variational inference, with a divergence over some hundred units in place of many thousand weights:
$E_q[\log p(D \mid z, w)] + \log p(w) - \sum_j \mathrm{KL}(N(m_j, s_j^2) \,\|\, N(1, s_0^2))$.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from marginax.infer.catalogue import register_method
from marginax.infer.dropout.noisy_training import AbstractNoisyTraining, Rules, noisy_layers
from marginax.infer.vi.divergences import divergence_from_normal
from marginax.model import Model, Params
from marginax.nets import GaussianFactor, layers_of


@register_method(
    "method/stochastic_activations",
    gives="random units, weights at their mode",
    use_when="random units, learned: few more unknowns than MAP",
    cost="1 training run",
    order=110,
)
class StochasticActivations(AbstractNoisyTraining):
    """Random units with learned means and spreads.

    Takes what every `AbstractOptimised` takes, and:

    Args:
        prior_scale: $s_0$, how far from 1 a unit's factor is expected to be.
        initial_scale: of the factors at the start.
    """

    prior_scale: float = 0.3
    initial_scale: float = 0.1

    def __check_init__(self):
        for name in ("prior_scale", "initial_scale"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be > 0, got {getattr(self, name)}")

    def first_noise(self, model: Model) -> PyTree:
        """Mean 1 and a small spread for every input of a layer with noise (every channel of images)."""
        sizes = [layer.weight.shape[1] if noisy else None for layer, noisy in _layers(model)]
        rho = jnp.log(jnp.expm1(jnp.asarray(self.initial_scale)))
        return tuple(None if n is None else {"mean": jnp.ones(n), "rho": jnp.full(n, rho)} for n in sizes)

    def rules(self, model: Model, noise: PyTree) -> Rules:
        return tuple(None if z is None else GaussianFactor(jax.nn.softplus(z["rho"]), z["mean"]) for z in noise)

    def log_prior(self, model: Model, params: Params, noise: PyTree) -> Float[Array, ""]:
        """The weights' log prior, less the divergence of the units' factors."""
        total = model.log_prior(params)
        for z in noise:
            if z is not None:
                total = total - divergence_from_normal(z["mean"], jax.nn.softplus(z["rho"]), 1.0, self.prior_scale)
        return total


def _layers(model: Model) -> list[tuple[eqx.nn.Linear, bool]]:
    return list(zip(layers_of(model.network), noisy_layers(model), strict=True))
