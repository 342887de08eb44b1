"""How much of a prediction fits in memory at a time, found by tracing and computing nothing."""

import functools
import math
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.extend.core import jaxprs_in_params
from jaxtyping import PyTree

from marginax.predict.functions import AbstractFunctions

PROBE_ROWS = 8191  # a prime: an array whose size it divides is one that grows with the number of rows
MAX_ROWS = 2048
CACHE_BYTES = 8 * 2**20  # what stays in the cache, and in memory that the process has already: several times faster
_LIVE_ARRAYS = 3  # largest intermediates that may be alive at the same time


class Workload(eqx.Module):
    """What one draw costs, in numbers (not bytes), and the distribution it gives.

    Attributes:
        numbers_per_draw: in a draw.
        numbers_per_row: the largest intermediate array, per row of inputs.
        outcome: the predictive distribution, with shapes in place of arrays.
        row_axes: for each array of it, whether its first axis runs over rows.
        num_classes: of it; 0 if it is not one of classes.
    """

    numbers_per_draw: int
    numbers_per_row: int
    outcome: PyTree
    row_axes: tuple[bool, ...]
    num_classes: int


def measure_workload(functions: AbstractFunctions, x: jax.ShapeDtypeStruct) -> Workload:
    """Trace one draw at `PROBE_ROWS` rows, once for all functions and inputs that differ in numbers only.

    Args:
        functions: of one kind.
        x: shape and dtype of some (standardised) inputs; the number of rows does not matter.
    """
    shape = jax.ShapeDtypeStruct((PROBE_ROWS, *x.shape[1:]), x.dtype)
    leaves, treedef = jax.tree.flatten((functions, shape))
    kinds = tuple(_struct(leaf, leaf.shape) if _has_shape(leaf) else leaf for leaf in leaves)
    try:
        hash((treedef, kinds))
    except TypeError:
        return _measured.__wrapped__(treedef, kinds)
    return _measured(treedef, kinds, tuple(map(type, kinds)), jax.dtypes.canonicalize_dtype(np.float64))


@functools.lru_cache(maxsize=64)
def _measured(treedef: Any, kinds: tuple[Any, ...], *key: Any) -> Workload:
    functions, rows = jax.tree.unflatten(treedef, kinds)
    arrays, rest = eqx.partition(without_draws(functions), _has_shape)
    static: list[PyTree] = []

    def outputs(arrays: PyTree, draw: PyTree, x: Any) -> tuple[PyTree, Any]:
        result = eqx.combine(arrays, rest).distribution(draw, x)
        found, other = eqx.partition(result, eqx.is_array)
        static.append(other)
        return found, getattr(result, "class_logits", None)

    one = jax.tree.map(lambda leaf: _struct(leaf, (1, *leaf.shape[1:])), functions.draws)
    one = jax.eval_shape(lambda arrays, draws: eqx.combine(arrays, rest).prepare(draws), arrays, one)
    one = jax.tree.map(lambda leaf: _struct(leaf, leaf.shape[1:]), one)
    jaxpr, (shapes, logits) = jax.make_jaxpr(outputs, return_shape=True)(arrays, one, rows)
    return Workload(
        sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(one)),
        max(math.prod(rows.shape[1:]), _numbers_per_row(jaxpr.jaxpr)),
        eqx.combine(shapes, static[-1]),
        tuple(leaf.shape[:1] == (PROBE_ROWS,) for leaf in jax.tree.leaves(shapes)),
        0 if logits is None else logits.shape[-1],
    )


def _has_shape(leaf: Any) -> bool:
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)


def without_draws(functions: AbstractFunctions) -> Any:
    """What all draws share: small enough to be handed to a compiled program."""
    return eqx.tree_at(lambda f: (f.draws, f.log_weights), functions, (None, None), is_leaf=lambda leaf: leaf is None)


def _struct(leaf: Any, shape: tuple[int, ...]) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jax.dtypes.canonicalize_dtype(leaf.dtype, allow_extended_dtype=True))


def _numbers_per_row(jaxpr: Any) -> int:
    """Size, per row, of the largest array that a program for `PROBE_ROWS` rows computes."""
    return max([1, *(size // PROBE_ROWS for size in _sizes(jaxpr) if size % PROBE_ROWS == 0)])


def _sizes(jaxpr: Any) -> Iterator[int]:
    """Sizes of all arrays that a program computes, those of the programs within it included."""
    for equation in jaxpr.eqns:
        for variable in equation.outvars:
            yield math.prod(getattr(variable.aval, "shape", ()))
        for inner in jaxprs_in_params(equation.params):
            yield from _sizes(inner)


def chunk_size(total: int, limit: int) -> int:
    """Equal chunks of at most `limit`, rounded up a little so that nearby totals share a compilation.

    >>> chunk_size(5, 2048), chunk_size(1000, 2048), chunk_size(5000, 2048)
    (5, 1024, 1792)
    """
    limit = max(1, limit)
    even = -(-total // -(-total // limit))
    step = 2 ** max(0, even.bit_length() - 4)
    return min(-(-even // step) * step, limit)


def chunk_sizes(num_draws: int, num_rows: int, workload: Workload, max_bytes: int) -> tuple[int, int]:
    """Draws and rows per chunk (at least one of each) that keep intermediates below `max_bytes`, and in the cache."""
    numbers = min(max_bytes, CACHE_BYTES) // 4
    rows = chunk_size(num_rows, min(MAX_ROWS, numbers // (_LIVE_ARRAYS * workload.numbers_per_row)))
    per_draw = _LIVE_ARRAYS * workload.numbers_per_row * rows + 2 * workload.numbers_per_draw
    limit = max(1, numbers // per_draw)
    return -(-num_draws // -(-num_draws // limit)), rows
