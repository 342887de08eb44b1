"""A run on disk: how it was set up, where it stands, and what it has kept so far.

    run/setup/                  model, method, data, hooks, key, starting points: written once
    run/info-0.safetensors      the info of every step of a phase, run/draws-1.safetensors what it keeps: filled
                                chunk by chunk, each number in the place that it has in the end
    run/checkpoint-0/, -1/      states; written in turn, so that one good checkpoint always exists
    run/posterior/              the result, when the run has finished; it takes over the file of draws

A chunk is on disk before the checkpoint that counts it and has its hash. A crash between the two leaves slots that no
checkpoint counts: they are written again by the resumed run, so no draw is lost or doubled.
"""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from marginax.files import FileError, GrowingFile, read_bundle, write_bundle


class RunDirectory:
    """Writes and reads the files of one run."""

    def __init__(self, path: Path):
        self.path = path
        self.count = 0
        self.files: dict[str, GrowingFile] = {}

    def create(self, document: Any, arrays: dict[str, Any]) -> None:
        """Begin a run in a new or empty directory."""
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise FileExistsError(
                f"directory {str(self.path)!r} exists and is not empty: choose another, or mx.resume it"
            )
        write_bundle(self.path / "setup", "setup", document, arrays)

    def setup(self) -> tuple[Any, dict[str, Any]]:
        """How the run was set up."""
        if not (self.path / "setup").exists():
            raise FileError(f"{self.path} holds no run to resume: it was not made by mx.fit(..., directory=...)")
        return read_bundle(self.path / "setup", "setup")

    def grow(self, name: str, like: Mapping[str, Any]) -> GrowingFile:
        """A new file for arrays of these shapes; checkpoints count what is in it from now on."""
        self.files[name] = GrowingFile.create(self._file(name), like)
        return self.files[name]

    def save(self, cursor: dict[str, Any], state: PyTree, changed: list[str]) -> None:
        """Write a checkpoint that counts what is in the files, those that have changed being synced before."""
        for name in changed:
            self.files[name].sync()
        leaves = {f"{i}": _plain(leaf) for i, leaf in enumerate(jax.tree.leaves(state))}
        kept = {name: {"count": file.count, "sha256": file.sha256} for name, file in self.files.items()}
        document = {"cursor": cursor, "kept": kept, "count": self.count}
        write_bundle(self.path / f"checkpoint-{self.count % 2}", "checkpoint", document, leaves, overwrite=True)
        self.count += 1

    def latest(self, like: PyTree) -> tuple[dict[str, Any], PyTree, dict[str, GrowingFile]] | None:
        """The newest whole checkpoint, its state in the structure of `like`, and the files with all that it counts.

        None if there is none yet. If all are damaged that is an error, for starting again would overwrite the draws.
        """
        found, damage = [], []
        for place in (0, 1):
            path = self.path / f"checkpoint-{place}"
            try:
                found.append(read_bundle(path, "checkpoint"))
            except FileError as error:
                if path.exists():
                    damage.append(str(error))
        document: Any
        for document, arrays in sorted(found, key=lambda item: item[0]["count"], reverse=True):
            try:
                files = {
                    name: GrowingFile.open(self._file(name), kept["count"], kept["sha256"])
                    for name, kept in document["kept"].items()
                }
            except FileError as error:
                damage.append(str(error))
                continue
            for text in damage:
                warnings.warn(f"the last checkpoint is damaged and was passed over: {text}", stacklevel=3)
            self.files, self.count = files, document["count"] + 1
            return document["cursor"], self._state(arrays, like), files
        if damage:
            raise FileError(
                f"{self.path} cannot be resumed, its checkpoints or what they count are damaged ({'; '.join(damage)}): "
                "remove both checkpoints to start it again from the beginning"
            )
        return None

    def forget(self) -> None:
        """Remove the files of draws when the posterior has them."""
        for name, file in self.files.items():
            if name.startswith("draws-"):
                file.remove()

    def _file(self, name: str) -> Path:
        return self.path / f"{Path(name).name}.safetensors"

    def _state(self, arrays: Mapping[str, np.ndarray], like: PyTree) -> PyTree:
        leaves, treedef = jax.tree.flatten(like)
        if len(leaves) != len(arrays):
            raise FileError(f"{self.path} belongs to another method or model: its state has other parts")
        return jax.tree.unflatten(treedef, [_like(arrays[f"{i}"], leaf) for i, leaf in enumerate(leaves)])


def _plain(leaf: Any) -> np.ndarray:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return np.asarray(jax.random.key_data(leaf))
    return np.asarray(leaf)


def _like(array: np.ndarray, leaf: Any) -> Any:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(leaf))
    if array.shape != leaf.shape or array.dtype != leaf.dtype:
        raise FileError(f"checkpoint has an array of shape {array.shape} where {leaf.shape} was expected")
    return jnp.asarray(array)
