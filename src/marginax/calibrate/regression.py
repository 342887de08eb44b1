"""Recalibration of predicted numbers: how wide, and in which shape."""

import dataclasses
import math
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import optimize, special

from marginax.calibrate.calibrator import AbstractCalibrator
from marginax.evaluate.calibration import pit
from marginax.files import register
from marginax.predict import AbstractNumberPrediction
from marginax.predict.checks import check_count
from marginax.predict.reading import as_given, read_numbers
from marginax.predict.recalibrated import RecalibratedPrediction

_MOST = 8.0  # of the log factor beyond that of a normal, either way


@register("calibrator/variance")
class VarianceScaling(AbstractCalibrator):
    r"""Predictions made wider or narrower around their means, $y' = \mu + s (y - \mu)$ (Laves et al., 2020).

    $s$ is by maximum likelihood: for a normal prediction $s^2 = \frac1n \sum_i (y_i - \mu_i)^2 / \sigma_i^2$, else it
    is searched for. It is the same for all outputs. Samples have no density: they are treated as normal. Counts
    cannot be scaled. A prediction of ours stays one, and `epistemic` and `aleatoric` both grow by $s^2$; a pair (mean,
    std) stays a pair, samples stay samples.

    >>> scaling = VarianceScaling().fit((np.zeros(4), np.ones(4)), [2.0, -2.0, 2.0, -2.0])
    >>> scaling.factor, scaling(([5.0], [1.5]))[1].tolist()
    (2.0, [3.0])

    Attributes:
        factor: $s$, fitted; above 1, predictions were too sure.
    """

    factor: float | None = None

    @property
    def is_fitted(self) -> bool:
        return self.factor is not None

    def fit(self, prediction: Any, y: Any) -> "VarianceScaling":
        numbers = read_numbers(prediction, name="recalibration")
        targets = numbers.check(y)
        if not numbers.can_scale:
            raise TypeError(f"prediction must be a distribution of real numbers for VarianceScaling(), got {numbers!r}")
        mean, std = numbers.mean, numbers.std
        if not (np.isfinite(mean).all() and np.isfinite(std).all() and (std > 0).all()):
            raise ValueError("prediction must have finite means and standard deviations > 0 for VarianceScaling()")
        away = targets - mean
        factor = math.sqrt(float(np.mean((away / std) ** 2)))
        if factor == 0:
            raise ValueError("y must differ from the mean of prediction somewhere, got all errors equal to 0")
        if numbers.is_normal or not numbers.has_density:
            return dataclasses.replace(self, factor=factor)
        size = int(np.prod(numbers.y_shape))

        def loss(log_factor: float) -> float:
            return size * log_factor - float(np.mean(numbers.log_prob(mean + away * math.exp(-log_factor))))

        start = math.log(factor)
        found = optimize.brute(
            lambda t: loss(t.item()), ((start - _MOST, start + _MOST),), Ns=33, finish=None, full_output=True
        )[0]
        step = 2 * _MOST / 32
        best: Any = optimize.minimize_scalar(
            loss, bounds=(float(found) - step, float(found) + step), method="bounded", options={"xatol": 1e-8}
        )
        return dataclasses.replace(self, factor=math.exp(float(best.x)))

    def calibrate(self, prediction: Any) -> Any:
        assert self.factor is not None
        return as_given(prediction, read_numbers(prediction, name="recalibration").scaled(self.factor))


@register("calibrator/quantile")
class QuantileRecalibration(AbstractCalibrator):
    r"""An ascending map of the predictive distribution function, $R(F(y))$ (Kuleshov, Fenner & Ermon, 2018).

    R is the distribution function of the held-out $F_i(y_i)$. They take it as it is; here it goes through a few of its
    quantiles, and between them and beyond it is a straight line in normal quantiles: the result has a density that does
    not jump with every held-out row, and a normal prediction that is too wide or too narrow is put right everywhere.
    One output. For predictions several times too narrow `VarianceScaling()` comes first: they leave no probability to
    map in the tails. Predictions of real numbers, and pairs (mean, std), become a `RecalibratedPrediction`.

    Args:
        num_knots: intervals of equal probability between knots; fewer if there are not as many rows.

    >>> u = (np.arange(99) + 1) / 100
    >>> calibrator = QuantileRecalibration(num_knots=4).fit((np.zeros(99), np.ones(99)), np.quantile([-2.0, 2.0], u))
    >>> calibrator((np.zeros(1), np.ones(1))).quantile([0.25, 0.75]).round(3).ravel().tolist()
    [-1.0, 1.0]

    Attributes:
        knots: predicted probabilities of "at most y", ascending; fitted.
        levels: how often it was so, ascending.
    """

    num_knots: int = 20
    knots: Float[np.ndarray, " k"] | None = None
    levels: Float[np.ndarray, " k"] | None = None

    def __check_init__(self):
        check_count(self.num_knots, "num_knots", least=2)

    @property
    def is_fitted(self) -> bool:
        return self.knots is not None

    def fit(self, prediction: Any, y: Any) -> "QuantileRecalibration":
        values = pit(_one_real_number(prediction), y).ravel()
        num = min(self.num_knots, len(values) + 1)
        levels = np.arange(1, num) / num
        knots = np.quantile(values, levels, method="weibull")
        inside = (knots > 1e-15) & (knots < 1 - 1e-15)
        inside[1:] &= np.diff(special.ndtri(np.clip(knots, 1e-15, 1 - 1e-15))) > 1e-6
        if inside.sum() < 2 and num > 2:
            raise ValueError(
                "y must be in reach of prediction for QuantileRecalibration(), got probabilities of less that are all "
                "0, 1 or the same: use VarianceScaling() first"
            )
        return dataclasses.replace(self, knots=knots[inside], levels=levels[inside])

    def calibrate(self, prediction: Any) -> RecalibratedPrediction:
        assert self.knots is not None
        assert self.levels is not None
        return RecalibratedPrediction(_one_real_number(prediction), self.knots, self.levels)


def _one_real_number(prediction: Any) -> AbstractNumberPrediction:
    numbers = read_numbers(prediction, name="recalibration")
    if not (numbers.can_scale and numbers.has_density):
        what = repr(numbers) if numbers.samples is None else "samples"
        raise TypeError(f"prediction must be a distribution of real numbers for QuantileRecalibration(), got {what}")
    if int(np.prod(numbers.y_shape)) != 1:
        raise ValueError(
            f"prediction must have one output for QuantileRecalibration(), got shape {numbers.y_shape}: use "
            "VarianceScaling()"
        )
    return numbers
