"""`fit`: the only loop in marginax.

A host loop over chunks around a compiled loop over steps. Between chunks: progress, checkpoint, the NaN guard, hooks,
and a look at Ctrl-C. The number of steps in a chunk follows the clock; nothing in the result depends on it. A run may
have some of the chains of a larger one: their keys and starts are the same there, and so are their draws.
"""

import time
import warnings
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, PRNGKeyArray, PyTree

from marginax.data import AbstractSource, Batch
from marginax.files import GrowingArrays, GrowingFile, RunDirectory
from marginax.files.disk import naming
from marginax.infer.chunk import (
    Fixed,
    bound_programs,
    capacity_of,
    chain_mesh,
    data_key,
    finite_chains,
    index_of_program,
    num_devices,
    on_host,
    program_of,
    run_chunk,
    run_keys,
    spread_chains,
    start_chains,
    start_elsewhere,
    traced_numbers,
)
from marginax.infer.convergence import end_warnings, objective_of
from marginax.infer.cursor import check_cursor
from marginax.infer.hooks import AbstractHook, Event
from marginax.infer.method import AbstractMethod, Phase
from marginax.infer.progress import Interrupt, Progress
from marginax.infer.room import check_room
from marginax.model import AbstractModel
from marginax.model.abstract import Params
from marginax.posterior import AbstractPosterior, FitRecord, describe
from marginax.posterior.storage import save_posterior

_SECONDS_PER_CHUNK = 0.5
_MOST_SAVING = 0.02  # share of the time that goes to checkpoints
MOST_RETRIES = 10  # of starting points where the density is not finite


@dataclass
class Run:
    """A run in progress: what `fit` sets up and `resume` restores; of chains `first_chain` and on, of `num_in_all`."""

    model: AbstractModel
    method: AbstractMethod
    source: AbstractSource
    hooks: tuple[AbstractHook, ...]
    key: PRNGKeyArray
    num_chains: int
    start: Params
    directory: RunDirectory | None = None
    chunk_size: int | None = None
    num_retries: int = 0
    first_chain: int = 0
    num_in_all: int | None = None  # None if there are no others
    phase: int = 0
    step: int = 0
    stopped: bool = False  # whether a hook has ended the phase here
    num_steps: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    bad_chains: dict[int, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    kept: dict[str, GrowingArrays | GrowingFile] = field(default_factory=dict)  # "info-0", "draws-1": what, and phase
    changed: set[str] = field(default_factory=set)  # of what is kept, since the last checkpoint
    last_saved: tuple[float, float] = (0.0, 0.0)  # when that was, and how long it took

    # ---- the loop

    def execute(self, progress: bool | None) -> AbstractPosterior:
        """Run all phases from where the run stands, and build the posterior."""
        states, memories = self.stand()
        with Progress(progress) as bar, Interrupt(checkpoints=self.directory is not None) as interrupt:
            states = self.advance(states, memories, bar, interrupt)
        return self.finish(states, finished=not interrupt.requested)

    def stand(self) -> tuple[PyTree, tuple[PyTree, ...]]:
        """States of chains and memories of hooks where the run stands: at its last checkpoint, or at the beginning."""
        states, memories = self.begin()
        restored = None if self.directory is None else self._restore(self.directory, (states, memories))
        if restored is None:
            self._check_room(states)
        return restored or (states, memories)

    def advance(self, states: PyTree, memories: tuple[PyTree, ...], bar: Any, interrupt: Any) -> PyTree:
        """Run to the end, or until it is interrupted; the states there.

        Args:
            states: of chains.
            memories: of hooks.
            bar: is told of phases and steps, as `Progress`.
            interrupt: whether to stop is asked of it (`requested`) after every chunk, as of `Interrupt`.
        """
        states, phases = spread_chains(states, chain_mesh(self._num_spread)), self.phases
        while self.phase < len(phases):
            states, memories = self._run_phase(phases[self.phase], states, memories, bar, interrupt)
            if interrupt.requested:
                self._checkpoint(states, memories)
                break
            self.phase, self.step, self.stopped = self.phase + 1, 0, False
            self._checkpoint(states, memories)
        return states

    def _run_phase(
        self, phase: Phase, states: PyTree, memories: tuple[PyTree, ...], bar: Any, interrupt: Any
    ) -> tuple[PyTree, tuple[PyTree, ...]]:
        fixed = self._fixed(capacity_of(self.phases, self.phase, self.source, states, self.chunk_size))
        bound_programs(fixed, states)
        bar.phase(phase.name, self.step, phase.num_steps)
        periods = [n for hook in self.hooks if (n := hook.every(phase.name, self.source))]
        length, patience = min(8, fixed.capacity), _SECONDS_PER_CHUNK
        while self.step < phase.num_steps and not self.stopped and not interrupt.requested:
            stop = min(self.step + length, phase.num_steps, *((self.step // n + 1) * n for n in periods))
            began = time.perf_counter()
            part, infos, draws = run_chunk(
                fixed, phase.enter(states), jnp.asarray(self.step), jnp.asarray(stop), self._batches(fixed, stop)
            )
            states = phase.leave(states, part)
            chunk = on_host(infos, stop - self.step)
            if self._starts_elsewhere(chunk):
                states, memories = self.begin()
                states = spread_chains(states, fixed.mesh)
                continue
            taken = time.perf_counter() - began
            rate = (stop - self.step) / max(taken, 1e-9)
            self.seconds[phase.name] = self.seconds.get(phase.name, 0.0) + taken
            began = time.perf_counter()
            self.changed |= self._keep(phase, chunk, draws, stop)
            patience = max(patience, 10 * (time.perf_counter() - began))
            del draws  # or the buffers of two chunks would be there at a time
            self.num_steps[phase.name] = self.step = stop
            self._guard(states, phase, chunk)
            states, memories = self._call_hooks(phase, states, memories, chunk)
            if self._checkpoint_due:
                self._checkpoint(states, memories)
            length = int(np.clip(rate * patience, 1, min(8 * length, fixed.capacity)))
            bar.update(self.step, rate, self.step if self.stopped else phase.num_steps)
        return states, memories

    # ---- the start

    def begin(self) -> tuple[PyTree, tuple[PyTree, ...]]:
        """States of chains and memories of hooks before the first step."""
        model, source, keys, _ = self._placed()
        first = self.source.batch(0, key=data_key(self.key, 0)) if self.source.on_host else None
        states = start_chains(model, traced_numbers(self.method), source, keys, self.start, first)
        return states, tuple(hook.begin(self.model, states) for hook in self.hooks)

    def _starts_elsewhere(self, chunk: dict[str, np.ndarray]) -> bool:
        """Draw other starting points for chains whose very first density is not finite, a few times, as Stan does."""
        bad = self._bad_starts(chunk)
        if self.phase or self.step or not bad.any() or self.num_retries == 0:
            return False
        self.num_retries -= 1
        moved = (
            f"chain {c + self.first_chain} began elsewhere: its log density was not finite at its first start"
            for c in _true(bad)
        )
        self.notes = tuple(dict.fromkeys((*self.notes, *moved)))
        model, _, keys, _ = self._placed()
        attempt = jnp.asarray(MOST_RETRIES - self.num_retries, jnp.uint32)
        own = self.model.init(self.source)
        self.start = start_elsewhere(model, own, self.start, jnp.asarray(bad), keys, attempt)
        return True

    def _bad_starts(self, chunk: dict[str, np.ndarray]) -> np.ndarray:
        found = objective_of(chunk)
        return np.zeros(self.num_chains, bool) if found is None else ~np.isfinite(found[:, 0])

    # ---- pieces of the loop

    def _fixed(self, capacity: int) -> Fixed:
        model, source, keys, mesh = self._placed()
        program = program_of(self.phases[index_of_program(self.phases, self.phase)])
        phase = jax.device_put(np.uint32(self.phase))
        return Fixed(model, program, source, keys, phase, capacity, self.method.lockstep, mesh)

    def _placed(self) -> tuple[AbstractModel, AbstractSource, Array, Mesh | None]:
        """Model, data and keys where the chains will run."""
        model, source = self.model.with_traced_numbers(traced_numbers), self.source
        mesh = chain_mesh(self._num_spread)
        if not source.on_host:
            place = jax.NamedSharding(mesh, jax.P()) if mesh is not None else None
            source = jax.tree.map(lambda a: jax.device_put(a, place) if eqx.is_array_like(a) else a, source)
        return model, source, spread_chains(self._keys()[0], mesh), mesh

    @property
    def _num_spread(self) -> int:
        """Chains to spread over devices; some of a larger run stay together: how many do decides the last digits."""
        return self.num_chains if self.num_in_all is None else 1

    def _keys(self) -> tuple[Array, PRNGKeyArray]:
        """Of the chains, and of the posterior."""
        keys, own = run_keys(self.key, self.num_in_all or self.num_chains)
        return keys[self.first_chain : self.first_chain + self.num_chains], own

    @property
    def phases(self) -> tuple[Phase, ...]:
        """What is run, in order."""
        return self.method.phases(self.source.spec.num_examples, self.source.batch_size)

    def _batches(self, fixed: Fixed, stop: int) -> Batch | None:
        if not self.source.on_host:
            return None
        key = data_key(self.key, self.phase)
        batches = [self.source.batch(step, key=key) for step in range(self.step, stop)]
        batches += batches[-1:] * (fixed.capacity - len(batches))
        return jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *batches)

    def _guard(self, states: PyTree, phase: Phase, chunk: dict[str, np.ndarray]) -> None:
        finite = np.asarray(finite_chains(states.params))
        if "log_density" in chunk:
            finite = finite & np.isfinite(chunk["log_density"]).all(axis=1)
        first_chunk = self.phase == 0 and self.step == next(iter(chunk.values())).shape[1] if chunk else False
        from_start = self._bad_starts(chunk) if first_chunk else np.zeros(self.num_chains, bool)
        for chain in _true(~finite):
            if chain not in self.bad_chains:
                number = chain + self.first_chain
                text = f"chain {number} became NaN in phase {phase.name!r} before step {self.step} and was left out"
                if from_start[chain]:
                    text += ": its log density is not finite where it starts"
                self.bad_chains[chain] = text
                warnings.warn(text, RuntimeWarning, stacklevel=6)
        if len(self.bad_chains) == self.num_chains:
            why = "standardise the data (mx.data.standardise) or lower the learning rate / step size"
            if from_start.all():
                why = "the log density is not finite where they start: check the model and the data, or pass init="
            raise FloatingPointError(
                f"all {self.num_chains} chains became NaN in phase {phase.name!r} before step {self.step}: {why}"
            )

    def _call_hooks(
        self, phase: Phase, states: PyTree, memories: tuple[PyTree, ...], chunk: dict[str, np.ndarray]
    ) -> tuple[PyTree, tuple[PyTree, ...]]:
        updated = []
        for hook, memory in zip(self.hooks, memories, strict=True):
            period = hook.every(phase.name, self.source)
            if period and self.step % period and self.step != phase.num_steps:
                updated.append(memory)
                continue
            phases_left = len(self.phases) - self.phase - 1
            event = Event(
                self.model, phase.name, phases_left, self.step, phase.num_steps, dict(self.seconds), states, chunk
            )
            verdict = hook.after_chunk(memory, event)
            states = verdict.states
            if verdict.stop and phase.may_end_at(self.step):
                self.stopped = True
                self.notes += () if verdict.note is None else (verdict.note,)
            updated.append(verdict.memory)
        return states, tuple(updated)

    # ---- what is kept, and where

    def _check_room(self, states: PyTree) -> None:
        """Raise before anything is computed if the draws will not fit where they go."""
        kept = [phase for phase in self.phases if phase.keep is not None]
        need = sum(phase.num_kept(phase.num_steps) * phase.num_bytes(states) for phase in kept)
        check_room(need, None if self.directory is None else self.directory.path)

    def _keep(self, phase: Phase, infos: dict[str, np.ndarray], draws: PyTree, stop: int) -> set[str]:
        """Put a chunk's info and complete draws where they belong; returns the names of what has changed."""
        parts = [("info", self.step, phase.num_steps, infos)]
        if phase.keep is not None:
            first, last = phase.num_kept(self.step), phase.num_kept(stop)
            leaves = {f"draw/{i:05d}": leaf for i, leaf in enumerate(jax.tree.leaves(draws))}
            parts.append(("draws", first, phase.num_kept(phase.num_steps), on_host(leaves, last - first)))
        changed = set()
        for what, start, num_slots, values in parts:
            name = f"{what}-{self.phase}"
            if values and name not in self.kept:
                like = {n: jax.ShapeDtypeStruct((len(v), num_slots, *v.shape[2:]), v.dtype) for n, v in values.items()}
                self.kept[name] = GrowingArrays(like) if self.directory is None else self.directory.grow(name, like)
            if values:
                if what == "info":  # a run begun by an older version has no room for numbers that came since
                    values = {n: v for n, v in values.items() if n in self.kept[name].names}
                self.kept[name].write(start, values)
                changed.add(name)
        return changed

    @property
    def _checkpoint_due(self) -> bool:
        """Whether so much was computed since the last checkpoint that another one is a small part of it."""
        if self.directory is None:
            return False
        when, seconds = self.last_saved
        return self.chunk_size is not None or time.perf_counter() - when > max(
            _SECONDS_PER_CHUNK, seconds / _MOST_SAVING
        )

    def _checkpoint(self, states: PyTree, memories: tuple[PyTree, ...]) -> None:
        """Save the state, and count what has changed."""
        began = time.perf_counter()
        if self.directory is not None:
            cursor = {
                "phase": self.phase,
                "step": self.step,
                "stopped": self.stopped,
                "num_devices": num_devices(self._num_spread),
                "num_steps": self.num_steps,
                "seconds": self.seconds,
                "bad_chains": {str(chain): text for chain, text in self.bad_chains.items()},
                "notes": list(self.notes),
            }
            self.directory.save(cursor, (states, memories), sorted(self.changed))
        self.changed, now = set(), time.perf_counter()
        self.last_saved = now, now - began

    def _restore(self, directory: RunDirectory, like: PyTree) -> PyTree:
        """Go to the last checkpoint, if there is one; states of chains and hooks there."""
        if (found := directory.latest(like)) is None:
            return None
        cursor, restored, files = found
        self.kept = dict(files)
        with naming(directory.path):
            check_cursor(cursor, self.phases, files, self.num_chains)
        self._set_cursor(cursor)
        return restored

    def _set_cursor(self, cursor: dict[str, Any]) -> None:
        self.phase, self.step = cursor["phase"], cursor["step"]
        self.stopped = bool(cursor.get("stopped"))  # earlier versions did not keep it
        before, now = cursor.get("num_devices"), num_devices(self._num_spread)
        if before is not None and before != now:
            warnings.warn(
                f"the run was on {before} devices and goes on with {now}: its last digits may differ from those of "
                "an uninterrupted one",
                stacklevel=6,
            )
        self.num_steps, self.seconds = dict(cursor["num_steps"]), dict(cursor["seconds"])
        self.bad_chains = {int(chain): text for chain, text in cursor["bad_chains"].items()}
        self.notes = tuple(cursor["notes"])

    # ---- the end

    def finish(self, states: PyTree, *, finished: bool) -> AbstractPosterior:
        """The posterior, from states at the end and what was kept."""
        phases = self.phases
        good = np.array([c for c in range(self.num_chains) if c not in self.bad_chains])
        states = jax.device_put(states, jax.local_devices()[0])
        states = jax.tree.map(lambda leaf: leaf[good], states) if self.bad_chains else states
        infos, draws, arrays, file = {}, None, {}, None
        for index, phase in enumerate(phases):
            info = self.kept.get(f"info-{index}")
            infos[phase.name] = {} if info is None else {name: value[good] for name, value in info.arrays().items()}
            if phase.keep is not None and f"draws-{index}" in self.kept:
                arrays, file = self.kept[f"draws-{index}"].gather(good.tolist())
                treedef = jax.tree.structure(phase.kept(states))
                draws = jax.tree.unflatten(treedef, [arrays[name] for name in sorted(arrays)])
        notes = (*self.bad_chains.values(), *self.notes)
        if not finished:
            notes += ("interrupted before its last step: what there was is here, mx.resume goes on from a directory",)
        elif all(self.num_steps.get(phase.name) == phase.num_steps for phase in phases):  # no hook has ended one
            notes += end_warnings(infos, self.source, self.method, self.model, states)
        record = FitRecord(
            method=describe(self.method),
            num_chains=self.num_chains,
            num_steps=dict(self.num_steps),
            seconds=dict(self.seconds),
            info=infos,
            warnings=notes,
            dropped_chains=tuple(sorted(self.bad_chains)),
            probes=self.model.probes(self.source),
            finished=finished,
            phases=tuple(infos),
            rows=self.model.probe_rows(self.source),
            configuration=self.method,
        )
        posterior = self.method.posterior(self.model, states, draws, infos)
        posterior = eqx.tree_at(
            lambda p: (p.spec, p.record, p.key),
            posterior,
            (self.source.spec, record, self._keys()[1]),
            is_leaf=lambda node: node is None or isinstance(node, FitRecord),
        )
        if finished and self.directory is not None:
            self.directory.verify()
            save_posterior(posterior, self.directory.posterior, overwrite=True, draws=arrays, linked=file)
            self.directory.forget()
        return posterior


def _true(flags: np.ndarray) -> list[int]:
    return np.flatnonzero(flags).tolist()
