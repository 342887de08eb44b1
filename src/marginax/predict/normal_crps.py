r"""The continuous ranked probability score of normal distributions and of mixtures of them, in closed form.

With $A(\mu, \sigma^2) = E|N(\mu, \sigma^2)|$ it is, for a mixture (Grimit et al., 2006),

$\sum_s w_s A(y - \mu_s, \sigma_s^2) - \frac12 \sum_{s,t} w_s w_t A(\mu_s - \mu_t, \sigma_s^2 + \sigma_t^2)$.
"""

import functools
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from marginax.predict.mixture import CACHE_BYTES, Mixture

_ROOT_TWO_OVER_PI = 0.7978845608028654
_ROOT_HALF = 0.7071067811865476
_REACH = 7.2  # standard deviations, beyond which a normal distribution function is 0 or 1 to 1e-12
_STEP = 0.42  # of a grid, in units of the narrowest standard deviation
_BLOCK = 16  # points of a grid between two exponentials
_GRIDS = (512, 4096)  # sizes that programs are compiled for
_PAIRS_PER_POINT = (
    8  # a point of a grid takes about a sixteenth of the time of a pair, and there are S / 2 pairs a draw
)


def normal_crps(
    mean: Float[np.ndarray, "n *d"], std: Float[np.ndarray, "n *d"], y: Float[np.ndarray, "n *d"]
) -> Float[np.ndarray, "n *d"]:
    """Of one normal distribution per target.

    >>> normal_crps(np.zeros(1), np.ones(1), np.zeros(1)).round(6).tolist()  # (sqrt(2) - 1) / sqrt(pi)
    [0.233695]
    """
    from scipy import special

    z = (y - mean) / std
    return std * (z * special.erf(z * _ROOT_HALF) + _ROOT_TWO_OVER_PI * np.exp(-0.5 * z * z) - 1 / np.sqrt(np.pi))


def normal_mixture_crps(mixture: Mixture, y: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    """Of a mixture of normals: over all pairs of draws, or, where draws are many, on a grid, which is as exact.

    Rows are taken in the order of the points that they need, so that one with a very narrow draw does not make the
    others wait.
    """
    error, num_points = mixture.by_rows(_error_and_points, y)
    spread = np.empty_like(error)
    order = np.argsort(num_points, kind="stable")
    limits = [size - _BLOCK for size in _GRIDS if size <= _PAIRS_PER_POINT * mixture.num_draws]
    parts = np.split(order, np.searchsorted(num_points[order], limits))
    for rows, size in zip(parts, [*_GRIDS[: len(limits)], None], strict=True):
        if rows.size:
            find = _spread_of_pairs if size is None else functools.partial(_spread_on_grid, size)
            spread[rows] = mixture.rows(rows).by_rows(find, num_points[rows], max_bytes=CACHE_BYTES)
    return error - spread


def _parts(components: PyTree) -> tuple[Array, Array]:
    loc, scale = (eqx.filter_vmap(lambda c, name=name: getattr(c, name))(components) for name in ("loc", "scale"))
    shape = jnp.broadcast_shapes(loc.shape, scale.shape)
    return jnp.broadcast_to(loc, shape), jnp.broadcast_to(scale, shape)


@eqx.filter_jit
def _error_and_points(components: PyTree, log_weights: Array, y: Float[Array, "n d"]) -> tuple[Array, Array]:
    """E|X - y|, and how many points of a grid a row needs for E|X - X'|."""
    loc, scale = _parts(components)
    low, high = _ends(loc, scale)
    num_points = jnp.ceil(jnp.max((high - low) / (_STEP * jnp.min(scale, axis=0)), axis=-1))
    return jnp.einsum("s,snd->nd", jnp.exp(log_weights), _expected_size(y - loc, scale)), num_points


def _ends(loc: Array, scale: Array) -> tuple[Array, Array]:
    return jnp.min(loc - _REACH * scale, axis=0), jnp.max(loc + _REACH * scale, axis=0)


@eqx.filter_jit
def _spread_of_pairs(components: PyTree, log_weights: Array, num_points: Array) -> Array:
    """E|X - X'| / 2 over draws and the draws k places further on, up to half way round: each pair once."""
    loc, scale = _parts(components)
    weights = jnp.exp(log_weights)
    num = len(weights)
    same = jnp.einsum("s,snd->nd", weights**2, _ROOT_TWO_OVER_PI / _ROOT_HALF * scale)
    twice = jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf]), (loc, scale**2, weights))

    def add(k: Any, total: Array) -> Array:
        other_loc, other_square, other_weights = jax.tree.map(
            lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, k, num), twice
        )
        pairs = _expected_size(loc - other_loc, jnp.sqrt(scale**2 + other_square))
        count = jnp.where(2 * k == num, 1.0, 2.0)  # half way round, every pair comes from both sides
        return total + count * jnp.einsum("s,snd->nd", weights * other_weights, pairs)

    return 0.5 * jax.lax.fori_loop(1, num // 2 + 1, add, same)


@eqx.filter_jit
def _spread_on_grid(size: int, components: PyTree, log_weights: Array, num_points: Array) -> Array:
    r"""E|X - X'| / 2 from the density $f$ on a grid, for many draws.

    The density is free of frequencies beyond the grid's, so that $E|X - X'| = h^2 \sum_{jk} f_j f_k K_{j-k}$ with $K$
    the size $|x|$ without those frequencies, $K_m = h\,(2 (-1)^m / \pi^2 + 2 m\,\mathrm{Si}(\pi m) / \pi)$; the error
    is $e^{-(\pi \sigma / h)^2 / 2}$, 1e-12 with these steps. Along a grid a normal density needs two products a point.
    """
    loc, scale = _parts(components)
    low, high = _ends(loc, scale)
    num_blocks = jnp.max(num_points).astype(int) // _BLOCK + 1
    step = (high - low) / (num_blocks * _BLOCK)
    height = jnp.exp(log_weights)[:, None, None] / (scale * math.sqrt(2 * math.pi))
    pace = step / scale
    ratio = jnp.exp(-(pace**2))

    def block(b: Any, sums: Array) -> Array:
        z = jnp.clip((low + b * _BLOCK * step - loc) / scale, -50.0, 50.0)  # beyond there is nothing

        def point(k: Any, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            sums, density, factor = carry
            sums = jax.lax.dynamic_update_index_in_dim(sums, jnp.sum(density, axis=0), b * _BLOCK + k, 0)
            return sums, density * factor, factor * ratio

        first = sums, height * jnp.exp(-0.5 * z**2), jnp.exp(-pace * z - 0.5 * pace**2)
        return jax.lax.fori_loop(0, _BLOCK, point, first)[0]

    density = jax.lax.fori_loop(0, num_blocks, block, jnp.zeros((size, *low.shape)))
    power = jnp.abs(jnp.fft.rfft(density, 2 * size, axis=0)) ** 2  # of which the sum over pairs is a weighted sum
    return 0.5 * step**3 * jnp.einsum("f,fnd->nd", _spectrum(size), power)


@functools.cache
def _spectrum(size: int) -> np.ndarray:
    """Weights w such that sum_jk f_j f_k K_(j-k) = sum w |F|^2, F the transform of f followed by as many zeros."""
    from scipy.special import sici

    m = np.minimum(np.arange(2 * size), 2 * size - np.arange(2 * size))  # distances on a circle
    kernel = 2 * (-1.0) ** m / math.pi**2 + 2 * m * sici(math.pi * m)[0] / math.pi
    weights = np.fft.rfft(kernel).real / (2 * size)
    weights[1:-1] *= 2  # each but the first and the last stands for its mirror image, too
    return weights


def _expected_size(mean: Array, scale: Array) -> Array:
    """E|X| of a normal X."""
    z = mean / scale
    return mean * jax.scipy.special.erf(z * _ROOT_HALF) + _ROOT_TWO_OVER_PI * scale * jnp.exp(-0.5 * z * z)
