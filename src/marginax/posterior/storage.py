"""Posteriors on disk: data-only files, and nothing but our own classes when they are read."""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from marginax.files import FileError, Parts, encode
from marginax.files.disk import inside, naming, real_path, well_formed
from marginax.files.hints import LEFT_OUT
from marginax.model import AbstractModel, Params
from marginax.posterior.record import FitRecord

if TYPE_CHECKING:
    from marginax.posterior.posterior import AbstractPosterior


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
    parts = posterior_parts(posterior, draws if linked is not None else None)
    places = parts.get("draws")
    parts.write(real_path(path), "posterior", overwrite=overwrite, linked=linked if places else None)


def posterior_parts(posterior: "AbstractPosterior", draws: Mapping[str, np.ndarray] | None = None) -> Parts:
    """What a posterior is stored as; those of its arrays that are among `draws` are named, and left out."""
    names = {id(array): name for name, array in (draws or {}).items()}
    method = posterior.record.configuration  # which may be a class of the user's own
    parts = Parts.encode(
        {"model": posterior.model, "posterior": _without_model(posterior), "method": method},
        {"model": posterior.model.structure, "method": None},
    )
    places = {name: names[id(array)] for name, array in parts.arrays.items() if id(array) in names}
    for name in places:
        del parts.arrays[name]
    parts.document["draws"] = {"stored": encode(places)[0]}
    return parts


def load(path: str | os.PathLike[str], *, model: AbstractModel | None = None) -> "AbstractPosterior":
    """Read a posterior that `posterior.save` or a finished `mx.fit(directory=...)` wrote.

    Everything is checked against its hash. Draws stay on disk, as read-only memory maps.

    Args:
        path: the directory.
        model: needed only if the network is a class or function of yours that was not registered; the same as in `fit`,
            and with the prior of the method if it brings one (`BayesByBackprop`).
    """
    root = real_path(path)
    if not (root / "manifest.json").exists() and (inside(root, "posterior") / "manifest.json").exists():
        root = root / "posterior"
    elif (root / "setup").exists():
        raise FileError(f"{path} is a run that has not finished: use mx.resume({str(path)!r})")
    parts = Parts.read(root, "posterior", mapped=True)
    with well_formed(path):
        return _decoded(parts, path, model)


def _decoded(parts: Parts, path: str | os.PathLike[str], model: AbstractModel | None) -> "AbstractPosterior":
    from marginax.posterior.posterior import AbstractPosterior

    places = parts.get("draws", of=dict[str, str])
    with naming(path):
        parts.arrays |= {name: parts.arrays[place] for name, place in places.items() if place in parts.arrays}
    loaded = stored_model(parts, model)
    posterior = parts.get("posterior")
    with naming(path):
        posterior = _with_model(posterior, loaded)
        if not isinstance(posterior, AbstractPosterior) or not isinstance(loaded, AbstractModel):
            raise FileError(f"holds a {type(posterior).__name__} where a posterior should be")
        if "method" in parts and isinstance(posterior.record, FitRecord):
            posterior = _with_method(posterior, parts.get("method"))
        _check_arrays(getattr(posterior, "params", None))
        return posterior


def stored_model(parts: Parts, model: AbstractModel | None) -> AbstractModel:
    """The stored model, or the user's where it could not be stored; the two must have the same leaves."""
    if model is not None and (structure := parts.document.get("model", {}).get("structure")):
        model = model.rebind(structure)
    given = None if model is None else model.structure
    return parts.get("model", model, structure=given, argument="model", of=AbstractModel)


def _without_model(posterior: Any) -> Any:
    """The posterior with a note in place of the model, and weights as plain lists, whatever class the network has."""

    def plain(node: Any) -> Any:
        if isinstance(node, Params):
            return Params(tuple(jax.tree.leaves(node.network)), node.likelihood, node.prior)
        if isinstance(node, FitRecord):
            return dataclasses.replace(node, configuration=None)
        return LEFT_OUT if isinstance(node, AbstractModel) else node

    return jax.tree.map(plain, posterior, is_leaf=_is_part)


def _with_model(posterior: Any, model: AbstractModel) -> Any:
    weights = model.network_weights
    structure = None if weights is None else jax.tree.structure(weights)

    def whole(node: Any) -> Any:
        if isinstance(node, Params):
            if structure is None or len(node.network) != structure.num_leaves:
                raise FileError("its weights do not fit the model")
            _check_arrays(node)
            return Params(jax.tree.unflatten(structure, node.network), node.likelihood, node.prior)
        return model if isinstance(node, str) and node == LEFT_OUT else node

    return jax.tree.map(whole, posterior, is_leaf=_is_part)


def _with_method(posterior: Any, method: Any) -> Any:
    """The same, whose record has the method again, also inside of what is around it."""

    def known(node: Any) -> Any:
        return dataclasses.replace(node, configuration=method) if isinstance(node, FitRecord) else node

    return jax.tree.map(known, posterior, is_leaf=lambda node: isinstance(node, FitRecord))


def _check_arrays(params: Any) -> None:
    if not all(isinstance(leaf, jax.Array | np.ndarray) for leaf in jax.tree.leaves(params)):
        raise FileError("its weights are not arrays")


def _is_part(node: Any) -> bool:
    return isinstance(node, AbstractModel | Params | FitRecord)
