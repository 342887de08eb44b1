"""Randomness enters through one door: an int seed or a JAX key."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

Key = PRNGKeyArray | Array | int


def as_key(key: Key | np.integer, *, name: str = "key") -> PRNGKeyArray:
    """Turn an int seed, a typed key or an old-style uint32 key into a typed JAX key.

    >>> bool((jax.random.key_data(as_key(3)) == jax.random.key_data(jax.random.key(3))).all())
    True
    """
    if isinstance(key, bool) or key is None:
        raise TypeError(f"{name} must be an int seed or a JAX key, got {key!r}")
    if isinstance(key, int | np.integer):
        try:
            return jax.random.key(int(key))
        except OverflowError:
            raise ValueError(f"{name} must be an int seed of at most 64 bits, got {key}") from None
    if isinstance(key, jax.Array | np.ndarray):
        if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
            if key.shape != ():
                raise ValueError(f"{name} must be a single key, got an array of keys of shape {key.shape}")
            return key
        if key.dtype == np.uint32 and key.shape == (2,):
            return jax.random.wrap_key_data(jnp.asarray(key))
        if key.shape == () and jnp.issubdtype(key.dtype, jnp.integer):
            return jax.random.key(key)
    raise TypeError(f"{name} must be an int seed or a JAX key, got {type(key).__name__}")
