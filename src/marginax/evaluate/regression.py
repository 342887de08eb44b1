"""Scores of predicted numbers. Where targets have several outputs, the outputs of a row are averaged."""

from typing import Any

import numpy as np
from jaxtyping import Float

from marginax.evaluate.inputs import Numbers, as_level, as_numbers, as_targets
from marginax.evaluate.score import Score, check_rows, mean_score, row_means


def rmse(prediction: Any, y: Any) -> Score:
    r"""Root mean squared error of the predicted means.

    The standard error is by the delta method: that of the mean squared error, divided by 2 RMSE.

    Args:
        prediction: of numbers, samples (s, n), or a pair (mean, std).
        y: targets.

    >>> rmse((np.zeros(4), np.ones(4)), [1.0, -1.0, 2.0, 0.0])
    1.2 ± 0.4 (n=4)
    """
    numbers = as_numbers(prediction, name="rmse")
    squares = mean_score((numbers.mean - as_targets(numbers, y)) ** 2, name="rmse")
    value = np.sqrt(squares.value)
    return Score(float(value), float(squares.standard_error / (2 * value)) if value else 0.0, squares.num)


def mae(prediction: Any, y: Any) -> Score:
    """Mean absolute error of the predicted medians, which are the point predictions that it rewards.

    Args:
        prediction: of numbers, samples (s, n), or a pair (mean, std).
        y: targets.

    >>> mae((np.zeros(4), np.ones(4)), [1.0, -1.0, 2.0, 0.0])
    1.0 ± 0.4 (n=4)
    """
    numbers = as_numbers(prediction, name="mae")
    y = as_targets(numbers, y)
    return mean_score(np.abs(numbers.quantile(0.5) - y), name="mae")


def pinball(prediction: Any, y: Any, q: float) -> Score:
    """Mean pinball loss of the q-quantile: q times what the target is above it, 1 - q times what it is below.

    Args:
        prediction: of numbers, samples (s, n), or a pair (mean, std).
        y: targets.
        q: strictly between 0 and 1.

    >>> float(pinball((np.zeros(2), np.ones(2)), [1.0, -1.0], 0.5))  # half the absolute error
    0.5
    """
    numbers, q = as_numbers(prediction, name="pinball"), as_level(q, name="q")
    above = as_targets(numbers, y) - numbers.quantile(q)
    return mean_score(np.maximum(q * above, (q - 1) * above), name="pinball")


def coverage(prediction: Any, y: Any, level: float = 0.9) -> Score:
    """Fraction of targets in the central interval of the given probability, ends included.

    Args:
        prediction: of numbers, samples (s, n), or a pair (mean, std).
        y: targets.
        level: probability of the interval.

    >>> float(coverage((np.zeros(4), np.ones(4)), [0.0, 1.0, -1.6, 1.7], 0.9))
    0.75
    """
    numbers = as_numbers(prediction, name="coverage")
    y = as_targets(numbers, y)
    return coverage_of(y, *interval_of(numbers, level))


def interval_score(prediction: Any, y: Any, level: float = 0.9) -> Score:
    r"""Interval score of the central interval $[l, u]$ (Gneiting & Raftery, 2007): width and misses in one number.

    $(u - l) + \frac{2}{\alpha} (l - y)_+ + \frac{2}{\alpha} (y - u)_+$ with $\alpha$ = 1 - level, averaged over rows.

    Args:
        prediction: of numbers, samples (s, n), or a pair (mean, std).
        y: targets.
        level: probability of the interval.

    >>> round(float(interval_score((np.zeros(2), np.ones(2)), [0.0, 0.5], 0.9)), 4)  # no misses: the width
    3.2897
    """
    numbers = as_numbers(prediction, name="interval_score")
    y = as_targets(numbers, y)
    return interval_score_of(y, *interval_of(numbers, level), level)


def sharpness(prediction: Any, *, level: float | None = None) -> Score:
    """How concentrated the prediction is, whatever happened: mean standard deviation, or mean width of intervals.

    Args:
        prediction: of numbers, samples (s, n), or a pair (mean, std).
        level: probability of central intervals, whose width is then averaged instead.

    >>> float(sharpness((np.zeros(2), np.array([1.0, 3.0]))))
    2.0
    """
    numbers = as_numbers(prediction, name="sharpness")
    if level is None:
        return mean_score(numbers.std, name="sharpness")
    lower, upper = interval_of(numbers, level)
    return mean_score(upper - lower, name="sharpness")


def interval_of(numbers: Numbers, level: float) -> tuple[Float[np.ndarray, "n *d"], Float[np.ndarray, "n *d"]]:
    """Ends of the central intervals."""
    level = as_level(level, name="level")
    lower, upper = numbers.quantile([0.5 - level / 2, 0.5 + level / 2])
    check_rows(row_means(lower + upper), name="interval")
    return lower, upper


def coverage_of(y: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> Score:
    """Fraction of targets within intervals."""
    return mean_score((lower <= y) & (y <= upper), name="coverage")


def interval_score_of(y: np.ndarray, lower: np.ndarray, upper: np.ndarray, level: float) -> Score:
    """Width, and 2 / (1 - level) times the distance of targets outside."""
    missed = np.maximum(lower - y, 0) + np.maximum(y - upper, 0)
    return mean_score(upper - lower + 2 / (1 - level) * missed, name="interval_score")
