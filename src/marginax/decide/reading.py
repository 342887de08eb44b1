"""What decisions are made from: the numbers of a prediction, or plain arrays in its place."""

from typing import Any

import numpy as np
from jaxtyping import Float

from marginax.calibrate import RecalibratedPrediction
from marginax.predict import ClassificationPrediction, MultiLabelPrediction, RegressionPrediction

_PREDICTIONS = (ClassificationPrediction, MultiLabelPrediction, RecalibratedPrediction, RegressionPrediction)


def read_probs(prediction: Any) -> Float[np.ndarray, "*s n k"]:
    """Class probabilities in float64, rows that sum to 1 exactly up to rounding.

    Args:
        prediction: a `ClassificationPrediction`, or an array (n, k), or (s, n, k) for each of s draws.

    >>> read_probs([[0.25, 0.75]]).tolist()
    [[0.25, 0.75]]
    """
    if isinstance(prediction, ClassificationPrediction):
        prediction = prediction.probs
    elif isinstance(prediction, _PREDICTIONS):
        raise TypeError(f"prediction must be one of classes, got {prediction!r}")
    probs = read_numbers(prediction, "prediction")
    if probs.ndim not in (2, 3) or probs.shape[-1] < 2:
        raise ValueError(
            f"prediction must hold probabilities of shape (n, k) with k >= 2 classes, got an array of {probs.shape}"
        )
    if (probs < 0).any():
        raise ValueError(f"prediction must hold probabilities, got {probs.min()}: take the softmax of logits")
    totals = probs.sum(axis=-1, keepdims=True)
    if (worst := np.abs(totals - 1).max()) > 1e-3:
        raise ValueError(f"prediction must hold rows that sum to 1, got one that is {worst:.3g} off")
    return probs / totals


def read_mean(prediction: Any) -> Float[np.ndarray, "n *d"]:
    """Means of a `RegressionPrediction`, or an array of them.

    >>> read_mean([1, 2]).tolist()
    [1.0, 2.0]
    """
    if isinstance(prediction, tuple):
        raise TypeError("prediction must be a RegressionPrediction or an array of means, got a tuple")
    mean = _of_numbers(prediction).mean if isinstance(prediction, _PREDICTIONS) else prediction
    return _check_targets(read_numbers(mean, "mean of prediction"), "mean of prediction")


def read_mean_and_std(prediction: Any) -> tuple[Float[np.ndarray, "n *d"], Float[np.ndarray, "n *d"]]:
    """Means and standard deviations of a `RegressionPrediction`, or a pair of arrays.

    >>> [part.tolist() for part in read_mean_and_std(([1, 2], [1, 0]))]
    [[1.0, 2.0], [1.0, 0.0]]
    """
    if isinstance(prediction, _PREDICTIONS):
        prediction = _of_numbers(prediction)
        prediction = prediction.mean, prediction.std
    mean, std = read_pair(prediction, ("mean", "std"))
    if not np.isfinite(mean).all() or not np.isfinite(std).all():
        raise ValueError("prediction must have finite means and standard deviations; for heavy tails, use quantiles")
    if (std < 0).any():
        raise ValueError(f"std of prediction must be >= 0, got {std.min()}")
    return mean, std


def read_pair(prediction: Any, names: tuple[str, str]) -> tuple[Float[np.ndarray, "n *d"], Float[np.ndarray, "n *d"]]:
    """A pair of arrays of one shape, which may hold infinite numbers."""
    if not isinstance(prediction, tuple | list) or len(prediction) != 2:
        raise TypeError(
            f"prediction must be a RegressionPrediction or a pair ({', '.join(names)}), got {type(prediction).__name__}"
        )
    first, second = (
        _check_targets(read_numbers(part, f"{name} of prediction", infinite=True), f"{name} of prediction")
        for part, name in zip(prediction, names, strict=True)
    )
    if first.shape != second.shape:
        raise ValueError(
            f"prediction must be a pair of arrays of one shape, got {names[0]} {first.shape} and "
            f"{names[1]} {second.shape}"
        )
    return first, second


def read_targets(y: Any, shape: tuple[int, ...]) -> Float[np.ndarray, "..."]:
    """Targets in float64, of the shape of what was predicted."""
    targets = read_numbers(y, "y")
    if targets.shape != shape:
        raise ValueError(f"y must have shape {shape}, one target per input, got {targets.shape}")
    return targets


def read_numbers(values: Any, name: str, *, infinite: bool = False) -> Float[np.ndarray, "..."]:
    """Numbers in float64: without NaN, and finite unless infinite ones are allowed.

    >>> read_numbers([1, float("nan")], "losses")
    Traceback (most recent call last):
    ValueError: losses must be finite, got nan in row 1
    """
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name} must be an array of numbers: {error}") from None
    if array.dtype.kind not in "iufb":
        raise ValueError(f"{name} must hold numbers, got an array of {array.dtype}")
    if array.ndim == 0 or array.size == 0:
        raise ValueError(f"{name} must have at least one row, got an array of shape {array.shape}")
    array = array.astype(np.float64)
    wrong = np.isnan(array) if infinite else ~np.isfinite(array)
    if wrong.any():
        what = "must not be NaN" if infinite else "must be finite"
        raise ValueError(f"{name} {what}, got {array[wrong][0]} in row {np.argwhere(wrong)[0, 0]}")
    return array


def check_level(level: float) -> None:
    """Refuse a level outside (0, 1)."""
    if isinstance(level, bool) or not isinstance(level, int | float | np.floating) or not 0 < level < 1:
        raise ValueError(f"level must be strictly between 0 and 1, got {level!r}")


def is_prediction(value: Any) -> bool:
    """Whether it is one of ours, rather than arrays."""
    return isinstance(value, _PREDICTIONS)


def _of_numbers(prediction: Any) -> RegressionPrediction | RecalibratedPrediction:
    if not isinstance(prediction, RegressionPrediction | RecalibratedPrediction):
        raise TypeError(f"prediction must be one of numbers, got {prediction!r}")
    return prediction


def _check_targets(array: np.ndarray, name: str) -> np.ndarray:
    if array.ndim > 2:
        raise ValueError(f"{name} must have shape (n,) or (n, d), got {array.shape}")
    return array
