r"""Random order without a table: a keyed permutation evaluated one index at a time.

An epoch is a permutation of $0..N-1$. Sorting N random numbers at every step would cost more than the step, and
a stored table per chain would cost memory, so the permutation is a Feistel network on the smallest power of two
$\ge N$, walked until it lands below N (Black & Rogaway, 2002). Row number = f(key, epoch, position): the cost is
that of the batch, not of the data, and any step can be reached at once, which is what makes a run resumable.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, UInt32

_NUM_ROUNDS = 10
Size = int | UInt32[Array, ""]  # an array where one program serves data of any size


def _mix(value: UInt32[Array, "*n"]) -> UInt32[Array, "*n"]:
    """A 32-bit finaliser: every input bit reaches every output bit."""
    value = (value ^ (value >> 16)) * jnp.uint32(0x7FEB352D)
    value = (value ^ (value >> 15)) * jnp.uint32(0x846CA68B)
    return value ^ (value >> 16)


def _round_keys(key: PRNGKeyArray) -> UInt32[Array, " rounds"]:
    return jax.random.bits(key, (_NUM_ROUNDS,), jnp.uint32)


def _permute(position: UInt32[Array, "*n"], num: Size, round_keys: UInt32[Array, "rounds ..."]) -> Int[Array, "*n"]:
    num_bits = max(2, (num - 1).bit_length()) if isinstance(num, int) else jnp.maximum(2, 32 - jax.lax.clz(num - 1))
    low_bits = num_bits // 2
    low_mask, high_mask = ((jnp.uint32(1) << bits) - 1 for bits in (low_bits, num_bits - low_bits))

    def encrypt(value):
        low, high = value & low_mask, value >> low_bits
        for r in range(0, _NUM_ROUNDS, 2):
            low = low ^ (_mix(high + round_keys[r]) & low_mask)
            high = high ^ (_mix(low + round_keys[r + 1]) & high_mask)
        return (high << low_bits) | low

    def walk(carry):
        value, outside = carry
        value = jnp.where(outside, encrypt(value), value)
        return value, value >= num

    everywhere = jnp.ones(position.shape, bool)
    inside, _ = jax.lax.while_loop(lambda carry: jnp.any(carry[1]), walk, (position, everywhere))
    return inside.astype(jnp.int32)


def permute(position: Int[Array, "*n"] | UInt32[Array, "*n"], num: int, *, key: PRNGKeyArray) -> Int[Array, "*n"]:
    """Where a random permutation of range(num) sends each position.

    >>> sorted(permute(jnp.arange(7), 7, key=jax.random.key(0)).tolist())
    [0, 1, 2, 3, 4, 5, 6]
    """
    round_keys = _round_keys(key).reshape(-1, *[1] * position.ndim)
    return _permute(position.astype(jnp.uint32), num, round_keys)


def shuffled_rows(
    epoch: Int[Array, ""] | UInt32[Array, ""] | int,
    offset: Int[Array, ""] | UInt32[Array, ""] | int,
    size: int,
    num: Size,
    *,
    key: PRNGKeyArray,
) -> Int[Array, " {size}"]:
    """The `size` rows that follow position `offset` of `epoch`, running on into the next epoch where it ends.

    Every batch is full and every row appears once per epoch, so N/B times a batch sum is unbiased whatever the
    remainder of N by B.
    """
    epoch = jnp.asarray(epoch, jnp.uint32)
    position = jnp.asarray(offset, jnp.uint32) + jnp.arange(size, dtype=jnp.uint32)
    here = _round_keys(jax.random.fold_in(key, epoch))[:, None]
    if not isinstance(num, int) or num % size:
        following = _round_keys(jax.random.fold_in(key, epoch + 1))[:, None]
        here = jnp.where(position < num, here, following)
        position = jnp.where(position < num, position, position - num)
    return _permute(position, num, here)


def rows_of_step(step: Int[Array, ""] | int, size: int, num: Size, *, key: PRNGKeyArray) -> Int[Array, " {size}"]:
    """The rows of a step's batch, when every step takes the next `size` of `num` rows."""
    step = jnp.asarray(step, jnp.uint32)
    # position = step * size, split so that no product overflows 32 bits
    whole, rest = step // num, (step % num) * jnp.uint32(size)
    return shuffled_rows(whole * size + rest // num, rest % num, size, num, key=key)


def rows_on_host(step: int, size: int, num: int, *, key: PRNGKeyArray) -> Int[np.ndarray, " {size}"]:
    """As `rows_of_step`, for sources that are read by the host; steps times sizes may exceed 32 bits."""
    epoch, offset = divmod(step * size, num)
    return np.asarray(_compiled_rows(jnp.uint32(epoch), jnp.uint32(offset), size, num, key))


@eqx.filter_jit
def _compiled_rows(epoch, offset, size, num, key):
    return shuffled_rows(epoch, offset, size, num, key=key)
