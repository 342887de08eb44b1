"""Weights of rows, by scikit-learn's conventions."""

from typing import Any

import numpy as np
from sklearn.utils import compute_sample_weight
from sklearn.utils.validation import _check_sample_weight


def row_weights(sample_weight: Any, class_weight: Any, table: Any, y: Any) -> np.ndarray | None:
    """What each row counts; None if all count 1.

    Args:
        sample_weight: one number >= 0 for each row, or None.
        class_weight: None, "balanced", or a dict of classes.
        table: the rows.
        y: their targets.

    >>> row_weights([1, 2], None, np.zeros((2, 1)), [0.5, 0.7]).tolist()
    [1.0, 2.0]
    >>> row_weights(None, "balanced", np.zeros((4, 1)), ["a", "a", "a", "b"]).round(2).tolist()
    [0.67, 0.67, 0.67, 2.0]
    """
    weight = None
    if sample_weight is not None:
        weight = _check_sample_weight(sample_weight, table, dtype=np.float64)
        if not np.all(weight >= 0):
            raise ValueError(f"sample_weight must be >= 0, got {weight.min():g} in row {int(weight.argmin())}")
        if not np.any(weight > 0):
            raise ValueError("sample_weight must be > 0 in some row, got 0 in all of them")
    if class_weight is not None:
        by_class = compute_sample_weight(class_weight, y)
        if not (np.all(by_class >= 0) and np.any(by_class > 0)):
            raise ValueError(f"class_weight must be >= 0, and > 0 for some class, got {class_weight!r}")
        weight = by_class if weight is None else weight * by_class
    return weight
