"""Estimators in data-only files, and in whatever pickles them for the user."""

import os
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np

from marginax.files import FileError, decode, encode, load_tree, register, save_tree

_KIND = "estimator"
_FOLDER = "estimator"


@register
class Items(eqx.Module):
    """An array of texts or of objects, such as names of columns and classes, as plain items."""

    items: list[Any]
    dtype: str

    def array(self) -> np.ndarray:
        """The array again."""
        return np.array(self.items, np.dtype(self.dtype))


def write_estimator(estimator: Any, path: str | os.PathLike[str], *, overwrite: bool) -> None:
    """Everything but the posterior: arguments, and how columns and classes are encoded."""
    state = {name: _storable(value) for name, value in vars(estimator).items() if name != "posterior_"}
    save_tree(Path(path) / _FOLDER, _KIND, {"class": type(estimator).__name__, "state": state}, overwrite=overwrite)


def read_estimator(path: str | os.PathLike[str], cls: type) -> Any:
    """An estimator that lacks only its posterior."""
    if not (Path(path) / _FOLDER).exists():
        raise FileError(f"{path} holds no estimator: it was written neither by save nor by fit(X, y, directory=...)")
    stored = load_tree(Path(path) / _FOLDER, _KIND)
    names = [each.__name__ for each in (cls, *cls.__subclasses__())]
    if not isinstance(stored, dict) or set(stored) != {"class", "state"} or not isinstance(stored["state"], dict):
        raise FileError(f"{path} is not a marginax estimator")
    if stored["class"] not in names:
        raise FileError(f"{path} holds a {stored['class']!r:.80}, not a {cls.__name__}")
    estimator = next(each for each in (cls, *cls.__subclasses__()) if each.__name__ == stored["class"])()
    vars(estimator).update({name: _restored(value) for name, value in stored["state"].items()})
    return estimator


def pack(value: Any) -> tuple[Any, ...]:
    """A value as document and arrays, so that functions inside of it need not be importable; else as it is."""
    try:
        return ("encoded", *encode(_storable(value)))
    except FileError:
        return ("given", value)


def unpack(packed: tuple[Any, ...]) -> Any:
    """The value again."""
    return _restored(decode(packed[1], packed[2])) if packed[0] == "encoded" else packed[1]


def _storable(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.kind in "OUS":
        return Items(value.tolist(), value.dtype.str)
    return value


def _restored(value: Any) -> Any:
    return value.array() if isinstance(value, Items) else value
