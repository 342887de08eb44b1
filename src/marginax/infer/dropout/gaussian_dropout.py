r"""Gaussian dropout (Srivastava et al., 2014): multiplicative noise $N(1, a)$ on units, in training and prediction.

With $a = p / (1 - p)$ it has the two moments of dropout at rate p, and no unit is ever quite gone.
"""

import jax.numpy as jnp
from jaxtyping import PyTree

from marginax.infer.catalogue import register_method
from marginax.infer.dropout.noisy_training import AbstractNoisyTraining, Rules, noisy_layers
from marginax.model import Model
from marginax.nets import GaussianFactor


@register_method(
    "method/gaussian_dropout",
    gives="a network with multiplicative normal noise",
    use_when="as MC dropout, with smoother noise",
    cost="1 training run",
    order=80,
)
class GaussianDropout(AbstractNoisyTraining):
    """Multiplicative normal noise that stays on.

    Takes what every `AbstractOptimised` takes, and:

    Args:
        variance: $a$ of the factors $N(1, a)$ on the inputs of every layer but the first.
    """

    variance: float = 0.05

    def __check_init__(self):
        if not self.variance > 0:
            raise ValueError(f"variance must be > 0, got {self.variance}")

    def rules(self, model: Model, noise: PyTree) -> Rules:
        scale = float(self.variance) ** 0.5 if isinstance(self.variance, float) else jnp.sqrt(self.variance)
        return tuple(GaussianFactor(scale) if noisy else None for noisy in noisy_layers(model))
