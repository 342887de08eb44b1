"""The compiled part of the driver: a run of identical steps for all chains.

A chunk is a loop with a dynamic number of steps inside one compiled function, so one compilation per phase serves
chunks of any length. The key of a step is a function of (chain key, phase, step), its batch of step and
key, so where chunks begin and end leaves no trace in the result.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun
from jax.sharding import AxisType, Mesh, PartitionSpec
from jaxtyping import Array, Bool, Key, PRNGKeyArray, PyTree

from marginax._compilation import compiled
from marginax._kernels.random import derive
from marginax.data import AbstractSource, Batch
from marginax.infer.method import AbstractMethod, Info, Phase, State
from marginax.model import AbstractModel
from marginax.model.abstract import Params

_MOST_STEPS = 4096
_MOST_BYTES = 64 * 2**20  # of draws or batches held for one chunk
_MOST_PROGRAMS = 80  # of some 20 MB each
_programs: set[Any] = set()
_DATA, _START, _ELSEWHERE = 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFD  # streams of keys besides those of the steps


class Fixed(eqx.Module):
    """What does not change while a phase runs. The program is that of the phase, or of one that follows."""

    model: AbstractModel
    program: "Program"
    source: AbstractSource
    keys: Key[Array, " chains"]
    phase: Array
    capacity: int = eqx.field(static=True)
    lockstep: bool = eqx.field(static=True)
    mesh: Mesh | None = eqx.field(static=True)


class Program(eqx.Module):
    """What is compiled of a phase; its name and length are not."""

    step: Callable[..., tuple[State, Info]]
    keep: Callable[[State], PyTree] | None = eqx.field(static=True)
    thin: int = eqx.field(static=True)
    cycle: int | None = eqx.field(static=True)
    skip: int = eqx.field(static=True)

    num_kept = Phase.num_kept


def program_of(phase: Phase) -> Program:
    """The program of a phase."""
    return Program(traced_numbers(phase.step), phase.keep, phase.thin, phase.cycle, phase.skip)


def index_of_program(phases: tuple[Phase, ...], index: int) -> int:
    """The phase whose compiled step a phase runs."""
    while index < len(phases) and phases[index].as_next:
        index += 1
    return index


def capacity_of(
    phases: tuple[Phase, ...], index: int, source: AbstractSource, states: State, chunk_size: int | None
) -> int:
    """Steps for which a chunk of a phase has room."""
    program = index_of_program(phases, index)
    longest = max(p.num_steps for i, p in enumerate(phases) if index_of_program(phases, i) == program)
    phase = phases[program]
    if phase.keep is None and not source.on_host:
        longest = _MOST_STEPS  # room for infos costs nothing, and runs of all lengths share a program
    most = min(_MOST_STEPS, longest, chunk_size or _MOST_STEPS)
    if phase.keep is not None:
        size = phase.num_bytes(states) / phase.thin
        most = min(most, int(_MOST_BYTES / max(size, 1)))
    if source.on_host:
        size = sum(leaf.nbytes for leaf in jax.tree.leaves(source.examples(1)))
        most = min(most, int(_MOST_BYTES / (size * source.batch_size)))
    return max(1, most)


def traced_numbers(tree: PyTree) -> PyTree:
    """Floats as arrays, so that another step size or temperature is new data and not new code."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf) if isinstance(leaf, float) else leaf, tree)


def chain_mesh(num_chains: int) -> Mesh | None:
    """Devices to spread the chains over, evenly; None if there is one device or the chains do not divide."""
    devices = jax.local_devices()
    count = max(n for n in range(1, len(devices) + 1) if num_chains % n == 0)
    if count == 1:
        return None
    return jax.make_mesh((count,), ("chain",), (AxisType.Auto,), devices=devices[:count])


def num_devices(num_chains: int) -> int:
    """Over which chains are spread."""
    mesh = chain_mesh(num_chains)
    return 1 if mesh is None else mesh.size


def spread_chains(states: PyTree, mesh: Mesh | None) -> PyTree:
    """States with each chain on its device. They go by way of the host, where slicing needs no compiled program."""
    if mesh is None:
        return states
    place = jax.NamedSharding(mesh, PartitionSpec("chain"))

    def put(leaf: Array) -> Array:
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        data = jax.device_put(np.asarray(jax.random.key_data(leaf) if is_key else leaf), place)
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf)) if is_key else data

    return jax.tree.map(put, states)


@partial(compiled, once=True)
def run_keys(key: PRNGKeyArray, num_chains: int) -> tuple[Key[Array, " chains"], PRNGKeyArray]:
    """One key for each chain, and one for the posterior, unlike those."""
    keys = jax.vmap(lambda chain: jax.random.fold_in(key, chain))(jnp.arange(num_chains + 1))
    return keys[:-1], keys[-1]


def data_key(key: PRNGKeyArray, phase: Array | int) -> PRNGKeyArray:
    """The key that orders the data in a phase."""
    return derive(key, phase, stream=_DATA)


@partial(compiled, once=True)
def start_chains(
    model: AbstractModel,
    method: AbstractMethod,
    source: AbstractSource,
    keys: Key[Array, " chains"],
    params: Params,
    first: Batch | None,
) -> State:
    """States of all chains before the first step."""

    def start(params: Params, key: PRNGKeyArray) -> State:
        batch = source.batch(0, key=data_key(key, 0)) if first is None else first
        return method.init(model, params, batch, key=derive(key, 0, stream=_START))

    return jax.tree.map(_strongly_typed, jax.vmap(start)(params, keys))


@partial(compiled, once=True)
def start_elsewhere(
    model: AbstractModel,
    own: Params,
    params: Params,
    bad: Bool[Array, " chains"],
    keys: Key[Array, " chains"],
    attempt: Array,
) -> Params:
    """Other starting points for the chains that are marked, away from the model's own."""

    def draw(params: Params, bad: Array, key: PRNGKeyArray) -> Params:
        other = model.reinitialise(own, key=derive(key, attempt, stream=_ELSEWHERE))
        return jax.tree.map(lambda a, b: jnp.where(bad, a, b), other, params)

    return jax.vmap(draw)(params, bad, keys)


def _strongly_typed(leaf: Array) -> Array:
    """What a step returns has a strong type; a weak one at the start would compile the phase twice."""
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return leaf if is_key else jax.lax.convert_element_type(leaf, leaf.dtype)


def run_chunk(
    fixed: Fixed, states: State, start: Array, stop: Array, batches: Batch | None
) -> tuple[State, Info, PyTree]:
    """Run steps start..stop-1 of a phase (at most `capacity`).

    Returns:
        The states; info with axes (slot, chain); kept draws with axes (slot, chain), of which the first
        num_kept(stop) - num_kept(start) are complete.
    """
    return _run_chunk((fixed, start, stop, batches), states)


def bound_programs(fixed: Fixed, states: State) -> None:
    """Before a phase: forget what is compiled when there are many programs, as a search over architectures makes them.

    JAX keeps each for as long as the process lives.
    """
    arrays, static = eqx.partition((fixed, states), eqx.is_array)
    shapes = tuple((leaf.shape, str(leaf.dtype)) for leaf in jax.tree.leaves(arrays))
    program = hash((shapes, jax.tree.structure(static)))
    if program not in _programs and len(_programs) >= _MOST_PROGRAMS:
        _programs.clear()
        jax.clear_caches()
        eqx.clear_caches()
    _programs.add(program)


@partial(compiled, donate="all-except-first")
def _run_chunk(lent: tuple[Fixed, Array, Array, Batch | None], states: State) -> tuple[State, Info, PyTree]:
    fixed, start, stop, batches = lent
    arrays, static = eqx.partition((fixed.model, fixed.program, fixed.source), eqx.is_array)

    def run(arrays: PyTree, states: State, keys: Key[Array, " local"], start: Array, stop: Array, batches: PyTree):
        model, program, source = eqx.combine(arrays, static)
        return _loop(fixed, model, program, source, states, keys, start, stop, batches)

    if fixed.mesh is not None:
        chains, slots, everywhere = PartitionSpec("chain"), PartitionSpec(None, "chain"), PartitionSpec()
        run = jax.shard_map(
            run,
            mesh=fixed.mesh,
            in_specs=(everywhere, chains, chains, everywhere, everywhere, everywhere),
            out_specs=(chains, slots, slots),
            check_vma=False,
        )
    return run(arrays, states, fixed.keys, start, stop, batches)


def _loop(fixed, model, program, source, states, keys, start, stop, batches):
    def advance(state: State, key: PRNGKeyArray, step: Array, batch: Batch | None) -> tuple[State, Info]:
        if batch is None:
            batch = source.batch(step, key=data_key(key, fixed.phase))
        return program.step(model, state, batch, key=derive(key, step, stream=fixed.phase))

    def advance_all(states: State, step: Array, batch: Batch | None) -> tuple[State, Info]:
        if keys.shape[0] == 1:  # a batch axis of one would cost matmul speed and buy nothing
            result = advance(jax.tree.map(lambda leaf: leaf[0], states), keys[0], step, batch)
            return jax.tree.map(lambda leaf: leaf[None], result)
        if not fixed.lockstep:
            return jax.lax.map(lambda chain: advance(chain[0], chain[1], step, batch), (states, keys))
        return jax.vmap(advance, in_axes=(0, 0, None, None))(states, keys, step, batch)

    def batch_at(slot: Array) -> Batch | None:
        return None if batches is None else jax.tree.map(lambda leaf: leaf[slot], batches)

    kept_slots = fixed.capacity // program.thin + 1
    step_once, (_, info) = _traced(advance_all, states, start, batch_at(jnp.zeros((), int)))
    infos = _buffer(info, fixed.capacity)
    draws = None if program.keep is None else _buffer(jax.eval_shape(jax.vmap(program.keep), states), kept_slots)

    def body(step: Array, carry: Any) -> Any:
        states, infos, draws = carry
        states, info = step_once(states, step, batch_at(step - start))
        infos = _write(infos, info, step - start)
        if program.keep is not None:
            draws = jax.lax.cond(program.num_kept(step + 1) > program.num_kept(step), keep, _leave, draws, states, step)
        return states, infos, draws

    def keep(draws: PyTree, states: State, step: Array) -> PyTree:
        return _write(draws, jax.vmap(program.keep)(states), program.num_kept(step) - program.num_kept(start))

    return jax.lax.fori_loop(start, stop, body, (states, infos, draws))


def _traced(function: Callable[..., PyTree], *args: PyTree) -> tuple[Callable[..., PyTree], PyTree]:
    """A function that was traced once, for these arguments, and the shapes of what it returns."""
    closed, shapes = jax.make_jaxpr(function, return_shape=True)(*args)
    run, structure = jaxpr_as_fun(closed), jax.tree.structure(shapes)
    return lambda *args: jax.tree.unflatten(structure, run(*jax.tree.leaves(args))), shapes


def _buffer(like: PyTree, slots: int) -> PyTree:
    return jax.tree.map(lambda leaf: jnp.zeros((slots, *leaf.shape), leaf.dtype), like)


def _leave(draws: PyTree, states: State, step: Array) -> PyTree:
    """Most states are not kept, and copying each of them would cost as much as the noise that moves it."""
    return draws


def _write(buffer: PyTree, values: PyTree, slot: Array) -> PyTree:
    return jax.tree.map(lambda b, v: jax.lax.dynamic_update_index_in_dim(b, v, slot, 0), buffer, values)


@partial(compiled, once=True)
def finite_chains(params: Params) -> Array:
    """Which chains have nothing but finite parameters."""
    flags = [jnp.all(jnp.isfinite(leaf.reshape(leaf.shape[0], -1)), axis=1) for leaf in jax.tree.leaves(params)]
    return jnp.all(jnp.stack(flags), axis=0)


def on_host(tree: PyTree, num: int) -> dict[str, np.ndarray]:
    """The first slots of a chunk's buffers by name, axes (chain, slot, ...); on a CPU the memory is shared."""
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): np.swapaxes(np.asarray(leaf)[:num], 0, 1)
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }
