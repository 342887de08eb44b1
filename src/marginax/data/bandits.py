"""Data sets that are replayed as contextual bandits: contexts as numbers, and the class of each.

    bandits/     mushroom.npz, shuttle.npz, covertype_20k.npz, adult.npz in the folder named by `MARGINAX_DATA`

Columns that are categories have one indicator for each category that occurs, numbers are standardised by all rows.
Classes are not looked at in either.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Int32, Integer

from marginax.data.dataset_files import FileSource, find_file, read_npz
from marginax.files import FileError

__all__ = ["load_bandit"]

Shapes = dict[str, tuple[tuple[int, ...], str]]

_MUSHROOM: Shapes = {
    "x": ((8124, 22), "u"),
    "y": ((8124,), "u"),
    "columns": ((22,), "U"),
    "categories": ((22, 12), "U"),
    "n_categories": ((22,), "u"),
}
_SHUTTLE: Shapes = {
    "x_train": ((43_500, 9), "i"),
    "y_train": ((43_500,), "u"),
    "x_test": ((14_500, 9), "i"),
    "y_test": ((14_500,), "u"),
    "class_names": ((7,), "U"),
}
_COVERTYPE: Shapes = {
    "x": ((20_000, 54), "i"),
    "y": ((20_000,), "u"),
    "columns": ((54,), "U"),
    "class_names": ((7,), "U"),
}
_ADULT: Shapes = {
    "x_numeric": ((48_842, 6), "i"),
    "x_categorical": ((48_842, 8), "u"),
    "y": ((48_842,), "u"),
    "is_test": ((48_842,), "b"),
    "numeric_columns": ((6,), "U"),
    "categorical_columns": ((8,), "U"),
    "categories": ((8, 42), "U"),
}
_NUM_MEASURED = 10  # columns of covertype that are not indicators


def load_bandit(name: str) -> tuple[Float32[np.ndarray, "n d"], Int32[np.ndarray, " n"]]:
    """Contexts and classes, for `mx.decide.ReplayBandit`.

    Args:
        name: "mushroom" (8,124 rows, 117 columns; 1 is poisonous; Audubon Society, 1981), "shuttle" (58,000, 9;
            seven classes; Statlog), "covertype_20k" (20,000 of the rows of Blackard & Dean, 1999; 54; seven classes)
            or "adult" (48,842, 108; 1 is an income over 50,000; Kohavi, 1996).

    Returns:
        Contexts and classes 0, 1, ...
    """
    if name not in _READERS:
        raise ValueError(f"name must be one of {', '.join(_READERS)}, got {name!r}")
    shapes, read, num_classes = _READERS[name]
    words = ", ".join(f"{array} {shape}" for array, (shape, _) in shapes.items())
    path = find_file(
        "bandits", f"{name}.npz", FileSource(origin=f"an npz file with {words}: data of the UCI repository")
    )
    x, y = read(read_npz(path, shapes))
    if y.max() >= num_classes:
        raise FileError(f"{path}: damaged, the classes go up to {y.max()}, not {num_classes - 1}")
    return x.astype(np.float32), y.astype(np.int32)


def _mushroom(arrays: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    return indicators(arrays["x"]), arrays["y"]


def _shuttle(arrays: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    x = np.concatenate([arrays["x_train"], arrays["x_test"]])
    return standardised(x), np.concatenate([arrays["y_train"], arrays["y_test"]])


def _covertype(arrays: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    x = arrays["x"]
    return np.concatenate([standardised(x[:, :_NUM_MEASURED]), x[:, _NUM_MEASURED:]], axis=1), arrays["y"]


def _adult(arrays: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    parts = standardised(arrays["x_numeric"]), indicators(arrays["x_categorical"])
    return np.concatenate(parts, axis=1), arrays["y"]


_READERS: dict[str, tuple[Shapes, Callable[[dict[str, np.ndarray]], tuple[Any, Any]], int]] = {
    "mushroom": (_MUSHROOM, _mushroom, 2),
    "shuttle": (_SHUTTLE, _shuttle, 7),
    "covertype_20k": (_COVERTYPE, _covertype, 7),
    "adult": (_ADULT, _adult, 2),
}


def indicators(codes: Integer[np.ndarray, "n d"]) -> Float[np.ndarray, "n k"]:
    """A column of 0 and 1 for every category that occurs, column by column.

    >>> indicators(np.array([[0, 5], [2, 5]])).tolist()
    [[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]]
    """
    return np.concatenate([(column[:, None] == np.unique(column)).astype(float) for column in codes.T], axis=1)


def standardised(x: Integer[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    """Columns of mean 0 and standard deviation 1; one that does not vary is 0.

    >>> standardised(np.array([[1, 7], [3, 7]])).tolist()
    [[-1.0, 0.0], [1.0, 0.0]]
    """
    spread = x.std(axis=0)
    return (x - x.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
