r"""Logarithms of gamma numbers without a loop.

The method of Marsaglia & Tsang (2000) accepts a proposal with probability 0.95 or more. JAX repeats it in a loop for
every number, which takes seconds to compile; here twelve proposals are made at once and the first that is accepted is
taken. All twelve fail once in $10^{15}$, and then the last one is.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

_NUM_PROPOSALS = 12


def log_gamma(key: PRNGKeyArray, concentration: Float[Array, "*s"]) -> Float[Array, "*s"]:
    r"""Logarithms of numbers from $\text{Gamma}(\alpha, 1)$, one for each concentration.

    >>> draws = jnp.exp(log_gamma(jax.random.key(0), jnp.full(100_000, 2.5)))
    >>> round(float(draws.mean()), 1), round(float(draws.var()), 1)
    (2.5, 2.5)
    """
    for_normal, for_level, for_boost = jax.random.split(key, 3)
    shape, dtype = (_NUM_PROPOSALS, *concentration.shape), concentration.dtype
    small = concentration < 1.0
    d = jnp.where(small, concentration + 1.0, concentration) - 1.0 / 3.0
    x = jax.random.normal(for_normal, shape, dtype)
    base = 1.0 + x / jnp.sqrt(9.0 * d)
    log_v = 3.0 * jnp.log(jnp.maximum(base, jnp.finfo(dtype).tiny))
    level = jnp.log1p(-jax.random.uniform(for_level, shape, dtype))
    accepted = (base > 0) & (level < 0.5 * x**2 + d * (1.0 - jnp.exp(log_v) + log_v))
    first = jnp.argmax(accepted.at[-1].set(True), axis=0)
    chosen = jnp.take_along_axis(log_v, first[None], axis=0)[0]
    boost = jnp.log1p(-jax.random.uniform(for_boost, concentration.shape, dtype)) / concentration
    return jnp.log(d) + chosen + jnp.where(small, boost, 0.0)
