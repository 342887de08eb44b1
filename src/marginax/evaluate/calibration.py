"""Do things happen as often as predicted? Calibration of classes, and of distributions of numbers."""

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float

from marginax._keys import Key, as_key
from marginax.evaluate.bins import AbstractBins, EqualWidth, check_bins
from marginax.evaluate.score import CLASSES, NUMBERS, Score, check_rows, jackknife_error, row_means, score
from marginax.predict.checks import check_levels
from marginax.predict.reading import read_classes, read_numbers

_BLOCK = 2**20


@score(
    "ece",
    outcomes=CLASSES,
    better="less",
    title="ECE",
    shown="headline",
    place=40,
    words="mean distance between confidence and accuracy; near 0 is best",
)
def ece(prediction: Any, y: Any, *, bins: AbstractBins = EqualWidth()) -> Score:
    r"""Expected calibration error of the most probable class (Naeini et al., 2015; Guo et al., 2017).

    $\sum_b \frac{n_b}{n} |\mathrm{accuracy}_b - \mathrm{confidence}_b|$ over bins of confidence; of labels, the mean
    over labels. The standard error is the jackknife's, with the bins held. The error is biased upwards, the more so the
    fewer rows there are per bin: a calibrated prediction does not have 0.

    Args:
        prediction: of classes or labels, or probabilities (n, k), or (n,) for two classes.
        y: labels.
        bins: which confidences are judged together.

    >>> round(float(ece([0.9, 0.9, 0.9, 0.2], [1, 1, 0, 0])), 4)  # 3/4 |2/3 - 0.9| + 1/4 |1 - 0.8|
    0.225
    """
    classes = read_classes(prediction, name="ece")
    correct = classes.labels == classes.check(y)
    num = len(classes)
    return _calibration_error(classes.confidence.reshape(num, -1), correct.reshape(num, -1), check_bins(bins))


@score(
    "classwise_ece",
    outcomes=CLASSES,
    better="less",
    title="classwise ECE",
    shown="never",
    words="mean distance between the probability of each class and how often it came; near 0 is best",
)
def classwise_ece(prediction: Any, y: Any, *, bins: AbstractBins = EqualWidth()) -> Score:
    """Expected calibration error of the probability of each class, averaged over classes (Kull et al., 2019).

    Of two classes, that of class 1. The standard error is the jackknife's, with the bins held.

    Args:
        prediction: of classes or labels, or probabilities (n, k), or (n,) for two classes.
        y: labels.
        bins: which probabilities are judged together.

    >>> round(float(classwise_ece([0.9, 0.9, 0.9, 0.2], [1, 1, 0, 0])), 4)  # 3/4 |2/3 - 0.9| + 1/4 |0 - 0.2|
    0.225
    """
    return _calibration_error(*read_classes(prediction, name="classwise_ece").events(y), check_bins(bins))


def _calibration_error(probs: Float[np.ndarray, "n m"], happened: Bool[np.ndarray, "n m"], bins: AbstractBins) -> Score:
    num = len(probs)
    total, change = 0.0, np.zeros(num)
    for forecast, truth in zip(probs.T, happened.T, strict=True):
        group = bins.assign(forecast)
        excess = truth - forecast
        gaps = np.bincount(group, excess)
        total += np.abs(gaps).sum()
        change += np.abs(gaps[group] - excess) - np.abs(gaps[group])
    total, change = total / probs.shape[1], change / probs.shape[1]
    error = jackknife_error((total + change) / (num - 1)) if num > 1 else np.nan
    return Score(float(total / num), error, num)


def pit(prediction: Any, y: Any, *, key: Key | None = None) -> Float[np.ndarray, "n *d"]:
    """Probability integral transform: the predicted probability of a target no larger than the one that came.

    Uniform on [0, 1] if the prediction is calibrated. Where values have probability of their own (counts, samples), the
    transform is an interval, from the probability of less to that of no more: its middle is returned, or with a key a
    uniform draw from it, which is the one that is uniform (Czado, Gneiting & Held, 2009).

    Args:
        prediction: of numbers, samples (s, n), or a pair (mean, std).
        y: targets.
        key: an int seed or a JAX key for those draws.

    >>> pit((np.zeros(2), np.ones(2)), [0.0, 1.6448536269514722]).round(3).tolist()
    [0.5, 0.95]
    """
    return _transform(prediction, y, key, name="pit")


def _transform(prediction: Any, y: Any, key: Key | None, *, name: str) -> Float[np.ndarray, "n *d"]:
    numbers = read_numbers(prediction, name=name)
    y = numbers.check(y)
    upper = numbers.cdf(y)
    check_rows(row_means(upper), name=name)
    if not numbers.has_atoms:
        return upper
    lower = numbers.cdf_below(y)
    share = 0.5
    if key is not None:
        with jax.enable_x64(True):
            share = np.asarray(jax.random.uniform(as_key(key), upper.shape))
    return lower + share * (upper - lower)


class AbstractGap(abc.ABC):
    """How a difference between expected and observed coverage counts."""

    @abc.abstractmethod
    def measure(self, difference: Float[np.ndarray, "*n"]) -> Float[np.ndarray, "*n"]:
        """Zero or more."""


@dataclass(frozen=True)
class AbsoluteGap(AbstractGap):
    """Its size."""

    def measure(self, difference: Float[np.ndarray, "*n"]) -> Float[np.ndarray, "*n"]:
        return np.abs(difference)


@dataclass(frozen=True)
class SquaredGap(AbstractGap):
    """Its square, as Kuleshov et al. (2018) have it."""

    def measure(self, difference: Float[np.ndarray, "*n"]) -> Float[np.ndarray, "*n"]:
        return difference**2


@score(
    "calibration_error",
    outcomes=NUMBERS,
    better="less",
    shown="comparison",
    place=80,
    words="mean distance between claimed and observed coverage; 0 is best",
)
def regression_calibration_error(
    prediction: Any,
    y: Any,
    *,
    levels: Sequence[float] | np.ndarray = tuple(np.arange(1, 20) / 20),
    gap: AbstractGap = AbsoluteGap(),
) -> Score:
    """Mean gap between probability levels and how often targets are below those quantiles (Kuleshov et al., 2018).

    The standard error is the jackknife's. The error is biased upwards: a calibrated prediction does not have 0.

    Args:
        prediction: of numbers, samples (s, n), or a pair (mean, std).
        y: targets.
        levels: probabilities, strictly between 0 and 1.
        gap: how differences count.

    >>> y = [-1.2, -0.4, 0.3, 1.1]
    >>> round(float(regression_calibration_error((np.zeros(4), np.ones(4)), y, levels=[0.25, 0.5])), 4)
    0.0
    """
    at = check_levels(levels)
    if not isinstance(gap, AbstractGap):
        raise TypeError(f"gap must be AbsoluteGap() or SquaredGap(), got {gap!r}")
    values = _transform(prediction, y, None, name="regression_calibration_error")
    num = len(values)
    values = values.reshape(num, -1)

    def below(rows: np.ndarray) -> Float[np.ndarray, "r l"]:
        """Fraction of a row's targets that are below the quantile of each level."""
        return np.mean(rows[:, :, None] <= at, axis=1)

    size = max(1, _BLOCK // (at.size * values.shape[1]))
    blocks = [values[start : start + size] for start in range(0, num, size)]
    total = np.sum([below(block).sum(axis=0) for block in blocks], axis=0)
    value = float(gap.measure(total / num - at).mean())
    if num < 2:
        return Score(value, np.nan, num)
    without = [gap.measure((total - below(block)) / (num - 1) - at).mean(axis=1) for block in blocks]
    return Score(value, jackknife_error(np.concatenate(without)), num)
