"""Samplers of the exact posterior: a chain that adapts itself in warm-up, then moves and keeps where it was.

What they share is here: flat positions, adaptation of step size and scale, phases, draws. A sampler says how to move.
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from marginax.data import Batch
from marginax.infer.flat import Density, density_of, ravel, unravel
from marginax.infer.mcmc.adaptation import Adaptation, DenseMetric, Metric, MetricSqrt, adapt, choose, first_adaptation
from marginax.infer.mcmc.hamiltonian import HMCState, state_at
from marginax.infer.method import AbstractMethod, Infos, Phase, check_count, params_of
from marginax.model import AbstractModel
from marginax.model.abstract import Params
from marginax.posterior import AbstractPosterior, Draws


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


class AbstractSampler(AbstractMethod):
    """A Markov chain that leaves the posterior unchanged: full batch, several chains, warm-up in Stan's windows."""

    num_warmup: eqx.AbstractVar[int]
    num_samples: eqx.AbstractVar[int]
    thin: eqx.AbstractVar[int]
    target_acceptance: eqx.AbstractVar[float]
    metric: eqx.AbstractVar[Metric]

    def __check_init__(self):
        for name in ("num_warmup", "num_samples", "thin"):
            check_count(name, getattr(self, name))
        if not 0 < self.target_acceptance < 1:
            raise ValueError(f"target_acceptance must be in (0, 1), got {self.target_acceptance}")
        if not isinstance(self.metric, Metric):
            raise TypeError(f"metric must be mx.infer.DiagonalMetric() or DenseMetric(), got {self.metric!r}")

    @abc.abstractmethod
    def move(
        self,
        density: Density,
        place: HMCState,
        step_size: Array,
        metric_sqrt: MetricSqrt,
        extra: PyTree,
        *,
        key: PRNGKeyArray,
    ) -> tuple[HMCState, SamplerInfo, PyTree]:
        """A move that leaves the posterior unchanged, and what `learn` may want to know of it."""

    def density(self, model: AbstractModel, batch: Batch, like: Params) -> Density:
        """What is known at a position: the log density and its gradient."""
        return density_of(model, batch, like)

    def first_extra(self, place: HMCState) -> PyTree:
        """What moves need besides step size and scale, before anything is learned."""
        del place

    def learn(self, extra: PyTree, noted: PyTree, adaptation: Adaptation) -> PyTree:
        """Learn about the extra from a move of warm-up."""
        del noted, adaptation
        return extra

    # ---- the protocol

    @property
    def batch_size(self) -> None:
        """Full batch."""
        return

    @property
    def needs_full_batch(self) -> bool:
        """Acceptance needs the exact density."""
        return True

    @property
    def num_chains(self) -> int:
        """Four, so that they can be compared."""
        return 4

    def init(self, model: AbstractModel, params: Params, batch: Batch, *, key: PRNGKeyArray) -> SamplerState:
        """Start where the chain starts, with unit scale."""
        del key
        place = state_at(self.density(model, batch, params), ravel(params))
        adaptation = first_adaptation(self.metric, place.position, 0.1)
        return SamplerState(params, place.log_density, place.gradient, adaptation, self.first_extra(place))

    def phases(self, num_examples: int, batch_size: int) -> tuple[Phase, ...]:
        """Adapt, then sample. A dense scale is costly to learn, so sampling has a program of its own then."""
        del num_examples, batch_size
        num_steps, dense = self.num_samples * self.thin, isinstance(self.metric, DenseMetric)
        sample = Phase("sample", num_steps, self.sample_step if dense else self.step, params_of, self.thin)
        return (Phase("warmup", self.num_warmup, self.step, as_next=not dense), sample)

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
        """A move with what warm-up has settled on."""
        state, info, _ = self._step(model, state, batch, state.adaptation.step_size, key)
        return state, info

    def posterior(self, model: AbstractModel, state: SamplerState, draws: PyTree, infos: Infos) -> AbstractPosterior:
        """The draws."""
        del state, infos
        return posterior_of(model, draws)

    def _step(self, model, state, batch, step_size, key) -> tuple[SamplerState, SamplerInfo, PyTree]:
        place = HMCState(ravel(state.params), state.log_density, state.gradient)
        density = self.density(model, batch, state.params)
        new, info, noted = self.move(density, place, step_size, state.adaptation.metric_sqrt, state.extra, key=key)
        params = unravel(new.position, state.params)
        return SamplerState(params, new.log_density, new.gradient, state.adaptation, state.extra), info, noted


def posterior_of(model: AbstractModel, draws: PyTree) -> Draws:
    """Draws as a posterior, if there are any yet."""
    if draws is None or jax.tree.leaves(draws)[0].shape[1] == 0:
        raise KeyboardInterrupt("interrupted before the first draw was kept: there is no posterior yet")
    return Draws(model=model, params=draws)
