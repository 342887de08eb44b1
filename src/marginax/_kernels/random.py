r"""Random numbers that cost little on CPUs.

JAX's own generator runs its rounds as separate passes over memory there, and its inverse error function is as dear
again: noise for every weight costs more than the gradient. Here the bits are those of Threefry-2x32 with 13 rounds, the
number at which it passes the whole of BigCrush (Salmon, Moraes, Dror & Shaw, 2011), and one block gives one normal
number by the transform of Box & Muller (1958),

$z = \sqrt{-2 \log u} \, \sin(\tfrac{\pi}{2} v), \quad u \in (0, 1), \; v \in [-1, 1),$

all in plain elementwise arithmetic, so that XLA makes bits, transform and use of the noise one loop over registers.
Number i of leaf j is a function of (key, i, j) alone.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray, PyTree, UInt32

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_ROUNDS = 13
# of sin(pi v / 2) / v in powers of v^2, to 7e-9 on [-1, 1]
_SINE = (1.5707963201, -0.6459637604, 0.0796899226, -0.00467415067, 0.000151675118)


def normal(
    key: PRNGKeyArray, shape: tuple[int, ...] = (), dtype: Any = float, *, stream: int = 0
) -> Float[Array, "..."]:
    """Standard normal numbers.

    Args:
        key: JAX key.
        shape: of the result.
        dtype: floating type of the result; the numbers have the precision of float32 in any case.
        stream: another stream of the same key, as for each leaf of a tree.

    >>> normal(jax.random.key(0), (2, 3)).shape
    (2, 3)
    """
    return _normal(jax.random.key_data(key), shape, dtype, jnp.asarray(stream, jnp.uint32))


@partial(jax.jit, static_argnums=(1, 2), inline=True)
def _normal(words: UInt32[Array, " 2"], shape: tuple[int, ...], dtype: Any, stream: Array) -> Float[Array, "..."]:
    first, second = _rounds(words, _indices(shape), stream)
    half = jax.lax.convert_element_type(jax.lax.bitcast_convert_type(first >> 1, jnp.int32), jnp.float32)
    u = (half + 0.5) * np.float32(2.0**-31)
    v = jax.lax.convert_element_type(jax.lax.bitcast_convert_type(second, jnp.int32), jnp.float32) * np.float32(
        2.0**-31
    )
    square = v * v
    sine = jnp.full_like(square, _SINE[-1])
    for coefficient in reversed(_SINE[:-1]):
        sine = sine * square + np.float32(coefficient)
    return (jnp.sqrt(-2.0 * jnp.log(u)) * (v * sine)).astype(dtype)


def normal_like(key: PRNGKeyArray, tree: PyTree) -> PyTree:
    """Standard normal numbers in the shapes and types of a tree's leaves.

    >>> jax.tree.map(jnp.shape, normal_like(jax.random.key(0), {"a": jnp.ones(3), "b": jnp.ones((2, 2))}))
    {'a': (3,), 'b': (2, 2)}
    """
    leaves, treedef = jax.tree.flatten(tree)
    drawn = [normal(key, leaf.shape, leaf.dtype, stream=i) for i, leaf in enumerate(leaves)]
    return jax.tree.unflatten(treedef, drawn)


def uniform(key: PRNGKeyArray, index: Array | int, *, stream: int = 0) -> Float[Array, "..."]:
    """Uniform numbers in (0, 1), without its ends: those with the given indices in a stream of the key."""
    return _inside_unit_interval(_threefry(key, jnp.asarray(index, jnp.uint32), stream)[0])


def _inside_unit_interval(word: UInt32[Array, "..."]) -> Float[Array, "..."]:
    half = jax.lax.convert_element_type(jax.lax.bitcast_convert_type(word >> 8, jnp.int32), jnp.float32)
    return jnp.minimum((half + 0.5) * np.float32(2.0**-24), np.float32(1 - 2.0**-24))  # the last would round to 1


def derive(key: PRNGKeyArray, index: Array | int, *, stream: Array | int = 0) -> PRNGKeyArray:
    """A new key, a function of key, index and stream; quicker to compile than `jax.random.fold_in`.

    >>> key = jax.random.key(0)
    >>> bool(derive(key, 3) == derive(key, 3)), bool(derive(key, 3) == derive(key, 4))
    (True, False)
    """
    words = _threefry(key, jnp.asarray(index, jnp.uint32), stream)
    return jax.random.wrap_key_data(jnp.stack(words, axis=-1), impl="threefry2x32")


def row_keys(key: PRNGKeyArray, index: Int[Array, " n"]) -> Key[Array, " n"]:
    """A key of each row, which does not depend on the rows beside it."""
    return jax.vmap(lambda row: derive(key, row))(index)


def bits(
    key: PRNGKeyArray, shape: tuple[int, ...], *, stream: int = 0
) -> tuple[UInt32[Array, "..."], UInt32[Array, "..."]]:
    """Two independent words for each element."""
    return _threefry(key, _indices(shape), stream)


def _indices(shape: tuple[int, ...]) -> UInt32[Array, "..."]:
    index = jnp.zeros(shape, jnp.uint32)
    stride = 1
    for axis in reversed(range(len(shape))):
        index = index + jax.lax.broadcasted_iota(jnp.uint32, shape, axis) * np.uint32(stride % 2**32)
        stride *= shape[axis]
    return index


def _threefry(key: PRNGKeyArray, index: Array, stream: Array | int) -> tuple[Array, Array]:
    return _rounds(jax.random.key_data(key), index, jnp.asarray(stream, jnp.uint32))


@partial(jax.jit, inline=True)  # traced once per shape, then copied
def _rounds(words: UInt32[Array, " 2"], index: UInt32[Array, "..."], stream: UInt32[Array, ""]) -> tuple[Array, Array]:
    keys = (words[0], words[-1], words[0] ^ words[-1] ^ np.uint32(_PARITY))
    x, y = index + keys[0], stream + keys[1]
    y = jnp.broadcast_to(y, x.shape)
    for i in range(_ROUNDS):
        rotation = _ROTATIONS[i // 4 % 2][i % 4]
        x = x + y
        y = ((y << rotation) | (y >> (32 - rotation))) ^ x
        if i % 4 == 3:
            group = i // 4 + 1
            x = x + keys[group % 3]
            y = y + keys[(group + 1) % 3] + np.uint32(group)
    return x, y
