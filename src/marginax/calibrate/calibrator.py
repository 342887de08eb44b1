"""Recalibration: from held-out rows, a map that makes predictions happen as often as they say.

The ways to do it are `Temperature()`, `VectorScaling()`, `BayesianTemperature()`, `Platt()`, `Beta()` and `Isotonic()`
for classes, `VarianceScaling()` and `QuantileRecalibration()` for numbers. Each is fitted, and then called:
`Temperature().fit(prediction, y)(new_prediction)`.
"""

import abc
import warnings
from typing import TYPE_CHECKING, Any

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int

from marginax.posterior import AbstractPosterior
from marginax.predict.reading import as_given, read_one_class

_LEAST = float(np.log(np.finfo(np.float32).tiny))  # the log of a probability of 0
_CLOSE = 1e-5


class AbstractCalibrator(eqx.Module):
    """A way to recalibrate. `fit` gives one that is fitted, which maps predictions to others of the same kind.

    Fields that are fitted are None before. It can be saved.
    """

    @property
    @abc.abstractmethod
    def is_fitted(self) -> bool:
        """Whether it can be called."""

    @abc.abstractmethod
    def fit(self, prediction: Any, y: Any) -> "AbstractCalibrator":
        """The same way, fitted to held-out rows.

        Args:
            prediction: at the held-out inputs, one of ours or arrays in its place.
            y: the held-out targets.
        """

    @abc.abstractmethod
    def calibrate(self, prediction: Any) -> Any:
        """What a fitted one makes of a prediction."""

    def __call__(self, prediction: Any) -> Any:
        """The calibrated prediction, in the form in which it was given."""
        if not self.is_fitted:
            name = type(self).__name__
            raise ValueError(f"{name}() must be fitted before it is called: {name}().fit(prediction, y)")
        return self.calibrate(prediction)


class AbstractClassCalibrator(AbstractCalibrator):
    """A map of class probabilities.

    A `ClassificationPrediction` becomes another one, see its `recalibrated`. Probabilities (n, k), or (n,) for two
    classes, become probabilities.
    """

    if TYPE_CHECKING:  # an abstract field

        @property
        def num_classes(self) -> int | None: ...

    else:
        num_classes: eqx.AbstractVar[int | None]

    @abc.abstractmethod
    def fit_log_probs(
        self, log_probs: Float[np.ndarray, "n k"], labels: Int[np.ndarray, " n"]
    ) -> "AbstractClassCalibrator":
        """Fitted to log probabilities, of which none is -inf, and labels."""

    @abc.abstractmethod
    def log_probs(self, log_probs: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
        """Calibrated log probabilities, normalised."""

    @property
    def is_fitted(self) -> bool:
        return self.num_classes is not None

    def fit(self, prediction: Any, y: Any) -> "AbstractClassCalibrator":
        classes = read_one_class(prediction, name="recalibration")
        return self.fit_log_probs(finite_log_probs(classes.log_probs), classes.check(y))

    def calibrate(self, prediction: Any) -> Any:
        classes = read_one_class(prediction, name="recalibration")
        if classes.num_classes != self.num_classes:
            raise ValueError(
                f"prediction must have {self.num_classes} classes as the held-out one, got {classes.num_classes}"
            )
        return as_given(prediction, classes.recalibrated(self.log_probs(finite_log_probs(classes.log_probs))))


def recalibrate(prediction: Any, y: Any, method: AbstractCalibrator) -> Any:
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
        The method, fitted: call it with other predictions. `Calibrated(posterior, it)` keeps it with the posterior.

    >>> from marginax.calibrate import Temperature
    >>> overconfident = np.array([0.99, 0.99, 0.99, 0.01])
    >>> calibrator = recalibrate(overconfident, [1, 1, 0, 0], Temperature())
    >>> calibrator(overconfident).round(3).tolist()  # three of four are right
    [0.75, 0.75, 0.75, 0.25]
    """
    if not isinstance(method, AbstractCalibrator):
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


def finite_log_probs(log_probs: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
    """Log probabilities, normalised; a probability of 0 counts as the smallest float32.

    >>> bool(np.isfinite(finite_log_probs(np.array([[0.0, -np.inf]]))).all())
    True
    """
    return log_softmax(np.maximum(log_probs, _LEAST))


def nll_of(log_probs: Float[np.ndarray, "n k"], labels: Int[np.ndarray, " n"]) -> float:
    """Mean negative log probability of the labels."""
    return -float(np.mean(log_probs[np.arange(len(labels)), labels]))


def log_softmax(logits: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
    """Log probabilities, normalised.

    >>> np.exp(log_softmax(np.zeros((1, 4)))).tolist()
    [[0.25, 0.25, 0.25, 0.25]]
    """
    return logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)


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
