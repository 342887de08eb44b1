"""Posteriors on disk: data-only files, and nothing but our own classes when they are read."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import numpy as np

from marginax.files import FileError, decode, encode, read_bundle, write_bundle
from marginax.files.disk import naming
from marginax.model import AbstractModel, Model, Params

if TYPE_CHECKING:
    from marginax.posterior.posterior import AbstractPosterior

_MODEL_MISSING = "model of the posterior"


def encode_model(model: AbstractModel) -> tuple[Any, dict[str, Any]]:
    """The model as a document, or a note that the user has to bring it because it holds code of theirs."""
    try:
        document, arrays = encode(model)
    except FileError as error:
        return {"missing": str(error), "structure": model.structure}, {}
    return {"stored": document}, {f"model/{name}": array for name, array in arrays.items()}


def decode_model(document: Any, arrays: dict[str, Any], model: AbstractModel | None, path: Any) -> AbstractModel:
    """The stored model, or the user's where it could not be stored; the two must have the same leaves."""
    if "stored" in document:
        inner = {name.removeprefix("model/"): a for name, a in arrays.items() if name.startswith("model/")}
        return decode(document["stored"], inner) if model is None else model
    if model is None:
        raise FileError(
            f"{path} was made with a network or function of yours that is not in the file ({document['missing']}): "
            "pass model=..., or decorate the class with @mx.register before saving"
        )
    if document["structure"] != model.structure:
        raise FileError(f"model does not match {path}: its weights have other names or shapes")
    return model


def save_posterior(
    posterior: "AbstractPosterior",
    path: str | os.PathLike[str],
    *,
    overwrite: bool,
    draws: Mapping[str, np.ndarray] | None = None,
    linked: Path | None = None,
) -> None:
    """Write everything but the model as one tree, and the model beside it if it can be stored.

    Leaves that are among `draws` lie in the file `linked` already: it is made a part of the bundle, as it is.
    """
    model, arrays = encode_model(posterior.model)
    document, inner = encode(_without_model(posterior))
    names = {id(array): name for name, array in (draws or {}).items()}
    stored = {name: names[id(array)] for name, array in inner.items() if linked is not None and id(array) in names}
    arrays.update({f"posterior/{name}": array for name, array in inner.items() if name not in stored})
    write_bundle(
        path,
        "posterior",
        {"model": model, "posterior": document, "draws": stored},
        arrays,
        overwrite=overwrite,
        linked=linked if stored else None,
    )


def load(path: str | os.PathLike[str], *, model: AbstractModel | None = None) -> "AbstractPosterior":
    """Read a posterior that `posterior.save` or a finished `mx.fit(directory=...)` wrote.

    Everything is checked against its hash. Draws stay on disk, as read-only memory maps.

    Args:
        path: the directory.
        model: needed only if the network is a class or function of yours that was not registered.
    """
    path = Path(path)
    inner = path / "posterior"
    if not (path / "manifest.json").exists() and (inner / "manifest.json").exists():
        path = inner
    elif (path / "setup").exists():
        raise FileError(f"{path} is a run that has not finished: use mx.resume({str(path)!r})")
    document, arrays = read_bundle(path, "posterior", mapped=True)
    if not isinstance(document, dict) or set(document) != {"model", "posterior", "draws"}:
        raise FileError(f"{path} is not a marginax posterior")
    stored = {n.removeprefix("posterior/"): a for n, a in arrays.items() if n.startswith("posterior/")}
    places = document["draws"] if isinstance(document["draws"], dict) else {}
    stored |= {name: arrays[place] for name, place in places.items() if isinstance(place, str) and place in arrays}
    with naming(path):
        loaded = decode_model(document["model"], arrays, model, path)
        return _with_model(decode(document["posterior"], stored), loaded)


def _without_model(posterior: Any) -> Any:
    """The posterior with a note in place of the model, and weights as plain lists, whatever class the network has."""

    def plain(node: Any) -> Any:
        if isinstance(node, Params):
            return Params(tuple(jax.tree.leaves(node.network)), node.likelihood, node.prior)
        return _MODEL_MISSING if isinstance(node, AbstractModel) else node

    return jax.tree.map(plain, posterior, is_leaf=_is_part)


def _with_model(posterior: Any, model: AbstractModel) -> Any:
    structure = jax.tree.structure(eqx.filter(model.network, model.is_random())) if isinstance(model, Model) else None

    def whole(node: Any) -> Any:
        if isinstance(node, Params):
            if structure is None or len(node.network) != structure.num_leaves:
                raise FileError("its weights do not fit the model")
            return Params(jax.tree.unflatten(structure, node.network), node.likelihood, node.prior)
        return model if isinstance(node, str) and node == _MODEL_MISSING else node

    return jax.tree.map(whole, posterior, is_leaf=_is_part)


def _is_part(node: Any) -> bool:
    return isinstance(node, AbstractModel | Params)
