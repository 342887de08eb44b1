"""Scores of predicted numbers. Where targets have several outputs, the outputs of a row are averaged."""

from typing import Any

import numpy as np
from jaxtyping import Float

from marginax.evaluate.proportion import share_score
from marginax.evaluate.score import (
    NUMBERS,
    AbstractScore,
    Score,
    check_rows,
    jackknife_error,
    mean_score,
    row_means,
    score,
)
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
    "r2",
    outcomes=NUMBERS,
    better="more",
    title="R²",
    place=5,
    words="share of the variance of the target that the means explain; 0 is a constant, 1 is best",
)
def r2(prediction: Any, y: Any) -> Score:
    r"""Coefficient of determination of the predicted means, $1 - \sum (y - \mu)^2 / \sum (y - \bar y)^2$.

    0 is the mean of these very rows, and less is worse than that. Outputs are averaged, as scikit-learn does. The
    standard error is the jackknife's.

    Args:
        prediction: of numbers, samples (s, n), or a pair (mean, std).
        y: targets, at least two that differ.

    >>> round(float(r2(([1.0, 2.0, 3.5], [1.0, 1.0, 1.0]), [1.0, 2.0, 3.0])), 4)
    0.875
    """
    numbers = read_numbers(prediction, name="r2")
    y = np.asarray(numbers.check(y), np.float64).reshape(len(numbers), -1)
    squares = (np.asarray(numbers.mean, np.float64).reshape(y.shape) - y) ** 2
    check_rows(row_means(squares), name="r2")
    away = y - y.mean(axis=0)
    total, num = np.sum(away**2, axis=0), len(y)
    if num < 2 or not (total > 0).all():
        raise ValueError("y must hold targets that differ: r2 compares errors with their variance")
    value = 1 - np.mean(squares.sum(axis=0) / total)
    error = np.nan
    if num > 2:
        left = total - away**2 * num / (num - 1)  # sums of squares around the mean without each row
        if (left > 0).all():
            error = jackknife_error(np.mean(1 - (squares.sum(axis=0) - squares) / left, axis=1))
    return Score(float(value), float(error), num)


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
def coverage(prediction: Any, y: Any, level: float = 0.9) -> AbstractScore:
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
    return share_score(np.asarray((lower <= y) & (y <= upper)), name="coverage")


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
