r"""Preconditioned stochastic-gradient Langevin dynamics (Li, Chen, Carlson & Carin, 2016).

$V' = \beta V + (1 - \beta) \bar g^2, \quad G = 1 / (\delta + \sqrt{V'}), \quad
\theta' = \theta + \tfrac{\epsilon}{2} G \hat\nabla \log p + \sqrt{\epsilon T G}\, \xi$

with $\bar g$ the gradient per example. As in the paper's own use, the term for the change of $G$ is left out; its error
is bounded by $1 - \beta$. So this samples a law near the posterior, not at it, however short the steps.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from marginax._kernels.random import normal_like
from marginax.data import Batch
from marginax.infer.catalogue import register_method
from marginax.infer.map import MAP
from marginax.infer.sgmcmc.diffusion import (
    AbstractStochasticSampler,
    ControlVariates,
    StepSizeChoice,
    StochasticInfo,
    StochasticState,
)
from marginax.model import AbstractModel
from marginax.model.abstract import Params


@register_method(
    "method/preconditioned_sgld",
    gives="as SGLD, scaled as by RMSprop",
    use_when="large data, and layers of very different scale",
    cost="MAP and 6,000 steps per chain",
    order=180,
)
class PreconditionedSGLD(AbstractStochasticSampler):
    """SGLD with the scaling of RMSprop.

    Args:
        step_size: a number, `PolynomialDecay(...)`, or None for 0.004 / N.
        temperature: of the posterior.
        decay: of the running mean of squared gradients.
        stabiliser: added to its root.
        num_warmup: steps from which nothing is kept.
        num_samples: kept draws per chain.
        thin: steps per kept draw.
        batch_size: examples per step, or None for all.
        variance_reduction: None, or `ControlVariates()`.
        training: how the start is found when `init=` does not give one.
    """

    step_size: StepSizeChoice = None
    temperature: float = 1.0
    decay: float = 0.999
    stabiliser: float = 1e-3
    num_warmup: int = 1000
    num_samples: int = 100
    thin: int = 50
    batch_size: int | None = 128
    variance_reduction: ControlVariates | None = None
    training: MAP | None = eqx.field(default_factory=MAP)

    def __check_init__(self):
        if not 0 <= self.decay < 1:
            raise ValueError(f"decay must be in [0, 1), got {self.decay}")
        if not self.stabiliser > 0:
            raise ValueError(f"stabiliser must be > 0, got {self.stabiliser}")

    def default_step_size(self, curvature: Array, num_examples: int) -> Array:
        """The scaling knows the curvature; what is left is a learning rate of 0.002."""
        del curvature
        return jnp.asarray(4e-3 / num_examples)

    def first_memory(self, params: Params) -> Params:
        """Squared gradients, none seen."""
        return jax.tree.map(jnp.zeros_like, params)

    def move(
        self,
        model: AbstractModel,
        state: StochasticState,
        batch: Batch,
        step_size: Array,
        temperature: Array | float,
        *,
        key: PRNGKeyArray,
    ) -> tuple[StochasticState, StochasticInfo]:
        """Up the scaled gradient, and scaled noise."""
        value, gradient = self.gradient(model, state, batch)
        share = jnp.maximum(1.0 - self.decay, 1.0 / (1.0 + state.count))  # a plain mean at first, so no bias to correct
        scale = 1.0 / batch.num_examples

        def mix(square: Array, g: Array) -> Array:
            return square + share * ((scale * g) ** 2 - square)

        squares = jax.tree.map(mix, state.memory, gradient)
        noise = normal_like(key, state.params)

        def advance(p: Array, g: Array, square: Array, n: Array) -> Array:
            stretch = 1.0 / (self.stabiliser + jnp.sqrt(square))
            return p + 0.5 * step_size * stretch * g + jnp.sqrt(step_size * temperature * stretch) * n

        params = jax.tree.map(advance, state.params, gradient, squares, noise)
        new = eqx.tree_at(lambda s: (s.params, s.memory), state, (params, squares))
        return new, StochasticInfo(value, step_size)
