r"""Cyclical stochastic-gradient MCMC: warm restarts (Zhang, Li, Zhang, Chen & Wilson, 2020).

The step size falls along half a cosine, $\epsilon_k = \tfrac{\epsilon_0}{2}(1 + \cos(\pi r_k))$ with $r_k$ the place
in the cycle, and then leaps back up. The first part of each cycle explores without noise and leaves the old mode; the
rest samples around the new one. The draws of all cycles together cover several modes from one chain.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from marginax.data import Batch
from marginax.infer.catalogue import register_method
from marginax.infer.method import AbstractRecipe, Phase, State, check_count, params_of
from marginax.infer.sgmcmc.diffusion import AbstractStochasticSampler
from marginax.infer.sgmcmc.sghmc import SGHMC
from marginax.model import AbstractModel


@register_method(
    "method/cyclical_sgmcmc",
    gives="draws from several modes by warm restarts",
    use_when="large data, and several modes from one chain",
    cost="MAP and 8,000 steps per chain",
    order=210,
)
class CyclicalSGMCMC(AbstractRecipe):
    """Warm restarts of any minibatch sampler.

    Args:
        sampler: whose dynamics to run: `SGLD(...)`, `SGHMC(...)` and so on. Its step size (or `boost` times its
            default) is the first of each cycle; of its budget, `num_samples` counts, per chain over all cycles.
        num_cycles: how many restarts.
        cycle_length: steps of a cycle.
        explore: share of a cycle without noise, from which nothing is kept.
        boost: how much longer the first step of a cycle is than the sampler's default; not used if it has a step size.
    """

    sampler: AbstractStochasticSampler = eqx.field(default_factory=SGHMC)
    num_cycles: int = 4
    cycle_length: int = 2000
    explore: float = eqx.field(default=0.5, static=True)
    boost: float = 4.0

    def __check_init__(self):
        if not isinstance(self.sampler, AbstractStochasticSampler):
            raise TypeError(f"sampler must be a minibatch sampler such as mx.infer.SGLD(), got {self.sampler!r}")
        check_count("num_cycles", self.num_cycles)
        check_count("cycle_length", self.cycle_length, least=2)
        if not 0 <= self.explore < 1:
            raise ValueError(f"explore must be in [0, 1), got {self.explore}")
        if not self.boost > 0:
            raise ValueError(f"boost must be > 0, got {self.boost}")

    @property
    def inner(self) -> AbstractStochasticSampler:
        return self.sampler

    def warm_started(self) -> "CyclicalSGMCMC":
        return eqx.tree_at(lambda m: m.sampler, self, self.sampler.warm_started())

    def phases(self, num_examples: int, batch_size: int) -> tuple[Phase, ...]:
        num_steps, skip = self.num_cycles * self.cycle_length, int(self.explore * self.cycle_length)
        skip = min(skip, self.cycle_length - 1)
        per_cycle = max(1, self.sampler.num_samples // self.num_cycles)
        thin = max(1, (self.cycle_length - skip) // per_cycle)
        cycles = Phase("sample", num_steps, self.step, params_of, thin, cycle=self.cycle_length, skip=skip)
        return (*self.sampler.preparation(num_examples, batch_size), cycles)

    def step(self, model: AbstractModel, state: State, batch: Batch, *, key: PRNGKeyArray) -> tuple[State, Any]:
        """A step of the sampler with the step size and temperature of its place in the cycle."""
        progress = (state.count % self.cycle_length) / self.cycle_length
        factor = 0.5 * (1.0 + jnp.cos(jnp.pi * progress)) * (self.boost if self.sampler.step_size is None else 1.0)
        temperature = jnp.where(progress < self.explore, 0.0, self.sampler.temperature)
        step_size = factor * self.sampler.step_size_at(state, batch)
        longest = None
        if self.sampler.step_size is None:  # climbing without noise can lead to where the posterior is far stiffer
            size = sum(leaf.size for leaf in jax.tree.leaves(state.params))
            longest = jnp.where(progress < self.explore, jnp.sqrt(state.curvature * size), jnp.inf)
        return self.sampler.move(model, state, batch, step_size, temperature, key=key, longest=longest)
