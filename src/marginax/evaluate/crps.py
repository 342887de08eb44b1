r"""Continuous ranked probability score, $\int (F(z) - 1\{z \ge y\})^2 dz$ (Matheson & Winkler, 1976).

In the units of the target, and the absolute error if the prediction is a point. Mixtures of normals have a closed form
(Grimit et al., 2006): with $A(\mu, \sigma^2) = E|N(\mu, \sigma^2)|$,

$\sum_s w_s A(y - \mu_s, \sigma_s^2) - \frac12 \sum_{s,t} w_s w_t A(\mu_s - \mu_t, \sigma_s^2 + \sigma_t^2)$.
"""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree
from scipy import special

from marginax.evaluate.inputs import Normals, Samples, as_numbers, as_targets
from marginax.evaluate.quadrature import cdf_at, centre_and_scale, count_range, integrate, sum_over_counts, to_line
from marginax.evaluate.score import Score, mean_score
from marginax.model.distributions import Normal
from marginax.predict import RegressionPrediction
from marginax.predict.recalibrated import RecalibratedPrediction

_ROOT_TWO_OVER_PI = 0.7978845608028654
_ROOT_HALF = 0.7071067811865476
_REACH = 8.5  # standard deviations, beyond which a normal distribution function is 0 or 1 to rounding


@dataclass(frozen=True)
class Empirical:
    r"""Samples as they are: the score of their empirical distribution, by definition.

    $\frac1s \sum_i |x_i - y| - \frac{1}{2 s^2} \sum_{i,j} |x_i - x_j|$. From s draws of a distribution it is larger
    than the score of that distribution, by the mean difference of two draws over 2 s on average.
    """

    def num_pairs(self, num_samples: int) -> int:
        """What the sum over pairs is divided by."""
        return num_samples**2


@dataclass(frozen=True)
class Fair:
    """Samples stand for the distribution that they were drawn from: s (s - 1) in place of s^2 (Ferro, 2014).

    Unbiased for the score of that distribution, so it compares with the closed form.
    """

    def num_pairs(self, num_samples: int) -> int:
        """What the sum over pairs is divided by."""
        if num_samples < 2:
            raise ValueError(f"prediction must have at least 2 samples for Fair(), got {num_samples}: use Empirical()")
        return num_samples * (num_samples - 1)


def crps(prediction: Any, y: Any, *, estimator: Empirical | Fair = Fair()) -> Score:
    """Mean continuous ranked probability score; less is better. The standard error is that of the mean.

    Mixtures of normals by their closed form over all pairs of draws (many draws: by a sum over a grid that is as exact
    and takes fewer steps), other mixtures by adaptive integration of their
    distribution function (to about 1e-8 of their width), counts by a sum; in float64. Outputs of a row are averaged.

    Args:
        prediction: of numbers, samples (s, n), or a pair (mean, std).
        y: targets.
        estimator: for samples, what they stand for.

    >>> round(float(crps((np.zeros(1), np.ones(1)), [0.0])), 6)  # (sqrt(2) - 1) / sqrt(pi)
    0.233695
    >>> round(float(crps(np.array([[0.0], [1.0], [2.0]]), [1.0], estimator=Empirical())), 6)
    0.222222
    """
    if not isinstance(estimator, Empirical | Fair):
        raise TypeError(f"estimator must be Fair() or Empirical(), got {estimator!r}")
    numbers = as_numbers(prediction, name="crps")
    y = as_targets(numbers, y)
    if isinstance(numbers, Normals):
        values = _of_normals(numbers, y)
    elif isinstance(numbers, Samples):
        values = _of_samples(numbers.values, y, estimator.num_pairs(len(numbers.values)))
    elif isinstance(numbers, RecalibratedPrediction):
        values = _by_integration(numbers, y)
    elif isinstance(numbers.mixture.components, Normal):
        values = _of_normal_mixtures(numbers, y)
    elif numbers.mixture.discrete:
        values = _of_counts(numbers, y)
    else:
        values = _by_integration(numbers, y)
    return mean_score(values, name="crps")


def _of_normals(normals: Normals, y: np.ndarray) -> Float[np.ndarray, "n *d"]:
    z = (y - normals.mean) / normals.std
    return normals.std * (
        z * special.erf(z * _ROOT_HALF) + _ROOT_TWO_OVER_PI * np.exp(-0.5 * z * z) - 1 / np.sqrt(np.pi)
    )


def _of_samples(values: np.ndarray, y: np.ndarray, num_pairs: int) -> Float[np.ndarray, "n *d"]:
    """Sorted, the sum over pairs is a weighted sum: the i-th smallest is above i others and below the rest."""
    num = len(values)
    ordered = np.sort(values, axis=0)
    weights = 2 * np.arange(num) - (num - 1)
    return np.mean(np.abs(values - y), axis=0) - np.tensordot(weights, ordered, axes=1) / num_pairs


def _of_normal_mixtures(prediction: RegressionPrediction, y: np.ndarray) -> Float[np.ndarray, "n *d"]:
    standard = ((y - prediction.y_shift) / prediction.y_factor).reshape(len(y), -1)
    values = prediction.mixture.by_rows(_normal_mixture, standard).reshape(y.shape)
    return np.abs(prediction.y_factor) * values


@eqx.filter_jit
def _normal_mixture(components: PyTree, log_weights: Array, y: Float[Array, "n d"]) -> Float[Array, "n d"]:
    loc = eqx.filter_vmap(lambda c: jnp.broadcast_to(c.loc, y.shape))(components)
    scale = eqx.filter_vmap(lambda c: jnp.broadcast_to(c.scale, y.shape))(components)
    weights = jnp.exp(log_weights)
    low, high = jnp.min(loc - _REACH * scale, axis=0), jnp.max(loc + _REACH * scale, axis=0)
    num_points = jnp.ceil(jnp.max((high - low) / (0.5 * jnp.min(scale, axis=0))))
    spread = jax.lax.cond(
        num_points < len(weights) // 2,
        lambda: _spread_on_grid(loc, scale, weights, low, high, num_points.astype(int)),
        lambda: _spread_of_pairs(loc, scale, weights),
    )
    return jnp.einsum("s,snd->nd", weights, _expected_size(y - loc, scale)) - spread


def _spread_of_pairs(loc: Array, scale: Array, weights: Array) -> Array:
    """E|X - X'| / 2 over draws and the draws k places further on, up to half way round: each pair once."""
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


def _spread_on_grid(loc: Array, scale: Array, weights: Array, low: Array, high: Array, num_points: Array) -> Array:
    """E|X - X'| / 2 as the integral of F (1 - F), for many draws.

    The trapezoidal rule is exact to rounding here: with steps of half the smallest scale, the error of normal
    distribution functions is below exp(-4 pi^2).
    """
    step = (high - low) / num_points

    def add(k: Any, total: Array) -> Array:
        z = (low + (k + 0.5) * step - loc) / scale
        sign = jnp.einsum("s,snd->nd", weights, jax.scipy.special.erf(z * _ROOT_HALF))  # 2 F - 1
        return total + 0.25 * (1 - sign) * (1 + sign)

    return step * jax.lax.fori_loop(0, num_points, add, jnp.zeros_like(low))


def _expected_size(mean: Array, scale: Array) -> Array:
    """E|X| of a normal X."""
    z = mean / scale
    return mean * jax.scipy.special.erf(z * _ROOT_HALF) + _ROOT_TWO_OVER_PI * scale * jnp.exp(-0.5 * z * z)


def _by_integration(
    prediction: RegressionPrediction | RecalibratedPrediction, y: np.ndarray
) -> Float[np.ndarray, "n *d"]:
    _, scale = centre_and_scale(prediction)

    def square(rows: np.ndarray, u: np.ndarray) -> np.ndarray:
        t, slope = (part.reshape(*u.shape, *[1] * (y.ndim - 1)) for part in to_line(u))
        below = cdf_at(prediction, rows, y[rows, None] + scale[rows, None] * t)
        return (slope * (below - (t > 0)) ** 2).reshape(*u.shape, -1)

    return scale * integrate(square, np.array([-1.0, -0.5, 0.0, 0.5, 1.0]), len(y)).reshape(y.shape)


def _of_counts(prediction: RegressionPrediction, y: np.ndarray) -> Float[np.ndarray, "n *d"]:
    if not np.all(y == np.floor(y)):
        raise ValueError(f"y must hold counts, as the prediction does, got {y[y != np.floor(y)][0]}")
    low, high = count_range(prediction)

    def square(rows: np.ndarray, counts: np.ndarray) -> np.ndarray:
        return (cdf_at(prediction, rows, counts) - (counts >= y[rows, None])) ** 2

    return sum_over_counts(square, np.minimum(low, y), np.maximum(high, y))
