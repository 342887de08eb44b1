"""Scores of predicted numbers. Where targets have several outputs, the outputs of a row are averaged."""

from typing import Any

import numpy as np
from jaxtyping import Float

from marginax.evaluate.score import NUMBERS, Score, check_rows, mean_score, row_means, score
from marginax.predict import AbstractNumberPrediction
from marginax.predict.checks import check_level
from marginax.predict.reading import read_numbers


@score(
    "rmse",
    outcomes=NUMBERS,
    better="less",
    title="RMSE",
    shown="headline",
    place=0,
    words="typical size of an error, large ones count more",
)
def rmse(prediction: Any, y: Any) -> Score:
    r"""Root mean squared error of the predicted means.

    The standard error is by the delta method: that of the mean squared error, divided by 2 RMSE.

    Args:
        prediction: of numbers, samples (s, n), or a pair (mean, std).
        y: targets.

    >>> rmse((np.zeros(4), np.ones(4)), [1.0, -1.0, 2.0, 0.0])
    1.2 ± 0.4 (n=4)
    """
    numbers = read_numbers(prediction, name="rmse")
    squares = mean_score((numbers.mean - numbers.check(y)) ** 2, name="rmse")
    value = np.sqrt(squares.value)
    return Score(float(value), float(squares.standard_error / (2 * value)) if value else 0.0, squares.num)


@score(
    "mae",
    outcomes=NUMBERS,
    better="less",
    title="MAE",
    place=10,
    words="mean size of an error, of the predicted median",
)
def mae(prediction: Any, y: Any) -> Score:
    """Mean absolute error of the predicted medians, which are the point predictions that it rewards.

    Args:
        prediction: of numbers, samples (s, n), or a pair (mean, std).
        y: targets.

    >>> mae((np.zeros(4), np.ones(4)), [1.0, -1.0, 2.0, 0.0])
    1.0 ± 0.4 (n=4)
    """
    numbers = read_numbers(prediction, name="mae")
    y = numbers.check(y)
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
    numbers, q = read_numbers(prediction, name="pinball"), check_level(q, "q")
    above = numbers.check(y) - numbers.quantile(q)
    return mean_score(np.maximum(q * above, (q - 1) * above), name="pinball")


@score(
    "coverage",
    outcomes=NUMBERS,
    better=None,
    title="{level:.0%} coverage",
    shown="headline",
    place=50,
    words="share of targets inside of their interval",
)
def coverage(prediction: Any, y: Any, level: float = 0.9) -> Score:
    """Fraction of targets in the central interval of the given probability, ends included.

    Args:
        prediction: of numbers, samples (s, n), or a pair (mean, std).
        y: targets.
        level: probability of the interval.

    >>> float(coverage((np.zeros(4), np.ones(4)), [0.0, 1.0, -1.6, 1.7], 0.9))
    0.75
    """
    numbers = read_numbers(prediction, name="coverage")
    y = numbers.check(y)
    lower, upper = _interval(numbers, level)
    return mean_score((lower <= y) & (y <= upper), name="coverage")


@score(
    "interval_score",
    outcomes=NUMBERS,
    better="less",
    place=60,
    words="width of the intervals, and a fine for misses; lower is better",
)
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
    numbers = read_numbers(prediction, name="interval_score")
    y = numbers.check(y)
    lower, upper = _interval(numbers, level)
    missed = np.maximum(lower - y, 0) + np.maximum(y - upper, 0)
    return mean_score(upper - lower + 2 / (1 - level) * missed, name="interval_score")


@score("sharpness", outcomes=NUMBERS, better=None, place=70, words="mean predicted standard deviation")
def sharpness(prediction: Any, *, level: float | None = None) -> Score:
    """How concentrated the prediction is, whatever happened: mean standard deviation, or mean width of intervals.

    Args:
        prediction: of numbers, samples (s, n), or a pair (mean, std).
        level: probability of central intervals, whose width is then averaged instead.

    >>> float(sharpness((np.zeros(2), np.array([1.0, 3.0]))))
    2.0
    """
    numbers = read_numbers(prediction, name="sharpness")
    if level is None:
        return mean_score(numbers.std, name="sharpness")
    lower, upper = _interval(numbers, level)
    return mean_score(upper - lower, name="sharpness")


def _interval(
    numbers: AbstractNumberPrediction, level: float
) -> tuple[Float[np.ndarray, "n *d"], Float[np.ndarray, "n *d"]]:
    """Ends of the central intervals."""
    lower, upper = numbers.interval(level)
    check_rows(row_means(lower + upper), name="interval")
    return lower, upper
