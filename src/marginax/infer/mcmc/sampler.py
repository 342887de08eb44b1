"""Samplers of the exact posterior: a chain that adapts itself in warm-up, then moves and keeps where it was.

What they share is here: flat positions, adaptation of step size and scale, phases, draws. A sampler says how to move.
"""

import abc
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from marginax.data import Batch
from marginax.infer.chain import AbstractChain
from marginax.infer.flat import Density, density_of, ravel, unravel
from marginax.infer.mcmc.adaptation import (
    Adaptation,
    DenseMetric,
    DiagonalMetric,
    Metric,
    MetricSqrt,
    adapt,
    check_metric,
    choose,
    first_adaptation,
)
from marginax.infer.mcmc.integrators import Accepted, HMCState, state_at
from marginax.infer.method import Phase, check_count
from marginax.model import AbstractModel
from marginax.model.abstract import Params


class AbstractFullBatchSampler(AbstractChain):
    """A chain that needs the density of all data.

    Args:
        num_warmup: adaptation steps.
        num_samples: kept draws per chain.
        thin: steps per kept draw.
        temperature: of the posterior, whose density is taken to the power 1 / temperature; 1 is Bayes, less is sharper.
            Log densities in the info are those at temperature 1.
    """

    num_warmup: int = 500
    num_samples: int = 500
    thin: int = 1
    temperature: float = eqx.field(default=1.0, kw_only=True)

    def __check_init__(self):
        check_count("num_warmup", self.num_warmup)
        if not self.temperature > 0:
            raise ValueError(f"temperature must be > 0, got {self.temperature}")

    @property
    def batch_size(self) -> None:
        return

    needs_full_batch: ClassVar[bool] = True  # acceptance and energy errors need the exact density

    @property
    def learning_is_costly(self) -> bool:
        """Whether sampling is worth a program of its own, in which nothing is learned."""
        return False

    def phases(self, num_examples: int, batch_size: int) -> tuple[Phase, ...]:
        costly = self.learning_is_costly
        sample = self.sampling(self.sample_step if costly else self.step)
        return (Phase("warmup", self.num_warmup, self.step, as_next=not costly), sample)

    @abc.abstractmethod
    def step(self, model: AbstractModel, state: PyTree, batch: Batch, *, key: PRNGKeyArray) -> tuple[PyTree, PyTree]:
        """One step; in warm-up, the chain learns from it."""

    def sample_step(
        self, model: AbstractModel, state: PyTree, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[PyTree, PyTree]:
        """One step with what warm-up has settled on."""
        return self.step(model, state, batch, key=key)


class SamplerState(eqx.Module):
    """Where a chain is, what its warm-up has learned, and what else its moves need."""

    params: Params
    log_density: Array
    gradient: Array
    adaptation: Adaptation
    extra: PyTree = None


class SamplerInfo(eqx.Module):
    """How each move went."""

    log_density: Array
    acceptance: Array
    step_size: Array
    energy: Array | None = None
    diverging: Array | None = None
    num_leapfrog: Array | None = None


class Tuning(eqx.Module):
    """What a move is to be done with: a step size, the square root of the metric, and what the sampler has learned."""

    step_size: Array
    metric_sqrt: MetricSqrt
    extra: PyTree = None


def info_of(new: HMCState, went: Accepted, tuning: Tuning, num_leapfrog: Array) -> SamplerInfo:
    """Of a move by a Hamiltonian trajectory."""
    log_density, step_size = new.log_density, tuning.step_size
    return SamplerInfo(log_density, went.acceptance, step_size, went.energy, went.diverging, num_leapfrog)


class AbstractSampler(AbstractFullBatchSampler):
    """A Markov chain that leaves the posterior unchanged, with warm-up in Stan's windows.

    Args:
        num_warmup: adaptation steps.
        num_samples: kept draws per chain.
        thin: steps per kept draw.
        target_acceptance: mean acceptance that the step size aims at; raise it if trajectories diverge.
        metric: `DiagonalMetric()`, or `DenseMetric()` for up to some hundreds of correlated parameters.
        temperature: of the posterior.
    """

    target_acceptance: float = 0.8
    metric: Metric = eqx.field(default_factory=DiagonalMetric)

    def __check_init__(self):
        if not 0 < self.target_acceptance < 1:
            raise ValueError(f"target_acceptance must be in (0, 1), got {self.target_acceptance}")
        check_metric(self.metric)

    @abc.abstractmethod
    def move(
        self, density: Density, state: HMCState, tuning: Tuning, *, key: PRNGKeyArray
    ) -> tuple[HMCState, SamplerInfo, PyTree]:
        """A move that leaves the posterior unchanged, and what `learn` may want to know of it."""

    def density(self, model: AbstractModel, batch: Batch, like: Params) -> Density:
        """What is known at a position: the log density and its gradient."""
        return density_of(model, batch, like, self.temperature)

    def first_extra(self, state: HMCState) -> PyTree:
        """What moves need besides step size and metric, before anything is learned."""

    def learn(self, extra: PyTree, noted: PyTree, adaptation: Adaptation) -> PyTree:
        """Learn about the extra from a move of warm-up."""
        return extra

    # ---- the protocol

    def init(self, model: AbstractModel, params: Params, batch: Batch, *, key: PRNGKeyArray) -> SamplerState:
        """Start where the chain starts, with unit scale."""
        state = state_at(self.density(model, batch, params), ravel(params))
        adaptation = first_adaptation(self.metric, state.position, 0.1)
        return SamplerState(params, state.log_density, state.gradient, adaptation, self.first_extra(state))

    @property
    def learning_is_costly(self) -> bool:
        return isinstance(self.metric, DenseMetric)

    def step(
        self, model: AbstractModel, state: SamplerState, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[SamplerState, SamplerInfo]:
        """A move; in warm-up, with the present step size, and learn from it."""
        adaptation = state.adaptation
        warm = adaptation.count < self.num_warmup
        step_size = jnp.where(warm, adaptation.trial_step_size, adaptation.step_size)
        state, info, noted = self._step(model, state, batch, step_size, key)
        learned = adapt(adaptation, ravel(state.params), info.acceptance, self.target_acceptance, self.num_warmup)
        extra = self.learn(state.extra, noted, learned)
        learned, extra = choose(warm, (learned, extra), (adaptation, state.extra))
        return SamplerState(state.params, state.log_density, state.gradient, learned, extra), info

    def sample_step(
        self, model: AbstractModel, state: SamplerState, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[SamplerState, SamplerInfo]:
        state, info, _ = self._step(model, state, batch, state.adaptation.step_size, key)
        return state, info

    def _step(self, model, state, batch, step_size, key) -> tuple[SamplerState, SamplerInfo, PyTree]:
        start = HMCState(ravel(state.params), state.log_density, state.gradient)
        density = self.density(model, batch, state.params)
        tuning = Tuning(step_size, state.adaptation.metric_sqrt, state.extra)
        new, info, noted = self.move(density, start, tuning, key=key)
        params = unravel(new.position, state.params)
        info = eqx.tree_at(lambda i: i.log_density, info, self.temperature * info.log_density)
        return SamplerState(params, new.log_density, new.gradient, state.adaptation, state.extra), info, noted
