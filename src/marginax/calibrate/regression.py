"""Recalibration of predicted numbers: how wide, and in which shape."""

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float
from scipy import optimize, special

from marginax.calibrate.calibrator import AbstractCalibrator, AbstractRecalibration
from marginax.evaluate.calibration import pit
from marginax.evaluate.inputs import Normals, Numbers, Samples, as_numbers, as_targets
from marginax.files import register
from marginax.model.distributions import Normal
from marginax.model.normal_outputs import NormalOutputs
from marginax.predict import RegressionPrediction
from marginax.predict.recalibrated import RecalibratedPrediction

_MOST = 8.0  # of the log factor beyond that of a normal, either way


@register("calibrator/variance")
class VarianceCalibrator(AbstractCalibrator):
    r"""Predictions made wider or narrower around their means, $y' = \mu + s (y - \mu)$; from `VarianceScaling`.

    A `RegressionPrediction` stays one: `epistemic` and `aleatoric` both grow by $s^2$. A pair (mean, std) stays a pair,
    samples stay samples.

    Attributes:
        factor: $s$; above 1, predictions were too sure.
    """

    factor: float

    def __call__(self, prediction: Any) -> Any:
        """The prediction with its standard deviation multiplied."""
        numbers = as_numbers(prediction, name="recalibration")
        if isinstance(numbers, RecalibratedPrediction):
            raise TypeError(f"prediction must not be recalibrated already to be scaled, got {numbers!r}")
        if isinstance(numbers, Normals):
            return numbers.mean, self.factor * numbers.std
        if isinstance(numbers, Samples):
            return numbers.mean + self.factor * (numbers.values - numbers.mean)
        return _widen(numbers, self.factor)


@register("calibration/variance")
class VarianceScaling(AbstractRecalibration):
    r"""One factor of the predictive standard deviation, by maximum likelihood (Laves et al., 2020).

    For a normal prediction $s^2 = \frac1n \sum_i (y_i - \mu_i)^2 / \sigma_i^2$; for others the factor is searched for.
    It is the same for all outputs. Samples have no density: they are treated as normal. Counts cannot be scaled.

    >>> calibrator = VarianceScaling().fit((np.zeros(4), np.ones(4)), [2.0, -2.0, 2.0, -2.0])
    >>> calibrator.factor, calibrator(([5.0], [1.5]))[1].tolist()
    (2.0, [3.0])
    """

    def fit(self, prediction: Any, y: Any) -> VarianceCalibrator:
        numbers = as_numbers(prediction, name="recalibration")
        targets = as_targets(numbers, y)
        if _is_discrete(numbers) or isinstance(numbers, RecalibratedPrediction):
            raise TypeError(f"prediction must be a distribution of real numbers for VarianceScaling(), got {numbers!r}")
        mean, std = numbers.mean, numbers.std
        if not (np.isfinite(mean).all() and np.isfinite(std).all() and (std > 0).all()):
            raise ValueError("prediction must have finite means and standard deviations > 0 for VarianceScaling()")
        away = targets - mean
        factor = math.sqrt(float(np.mean((away / std) ** 2)))
        if factor == 0:
            raise ValueError("y must differ from the mean of prediction somewhere, got all errors equal to 0")
        if isinstance(numbers, Normals | Samples) or _is_normal(numbers):
            return VarianceCalibrator(factor)
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
        return VarianceCalibrator(math.exp(float(best.x)))


@register("calibrator/quantile")
class QuantileCalibrator(AbstractCalibrator):
    """Predicted probabilities of "at most y" replaced by how often that was so; from `QuantileRecalibration`.

    Predictions of real numbers, and pairs (mean, std), become a `RecalibratedPrediction`.

    Attributes:
        knots: predicted probabilities, ascending.
        levels: how often it was so, ascending.
    """

    knots: Float[np.ndarray, " k"]
    levels: Float[np.ndarray, " k"]

    def __call__(self, prediction: Any) -> RecalibratedPrediction:
        """The recalibrated prediction."""
        return RecalibratedPrediction(_one_real_number(prediction), self.knots, self.levels)


@register("calibration/quantile")
class QuantileRecalibration(AbstractRecalibration):
    r"""An ascending map of the predictive distribution function, $R(F(y))$ (Kuleshov, Fenner & Ermon, 2018).

    R is the distribution function of the held-out $F_i(y_i)$. They take it as it is; here it goes through a few of its
    quantiles, and between them and beyond it is a straight line in normal quantiles: the result has a density that does
    not jump with every held-out row, and a normal prediction that is too wide or too narrow is put right everywhere.
    One output. For predictions several times too narrow `VarianceScaling()` comes first: they leave no probability to
    map in the tails.

    Args:
        num_knots: intervals of equal probability between knots; fewer if there are not as many rows.

    >>> u = (np.arange(99) + 1) / 100
    >>> calibrator = QuantileRecalibration(num_knots=4).fit((np.zeros(99), np.ones(99)), np.quantile([-2.0, 2.0], u))
    >>> calibrator((np.zeros(1), np.ones(1))).quantile([0.25, 0.75]).round(3).ravel().tolist()
    [-1.0, 1.0]
    """

    num_knots: int = 20

    def __check_init__(self):
        if isinstance(self.num_knots, bool) or not isinstance(self.num_knots, int) or self.num_knots < 2:
            raise ValueError(f"num_knots must be an int >= 2, got {self.num_knots!r}")

    def fit(self, prediction: Any, y: Any) -> QuantileCalibrator:
        _one_real_number(prediction)
        values = pit(prediction, y).ravel()
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
        return QuantileCalibrator(knots[inside], levels[inside])


def _one_real_number(prediction: Any) -> RegressionPrediction | Normals:
    numbers = as_numbers(prediction, name="recalibration")
    if not isinstance(numbers, RegressionPrediction | Normals) or _is_discrete(numbers):
        what = "samples" if isinstance(numbers, Samples) else repr(numbers)
        raise TypeError(f"prediction must be a distribution of real numbers for QuantileRecalibration(), got {what}")
    if int(np.prod(numbers.y_shape)) != 1:
        raise ValueError(
            f"prediction must have one output for QuantileRecalibration(), got shape {numbers.y_shape}: use "
            "VarianceScaling()"
        )
    return numbers


def _is_discrete(numbers: Numbers) -> bool:
    return isinstance(numbers, RegressionPrediction) and numbers.mixture.discrete


def _is_normal(numbers: Numbers) -> bool:
    """Whether it is a single normal, independent over outputs."""
    if not isinstance(numbers, RegressionPrediction) or numbers.num_draws > 1:
        return False
    components = numbers.mixture.components
    return isinstance(components, Normal) or (isinstance(components, NormalOutputs) and np.prod(numbers.y_shape) == 1)


def _widen(prediction: RegressionPrediction, factor: float) -> RegressionPrediction:
    """Every component moved and scaled, so that the mixture is scaled around its mean."""
    mixture = prediction.mixture
    if mixture.discrete:
        raise TypeError(f"prediction must be a distribution of real numbers to be scaled, got {prediction!r}")
    shift = (1 - factor) * mixture.mean()[0]
    with jax.enable_x64(True):
        moved = eqx.filter_vmap(lambda component: component.affine(shift, factor))(mixture.components)
    arrays, rest = eqx.partition(moved, lambda leaf: isinstance(leaf, np.ndarray | jax.Array))
    leaves, treedef = jax.tree.flatten(arrays)
    before = [leaf for leaf in jax.tree.leaves(mixture.components) if isinstance(leaf, np.ndarray | jax.Array)]
    pairs = list(zip(leaves, before, mixture.row_axes, strict=True))
    row_axes = tuple(had or new.shape != old.shape for new, old, had in pairs)  # a shift of its own for every row
    found = [np.asarray(new).astype(old.dtype) for new, old, _ in pairs]
    components = eqx.combine(jax.tree.unflatten(treedef, found), rest)
    return dataclasses.replace(
        prediction, mixture=dataclasses.replace(mixture, components=components, row_axes=row_axes)
    )
