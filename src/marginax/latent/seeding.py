"""A first guess at clusters: k-means from starts that are far apart (k-means++; Arthur & Vassilvitskii, 2007)."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

_MOST_ROWS = 4096
_NUM_SWEEPS = 10


def cluster(x: Float[Array, "n d"], num: int, *, key: PRNGKeyArray) -> Float[Array, "k n"]:
    """One-hot clusters of points; centres are found on at most 4,096 of them.

    >>> clusters = cluster(jnp.array([[0.0], [0.1], [9.0]]), 2, key=jax.random.key(0))
    >>> bool((clusters[:, 0] == clusters[:, 1]).all()), bool((clusters[:, 0] == clusters[:, 2]).all())
    (True, False)
    """
    for_rows, for_starts = jax.random.split(key)
    rows = x[jax.random.permutation(for_rows, len(x))[:_MOST_ROWS]] if len(x) > _MOST_ROWS else x
    centres = _far_apart(rows, num, for_starts)

    def sweep(centres: Array, _: None) -> tuple[Array, None]:
        members = _nearest(rows, centres)
        counts = jnp.sum(members, 1)[:, None]
        return jnp.where(counts > 0, members @ rows / jnp.maximum(counts, 1.0), centres), None

    centres, _ = jax.lax.scan(sweep, centres, None, length=_NUM_SWEEPS)
    return _nearest(x, centres)


def _far_apart(x: Float[Array, "n d"], num: int, key: PRNGKeyArray) -> Float[Array, "k d"]:
    first = x[jax.random.randint(key, (), 0, len(x))]

    def add(distance: Array, key: PRNGKeyArray) -> tuple[Array, Array]:
        chosen = x[jax.random.categorical(key, jnp.log(distance))]
        return jnp.minimum(distance, jnp.sum((x - chosen) ** 2, 1)), chosen

    distance = jnp.sum((x - first) ** 2, 1) + jnp.finfo(x.dtype).tiny
    _, others = jax.lax.scan(add, distance, jax.random.split(key, num)[1:])
    return jnp.concatenate([first[None], others])


def _nearest(x: Float[Array, "n d"], centres: Float[Array, "k d"]) -> Float[Array, "k n"]:
    square = jnp.sum(centres**2, 1)[:, None] - 2.0 * centres @ x.T
    return jax.nn.one_hot(jnp.argmin(square, 0), len(centres), axis=0, dtype=x.dtype)
