"""Recalibration of the probability of an event, and of classes each against the rest: Platt, beta, isotonic."""

from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import special

from marginax._extras import require
from marginax.calibrate.calibrator import AbstractClassCalibrator, AbstractRecalibration, read_labels, read_log_probs
from marginax.files import register

_MOST_STEPS = 200


@register("calibrator/odds")
class OddsCalibrator(AbstractClassCalibrator):
    r"""$\log \frac{p'}{1 - p'} = a \log p - b \log(1 - p) + c$; from `Platt` and `Beta`.

    Of two classes, p is the probability of class 1; of more, each class has its own map, and the results are divided
    by their sum.

    Attributes:
        a: one for class 1 of two, otherwise one for each class.
        b: the same.
        c: the same.
        num_classes: of the held-out prediction.
    """

    a: Float[np.ndarray, " m"]
    b: Float[np.ndarray, " m"]
    c: Float[np.ndarray, " m"]
    num_classes: int

    def log_probs(self, log_probs: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
        yes, no = _events(log_probs)
        odds = self.a * yes - self.b * no + self.c
        if self.num_classes == 2:
            return np.concatenate([special.log_expit(-odds), special.log_expit(odds)], axis=1)
        found = special.log_expit(odds)
        return found - np.logaddexp.reduce(found, axis=1, keepdims=True)


@register("calibration/platt")
class Platt(AbstractRecalibration):
    r"""Logistic regression on the log odds of two classes, $a \log\frac{p}{1-p} + c$ (Platt, 1999).

    By maximum likelihood; Platt's own correction of the labels, for few rows, is left out.

    >>> calibrator = Platt().fit([0.1, 0.2, 0.3, 0.7, 0.8, 0.9], [0, 0, 1, 0, 1, 1])
    >>> calibrator.a.round(3).tolist(), calibrator([0.9, 0.5]).round(3).tolist()
    ([0.899], [0.878, 0.5])
    """

    def fit(self, prediction: Any, y: Any) -> OddsCalibrator:
        log_probs, labels = read_log_probs(prediction), read_labels(prediction, y)
        if log_probs.shape[1] != 2:
            raise ValueError(
                f"prediction must have 2 classes for Platt(), got {log_probs.shape[1]}: use VectorScaling() or Beta()"
            )
        odds = log_probs[:, 1:] - log_probs[:, :1]
        slope, shift = fit_logistic(odds, labels == 1, name="Platt()")
        return OddsCalibrator(np.array([slope]), np.array([slope]), np.array([shift]), 2)


@register("calibration/beta")
class Beta(AbstractRecalibration):
    r"""$a \log p - b \log(1 - p) + c$ as log odds, with $a, b \ge 0$, by maximum likelihood (Kull et al., 2017).

    The map that is right where the probabilities of either class follow beta distributions; the identity is among them.
    Three classes or more: each against the rest, and divided by the sum.

    >>> calibrator = Beta().fit([0.1, 0.2, 0.3, 0.7, 0.8, 0.9], [0, 0, 1, 0, 1, 1])
    >>> [round(part.item(), 3) for part in (calibrator.a, calibrator.b, calibrator.c)]
    [0.899, 0.899, 0.0]
    """

    def fit(self, prediction: Any, y: Any) -> OddsCalibrator:
        log_probs, labels = read_log_probs(prediction), read_labels(prediction, y)
        num_classes = log_probs.shape[1]
        yes, no = _events(log_probs)
        happened = _happened(labels, num_classes)
        maps = np.array([_fit_beta(yes[:, j], no[:, j], happened[:, j]) for j in range(yes.shape[1])])
        return OddsCalibrator(maps[:, 0], maps[:, 1], maps[:, 2], num_classes)


@register("calibrator/isotonic")
class IsotonicCalibrator(AbstractClassCalibrator):
    """Probabilities through an ascending map, linear between knots; from `Isotonic`.

    Attributes:
        knots: predicted probabilities, ascending: for class 1 of two, otherwise for each class.
        values: what they are mapped to.
        num_classes: of the held-out prediction.
    """

    knots: tuple[Float[np.ndarray, " _"], ...]
    values: tuple[Float[np.ndarray, " _"], ...]
    num_classes: int

    def log_probs(self, log_probs: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
        events = np.exp(_events(log_probs)[0])
        maps = zip(events.T, self.knots, self.values, strict=True)
        found = np.stack([np.interp(probs, knots, values) for probs, knots, values in maps], axis=1)
        if self.num_classes == 2:
            found = np.concatenate([1 - found, found], axis=1)
        totals = found.sum(axis=1, keepdims=True)
        found = np.where(totals > 0, found / np.where(totals > 0, totals, 1), 1 / self.num_classes)
        with np.errstate(divide="ignore"):
            return np.log(found)


@register("calibration/isotonic")
class Isotonic(AbstractRecalibration):
    """The ascending map with the least squared error, from scikit-learn (Zadrozny & Elkan, 2002).

    It assumes no shape, and needs some thousand rows. Three classes or more: each against the rest, and divided by the
    sum. Where held-out rows agree it says 0 or 1, and a log score can become infinite.

    >>> Isotonic().fit([0.1, 0.2, 0.3, 0.4], [0, 1, 0, 1])([0.25, 0.9]).tolist()
    [0.5, 1.0]
    """

    def fit(self, prediction: Any, y: Any) -> IsotonicCalibrator:
        isotonic = require("sklearn.isotonic")

        log_probs, labels = read_log_probs(prediction), read_labels(prediction, y)
        happened = _happened(labels, log_probs.shape[1])
        knots, values = [], []
        for probs, truth in zip(np.exp(_events(log_probs)[0]).T, happened.T, strict=True):
            found = isotonic.IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(probs, truth)
            knots.append(np.asarray(found.X_thresholds_, np.float64))
            values.append(np.asarray(found.y_thresholds_, np.float64))
        return IsotonicCalibrator(tuple(knots), tuple(values), log_probs.shape[1])


def fit_logistic(
    features: Float[np.ndarray, "n m"], happened: Bool[np.ndarray, " n"], *, name: str
) -> Float[np.ndarray, " p"]:
    """Coefficients and intercept that maximise the likelihood, by Newton's method with halved steps.

    >>> fit_logistic(np.array([[0.0], [0.0], [1.0], [1.0]]), np.array([False, True, True, True]), name="Platt()")
    Traceback (most recent call last):
    ValueError: y must not be told apart perfectly by prediction for Platt(): no map is the best, use Temperature() ...
    """
    design = np.concatenate([features, np.ones((len(features), 1))], axis=1)
    widths = np.linalg.norm(design, axis=0) + 1e-300
    left, sizes, right = np.linalg.svd(design / widths, full_matrices=False)
    kept = sizes > 1e-10 * sizes[0]  # columns may say the same
    basis, signs = left[:, kept] * np.sqrt(len(design)), np.where(happened, 1.0, -1.0)
    solution = np.zeros(basis.shape[1])

    def loss(at: np.ndarray) -> float:
        return -float(np.mean(special.log_expit(signs * (basis @ at))))

    for _ in range(_MOST_STEPS):
        probs = special.expit(basis @ solution)
        hessian = (basis * (probs * special.expit(-basis @ solution))[:, None]).T @ basis / len(basis)
        if np.linalg.eigvalsh(hessian)[0] < 1e-8:  # it grows without end, in some direction
            break
        step = np.linalg.solve(hessian, basis.T @ (probs - happened) / len(basis))
        size, value = 1.0, loss(solution)
        while loss(solution - size * step) > value + 1e-14 and size > 1e-6:
            size *= 0.5
        solution = solution - size * step
        if np.max(np.abs(step)) < 1e-10 * (1 + np.max(np.abs(solution))):
            return right[kept].T @ (solution * np.sqrt(len(design)) / sizes[kept]) / widths
    raise ValueError(
        f"y must not be told apart perfectly by prediction for {name}: no map is the best, use Temperature() or more "
        "held-out rows"
    )


def _fit_beta(
    yes: Float[np.ndarray, " n"], no: Float[np.ndarray, " n"], happened: Bool[np.ndarray, " n"]
) -> tuple[float, float, float]:
    """a, b, c; where one of the slopes would be negative, the best map with a slope of zero."""
    a, b, c = fit_logistic(np.stack([yes, -no], axis=1), happened, name="Beta()")
    if a >= 0 and b >= 0:
        return a, b, c
    rate = np.clip(happened.mean(), 1e-12, 1 - 1e-12)
    candidates = [(0.0, 0.0, float(special.logit(rate)))]
    slope, shift = fit_logistic(yes[:, None], happened, name="Beta()")
    candidates += [(slope, 0.0, shift)] if slope > 0 else []
    slope, shift = fit_logistic(-no[:, None], happened, name="Beta()")
    candidates += [(0.0, slope, shift)] if slope > 0 else []
    signs = np.where(happened, 1.0, -1.0)
    return max(
        candidates, key=lambda abc: float(np.sum(special.log_expit(signs * (abc[0] * yes - abc[1] * no + abc[2]))))
    )


def _events(log_probs: Float[np.ndarray, "n k"]) -> tuple[Float[np.ndarray, "n m"], Float[np.ndarray, "n m"]]:
    """Log probabilities of class 1 of two, or of each class, and of all others together."""
    if log_probs.shape[1] == 2:
        return log_probs[:, 1:], log_probs[:, :1]
    others = [np.logaddexp.reduce(np.delete(log_probs, k, axis=1), axis=1) for k in range(log_probs.shape[1])]
    return log_probs, np.stack(others, axis=1)


def _happened(labels: Int[np.ndarray, " n"], num_classes: int) -> Bool[np.ndarray, "n m"]:
    return labels[:, None] == (np.array([1]) if num_classes == 2 else np.arange(num_classes))
