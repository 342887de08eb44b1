"""Estimators in data-only files, and in whatever pickles them for the user."""

import functools
import os
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np

from marginax.files import FileError, Parts, RunDirectory, decode, encode, register
from marginax.files.disk import well_formed
from marginax.files.hints import check_document
from marginax.posterior import AbstractPosterior, load
from marginax.posterior.storage import posterior_parts

RUN = "run"


@register("table/items")
class Items(eqx.Module):
    """An array of texts or of objects, such as names of columns and classes, as plain items."""

    items: list[Any]
    are_texts: bool

    def array(self) -> np.ndarray:
        """The array again."""
        return np.array(self.items, str if self.are_texts else object)


def estimator_directory(path: str | os.PathLike[str]) -> RunDirectory:
    """The files of an estimator: its own, and the run of its fit, or its posterior."""
    return RunDirectory(
        Path(path),
        "estimator",
        "save or fit(X, y, directory=...)",
        "choose another, or resume the run in it",
        folder="estimator",
        kind="estimator",
        begun_with=f"{RUN}/setup",
    )


def owning(fit: Any) -> Any:
    """`fit(X, y, directory=...)` as the only one who writes there, from before anything is looked at."""

    @functools.wraps(fit)
    def owner(*args: Any, directory: str | os.PathLike[str] | None = None, **options: Any) -> Any:
        if directory is None:
            return fit(*args, **options)
        with estimator_directory(directory).owned():
            return fit(*args, directory=directory, **options)

    return owner


def write_estimator(estimator: Any, path: str | os.PathLike[str], *, overwrite: bool) -> None:
    """The estimator and its posterior as one bundle, which is there as a whole or not at all."""
    files = estimator_directory(path)
    own, posterior = Parts.encode(parts_of(estimator)), posterior_parts(estimator.posterior_)
    whole = Parts(posterior.document | own.document, posterior.arrays | own.arrays)
    whole.write(files.posterior, "posterior", overwrite=overwrite)


def _read(path: str | os.PathLike[str]) -> Parts:
    """What `write_estimator` wrote; or the estimator alone, beside the run of its fit or, of old, its posterior."""
    files = estimator_directory(path)
    if files.finished and "class" in (parts := Parts.read(files.posterior, "posterior", mapped=True)):
        return parts
    return files.read()


def read_posterior(path: str | os.PathLike[str]) -> AbstractPosterior:
    """The posterior of an estimator."""
    files = estimator_directory(path)
    return load(files.posterior if files.finished else files.at(RUN))


def parts_of(estimator: Any) -> dict[str, Any]:
    """Everything but the posterior: arguments, and how columns and classes are encoded."""
    state = {name: _storable(value) for name, value in vars(estimator).items() if name != "posterior_"}
    return {"class": type(estimator).__name__, "state": state}


def read_estimator(path: str | os.PathLike[str], cls: Any) -> Any:
    """An estimator that lacks only its posterior.

    Args:
        path: where it was written.
        cls: of it, or what it is a subclass of. It says by `fitted` what a fit leaves behind and of which types, and by
            `fault_of(values)` what is wrong with such values together, or None.
    """
    with well_formed(path):
        return _decoded(_read(path), path, cls)


def _decoded(setup: Parts, path: str | os.PathLike[str], cls: Any) -> Any:
    name, state = setup.get("class", of=str), setup.get("state", of=dict[str, Any])
    kinds = {each.__name__: each for each in (cls, *cls.__subclasses__())}
    if name not in kinds:
        raise FileError(f"{path} holds a {name!r:.80}, not a {cls.__name__}")
    estimator = kinds[name]()
    if unknown := sorted(set(state) - set(cls.fitted) - set(estimator.get_params())):
        raise FileError(f"{path} holds a {name} with unknown attributes: {', '.join(unknown)[:80]}")
    restored = {name: _restored(value) for name, value in state.items()}
    check_document(restored, cls.fitted, f"a {name}")
    if (fault := estimator.fault_of(restored)) is not None:
        raise FileError(f"{path} holds a {name} {fault}")
    vars(estimator).update(restored)
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
