"""Estimators in data-only files, and in whatever pickles them for the user."""

import os
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np

from marginax.files import FileError, decode, encode, load_tree, register, save_tree

_KIND = "estimator"
_FOLDER = "estimator"


_FITTED = {"classes_", "encoder_", "feature_names_in_", "method_", "n_features_in_", "reason_"}


@register("table/items")
class Items(eqx.Module):
    """An array of texts or of objects, such as names of columns and classes, as plain items."""

    items: list[Any]
    are_texts: bool

    def array(self) -> np.ndarray:
        """The array again."""
        return np.array(self.items, str if self.are_texts else object)


def write_estimator(estimator: Any, path: str | os.PathLike[str], *, overwrite: bool) -> None:
    """Everything but the posterior: arguments, and how columns and classes are encoded."""
    state = {name: _storable(value) for name, value in vars(estimator).items() if name != "posterior_"}
    save_tree(Path(path) / _FOLDER, _KIND, {"class": type(estimator).__name__, "state": state}, overwrite=overwrite)


def read_estimator(path: str | os.PathLike[str], cls: type) -> Any:
    """An estimator that lacks only its posterior."""
    if not (Path(path) / _FOLDER).exists():
        raise FileError(f"{path} holds no estimator: it was written neither by save nor by fit(X, y, directory=...)")
    stored = load_tree(Path(path) / _FOLDER, _KIND)
    if not isinstance(stored, dict) or set(stored) != {"class", "state"} or not isinstance(stored["state"], dict):
        raise FileError(f"{path} is not a marginax estimator")
    kinds = {each.__name__: each for each in (cls, *cls.__subclasses__())}
    if stored["class"] not in kinds:
        raise FileError(f"{path} holds a {stored['class']!r:.80}, not a {cls.__name__}")
    estimator = kinds[stored["class"]]()
    if unknown := sorted(set(stored["state"]) - _FITTED - set(estimator.get_params())):
        raise FileError(f"{path} holds a {stored['class']} with unknown attributes: {', '.join(unknown)[:80]}")
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
    if isinstance(value, np.ndarray) and value.dtype.kind in "OU":
        return Items(value.tolist(), value.dtype.kind == "U")
    return value


def _restored(value: Any) -> Any:
    return value.array() if isinstance(value, Items) else value
