"""The parts of a run put together: one run at its end, of which the posterior is made as of any other.

Draws go from the files of the parts to one file, block by block, so that they are never in memory together.
"""

import warnings
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from marginax.files import FileError, GrowingArrays, GrowingFile
from marginax.infer.driver import Run
from marginax.posterior import AbstractPosterior

_BLOCK = 2**24  # bytes


def joined(run: Run, parts: Sequence[Run], bad: Mapping[int, str], *, finished: bool) -> AbstractPosterior:
    """The posterior of what the chains of all parts have drawn.

    Args:
        run: the whole, at its beginning.
        parts: its chains, in order, each with a directory.
        bad: chains of parts that have ended because all of their chains became NaN, and what is to be said of them.
        finished: whether all parts are at their end. If not, those that have drawn nothing are left out, and of the
            others comes what the shortest has drawn.
    """
    files = [part.directory for part in parts if part.directory is not None]
    states = [part.stand()[0] if own.exists else part.begin()[0] for part, own in zip(parts, files, strict=True)]
    if finished:
        _check_ended(run, parts, bad)
    used = _used(parts, bad, finished)
    if len(bad) == run.num_chains:
        raise FloatingPointError(f"all {run.num_chains} chains became NaN: {'; '.join(bad.values())}")
    if not used:
        raise KeyboardInterrupt("interrupted before the first checkpoint: there is no posterior yet")
    _set_where_it_stands(run, parts, used, bad)
    for name in sorted({name for part in used for name in part.kept}):
        if count := min(_count(part, name) for part in used):
            _join(run, parts, name, used, count)
    return run.finish(jax.tree.map(_concatenated, *states), finished=finished)


def _check_ended(run: Run, parts: Sequence[Run], bad: Mapping[int, str]) -> None:
    """Raise unless what is here of each part is all of it, whatever its task has said: a checkpoint may be damaged."""
    for part in parts:
        steps = all(part.num_steps.get(phase.name) == phase.num_steps for phase in part.phases)
        if part.first_chain not in bad and not (part.phase == len(part.phases) and steps):
            assert part.directory is not None
            whole = "" if run.directory is None else f"mx.resume({str(run.directory.path)!r})"
            raise FileError(f"{part.directory.path} is not at its end, though its task was: {whole} goes on")


def _used(parts: Sequence[Run], bad: Mapping[int, str], finished: bool) -> list[Run]:
    """Those of which something comes."""
    alive = [part for part in parts if part.first_chain not in bad]
    if finished:
        return alive
    begun = [part for part in alive if part.num_steps]
    return [part for part in begun if any(_count(part, name) for name in _names_of_draws(part))] or begun


def _names_of_draws(part: Run) -> list[str]:
    return [name for name in part.kept if name.startswith("draws-")]


def _count(part: Run, name: str) -> int:
    return part.kept[name].count if name in part.kept else 0


def _set_where_it_stands(run: Run, parts: Sequence[Run], used: Sequence[Run], bad: Mapping[int, str]) -> None:
    run.phase = min(part.phase for part in used)
    for phase in run.phases:
        steps = [part.num_steps.get(phase.name, 0) for part in used]
        if any(steps):
            run.num_steps[phase.name] = min(steps)
            run.seconds[phase.name] = max(part.seconds.get(phase.name, 0.0) for part in used)
        if len(set(steps)) > 1:
            run.notes += (f"chains had done {min(steps)} to {max(steps)} steps of {phase.name!r}: the fewest are here",)
    texts, firsts = dict(bad), {part.first_chain for part in used}
    for part in parts:
        chains = range(part.first_chain, part.first_chain + part.num_chains)
        texts |= {chain + part.first_chain: text for chain, text in part.bad_chains.items()}
        if part.first_chain not in firsts:
            texts |= {c: f"chain {c} had drawn nothing yet and was left out" for c in chains if c not in texts}
        run.notes += tuple(note for note in part.notes if note not in run.notes)
    run.bad_chains = dict(sorted(texts.items()))
    for text in run.bad_chains.values():
        warnings.warn(text, RuntimeWarning, stacklevel=5)


def _join(run: Run, parts: Sequence[Run], name: str, used: Sequence[Run], count: int) -> None:
    """Numbers of one phase; rows of chains that are left out are not read, and hold zeros."""
    arrays = {part.first_chain: part.kept[name].arrays() for part in used}
    model = arrays[used[0].first_chain]
    like = {n: jax.ShapeDtypeStruct((run.num_chains, count, *v.shape[2:]), v.dtype) for n, v in model.items()}
    into: GrowingArrays | GrowingFile = GrowingArrays(like)
    if name.startswith("draws-") and run.directory is not None:
        into = run.directory.grow(name, like)
    size = sum(int(np.prod(leaf.shape)) * leaf.dtype.itemsize for leaf in like.values())
    step = max(1, count * _BLOCK // max(1, size))
    for start in range(0, count, step):
        stop = min(start + step, count)
        values = {n: np.zeros((run.num_chains, stop - start, *leaf.shape[2:]), leaf.dtype) for n, leaf in like.items()}
        for part in used:
            rows = slice(part.first_chain, part.first_chain + part.num_chains)
            for n, value in values.items():
                value[rows] = arrays[part.first_chain][n][:, start:stop]
        into.write(start, values)
    if isinstance(into, GrowingFile):
        into.sync()
    run.kept[name] = into


def _concatenated(*leaves: PyTree) -> PyTree:
    return jnp.concatenate(leaves)
