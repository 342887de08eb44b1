"""Sums over many rows, a block at a time: memory stays bounded, and a block and its gradient stay in the cache.

The gradient of a block is computed together with its value, so nothing of a block has to be kept or computed again.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

BLOCK = 4096
"""Rows of a block; fewer than two blocks are done at once."""


def fits_a_block(num_rows: int) -> bool:
    """Whether rows are done at once."""
    return num_rows < 2 * BLOCK


def sum_over_rows(function: Callable[[Any, Any], Float[Array, " b"]], params: PyTree, rows: PyTree) -> Float[Array, ""]:
    """Sum of `function(params, rows)`, a number for each row.

    Derivatives are taken with respect to `params` only: rows are data.

    Args:
        function: (params, rows) -> one number per row.
        params: pytree of arrays.
        rows: pytree of arrays with a leading axis of rows.

    >>> x = jnp.arange(10_000.0)
    >>> total, slope = jax.value_and_grad(lambda w: sum_over_rows(lambda w, x: w * x, w, x))(2.0)
    >>> float(total), float(slope)
    (99990000.0, 49995000.0)
    """
    num_rows = jax.tree.leaves(rows)[0].shape[0]
    if fits_a_block(num_rows):
        return jnp.sum(function(params, rows))
    num_blocks = -(-num_rows // BLOCK)
    size = -(-num_rows // num_blocks)
    blocks = jax.tree.map(lambda leaf: _cut(leaf, num_blocks, size), rows)
    counted = (jnp.arange(num_blocks * size) < num_rows).reshape(num_blocks, size)

    def block_sum(params: PyTree, block: PyTree, counted: Array) -> Float[Array, ""]:
        return jnp.sum(jnp.where(counted, function(params, block), 0.0))

    return _sum_blocks(block_sum, params, (blocks, counted))


def sum_of_blocks(function: Callable[[Any, Float[Array, " b"]], PyTree], rows: PyTree) -> PyTree:
    """Sum of `function(rows, counted)`, a pytree of sums over rows, each times its number in `counted` (0 or 1).

    >>> x = jnp.arange(10_000.0)
    >>> float(sum_of_blocks(lambda x, counted: jnp.sum(x * counted), x))
    49995000.0
    """
    num_rows = jax.tree.leaves(rows)[0].shape[0]
    real = jax.dtypes.canonicalize_dtype(float)
    if fits_a_block(num_rows):
        return function(rows, jnp.ones(num_rows, real))
    num_blocks = -(-num_rows // BLOCK)
    size = -(-num_rows // num_blocks)
    blocks = jax.tree.map(lambda leaf: _cut(leaf, num_blocks, size), rows)
    counted = (jnp.arange(num_blocks * size) < num_rows).astype(real).reshape(num_blocks, size)
    like = jax.eval_shape(function, *jax.tree.map(lambda leaf: leaf[0], (blocks, counted)))

    def add(so_far: PyTree, block: tuple) -> tuple[PyTree, None]:
        return jax.tree.map(jnp.add, so_far, function(*block)), None

    start = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like)
    return jax.lax.scan(add, start, (blocks, counted))[0]


def _cut(leaf: Array, num_blocks: int, size: int) -> Array:
    """Blocks of equal size; the last row is repeated to fill the last block."""
    missing = num_blocks * size - leaf.shape[0]
    if missing:
        leaf = jnp.concatenate([leaf, jnp.broadcast_to(leaf[-1:], (missing, *leaf.shape[1:]))])
    return leaf.reshape(num_blocks, size, *leaf.shape[1:])


def _sum_blocks(block_sum: Callable[..., Float[Array, ""]], params: PyTree, blocks: PyTree) -> Float[Array, ""]:
    @jax.custom_vjp
    def total(params: PyTree, blocks: PyTree) -> Float[Array, ""]:
        def add(so_far: Array, block: tuple) -> tuple[Array, None]:
            return so_far + block_sum(params, *block), None

        return jax.lax.scan(add, jnp.zeros(()), blocks)[0]

    def forward(params: PyTree, blocks: PyTree) -> tuple[Float[Array, ""], PyTree]:
        def add(so_far: tuple, block: tuple) -> tuple[tuple, None]:
            return jax.tree.map(jnp.add, so_far, jax.value_and_grad(block_sum)(params, *block)), None

        start = (jnp.zeros(()), jax.tree.map(jnp.zeros_like, params))
        return jax.lax.scan(add, start, blocks)[0]

    def backward(gradient: PyTree, cotangent: Array) -> tuple[PyTree, None]:
        return jax.tree.map(lambda leaf: cotangent * leaf, gradient), None

    total.defvjp(forward, backward)
    return total(params, blocks)
