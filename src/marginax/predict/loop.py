"""The one loop over draws x inputs: it owns scaling, chunks, padding, weights and bounded memory.

Predictions, scores, decisions and diagnostics say what they want of each chunk; this says which chunks there are. All
chunks of a kind have one shape (the last entry is repeated to fill them), so that one program serves all.
"""

import copy
import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from marginax._compilation import compiled
from marginax._machine import available_memory, check_process
from marginax.data import DataSpec
from marginax.predict.functions import MAX_BYTES, AbstractFunctions, AbstractFunctionSet
from marginax.predict.workload import chunk_sizes, measure_workload, without_draws

Chunk = tuple[slice, slice, PyTree]
"""Draws, inputs, and what was computed of them (with draws and inputs that only fill up the chunk)."""


class DrawLoop:
    """All draws at all inputs, a chunk at a time.

    Args:
        functions: the draws.
        x: inputs (n, ...) in the user's units.
        spec: shapes and scaling of the training data; None if x is in the units of the model.
        max_bytes: memory for intermediate results.
        keep_draws: whether draws stay on the device, if there is room for them: for a loop that is run again and again.

    Attributes:
        like: the distribution that a draw gives, with shapes in place of arrays.
        x_like: shape and dtype of standardised inputs.
        row_axes: for each array of it, whether its first axis runs over inputs.
        num_classes: of it; 0 if it is not one of classes.
        log_weights: of the draws, normalised.
    """

    def __init__(
        self,
        functions: AbstractFunctionSet,
        x: Any,
        *,
        spec: DataSpec | None,
        max_bytes: int = MAX_BYTES,
        keep_draws: bool = False,
    ):
        check_process()
        if len(x) == 0:
            raise ValueError("x must have at least one row, got none")
        self.functions, self.x, self.max_bytes = functions, x, max_bytes
        self.scaling = None if spec is None else spec.scaling
        self.num_draws, self.num_rows = functions.num_draws, len(x)
        self.log_weights = functions.normalised_log_weights()
        first = np.asarray(self._standardised(slice(0, 1)))
        self.x_like = jax.ShapeDtypeStruct(first.shape, jax.dtypes.canonicalize_dtype(first.dtype))
        self._workloads = [measure_workload(member, self.x_like) for member in functions.members]
        found = self._workloads[0]
        self.like, self.row_axes, self.num_classes = found.outcome, found.row_axes, found.num_classes
        self._x_chunks: dict[tuple[int, int], Array] = {}
        self._keep_draws = keep_draws and _num_bytes([member.draws for member in functions.members]) <= max_bytes
        self._kept_blocks: dict[int, list[_Block]] = {}  # by number of inputs

    def at(self, x: Any) -> "DrawLoop":
        """The same loop over other inputs of the same kind."""
        other = copy.copy(self)
        other.x, other.num_rows, other._x_chunks = x, len(x), {}
        return other

    def run(
        self,
        reduce: Callable[..., PyTree],
        *row_args: np.ndarray,
        rows_first: bool = False,
        max_rows: int | None = None,
    ) -> Iterator[Chunk]:
        """Every chunk, with draws in the outer loop (each is read once) or inputs.

        Args:
            reduce: (distributions of a chunk's draws, stacked; log weights, -inf where a draw only fills up; *row
                arguments) -> what is wanted. It is compiled, so it is best a function with a name.
            row_args: arrays with an entry for each input, such as targets.
            rows_first: all draws at some inputs before the next inputs.
            max_rows: inputs in a chunk, at most.
        """
        blocks = self._blocks()
        size = min(block.num_rows for block in blocks)
        size = size if max_rows is None else max(1, min(size, max_rows))
        rows = [slice(start, min(start + size, self.num_rows)) for start in range(0, self.num_rows, size)]
        order = ((b, r) for r in rows for b in blocks) if rows_first else ((b, r) for b in blocks for r in rows)
        last, draws = None, None
        for block, at in order:
            if block is not last:
                last, draws = block, block.kept_draws if self._keep_draws else block.draws()
            args = [jnp.asarray(pad(np.asarray(arg[at]), size)) for arg in row_args]
            yield block.places, at, _reduced(reduce, block.shared, draws, self._inputs(at, size), block.weights, *args)

    def _blocks(self) -> "list[_Block]":
        if self._keep_draws and self.num_rows in self._kept_blocks:
            return self._kept_blocks[self.num_rows]
        blocks, start = [], 0
        for member, workload in zip(self.functions.members, self._workloads, strict=True):
            num = member.num_draws
            size, num_rows = chunk_sizes(num, self.num_rows, workload, self.max_bytes)
            shared = without_draws(member)
            shared = _on_device(shared) if self._keep_draws else shared
            for first in range(0, num, size):
                own = slice(first, min(first + size, num))
                places = slice(start + own.start, start + own.stop)
                blocks.append(_Block(member, shared, own, places, size, num_rows, self.log_weights[places]))
            start += num
        if self._keep_draws:
            self._kept_blocks[self.num_rows] = blocks
        return blocks

    def collect(self, reduce: Callable[..., PyTree]) -> list[np.ndarray]:
        """What is wanted of every draw at every input, on the host: arrays (draw, input, ...), or (draw, ...).

        Which of the two is told by `row_axes`, so `reduce` gives the arrays of the distributions, or arrays with both
        axes where it gives another number of them.
        """
        results: list[np.ndarray] = []
        for draws, rows, result in self.run(reduce):
            leaves = jax.tree.leaves(result)
            has_rows = self.row_axes if len(leaves) == len(self.row_axes) else (True,) * len(leaves)
            if not results:
                shapes = [leaf.shape[2:] if has else leaf.shape[1:] for leaf, has in zip(leaves, has_rows, strict=True)]
                axes = [(self.num_draws, self.num_rows) if has else (self.num_draws,) for has in has_rows]
                wholes = [(*a, *s) for a, s in zip(axes, shapes, strict=True)]
                sizes = [math.prod(s) * leaf.dtype.itemsize for s, leaf in zip(wholes, leaves, strict=True)]
                self._check_room(sum(sizes))
                results = [np.empty(s, leaf.dtype) for s, leaf in zip(wholes, leaves, strict=True)]
            num_draws, num_rows = draws.stop - draws.start, rows.stop - rows.start
            for whole, leaf, has in zip(results, leaves, has_rows, strict=True):
                if has:
                    whole[draws, rows] = np.asarray(leaf)[:num_draws, :num_rows]
                else:
                    whole[draws] = np.asarray(leaf)[:num_draws]
        return results

    def _check_room(self, need: int) -> None:
        free = available_memory()
        if need > free:
            raise MemoryError(
                f"predictions of {self.num_draws:,} draws at {self.num_rows:,} inputs take {need / 2**30:.1f} GiB, and "
                f"{free / 2**30:.1f} GiB of memory are free: predict fewer inputs at a time, or average over fewer "
                "draws (num_samples=...)"
            )

    def rebuild(self, leaves: list[np.ndarray]) -> PyTree:
        """A stack of distributions from their arrays."""
        shapes, static = eqx.partition(self.like, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
        return eqx.combine(jax.tree.unflatten(jax.tree.structure(shapes), leaves), static)

    def _inputs(self, rows: slice, size: int) -> Array:
        place = (rows.start, size)
        x = self._x_chunks.get(place)
        if x is None:
            x = jnp.asarray(pad(self._standardised(rows), size))
            if x.nbytes * (self.num_rows / size) <= self.max_bytes:
                self._x_chunks[place] = x
        return x

    def _standardised(self, rows: slice) -> Any:
        chunk = self.x[rows]
        return chunk if self.scaling is None else self.scaling.transform_x(chunk)


@dataclass(frozen=True, eq=False)
class _Block:
    """A chunk of draws of one kind."""

    member: AbstractFunctions
    shared: Any
    own: slice
    places: slice
    size: int
    num_rows: int
    log_weights: np.ndarray

    def draws(self) -> PyTree:
        """Padded, and prepared."""
        draws = jax.tree.map(lambda leaf: pad(leaf[self.own], self.size), self.member.draws)
        return _prepared(self.shared, draws) if self.member.is_prepared else draws

    @functools.cached_property
    def kept_draws(self) -> PyTree:
        """The same, on the device."""
        return _on_device(self.draws())

    @functools.cached_property
    def weights(self) -> Array:
        """Logarithms; -inf where a draw only fills up."""
        weights = np.full(self.size, -np.inf, np.float32)
        weights[: len(self.log_weights)] = self.log_weights
        return jnp.asarray(weights)


def components(distributions: PyTree, log_weights: Array) -> PyTree:
    """The arrays of each draw's distribution."""
    return eqx.filter(distributions, eqx.is_array)


def pad(array: Any, size: int) -> Any:
    """Repeat the last entry until the first axis has the given size."""
    length = array.shape[0]
    return array if length == size else array[np.minimum(np.arange(size), length - 1)]


def _num_bytes(tree: PyTree) -> int:
    return sum(leaf.nbytes for leaf in jax.tree.leaves(tree))


def _on_device(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: jnp.asarray(leaf) if eqx.is_array(leaf) else leaf, tree)


@compiled
def _prepared(functions: AbstractFunctions, draws: PyTree) -> PyTree:
    return functions.prepare(draws)


@compiled
def _reduced(
    reduce: Callable[..., PyTree],
    functions: AbstractFunctions,
    draws: PyTree,
    x: Array,
    log_weights: Array,
    *args: Array,
) -> PyTree:
    return reduce(eqx.filter_vmap(lambda draw: functions.distribution(draw, x))(draws), log_weights, *args)
