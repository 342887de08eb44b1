r"""Stochastic-gradient Hamiltonian Monte Carlo (Chen, Fox & Guestrin, 2014).

$v' = (1-\alpha)v + \eta \hat\nabla \log p + \sqrt{2\alpha\eta T}\,\xi, \quad \theta' = \theta + v'$
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array

from marginax._kernels.random import normal_like
from marginax.infer.catalogue import register_method
from marginax.infer.sgmcmc.diffusion import AbstractStochasticSampler, mean_square
from marginax.model.abstract import Params


@register_method(
    "method/sghmc",
    gives="as SGLD, with momentum",
    use_when="large data: the sampler on minibatches to begin with",
    cost="MAP and 6,000 steps per chain",
    order=190,
)
class SGHMC(AbstractStochasticSampler):
    r"""Stochastic-gradient HMC: SGLD with momentum.

    Takes what every `AbstractStochasticSampler` takes, and:

    Args:
        friction: $\alpha$ in (0, 1]; 1 is SGLD with a step of $2\eta$.
    """

    friction: float = 0.1

    def __check_init__(self):
        if not 0 < self.friction <= 1:
            raise ValueError(f"friction must be in (0, 1], got {self.friction}")

    def default_step_size(self, curvature: Array, num_examples: int) -> Array:
        """Well inside the stable range, which ends at 2 (2 - friction)."""
        return 0.1 / curvature

    def first_memory(self, params: Params, num_examples: int) -> Params:
        return jax.tree.map(jnp.zeros_like, params)

    def update(self, params, memory, gradient, step_size, temperature, key):
        spread = jnp.sqrt(2.0 * self.friction * step_size * temperature)
        velocity = jax.tree.map(
            lambda v, g, n: (1.0 - self.friction) * v + step_size * g + spread * n,
            memory,
            gradient,
            normal_like(key, params),
        )
        info = {"temperature": mean_square(velocity) / step_size}
        return jax.tree.map(jnp.add, params, velocity), velocity, info
