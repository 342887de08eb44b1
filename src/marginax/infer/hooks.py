"""What happens between chunks, on the host.

A hook is frozen configuration; what it remembers is a pytree of arrays that the driver keeps, checkpoints and hands
back, so a resumed run goes on as if nothing had happened. A hook that must see exact steps says so with `every`: the
driver then ends a chunk at each multiple.
"""

import abc
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from marginax.data import AbstractSource, Arrays, Batch, as_arrays
from marginax.files import register
from marginax.infer.method import State, check_count
from marginax.model import AbstractModel
from marginax.model.abstract import Params


@dataclass(frozen=True)
class Event:
    """Where a run stands after a chunk.

    Attributes:
        model: that is fitted.
        phase: its name.
        phases_left: after this one.
        step: of the phase.
        num_steps: that the phase has in all.
        seconds: of computing so far, by phase, compilation included.
        states: of all chains.
        info: of the chunk's steps, by name, with axes (chain, step).
    """

    model: AbstractModel
    phase: str
    phases_left: int
    step: int
    num_steps: int
    seconds: dict[str, float]
    states: State
    info: dict[str, np.ndarray]


@dataclass(frozen=True)
class Verdict:
    """What a hook wants: its new memory, states to go on with, whether the phase should end here, and a note on it."""

    memory: PyTree
    states: State
    stop: bool = False
    note: str | None = None


class AbstractHook(eqx.Module):
    """Something to do between chunks."""

    def bind(self, data: Any, *, key: PRNGKeyArray) -> tuple["AbstractHook", Any]:
        """See the data before the run; may keep some of it back."""
        return self, data

    def every(self, phase: str, source: AbstractSource) -> int | None:
        """Steps at whose multiples the hook must run, or None if any chunk end will do."""
        return None

    def begin(self, model: AbstractModel, states: State) -> PyTree:
        """The hook's memory at the start: arrays only."""

    @abc.abstractmethod
    def after_chunk(self, memory: PyTree, event: Event) -> Verdict:
        """Look at where the run stands."""


@register("hook/early_stopping")
class EarlyStopping(AbstractHook):
    """End training when the held-out log likelihood has stopped rising, and go back to where it was best.

    Every chain keeps its own best weights and its own patience; the phase ends when the last chain has run out.

    Args:
        validation: a pair (x, y) in the same units as the data given to `fit`, or the fraction to hold out.
        patience: evaluations without improvement before a chain is done.
        every_epochs: evaluate after this many passes over the data.
        phase: in which phase.
    """

    validation: Any = 0.1
    patience: int = 20
    every_epochs: int = 1
    phase: str = "train"

    def __check_init__(self):
        check_count("patience", self.patience)
        check_count("every_epochs", self.every_epochs)
        if isinstance(self.validation, float) and not 0 < self.validation < 1:
            raise ValueError(f"validation must be a fraction in (0, 1) or a pair (x, y), got {self.validation}")

    def bind(self, data: Any, *, key: PRNGKeyArray) -> tuple[AbstractHook, Any]:
        """Hold out a fraction of the rows, or bring given rows to the units of the data."""
        if isinstance(data, AbstractSource):
            if isinstance(self.validation, float):
                raise ValueError("validation must be a pair (x, y) when data is a source from mx.data")
            return EarlyStopping(as_arrays(self.validation), self.patience, self.every_epochs, self.phase), data
        data = as_arrays(data)
        if isinstance(self.validation, float):
            held_out = max(1, round(self.validation * data.num_examples))
            if held_out >= data.num_examples:
                raise ValueError(
                    f"validation={self.validation} leaves nothing to train on: data has {len(data.x)} rows"
                )
            order = np.asarray(jax.random.permutation(key, data.num_examples))
            validation, data = data.take(np.sort(order[:held_out])), data.take(np.sort(order[held_out:]))
        else:
            validation = as_arrays(self.validation, name="validation")
            if data.scaling is not None and validation.scaling is None:
                x, y = data.scaling.transform_x(validation.x), data.scaling.transform_y(validation.y)
                validation = Arrays(x, y, scaling=data.scaling)
        return EarlyStopping(validation, self.patience, self.every_epochs, self.phase), data

    def every(self, phase: str, source: AbstractSource) -> int | None:
        if phase != self.phase:
            return None
        return max(1, -(-self.every_epochs * source.spec.num_examples // source.batch_size))

    def begin(self, model: AbstractModel, states: State) -> PyTree:
        """Best weights so far, their score, and evaluations since, per chain."""
        chains = jax.tree.leaves(states.params)[0].shape[0]
        best = jax.tree.map(jnp.array, states.params)
        return {"best": best, "score": jnp.full(chains, -jnp.inf), "stale": jnp.zeros(chains, jnp.int32)}

    def after_chunk(self, memory: PyTree, event: Event) -> Verdict:
        """Score, remember, and stop when all chains have run out of patience."""
        if event.phase != self.phase:
            return Verdict(memory, event.states)
        memory = _update_best(event.model, memory, event.states.params, self.validation, self.patience)
        done = bool(np.all(np.asarray(memory["stale"]) >= self.patience))
        states = event.states
        if done or event.step == event.num_steps:
            states = eqx.tree_at(lambda s: s.params, states, jax.tree.map(jnp.array, memory["best"]))
        return Verdict(memory, states, done)


@register("hook/time_limit")
class TimeLimit(AbstractHook):
    """End training and sampling early, so that a fit takes about so many seconds.

    A phase may take an equal part of the time that is left when it begins; warm-ups and passes over the data run to
    their end in any case. Phases are ended between chunks, of half a second as a rule. What comes out then depends on
    the speed of the machine, and the posterior's record says so.

    Args:
        seconds: for all phases together, compilation included.
    """

    seconds: float | int

    def __check_init__(self):
        if not self.seconds > 0:
            raise ValueError(f"seconds must be > 0, got {self.seconds}")

    def after_chunk(self, memory: PyTree, event: Event) -> Verdict:
        spent = event.seconds[event.phase]
        before = sum(event.seconds.values()) - spent
        if event.step == event.num_steps or spent < (self.seconds - before) / (event.phases_left + 1):
            return Verdict(memory, event.states)
        note = (
            f"the time limit of {self.seconds:g} s ended {event.phase!r} after {event.step} of {event.num_steps} steps"
        )
        return Verdict(memory, event.states, True, note)


@eqx.filter_jit
def _update_best(model: AbstractModel, memory: PyTree, params: Params, validation: Arrays, patience: int) -> PyTree:
    score = jax.vmap(lambda p: _held_out(model, p, validation))(params)
    better = (score > memory["score"]) & (memory["stale"] < patience)

    def choose(new: Array, old: Array) -> Array:
        return jnp.where(better.reshape(-1, *[1] * (new.ndim - 1)), new, old)

    return {
        "best": jax.tree.map(choose, params, memory["best"]),
        "score": jnp.where(better, score, memory["score"]),
        "stale": jnp.where(better, 0, memory["stale"] + 1),
    }


def _held_out(model: AbstractModel, params: Params, validation: Arrays) -> Float[Array, ""]:
    num = validation.num_examples
    batch = Batch(jax.tree.map(jnp.asarray, validation.tree), jnp.arange(num), num)
    each, judged = model.log_likelihood(params, batch), model.is_judged(batch)
    return jnp.mean(each, where=judged | ~jnp.any(judged))
