"""What users pass for a prediction, read in one place: one of ours, or arrays that say the same.

Classes: probabilities (n, k), or (n,) for the probability of class 1 of two; where a function says so, (s, n, k) for
each of s draws. Numbers: samples (s, n) of the target, or a pair (mean, std) of arrays (n,) for a normal distribution;
targets of several outputs have one more axis.
"""

from typing import Any

import numpy as np
from jaxtyping import Float

from marginax.data.arrays import as_numeric
from marginax.model.outcome import Outcome
from marginax.predict.arrays import NormalPrediction, SampledPrediction
from marginax.predict.classification import ClassificationPrediction
from marginax.predict.prediction import AbstractClassPrediction, AbstractNumberPrediction, AbstractPrediction

_SUM_TOLERANCE = 1e-4
_NUMBERS = "numbers are scored by nll, crps, rmse, coverage and the like"
_CLASSES = "classes are scored by nll, accuracy, brier, ece, auroc and the like"


def outcome_of(prediction: Any) -> Outcome | None:
    """What a prediction is about: one of ours says it, a pair (mean, std) is of numbers, other arrays do not tell."""
    if isinstance(prediction, AbstractPrediction):
        return prediction.outcome
    return Outcome.REAL if _is_pair(prediction) else None


def read_prediction(prediction: Any, y: Any, *, name: str = "a prediction") -> Any:
    """One of ours from any of these; of an array, rows that sum to one are probabilities, others samples.

    >>> read_prediction(([0.0], [1.0]), [0.5])
    NormalPrediction(n=1, outputs=1)
    >>> read_prediction([[0.2, 0.8]], [1]), read_prediction([[0.2], [0.7]], [1.0])
    (ClassificationPrediction(n=1, classes=2, draws=1), SampledPrediction(n=1, samples=2))

    Args:
        prediction: of numbers, classes or labels, or arrays that say the same.
        y: the targets, which tell samples (s, n) from probabilities (n, k).
        name: what it is needed for, in errors.
    """
    outcome = outcome_of(prediction)
    of_classes = _looks_like_probs(prediction, y) if outcome is None else outcome.is_class
    return read_classes(prediction, name=name) if of_classes else read_numbers(prediction, name=name)


def read_classes(
    prediction: Any, *, name: str, by_draw: bool = False, remedy: str = _NUMBERS
) -> AbstractClassPrediction:
    """A prediction of classes or labels, or an error that says what is wrong with `prediction`.

    >>> read_classes([0.2, 0.9], name="accuracy").labels.tolist()
    [0, 1]

    Args:
        prediction: one of classes or labels, or probabilities.
        name: what it is needed for, in errors.
        by_draw: whether probabilities (s, n, k) of draws are welcome.
        remedy: what to do with numbers instead.
    """
    outcome = outcome_of(prediction)
    if outcome is not None and outcome.is_number:
        given = "a pair (mean, std)" if _is_pair(prediction) else f"a {type(prediction).__name__}"
        raise TypeError(f"prediction must be one of classes to have {name}, got {given}: {remedy}")
    if isinstance(prediction, AbstractClassPrediction):
        rows = np.flatnonzero(~np.isfinite(prediction.probs).all(axis=1))
        if len(rows):
            raise ValueError(
                f"prediction has NaN in {len(rows)} of {len(prediction)} rows, the first of them row {rows[0]}"
            )
        return prediction
    probs = _read_probs(prediction, by_draw=by_draw)
    return ClassificationPrediction.from_draws(probs) if probs.ndim == 3 else ClassificationPrediction.from_probs(probs)


def read_one_class(
    prediction: Any, *, name: str, by_draw: bool = False, remedy: str = _NUMBERS
) -> ClassificationPrediction:
    """The same, of one class per input and not of several labels."""
    found = read_classes(prediction, name=name, by_draw=by_draw, remedy=remedy)
    if not isinstance(found, ClassificationPrediction):
        raise TypeError(
            f"prediction must be of one class per input to have {name}, got a {type(found).__name__}: take each label "
            "by itself, from prediction.probs[:, label]"
        )
    return found


def read_draw_probs(probs: Any) -> Float[np.ndarray, "s n k"]:
    """Probabilities of classes under each draw."""
    found = _read_probs(probs, by_draw=True)
    if found.ndim != 3:
        raise ValueError(f"prediction must hold probabilities of shape (s, n, k), of each draw, got {np.shape(probs)}")
    return found


def read_numbers(
    prediction: Any, *, name: str, allow_point: bool = False, remedy: str = _CLASSES
) -> AbstractNumberPrediction:
    """A prediction of numbers, or an error that says what is wrong with `prediction`.

    >>> read_numbers(([0.0, 1.0], [1.0, 2.0]), name="rmse").quantile(0.5).tolist()
    [0.0, 1.0]

    Args:
        prediction: one of numbers, samples, or a pair (mean, std).
        name: what it is needed for, in errors.
        allow_point: whether a std may be 0, where only moments are looked at.
        remedy: what to do with classes instead.
    """
    if isinstance(prediction, AbstractNumberPrediction):
        return prediction
    if isinstance(prediction, AbstractPrediction):
        kind = type(prediction).__name__
        raise TypeError(f"prediction must be one of numbers to have {name}, got a {kind}: {remedy}")
    if _is_pair(prediction):
        mean = as_numeric(prediction[0], name="the mean of prediction")
        std = as_numeric(prediction[1], name="the std of prediction")
        if mean.shape != std.shape or mean.ndim > 2:
            raise ValueError(
                f"prediction must be a pair (mean, std) of one shape, (n,) or (n, d), got {mean.shape} and {std.shape}"
            )
        right = std >= 0 if allow_point else std > 0
        if not right.all():
            raise ValueError(f"the std of prediction must be >{'=' * allow_point} 0, got {std[~right].flat[0]}")
        return NormalPrediction(mean.astype(np.float64), std.astype(np.float64))
    values = as_numeric(prediction, name="prediction").astype(np.float64)
    if values.ndim == 1:
        raise ValueError(
            f"prediction must be samples of shape (s, n) or a pair (mean, std), got shape {values.shape}: "
            "point predictions are one sample, prediction[None]"
        )
    if values.ndim > 3:
        raise ValueError(f"prediction must be samples of shape (s, n) or (s, n, d), got {values.shape}")
    return SampledPrediction(values)


def as_given(given: Any, found: Any) -> Any:
    """A prediction in the form in which the one before it came: as one of ours, or as arrays."""
    if isinstance(given, AbstractPrediction):
        return found
    if found.outcome.is_class:
        return found.probs[:, 1] if np.ndim(given) == 1 else found.probs
    return (found.mean, found.std) if _is_pair(given) else found.samples


def _read_probs(prediction: Any, *, by_draw: bool) -> Float[np.ndarray, "*s n k"]:
    """Rows that sum to one."""
    probs = as_numeric(prediction, name="prediction").astype(np.float64)
    if probs.ndim not in ((1, 2, 3) if by_draw else (1, 2)):
        hint = ": average over draws first" if probs.ndim == 3 else ""
        raise ValueError(
            f"prediction must hold probabilities of shape (n, k), or (n,) for two classes, got {probs.shape}{hint}"
        )
    if probs.ndim > 1 and probs.shape[-1] < 2:
        raise ValueError(f"prediction must have a column per class, got shape {probs.shape}: for two classes pass (n,)")
    wrong = probs[(probs < 0) | (probs > 1 + _SUM_TOLERANCE)]
    if wrong.size:
        raise ValueError(
            f"prediction must hold probabilities in [0, 1], got {wrong[0]:.6g}: logits need a softmax (two classes: a "
            "sigmoid) first"
        )
    if probs.ndim == 1:
        return np.stack([1 - np.minimum(probs, 1), np.minimum(probs, 1)], axis=-1)
    sums = probs.sum(axis=-1, keepdims=True)
    off = np.argwhere(np.abs(sums[..., 0] - 1) > _SUM_TOLERANCE)
    if len(off):
        row = tuple(off[0].tolist())
        raise ValueError(f"prediction must have rows that sum to one, got {sums[row][0]:.6g} in row {row[-1]}")
    return probs / np.where(np.abs(sums - 1) > 1e-12, sums, 1.0)  # what is exact stays as it is


def _looks_like_probs(prediction: Any, y: Any) -> bool:
    values = as_numeric(prediction, name="prediction")
    if values.ndim != 2 or len(values) != len(np.asarray(y)):
        return values.ndim == 1
    return bool((values >= 0).all() and (np.abs(values.sum(axis=1) - 1) <= _SUM_TOLERANCE).all())


def _is_pair(prediction: Any) -> bool:
    return isinstance(prediction, tuple) and len(prediction) == 2
