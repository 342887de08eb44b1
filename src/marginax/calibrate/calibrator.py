"""Recalibration: from held-out rows, a map that makes predictions happen as often as they say.

The ways to do it are `Temperature()`, `VectorScaling()`, `BayesianTemperature()`, `Platt()`, `Beta()` and `Isotonic()`
for classes, `VarianceScaling()` and `QuantileRecalibration()` for numbers.
"""

import abc
import dataclasses
import warnings
from typing import TYPE_CHECKING, Any

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int

from marginax.evaluate.inputs import as_classes
from marginax.posterior import AbstractPosterior
from marginax.predict import ClassificationPrediction, MultiLabelPrediction
from marginax.predict.labels import entropy_of

_LEAST = float(np.log(np.finfo(np.float32).tiny))  # the log of a probability of 0
_CLOSE = 1e-5


class AbstractCalibrator(eqx.Module):
    """A map from predictions to calibrated ones of the same kind; what `recalibrate` returns. It can be saved."""

    @abc.abstractmethod
    def __call__(self, prediction: Any) -> Any:
        """The calibrated prediction."""


class AbstractRecalibration(eqx.Module):
    """A way to recalibrate."""

    @abc.abstractmethod
    def fit(self, prediction: Any, y: Any) -> AbstractCalibrator:
        """The map that suits the held-out rows."""


class AbstractClassCalibrator(AbstractCalibrator):
    """A map of class probabilities.

    A `ClassificationPrediction` becomes another one. The draws behind it are not known any more, so of each input the
    shares are kept: `expected_entropy` is the same fraction of the new entropy as it was of the old one, and the
    variance over draws of a probability p the same fraction of p (1 - p). Probabilities (n, k), or (n,) for two
    classes, become probabilities.
    """

    if TYPE_CHECKING:  # an abstract field

        @property
        def num_classes(self) -> int: ...

    else:
        num_classes: eqx.AbstractVar[int]

    @abc.abstractmethod
    def log_probs(self, log_probs: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
        """Calibrated log probabilities, normalised."""

    def __call__(self, prediction: Any) -> Any:
        """Calibrated probabilities, as a prediction where one was given."""
        old = read_log_probs(prediction)
        if old.shape[1] != self.num_classes:
            raise ValueError(f"prediction must have {self.num_classes} classes as the held-out one, got {old.shape[1]}")
        new = self.log_probs(old)
        if isinstance(prediction, ClassificationPrediction):
            return _keep_shares(prediction, new)
        return np.exp(new[:, 1] if np.ndim(prediction) == 1 else new)


def recalibrate(prediction: Any, y: Any, method: AbstractRecalibration) -> Any:
    """Find, on held-out rows, the map that makes predictions calibrated.

    The rows must not be those that the posterior was fitted to: it is more certain of them than of any others. Given a
    posterior, there is a warning if they look like its training data.

    Args:
        prediction: at the held-out inputs: one of classes or numbers, or arrays in its place (probabilities (n, k), or
            (n,) for two classes; a pair (mean, std)); or a posterior.
        y: the held-out targets; with a posterior, a pair (x, y).
        method: classes: `Temperature()`, `VectorScaling()`, `BayesianTemperature()`, `Platt()`, `Beta()`, `Isotonic()`;
            numbers: `VarianceScaling()`, `QuantileRecalibration()`.

    Returns:
        A calibrator: call it with other predictions. `Calibrated(posterior, calibrator)` keeps it with the posterior.

    >>> from marginax.calibrate import Temperature
    >>> overconfident = np.array([0.99, 0.99, 0.99, 0.01])
    >>> calibrator = recalibrate(overconfident, [1, 1, 0, 0], Temperature())
    >>> calibrator(overconfident).round(3).tolist()  # three of four are right
    [0.75, 0.75, 0.75, 0.25]
    """
    if not isinstance(method, AbstractRecalibration):
        raise TypeError(f"method must be one such as mx.calibrate.Temperature(), got {method!r}")
    if isinstance(prediction, AbstractPosterior):
        if not isinstance(y, tuple | list) or len(y) != 2:
            raise TypeError(f"y must be a pair (x, y) of held-out data with a posterior, got {type(y).__name__}")
        posterior, (x, y) = prediction, y
        prediction = posterior.predict(x)
        if (reason := _seen_in_training(posterior, x)) is not None:
            warnings.warn(
                f"x looks like the training data ({reason}): a posterior is too sure of those, so calibrate it on "
                "held-out rows",
                stacklevel=2,
            )
    return method.fit(prediction, y)


def read_log_probs(prediction: Any) -> Float[np.ndarray, "n k"]:
    """Log probabilities of classes, normalised; a probability of 0 counts as the smallest float32.

    >>> read_log_probs([0.25]).round(3).tolist()
    [[-0.288, -1.386]]
    """
    if isinstance(prediction, MultiLabelPrediction):
        raise TypeError(
            "prediction must be one of classes, got a MultiLabelPrediction: recalibrate each label by itself, from "
            "prediction.probs[:, label]"
        )
    found = np.maximum(as_classes(prediction, name="recalibration").log_probs[:, 0], _LEAST)
    return found - np.logaddexp.reduce(found, axis=1, keepdims=True)


def read_labels(prediction: Any, y: Any) -> Int[np.ndarray, " n"]:
    """The labels that belong to class probabilities."""
    return as_classes(prediction, name="recalibration").check(y)[:, 0]


def nll_of(log_probs: Float[np.ndarray, "n k"], labels: Int[np.ndarray, " n"]) -> float:
    """Mean negative log probability of the labels."""
    return -float(np.mean(log_probs[np.arange(len(labels)), labels]))


def log_softmax(logits: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
    """Log probabilities, normalised.

    >>> np.exp(log_softmax(np.zeros((1, 4)))).tolist()
    [[0.25, 0.25, 0.25, 0.25]]
    """
    return logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)


def _keep_shares(prediction: ClassificationPrediction, log_probs: np.ndarray) -> ClassificationPrediction:
    """Entropies and variances over draws as they were, relative to the most that they can be."""
    old, new = prediction.probs, np.exp(log_probs)
    share = _ratio(prediction.expected_entropy, prediction.entropy, 1.0)
    growth = new * (1 - new) * _ratio(np.ones_like(old), old * (1 - old), 0.0)
    root, covariance = np.sqrt(growth), prediction._covariance
    return dataclasses.replace(
        prediction,
        log_probs=log_probs,
        expected_entropy=np.clip(share, 0.0, 1.0) * entropy_of(log_probs),
        variance=growth * prediction.variance,
        _covariance=None if covariance is None else covariance * root[:, :, None] * root[:, None, :],
    )


def _ratio(part: np.ndarray, whole: np.ndarray, otherwise: float) -> np.ndarray:
    return np.divide(part, whole, out=np.full(part.shape, otherwise), where=whole > 1e-15)


def _seen_in_training(posterior: AbstractPosterior, x: Any) -> str | None:
    """Why x seems to be what the posterior was fitted to, or None.

    A posterior remembers a few training inputs, and the means of all where it standardised them.
    """
    spec = posterior.spec
    if spec is None:
        return None
    x = spec.check_x(x)
    scaling = spec.scaling
    standard = np.asarray(x if scaling is None else scaling.transform_x(x), np.float64).reshape(len(x), -1)
    if scaling is not None and len(x) == spec.num_examples:
        shift, factor = np.asarray(scaling.x_shift, np.float64), np.asarray(scaling.x_factor, np.float64)
        axes = (0,) if x.ndim == 2 else (0, *range(2, x.ndim))
        mean = x.mean(axes, keepdims=True, dtype=np.float64)[0]
        if np.all(np.abs(mean - shift) <= _CLOSE * np.maximum(factor, np.abs(shift))):
            return f"it has as many rows, {len(x)}, and the same means"
    probes = posterior.record.probes
    if probes is None:
        return None
    remembered = np.unique(np.asarray(probes, np.float64).reshape(len(probes), -1), axis=0)
    num = sum(_holds(standard, row) for row in remembered)
    return f"{num} of {len(remembered)} training inputs are in it" if 2 * num > len(remembered) else None


def _holds(rows: Float[np.ndarray, "n d"], row: Float[np.ndarray, " d"]) -> bool:
    """Whether one of the rows is this one, looking at few columns of most."""
    left = rows
    for start in range(0, len(row), 64):
        columns = slice(start, start + 64)
        left = left[np.all(np.abs(left[:, columns] - row[columns]) <= _CLOSE * (1 + np.abs(row[columns])), axis=1)]
        if not len(left):
            return False
    return True
