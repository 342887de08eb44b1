r"""Continuous ranked probability score, $\int (F(z) - 1\{z \ge y\})^2 dz$ (Matheson & Winkler, 1976).

In the units of the target, and the absolute error if the prediction is a point.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from marginax.evaluate.quadrature import centre_and_scale, count_range, integrate, sum_over_counts, to_line
from marginax.evaluate.score import NUMBERS, Score, mean_score, score
from marginax.model.outcome import Outcome
from marginax.predict import AbstractNumberPrediction
from marginax.predict.reading import read_numbers


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


@score(
    "crps",
    outcomes=NUMBERS,
    better="less",
    title="CRPS",
    shown="comparison",
    place=30,
    words="error of the whole distribution, in units of the target; lower is better",
)
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
    numbers = read_numbers(prediction, name="crps")
    y = numbers.check(y)
    if numbers.samples is not None:
        values = _of_samples(numbers.samples, y, estimator.num_pairs(len(numbers.samples)))
    elif (closed_form := numbers.closed_form_crps(y)) is not None:
        values = closed_form
    elif numbers.outcome is Outcome.COUNT:
        values = _of_counts(numbers, y)
    else:
        values = _by_integration(numbers, y)
    return mean_score(values, name="crps")


def _of_samples(values: np.ndarray, y: np.ndarray, num_pairs: int) -> Float[np.ndarray, "n *d"]:
    """Sorted, the sum over pairs is a weighted sum: the i-th smallest is above i others and below the rest."""
    num = len(values)
    ordered = np.sort(values, axis=0)
    weights = 2 * np.arange(num) - (num - 1)
    return np.mean(np.abs(values - y), axis=0) - np.tensordot(weights, ordered, axes=1) / num_pairs


def _by_integration(prediction: AbstractNumberPrediction, y: np.ndarray) -> Float[np.ndarray, "n *d"]:
    _, scale = centre_and_scale(prediction)

    def square(rows: np.ndarray, u: np.ndarray) -> np.ndarray:
        t, slope = (part.reshape(*u.shape, *[1] * (y.ndim - 1)) for part in to_line(u))
        below = prediction.cdf_at(rows, y[rows, None] + scale[rows, None] * t)
        return (slope * (below - (t > 0)) ** 2).reshape(*u.shape, -1)

    return scale * integrate(square, np.array([-1.0, -0.5, 0.0, 0.5, 1.0]), len(y)).reshape(y.shape)


def _of_counts(prediction: AbstractNumberPrediction, y: np.ndarray) -> Float[np.ndarray, "n *d"]:
    if not np.all(y == np.floor(y)):
        raise ValueError(f"y must hold counts, as the prediction does, got {y[y != np.floor(y)][0]}")
    low, high = count_range(prediction)

    def square(rows: np.ndarray, counts: np.ndarray) -> np.ndarray:
        return (prediction.cdf_at(rows, counts) - (counts >= y[rows, None])) ** 2

    return sum_over_counts(square, np.minimum(low, y), np.maximum(high, y))
