"""What may be scored: our predictions, or plain arrays that say the same.

Classes: probabilities (n, k), or (n,) for the probability of class 1 of two. Numbers: samples (s, n) of the target, or
a pair (mean, std) of arrays (n,) for a normal distribution; targets of several outputs have one more axis.
"""

import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import special

from marginax.data.arrays import as_numeric
from marginax.predict import ClassificationPrediction, MultiLabelPrediction, RegressionPrediction
from marginax.predict.labels import check_labels
from marginax.predict.recalibrated import RecalibratedPrediction
from marginax.predict.regression import rows_of

_SUM_TOLERANCE = 1e-4
_LOG_2PI = 1.8378770664093453


@dataclass(frozen=True, eq=False)
class Classes:
    """Probabilities of the answers to one question per row (which class?), or to several (is it so?).

    Attributes:
        probs: rows, questions, answers.
        log_probs: their logarithms.
        prediction: where they are from, if from a prediction.
    """

    probs: Float[np.ndarray, "n m k"]
    log_probs: Float[np.ndarray, "n m k"]
    prediction: ClassificationPrediction | MultiLabelPrediction | None = None

    @property
    def answers(self) -> Int[np.ndarray, "n m"]:
        """The most probable ones."""
        return np.argmax(self.log_probs, axis=-1)

    def check(self, y: Any) -> Int[np.ndarray, "n m"]:
        """The true answers."""
        n, m, k = self.probs.shape
        several = isinstance(self.prediction, MultiLabelPrediction)
        return check_labels(y, (n, m) if several else (n,), k).reshape(n, m)

    def log_prob(self, y: Any) -> Float[np.ndarray, " n"]:
        """Log probability of the true answers of each row, jointly."""
        labels = self.check(y)
        if self.prediction is not None:
            return self.prediction.log_prob(y)
        return np.take_along_axis(self.log_probs, labels[:, :, None], axis=-1)[:, 0, 0]

    def events(self, y: Any) -> "Events":
        """The yes-or-no questions in it: class 1 of two, each class against the rest, or each label."""
        labels = self.check(y)
        if self.probs.shape[2] == 2:
            return Events(self.probs[:, :, 1], labels == 1)
        return Events(self.probs[:, 0, :], labels == np.arange(self.probs.shape[2]))


@dataclass(frozen=True, eq=False)
class Events:
    """Things that may happen, several to a row: their probabilities, and whether they did."""

    probs: Float[np.ndarray, "n m"]
    happened: Bool[np.ndarray, "n m"]


@dataclass(frozen=True, eq=False)
class Normals:
    """A normal distribution per row (and output)."""

    mean: Float[np.ndarray, "n *d"]
    std: Float[np.ndarray, "n *d"]

    def __len__(self) -> int:
        return len(self.mean)

    def __getitem__(self, index: Any) -> "Normals":
        rows = rows_of(index, len(self))
        return Normals(self.mean[rows], self.std[rows])

    @property
    def y_shape(self) -> tuple[int, ...]:
        """The shape of one target."""
        return self.mean.shape[1:]

    def quantile(self, q: float | Sequence[float] | np.ndarray) -> Float[np.ndarray, "..."]:
        """Quantiles; several have a leading axis."""
        z = special.ndtri(np.asarray(q, np.float64))
        return self.mean + self.std * z.reshape(z.shape + (1,) * self.mean.ndim)

    def quantile_by_row(self, q: Float[np.ndarray, "n *d"]) -> Float[np.ndarray, "n *d"]:
        """Quantiles at a level of its own for each row."""
        return self.mean + self.std * special.ndtri(q)

    def cdf(self, y: np.ndarray) -> Float[np.ndarray, "n *d"]:
        """Distribution functions at y."""
        return special.ndtr((y - self.mean) / self.std)

    def log_prob(self, y: np.ndarray) -> Float[np.ndarray, " n"]:
        """Log density, joint over outputs."""
        values = -0.5 * ((y - self.mean) / self.std) ** 2 - np.log(self.std) - 0.5 * _LOG_2PI
        return values.reshape(len(self), -1).sum(axis=1)


@dataclass(frozen=True, eq=False)
class Samples:
    """Draws of the target of each row; distribution function and quantiles are those of the draws themselves."""

    values: Float[np.ndarray, "s n *d"]

    def __len__(self) -> int:
        return self.values.shape[1]

    @property
    def y_shape(self) -> tuple[int, ...]:
        """The shape of one target."""
        return self.values.shape[2:]

    @property
    def mean(self) -> Float[np.ndarray, "n *d"]:
        """Over draws."""
        return self.values.mean(axis=0)

    @property
    def std(self) -> Float[np.ndarray, "n *d"]:
        """Over draws; 0 if there is only one."""
        return self.values.std(axis=0, ddof=1) if len(self.values) > 1 else np.zeros(self.values.shape[1:])

    def quantile(self, q: float | Sequence[float] | np.ndarray) -> Float[np.ndarray, "..."]:
        """Quantiles, interpolated between draws; several have a leading axis."""
        return np.quantile(self.values, q, axis=0)

    def cdf(self, y: np.ndarray) -> Float[np.ndarray, "n *d"]:
        """Fraction of draws that are at most y."""
        return np.mean(self.values <= y, axis=0)


Numbers = RegressionPrediction | RecalibratedPrediction | Normals | Samples


def as_classes(prediction: Any, *, name: str) -> Classes:
    """Class probabilities, or an error that says what is wrong with `prediction`.

    >>> as_classes([0.2, 0.9], name="accuracy").answers.tolist()
    [[0], [1]]

    Args:
        prediction: one of classes or labels, or probabilities.
        name: of the score, for errors.
    """
    if isinstance(prediction, ClassificationPrediction):
        _check_finite(prediction.probs, "prediction")
        return Classes(prediction.probs[:, None], prediction.log_probs[:, None], prediction)
    if isinstance(prediction, MultiLabelPrediction):
        ones = prediction.probs
        _check_finite(ones, "prediction")
        probs = np.stack([1 - ones, ones], axis=-1)
        return Classes(probs, _log(probs), prediction)
    if isinstance(prediction, RegressionPrediction | RecalibratedPrediction) or _is_pair(prediction):
        given = "a pair (mean, std)" if _is_pair(prediction) else f"a {type(prediction).__name__}"
        raise TypeError(
            f"prediction must be one of classes to have {name}, got {given}: "
            "numbers are scored by nll, crps, rmse, coverage and the like"
        )
    probs = as_numeric(prediction, name="prediction").astype(np.float64)
    if probs.ndim not in (1, 2):
        raise ValueError(f"prediction must hold probabilities of shape (n, k), or (n,) for two classes: {probs.shape}")
    if probs.ndim == 2 and probs.shape[1] < 2:
        raise ValueError(f"prediction must have a column per class, got shape {probs.shape}: for two classes pass (n,)")
    wrong = probs[(probs < 0) | (probs > 1 + _SUM_TOLERANCE)]
    if wrong.size:
        raise ValueError(
            f"prediction must hold probabilities in [0, 1], got {wrong[0]:.6g}: logits need a softmax (two classes: a "
            "sigmoid) first"
        )
    if probs.ndim == 1:
        probs = np.stack([1 - np.minimum(probs, 1), np.minimum(probs, 1)], axis=-1)
    sums = probs.sum(axis=1)
    off = np.flatnonzero(np.abs(sums - 1) > _SUM_TOLERANCE)
    if len(off):
        raise ValueError(f"prediction must have rows that sum to one, got {sums[off[0]]:.6g} in row {off[0]}")
    return Classes(probs[:, None], _log(probs)[:, None])


def as_numbers(prediction: Any, *, name: str) -> Numbers:
    """A distribution of numbers, or an error that says what is wrong with `prediction`.

    >>> as_numbers(([0.0, 1.0], [1.0, 2.0]), name="rmse").quantile(0.5).tolist()
    [0.0, 1.0]

    Args:
        prediction: one of numbers, samples, or a pair (mean, std).
        name: of the score, for errors.
    """
    if isinstance(prediction, RegressionPrediction | RecalibratedPrediction):
        return prediction
    if isinstance(prediction, ClassificationPrediction | MultiLabelPrediction):
        raise TypeError(
            f"prediction must be one of numbers to have {name}, got a {type(prediction).__name__}: "
            "classes are scored by nll, accuracy, brier, ece, auroc and the like"
        )
    if _is_pair(prediction):
        mean = as_numeric(prediction[0], name="the mean of prediction")
        std = as_numeric(prediction[1], name="the std of prediction")
        if mean.shape != std.shape or mean.ndim > 2:
            raise ValueError(
                f"prediction must be a pair (mean, std) of one shape, (n,) or (n, d), got {mean.shape} and {std.shape}"
            )
        if not (std > 0).all():
            raise ValueError(f"the std of prediction must be > 0, got {std[~(std > 0)].flat[0]}")
        return Normals(mean.astype(np.float64), std.astype(np.float64))
    values = as_numeric(prediction, name="prediction").astype(np.float64)
    if values.ndim == 1:
        raise ValueError(
            f"prediction must be samples of shape (s, n) or a pair (mean, std), got shape {values.shape}: "
            "point predictions are one sample, prediction[None]"
        )
    if values.ndim > 3:
        raise ValueError(f"prediction must be samples of shape (s, n) or (s, n, d), got {values.shape}")
    return Samples(values)


def as_targets(forecast: Numbers, y: Any) -> Float[np.ndarray, "n *d"]:
    """Targets in the shape of the prediction, or an error that says what is wrong with `y`."""
    targets = as_numeric(y, name="y").astype(np.float64)
    shape = (len(forecast), *forecast.y_shape)
    if targets.shape != shape:
        hint = f" (samples have shape (s, n), here {forecast.values.shape})" if isinstance(forecast, Samples) else ""
        raise ValueError(f"y must have shape {shape}, one target per row of prediction{hint}, got {targets.shape}")
    return targets


def as_level(value: Any, *, name: str) -> float:
    """A probability strictly between 0 and 1."""
    if not isinstance(value, numbers.Real) or not 0 < float(value) < 1:
        raise ValueError(f"{name} must be a number strictly between 0 and 1, got {value!r}")
    return float(value)


def is_classes(prediction: Any, y: Any) -> bool:
    """Whether this is a prediction of classes; of an array: rows that sum to one are probabilities, others samples."""
    if isinstance(prediction, RegressionPrediction | RecalibratedPrediction) or _is_pair(prediction):
        return False
    if isinstance(prediction, ClassificationPrediction | MultiLabelPrediction):
        return True
    values = as_numeric(prediction, name="prediction")
    if values.ndim != 2 or len(values) != len(np.asarray(y)):
        return values.ndim == 1
    return bool((values >= 0).all() and (np.abs(values.sum(axis=1) - 1) <= _SUM_TOLERANCE).all())


def _is_pair(prediction: Any) -> bool:
    return isinstance(prediction, tuple) and len(prediction) == 2


def _log(probs: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(probs)


def _check_finite(probs: np.ndarray, name: str) -> None:
    rows = np.flatnonzero(~np.isfinite(probs).all(axis=1))
    if len(rows):
        raise ValueError(f"{name} has NaN in {len(rows)} of {len(probs)} rows, the first of them row {rows[0]}")
