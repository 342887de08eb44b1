"""The compiled part of the driver: a run of identical steps for all chains.

A chunk is a loop with a dynamic number of steps inside one compiled function, so one compilation per phase serves
chunks of any length. The key of a step is a function of (chain key, phase, step), its batch of step and
key, so where chunks begin and end leaves no trace in the result.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import AxisType, Mesh, PartitionSpec
from jaxtyping import Array, Key, PRNGKeyArray, PyTree

from marginax._random import derive
from marginax.data import AbstractSource, Batch
from marginax.infer._method import AbstractMethod, Info, State
from marginax.model import Model, Params

_DATA, _START = 0xFFFFFFFF, 0xFFFFFFFE  # streams of keys besides those of the steps


class Fixed(eqx.Module):
    """What does not change while a phase runs. `program` is the phase whose step is run: itself or one that follows."""

    model: Model
    method: AbstractMethod
    source: AbstractSource
    keys: Key[Array, " chains"]
    phase: Array
    program: int = eqx.field(static=True)
    capacity: int = eqx.field(static=True)
    mesh: Mesh | None = eqx.field(static=True)


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


def data_key(key: PRNGKeyArray, phase: Array | int) -> PRNGKeyArray:
    """The key that orders the data in a phase."""
    return derive(key, phase, stream=_DATA)


@eqx.filter_jit
def start_chains(fixed: Fixed, params: Params, first: Batch | None) -> State:
    """States of all chains before the first step."""

    def start(params: Params, key: PRNGKeyArray) -> State:
        batch = fixed.source.batch(0, key=data_key(key, 0)) if first is None else first
        return fixed.method.init(fixed.model, params, batch, key=derive(key, 0, stream=_START))

    return jax.tree.map(_strongly_typed, jax.vmap(start)(params, fixed.keys))


def _strongly_typed(leaf: Array) -> Array:
    """What a step returns has a strong type; a weak one at the start would compile the phase twice."""
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return leaf if is_key else jax.lax.convert_element_type(leaf, leaf.dtype)


@eqx.filter_jit(donate="all-except-first")
def run_chunk(
    fixed: Fixed, states: State, start: Array, stop: Array, batches: Batch | None
) -> tuple[State, Info, PyTree]:
    """Run steps start..stop-1 of a phase (at most `capacity`).

    Returns:
        The states; info with axes (slot, chain); kept draws with axes (slot, chain), of which the first
        num_kept(stop) - num_kept(start) are complete.
    """
    arrays, static = eqx.partition((fixed.model, fixed.method, fixed.source), eqx.is_array)

    def run(arrays: PyTree, states: State, keys: Key[Array, " local"], start: Array, stop: Array, batches: PyTree):
        model, method, source = eqx.combine(arrays, static)
        return _loop(fixed, model, method, source, states, keys, start, stop, batches)

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


def _loop(fixed, model, method, source, states, keys, start, stop, batches):
    num_examples = source.spec.num_examples if batches is None else batches.num_examples
    phase = method.phases(num_examples, source.batch_size)[fixed.program]

    def advance(state: State, key: PRNGKeyArray, step: Array, batch: Batch | None) -> tuple[State, Info]:
        if batch is None:
            batch = source.batch(step, key=data_key(key, fixed.phase))
        return phase.step(model, state, batch, key=derive(key, step, stream=fixed.phase))

    def advance_all(states: State, step: Array, batch: Batch | None) -> tuple[State, Info]:
        if keys.shape[0] == 1:  # a batch axis of one would cost matmul speed and buy nothing
            result = advance(jax.tree.map(lambda leaf: leaf[0], states), keys[0], step, batch)
            return jax.tree.map(lambda leaf: leaf[None], result)
        if not method.in_step:
            return jax.lax.map(lambda chain: advance(chain[0], chain[1], step, batch), (states, keys))
        return jax.vmap(advance, in_axes=(0, 0, None, None))(states, keys, step, batch)

    def batch_at(slot: Array) -> Batch | None:
        return None if batches is None else jax.tree.map(lambda leaf: leaf[slot], batches)

    kept_slots = fixed.capacity // phase.thin + 1
    _, info = jax.eval_shape(lambda s: advance_all(s, start, batch_at(jnp.zeros((), int))), states)
    infos = _buffer(info, fixed.capacity)
    draws = None if phase.keep is None else _buffer(jax.eval_shape(jax.vmap(phase.keep), states), kept_slots)

    def body(step: Array, carry: Any) -> Any:
        states, infos, draws = carry
        states, info = advance_all(states, step, batch_at(step - start))
        infos = _write(infos, info, step - start)
        if phase.keep is not None:
            draws = jax.lax.cond(phase.num_kept(step + 1) > phase.num_kept(step), keep, _leave, draws, states, step)
        return states, infos, draws

    def keep(draws: PyTree, states: State, step: Array) -> PyTree:
        return _write(draws, jax.vmap(phase.keep)(states), phase.num_kept(step) - phase.num_kept(start))

    return jax.lax.fori_loop(start, stop, body, (states, infos, draws))


def _buffer(like: PyTree, slots: int) -> PyTree:
    return jax.tree.map(lambda leaf: jnp.zeros((slots, *leaf.shape), leaf.dtype), like)


def _leave(draws: PyTree, states: State, step: Array) -> PyTree:
    """Most states are not kept, and copying each of them would cost as much as the noise that moves it."""
    del states, step
    return draws


def _write(buffer: PyTree, values: PyTree, slot: Array) -> PyTree:
    return jax.tree.map(lambda b, v: jax.lax.dynamic_update_index_in_dim(b, v, slot, 0), buffer, values)


@eqx.filter_jit
def finite_chains(params: Params) -> Array:
    """Which chains have nothing but finite parameters."""
    flags = [jnp.all(jnp.isfinite(leaf.reshape(leaf.shape[0], -1)), axis=1) for leaf in jax.tree.leaves(params)]
    return jnp.all(jnp.stack(flags), axis=0)
