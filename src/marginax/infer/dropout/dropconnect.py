r"""DropConnect as inference (Wan et al., 2013; Mobiny et al., 2021): weights, not units, are there or not.

$q(w)$ puts $w_{ij} = m_{ij} z_{ij} / (1 - p)$ with coins $z_{ij}$, in training (one mask per minibatch) and in
prediction (one mask per draw).
"""

from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from marginax.data import Batch
from marginax.infer.catalogue import register_method
from marginax.infer.dropout.noisy_training import AbstractNoisyTraining, Rules, noisy_layers
from marginax.model import Model, Params
from marginax.nets import WeightDropout
from marginax.posterior.stochastic import noisy_network


@register_method(
    "method/dropconnect",
    gives="a network with weights dropped",
    use_when="as MC dropout, with weights dropped in place of units",
    cost="1 training run",
    order=100,
)
class DropConnect(AbstractNoisyTraining):
    """Dropout of weights that stays on.

    Takes what every `AbstractOptimised` takes, and:

    Args:
        rate: probability of dropping a weight, in every layer but the first.
    """

    rate: float = 0.05

    def __check_init__(self):
        if not 0 < self.rate < 1:
            raise ValueError(f"rate must be in (0, 1), got {self.rate}")

    def rules(self, model: Model, noise: PyTree) -> Rules:
        return tuple(WeightDropout(self.rate) if noisy else None for noisy in noisy_layers(model))

    def log_likelihood(
        self, model: Model, params: Params, rules: Rules, batch: Batch, *, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        network = noisy_network(model, params, rules, key)
        return batch.total(model.log_likelihood_of(lambda x, _: model.output_of(network, x), params, batch, key=key))
