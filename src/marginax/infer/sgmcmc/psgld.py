r"""Preconditioned stochastic-gradient Langevin dynamics (Li, Chen, Carlson & Carin, 2016).

$V' = \beta V + (1 - \beta) \bar g^2, \quad G = 1 / (\delta + \sqrt{V'}), \quad
\theta' = \theta + \tfrac{\epsilon}{2} G \hat\nabla \log p + \sqrt{\epsilon T G}\, \xi$

with $\bar g$ the gradient per example. As in the paper's own use, the term for the change of $G$ is left out; its error
is bounded by $1 - \beta$. So this samples a law near the posterior, not at it, however short the steps.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from marginax._kernels.random import normal_like
from marginax.infer.catalogue import register_method
from marginax.infer.sgmcmc.diffusion import AbstractStochasticSampler
from marginax.model.abstract import Params


class RMS(eqx.Module):
    """Running mean of squared gradients of the mean log density, how many it has seen, and 1 / N."""

    squares: Params
    count: Int[Array, ""]
    share: Float[Array, ""]


@register_method(
    "method/preconditioned_sgld",
    gives="as SGLD, scaled as by RMSprop",
    use_when="large data, and layers of very different scale",
    cost="MAP and 6,000 steps per chain",
    order=180,
)
class PreconditionedSGLD(AbstractStochasticSampler):
    """SGLD with the scaling of RMSprop; its own step size is 0.004 / N.

    Takes what every `AbstractStochasticSampler` takes, and:

    Args:
        decay: of the running mean of squared gradients.
        stabiliser: added to its root.
    """

    decay: float = eqx.field(default=0.999, kw_only=True)
    stabiliser: float = eqx.field(default=1e-3, kw_only=True)

    def __check_init__(self):
        if not 0 <= self.decay < 1:
            raise ValueError(f"decay must be in [0, 1), got {self.decay}")
        if not self.stabiliser > 0:
            raise ValueError(f"stabiliser must be > 0, got {self.stabiliser}")

    def default_step_size(self, curvature: Array, num_examples: int) -> Array:
        """The scaling knows the curvature; what is left is a learning rate of 0.002."""
        return jnp.asarray(4e-3 / num_examples)

    def first_memory(self, params: Params, num_examples: int) -> RMS:
        return RMS(jax.tree.map(jnp.zeros_like, params), jnp.zeros((), jnp.int32), jnp.asarray(1.0 / num_examples))

    def update(self, params, memory, gradient, step_size, temperature, key):
        weight = jnp.maximum(1.0 - self.decay, 1.0 / (1.0 + memory.count))  # a plain mean at first: nothing to unbias

        def mix(square: Array, g: Array) -> Array:
            return square + weight * ((memory.share * g) ** 2 - square)

        def advance(p: Array, g: Array, square: Array, n: Array) -> Array:
            scale = 1.0 / (self.stabiliser + jnp.sqrt(square))
            return p + 0.5 * step_size * scale * g + jnp.sqrt(step_size * temperature * scale) * n

        squares = jax.tree.map(mix, memory.squares, gradient)
        params = jax.tree.map(advance, params, gradient, squares, normal_like(key, params))
        return params, RMS(squares, memory.count + 1, memory.share), {}
