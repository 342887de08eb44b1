r"""Concrete dropout (Gal, Hron & Kendall, 2017): dropout whose rates are learned, one per layer.

A relaxed coin makes the rate p differentiable. The bound asks for entropy (rates near 1/2) and lets the data object:
$\sum_l K_l H(p_l) + \log p\big(w_l / \sqrt{1 - p_l}\big)$ with $K_l$ the inputs of layer l. After training the coins
are real ones.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from marginax.infer.catalogue import register_method
from marginax.infer.dropout.noisy_training import AbstractNoisyTraining, Rules, noisy_layers
from marginax.model import Model, Params
from marginax.nets import ConcreteFactor, Dropout, layers_of, replace_layers


@register_method(
    "method/concrete_dropout",
    gives="dropout with learned rates",
    use_when="as MC dropout, with rates that are learned",
    cost="1 training run",
    order=90,
)
class ConcreteDropout(AbstractNoisyTraining):
    """Dropout with learned rates.

    Takes what every `AbstractOptimised` takes, and:

    Args:
        initial_rate: where the rates start.
        relaxation: temperature of the relaxed coin.
    """

    initial_rate: float = 0.1
    relaxation: float = 0.1

    def __check_init__(self):
        if not 0 < self.initial_rate < 1:
            raise ValueError(f"initial_rate must be in (0, 1), got {self.initial_rate}")
        if not self.relaxation > 0:
            raise ValueError(f"relaxation must be > 0, got {self.relaxation}")

    def first_noise(self, model: Model) -> PyTree:
        """The logit of the first rate, for every layer with noise."""
        logit = jnp.log(self.initial_rate) - jnp.log1p(-jnp.asarray(self.initial_rate))
        return tuple(logit if noisy else None for noisy in noisy_layers(model))

    def rules(self, model: Model, noise: PyTree) -> Rules:
        return tuple(None if logit is None else ConcreteFactor(logit, self.relaxation) for logit in noise)

    def final_rules(self, model: Model, noise: PyTree) -> Rules:
        return tuple(None if logit is None else Dropout(jax.nn.sigmoid(logit)) for logit in noise)

    def log_prior(self, model: Model, params: Params, noise: PyTree) -> Float[Array, ""]:
        """Weights as large as they are when they are there, and the entropy of the coins."""
        layers, entropy = [], jnp.zeros(())
        for layer, logit in zip(layers_of(params.network), noise, strict=True):
            if logit is None or layer.weight is None:
                layers.append(layer)
                continue
            kept = jax.nn.sigmoid(-logit)
            layers.append(eqx.tree_at(lambda at: at.weight, layer, layer.weight / jnp.sqrt(kept)))
            num_inputs = layer.weight.shape[1]
            entropy = entropy + num_inputs * (
                -kept * jax.nn.log_sigmoid(-logit) - (1.0 - kept) * jax.nn.log_sigmoid(logit)
            )
        grown = eqx.tree_at(lambda p: p.network, params, replace_layers(params.network, layers))
        return model.log_prior(grown) + entropy
