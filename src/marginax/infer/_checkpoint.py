"""A run on disk: how it was set up, where it stands, and what it has kept so far.

    run/setup/                      model, method, data, hooks, key, starting points: written once
    run/chunks/train-0.safetensors  info and draws between two checkpoints, named by phase and first step
    run/checkpoint-0/, -1/          states; written in turn, so that one good checkpoint always exists
    run/posterior/                  the result, when the run has finished

A chunk file is written before the checkpoint that names it and its hash. A crash between the two leaves a file that no
checkpoint knows: it is written again by the resumed run, so no draw is lost or doubled.
"""

import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from marginax.files import FileError, read_arrays, read_bundle, write_arrays, write_bundle


class RunDirectory:
    """Writes and reads the files of one run."""

    def __init__(self, path: Path):
        self.path = path
        self.chunks: list[dict[str, Any]] = []
        self.count = 0

    def create(self, document: Any, arrays: dict[str, Any]) -> None:
        """Begin a run in a new or empty directory."""
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise FileExistsError(
                f"directory {str(self.path)!r} exists and is not empty: choose another, or mx.resume it"
            )
        write_bundle(self.path / "setup", "setup", document, arrays)
        (self.path / "chunks").mkdir()

    def setup(self) -> tuple[Any, dict[str, Any]]:
        """How the run was set up."""
        if not (self.path / "setup").exists():
            raise FileError(f"{self.path} holds no run to resume: it was not made by mx.fit(..., directory=...)")
        return read_bundle(self.path / "setup", "setup")

    def save(self, cursor: dict[str, Any], state: PyTree, kept: dict[str, np.ndarray], name: str) -> None:
        """Write what was kept since the last checkpoint, then the checkpoint."""
        if kept:
            file = f"{name}.safetensors"
            digest = write_arrays(self.path / "chunks" / file, kept)
            self.chunks.append({"file": file, "sha256": digest, "phase": cursor["phase"]})
        leaves = {f"{i}": _plain(leaf) for i, leaf in enumerate(jax.tree.leaves(state))}
        document = {"cursor": cursor, "chunks": self.chunks, "count": self.count}
        write_bundle(self.path / f"checkpoint-{self.count % 2}", "checkpoint", document, leaves, overwrite=True)
        self.count += 1

    def latest(self, like: PyTree) -> tuple[dict[str, Any], PyTree, list[tuple[int, dict[str, np.ndarray]]]] | None:
        """The newest whole checkpoint, its state in the structure of `like`, and all that was kept before it."""
        found = []
        for place in (0, 1):
            path = self.path / f"checkpoint-{place}"
            try:
                document: Any
                document, arrays = read_bundle(path, "checkpoint")
                kept = [
                    (
                        chunk["phase"],
                        read_arrays(self.path / "chunks" / Path(chunk["file"]).name, chunk["sha256"]),
                    )
                    for chunk in document["chunks"]
                ]
            except FileError as error:
                if path.exists():
                    warnings.warn(f"checkpoint {path} is damaged and was passed over: {error}", stacklevel=3)
                continue
            found.append((document, arrays, kept))
        if not found:
            return None
        document, arrays, kept = max(found, key=lambda item: item[0]["count"])
        leaves, treedef = jax.tree.flatten(like)
        if len(leaves) != len(arrays):
            raise FileError(f"{self.path} belongs to another method or model: its state has other parts")
        restored = [_like(arrays[f"{i}"], leaf) for i, leaf in enumerate(leaves)]
        self.chunks, self.count = document["chunks"], document["count"] + 1
        return document["cursor"], jax.tree.unflatten(treedef, restored), kept


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
