r"""Monte Carlo dropout (Gal & Ghahramani, 2016): dropout in training, and in prediction too.

Training with dropout is variational inference with $q(w)$ a network some of whose units are gone, so averaging over
dropout at prediction averages over that approximate posterior. A draw is a network with its units fixed: the same for
every input, a function. After convolutions it is approximate inference in a Bayesian convnet (Gal & Ghahramani, 2015).
"""

from jaxtyping import PyTree

from marginax.infer.catalogue import register_method
from marginax.infer.dropout.noisy_training import AbstractNoisyTraining, Rules, has_own_noise, noisy_layers
from marginax.model import Model
from marginax.nets import Dropout

_RATE = 0.05


@register_method(
    "method/mc_dropout",
    gives="a network with dropout on",
    use_when="you train with dropout anyway: uncertainty for free",
    cost="1 training run",
    order=70,
)
class MCDropout(AbstractNoisyTraining):
    """Dropout that stays on.

    A network with dropout of its own (`mx.nets.MLP(dropout=...)`, `eqx.nn.Dropout`) is used as it is; in others the
    inputs of every layer but the first are dropped, which is dropout of every hidden unit and every feature map.

    Takes what every `AbstractOptimised` takes, and:

    Args:
        rate: probability of dropping a unit; by default the network's own, or 0.05.
    """

    rate: float | None = None

    def __check_init__(self):
        if self.rate is not None and not 0 < self.rate < 1:
            raise ValueError(f"rate must be in (0, 1) or None, got {self.rate}")

    def rules(self, model: Model, noise: PyTree) -> Rules:
        if has_own_noise(model.network):
            if self.rate is not None:
                raise ValueError("rate must be None for a network with dropout of its own: set it there")
            return ()
        rate = _RATE if self.rate is None else self.rate
        return tuple(Dropout(rate) if noisy else None for noisy in noisy_layers(model))
