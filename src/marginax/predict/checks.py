"""Arguments about predictions, checked in one place: rows, arrays, labels, targets, levels, counts, memory."""

import numbers
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from marginax.data.arrays import as_numeric


def rows_of(index: Any, num_rows: int) -> np.ndarray:
    """Positions of the inputs that an index selects; a single one is kept as an axis of length 1."""
    rows = np.atleast_1d(np.arange(num_rows)[index])
    if rows.ndim != 1 or not len(rows):
        raise IndexError(f"index must select at least one of the {num_rows} inputs, got {index!r}")
    return rows


def check_size(num_bytes: int, name: str, max_bytes: int) -> None:
    """Refuse a result that would take more memory than there is leave to use."""
    if num_bytes > max_bytes:
        raise MemoryError(
            f"{name} would take {num_bytes / 2**30:.2f} GiB, more than max_bytes={max_bytes}: "
            "predict fewer inputs at a time, or pass a larger max_bytes to predict"
        )


def check_array(values: Any, name: str, *, infinite: bool = False) -> Float[np.ndarray, "..."]:
    """Numbers in float64: without NaN, and finite unless infinite ones are allowed.

    >>> check_array([1, float("nan")], "losses")
    Traceback (most recent call last):
    ValueError: losses has 1 values that are NaN or infinite, the first in row 1
    """
    if not infinite:
        return as_numeric(values, name=name).astype(np.float64)
    array = np.asarray(values)
    as_numeric(np.zeros(array.shape) if array.dtype.kind == "f" else array, name=name)
    array = array.astype(np.float64)
    if np.isnan(array).any():
        raise ValueError(f"{name} must not be NaN, got nan in row {np.argwhere(np.isnan(array))[0, 0]}")
    return array


def check_targets(y: Any, shape: tuple[int, ...], *, hint: str = "") -> Float[np.ndarray, "..."]:
    """Targets in float64, of the shape of what was predicted."""
    targets = check_array(y, "y")
    if targets.shape != shape:
        raise ValueError(f"y must have shape {shape}, one target per input{hint}, got {targets.shape}")
    return targets


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


def check_level(level: Any, name: str = "level") -> float:
    """A probability strictly between 0 and 1."""
    if not isinstance(level, numbers.Real) or not 0 < float(level) < 1:
        raise ValueError(f"{name} must be a number strictly between 0 and 1, got {level!r}")
    return float(level)


def check_levels(levels: Any, name: str = "levels") -> Float[np.ndarray, " l"]:
    """Several of them."""
    at = np.asarray(levels, np.float64)
    if at.ndim != 1 or not at.size or not np.all((at > 0) & (at < 1)):
        raise ValueError(f"{name} must be a list of numbers strictly between 0 and 1, got {levels!r}")
    return at


def check_count(num: Any, name: str, *, least: int = 1) -> int:
    """An int that is large enough."""
    if isinstance(num, bool) or not isinstance(num, int | np.integer) or num < least:
        raise ValueError(f"{name} must be an int >= {least}, got {num!r}")
    return int(num)
