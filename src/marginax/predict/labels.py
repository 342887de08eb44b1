"""Labels and the entropy of their probabilities."""

from typing import Any

import numpy as np
from jaxtyping import Float, Int


def check_labels(y: Any, shape: tuple[int, ...], num_classes: int) -> Int[np.ndarray, "..."]:
    """Labels as integers of the given shape, or a ValueError that says what is wrong with `y`.

    >>> check_labels([0.0, 2.0], (2,), 3).tolist()
    [0, 2]
    """
    labels = np.asarray(y)
    if labels.shape != shape:
        raise ValueError(f"y must have shape {shape}, one label per input, got {labels.shape}")
    if labels.dtype.kind not in "biuf":
        raise ValueError(f"y must hold integer labels, got an array of {labels.dtype}")
    whole = np.isfinite(labels) & (labels == np.floor(labels))
    if not whole.all():
        raise ValueError(f"y must hold integer labels, got {labels[~whole][0]}")
    valid = (labels >= 0) & (labels < num_classes)
    if not valid.all():
        raise ValueError(f"y must hold labels from 0 to {num_classes - 1}, got {int(labels[~valid][0])}")
    return labels.astype(int)


def entropy_of(log_probs: Float[np.ndarray, "*rest k"]) -> Float[np.ndarray, "*rest"]:
    """Entropy in nats over the last axis; a class of probability zero adds nothing.

    >>> entropy_of(np.log([[0.5, 0.5]])).round(4).tolist()
    [0.6931]
    """
    return -np.sum(np.exp(log_probs) * np.maximum(log_probs, -1e300), axis=-1)
