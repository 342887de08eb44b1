"""Targets as people pass them: refused with a sentence that names `y`, before anything else happens."""

import decimal
import numbers
from typing import Any

import numpy as np

from marginax._extras import require


def check_numbers(y: Any) -> None:
    """Raise if `y` cannot be numbers, or has gaps."""
    values = _flat(y)
    if values.dtype.kind in "mM":
        what = "dates" if values.dtype.kind == "M" else "durations"
        raise ValueError(f"y must hold numbers, got {what}: turn them into numbers, such as days from a first one")
    if values.dtype.kind in "OUS":
        for value in values:
            if isinstance(value, str | bytes) and not _is_number(value):
                raise ValueError(
                    f"y must hold numbers, got texts such as {str(value)!r:.40}: for classes use BayesianClassifier"
                )
    _check_present(values)


def check_labels(y: Any) -> None:
    """Raise if `y` cannot be classes: gaps, or names and numbers that have no common order."""
    values = _flat(y)
    _check_present(values)
    if values.dtype.kind != "O":
        return
    texts = [value for value in values if isinstance(value, str)]
    others = [value for value in values if not isinstance(value, str)]
    if texts and others:
        raise ValueError(
            f"y must hold labels of one kind, got texts such as {texts[0]!r:.40} and others such as "
            f"{others[0]!r:.40} ({type(others[0]).__name__}): make all of them texts"
        )


def labels_with_gaps(y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Where there is a label, in the shape of y, and those labels; whole numbers that gaps made floats are ints again.

    >>> given, labels = labels_with_gaps([[1.0, np.nan], [0.0, 1.0]])
    >>> given.tolist(), labels.tolist()
    ([[True, False], [True, True]], [1, 0, 1])
    """
    flat = _flat(y)
    given = ~np.asarray(require("pandas").isna(flat))
    labels = flat[given]
    check_labels(labels)
    if labels.dtype.kind == "O" and not any(isinstance(label, str) for label in labels):
        labels = np.array(labels.tolist())
    if labels.dtype.kind == "f" and np.all(np.isfinite(labels)) and np.all(labels == np.round(labels)):
        labels = labels.astype(np.int64)
    return given.reshape(np.shape(y)), labels


def _flat(y: Any) -> np.ndarray:
    """All values in one row, none of them a list or the like."""
    if y is None:  # scikit-learn has a sentence for this
        return np.empty(0)
    try:
        values = np.asarray(y)
    except ValueError:
        raise ValueError(
            "y must hold one number or label, or one row of numbers, for each row of X, got rows of several lengths"
        ) from None
    if values.dtype.kind == "c":
        raise ValueError(f"y must hold real numbers or labels. Complex data not supported, got {values.dtype}")
    if values.ndim > 2:
        raise ValueError(f"y must have shape (n,) or (n, outputs), got {values.shape}")
    flat = values.reshape(-1)
    if flat.dtype.kind == "O":
        scalars = str | bytes | numbers.Real | decimal.Decimal | np.generic
        missing = require("pandas").isna
        for place, value in enumerate(flat):
            if not (isinstance(value, scalars) or missing(value) is True):
                row = place // max(1, values[0].size if values.ndim == 2 else 1)
                raise TypeError(
                    f"y must hold numbers or labels: each argument must be a string or a number, got "
                    f"{type(value).__name__} in row {row}: {value!r:.60}"
                )
    return flat


def _check_present(values: np.ndarray) -> None:
    missing = np.asarray(require("pandas").isna(values))
    if missing.any():
        raise ValueError(
            f"Input y contains NaN: {missing.sum():,} of {missing.size:,} values are missing, the first at place "
            f"{int(missing.argmax())}; leave those rows out"
        )


def _is_number(text: Any) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
