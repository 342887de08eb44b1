r"""The No-U-Turn sampler (Hoffman & Gelman, 2014; multinomial variant of Betancourt, 2017): exact, full batch.

Kernel, dual averaging and Welford variances are BlackJAX's. The schedule is Stan's: a fast interval for the step
size, slow windows of doubling length that also learn the mass matrix, and a last fast interval; here it is a phase of
identical steps, so that warm-up, too, is shown, interrupted and resumed.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from marginax.data import Batch
from marginax.files import register
from marginax.infer._method import AbstractMethod, Infos, Phase, check_count
from marginax.model import Model, Params
from marginax.posterior import AbstractPosterior, Draws


class NUTSState(eqx.Module):
    """Position, its density and gradient, and the two adaptations."""

    params: Params
    log_density: Array
    gradient: Params
    step_size: PyTree
    mass: PyTree
    count: Array


class NUTSInfo(eqx.Module):
    """How each trajectory went."""

    log_density: Array
    acceptance: Array
    energy: Array
    diverging: Array
    num_leapfrog: Array
    step_size: Array


@register
class NUTS(AbstractMethod):
    """No-U-Turn sampler with window adaptation of step size and diagonal mass matrix.

    Args:
        num_warmup: adaptation steps.
        num_samples: kept draws per chain.
        thin: steps per kept draw.
        target_acceptance: mean acceptance that the step size aims at; raise it if trajectories diverge.
        max_doublings: trajectories have at most 2^max_doublings leapfrog steps.
    """

    num_warmup: int = 500
    num_samples: int = 500
    thin: int = 1
    target_acceptance: float = 0.8
    max_doublings: int = 10

    def __check_init__(self):
        for name in ("num_warmup", "num_samples", "thin", "max_doublings"):
            check_count(name, getattr(self, name))
        if not 0 < self.target_acceptance < 1:
            raise ValueError(f"target_acceptance must be in (0, 1), got {self.target_acceptance}")

    @property
    def batch_size(self) -> None:
        """Full batch."""
        return

    @property
    def num_chains(self) -> int:
        """Four, so that they can be compared."""
        return 4

    def init(self, model: Model, params: Params, batch: Batch, *, key: PRNGKeyArray) -> NUTSState:
        """Start where the chain starts, with unit masses."""
        del key
        value, gradient = jax.value_and_grad(lambda p: model.log_density(p, batch))(params)
        averaging, mass = self._adaptations()
        size = sum(leaf.size for leaf in jax.tree.leaves(params))
        return NUTSState(params, value, gradient, averaging[0](0.1), mass[0](size), jnp.zeros((), jnp.int32))

    @property
    def needs_full_batch(self) -> bool:
        """Leapfrog steps and acceptance need the exact density."""
        return True

    def phases(self, num_examples: int, batch_size: int) -> tuple[Phase, ...]:
        """Adapt, then sample."""
        del num_examples, batch_size
        sample = Phase("sample", self.num_samples * self.thin, self.sample_step, lambda s: s.params, self.thin)
        return (Phase("adapt", self.num_warmup, self.adapt_step), sample)

    def adapt_step(
        self, model: Model, state: NUTSState, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[NUTSState, NUTSInfo]:
        """A trajectory with the present step size, then learn from it."""
        (start_step, update_step, finish_step), (_, update_mass, finish_mass) = self._adaptations()
        state, info = self._move(model, state, batch, jnp.exp(state.step_size.log_step_size), key)
        slow, window_ends = (jnp.asarray(flags)[state.count] for flags in adaptation_windows(self.num_warmup))
        step_size = update_step(state.step_size, info.acceptance)
        mass = _choose(slow, update_mass(state.mass, state.params), state.mass)
        step_size = _choose(window_ends, start_step(finish_step(step_size)), step_size)
        mass = _choose(window_ends, finish_mass(mass), mass)
        state = NUTSState(state.params, state.log_density, state.gradient, step_size, mass, state.count + 1)
        return state, info

    def sample_step(
        self, model: Model, state: NUTSState, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[NUTSState, NUTSInfo]:
        """A trajectory with the averaged step size of the adaptation."""
        return self._move(model, state, batch, jnp.exp(state.step_size.log_step_size_avg), key)

    def posterior(self, model: Model, state: NUTSState, draws: PyTree, infos: Infos) -> AbstractPosterior:
        """The draws."""
        del state, infos
        if draws is None or jax.tree.leaves(draws)[0].shape[1] == 0:
            raise KeyboardInterrupt("interrupted before the first draw was kept: there is no posterior yet")
        return Draws(model=model, params=draws)

    def _move(self, model, state, batch, step_size, key) -> tuple[NUTSState, NUTSInfo]:
        from blackjax.mcmc import hmc, nuts

        kernel = nuts.build_kernel()
        position = hmc.HMCState(state.params, state.log_density, state.gradient)
        new: Any
        new, told = kernel(
            key,
            position,
            lambda p: model.log_density(p, batch),
            step_size,
            state.mass.inverse_mass_matrix,
            self.max_doublings,
        )
        told_numbers = (told.acceptance_rate, told.energy, told.is_divergent, told.num_integration_steps, step_size)
        info = NUTSInfo(*(jnp.asarray(number) for number in (new.logdensity, *told_numbers)))
        moved = NUTSState(new.position, new.logdensity, new.logdensity_grad, state.step_size, state.mass, state.count)
        return moved, info

    def _adaptations(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        from blackjax.adaptation.mass_matrix import mass_matrix_adaptation
        from blackjax.adaptation.step_size import dual_averaging_adaptation

        return dual_averaging_adaptation(self.target_acceptance), mass_matrix_adaptation(True)


def adaptation_windows(num_warmup: int) -> tuple[np.ndarray, np.ndarray]:
    """For each warm-up step: does the mass matrix learn from it, and does a window end with it?

    >>> slow, ends = adaptation_windows(500)
    >>> np.flatnonzero(ends).tolist(), int(slow.sum())
    ([99, 149, 249, 449], 375)
    """
    first, last, window = 75, 50, 25
    if num_warmup < first + last + window:
        first, last = int(0.15 * num_warmup), int(0.1 * num_warmup)
        window = num_warmup - first - last
    slow, ends = np.zeros(num_warmup, bool), np.zeros(num_warmup, bool)
    slow[first : num_warmup - last] = True
    start = first
    while start < num_warmup - last:
        stop = start + window
        if stop + 2 * window > num_warmup - last:
            stop = num_warmup - last
        ends[stop - 1] = True
        start, window = stop, 2 * window
    return slow, ends


def _choose(condition: Array, yes: PyTree, no: PyTree) -> PyTree:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)
