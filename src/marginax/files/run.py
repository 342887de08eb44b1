"""ONE run directory, for everything that can be resumed: fits, estimators, comparisons, active learning.

    run/setup/                  how it was set up, in named parts: written once
    run/checkpoint-0/, -1/ ...  where it stands; written in turn, so that one good checkpoint always exists
    run/info-0.safetensors      growing files that the checkpoints count, filled chunk by chunk
    run/state/                  a value that is replaced as a whole
    run/rows/NAME/              values in the order in which they were added
    run/fits/NAME/              runs within the run
    run/posterior/              the result, when the run has finished

One process at a time writes in it (`owned`). No path within it may be a symbolic link. Checkpoints name the setup that
they belong to.

A chunk is on disk before the checkpoint that counts it and has its hash. A crash between the two leaves slots that no
checkpoint counts: they are written again by the resumed run, so nothing is lost or doubled.
"""

import contextlib
import functools
import hashlib
import re
import shutil
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from marginax.files.disk import inside, naming, real_path
from marginax.files.error import FileError
from marginax.files.fingerprint import differences, fingerprint
from marginax.files.growing import GrowingFile
from marginax.files.hints import check_document
from marginax.files.owner import LOCK, Owner, owned
from marginax.files.parts import Parts
from marginax.files.store import load_tree, read_bundle, save_tree, sha256_of_bundle, write_bundle

__all__ = ["RunDirectory"]

_INPUTS = "inputs"
_CHECKPOINT = {
    "cursor": dict[str, Any],
    "kept": dict[str, Any],
    "count": int,
    "setup": str | None,  # earlier versions did not name it
    "structure": list[str] | None,
}
_KEPT = {"count": int, "sha256": str, "header": str | None}
_ROW = {"name": str, "place": int}


@dataclass
class RunDirectory:
    """Writes and reads the files of one run.

    Attributes:
        path: the directory.
        what: kind of the run, in words.
        made_by: what makes such a directory.
        instead: what to do if it is there already.
        folder: of the setup.
        kind: of the setup's bundle.
        begun_with: what is there when it has begun, besides the setup. Before, it can only be begun anew.
        num_checkpoints: how many of the last ones are kept, at least two.
        files: growing files by name.
        count: how many checkpoints there were.

    >>> import tempfile
    >>> run = RunDirectory(Path(tempfile.mkdtemp()) / "run")
    >>> run.create({"size": 3})
    >>> run.read().get("size")
    3
    """

    path: Path
    what: str = "run"
    made_by: str = "mx.fit(..., directory=...)"
    instead: str = "choose another, or mx.resume it"
    folder: str = "setup"
    kind: str = "setup"
    begun_with: str = ""
    num_checkpoints: int = 2
    files: dict[str, GrowingFile] = field(default_factory=dict)
    count: int = 0
    _owner: Owner | None = None

    def __post_init__(self) -> None:
        self.path = real_path(self.path)  # once: the working directory may change

    @contextlib.contextmanager
    def owned(self) -> Iterator[None]:
        """Be the only one who writes in it; raises FileError naming the owner."""
        with owned(self.path) as self._owner:
            yield

    # ---- how it was set up

    @property
    def exists(self) -> bool:
        """Whether the run was set up."""
        return self.at(self.folder).exists()

    @property
    def begun(self) -> bool:
        """Whether there is something to go on with."""
        return self.exists and self.at(*Path(self.begun_with).parts).exists()

    def create(
        self, parts: Mapping[str, Any], *, optional: Mapping[str, Any] | None = None, inputs: PyTree = None
    ) -> None:
        """Begin a run in a new or empty directory.

        Args:
            parts: how it is set up.
            optional: as in `Parts.encode`.
            inputs: all that the run depends on, by name; their fingerprint becomes the part "inputs". A run with the
                same inputs that is there already is left as it is.
        """
        if inputs is not None:
            parts = {**parts, _INPUTS: fingerprint(inputs)}
            if self.exists:
                self._check_inputs(parts[_INPUTS])
                return
        self.check_vacant()
        Parts.encode(parts, optional).write(self.at(self.folder), self.kind, overwrite=self.exists)

    def _check_inputs(self, given: Mapping[str, Any]) -> None:
        setup = self.read()
        if _INPUTS not in setup:
            raise FileExistsError(f"directory {str(self.path)!r} holds another {self.what}: {self.instead}")
        if found := differences(setup.get(_INPUTS, of=dict[str, str]), given):
            raise FileExistsError(f"directory {str(self.path)!r} holds another {self.what} ({found}): {self.instead}")

    def check_vacant(self) -> None:
        """Raise if the directory has something in it, besides what a run that never began has left behind."""
        if self.path.exists() and (not self.path.is_dir() or not self._left_behind()):
            raise FileExistsError(f"directory {str(self.path)!r} exists and is not empty: {self.instead}")

    def _left_behind(self) -> bool:
        own = {LOCK}
        if self.exists and not self.begun:
            own |= {self.folder, Path(self.begun_with).parts[0]}
        hidden = (f".{self.folder}.new-", f".{self.folder}.old")
        return all(entry.name in own or entry.name.startswith(hidden) for entry in self.path.iterdir())

    def check_begun(self) -> None:
        """Raise if there is nothing to go on with."""
        if not self.begun:
            raise FileError(
                f"{self.path} holds no {self.what}: it was not made by {self.made_by}, or was ended before there was "
                "anything to keep; then the same call begins it"
            )

    def read(self) -> Parts:
        """How the run was set up."""
        if not self.exists:
            self.check_begun()
        return Parts.read(self.at(self.folder), self.kind)

    # ---- values and runs within it

    @property
    def posterior(self) -> Path:
        """Where the result is, when the run has finished."""
        return self.at("posterior")

    @property
    def finished(self) -> bool:
        """Whether there is a result."""
        return self.posterior.exists()

    def run(self, name: str) -> "RunDirectory":
        """The fit of that name within this run."""
        return RunDirectory(self.at("fits", _file_name(name)))

    def replace(self, name: str, value: Any) -> None:
        """Keep a value, instead of the one before."""
        self._check_owner()
        save_tree(self.at(name), f"{self.what} {name}", value, overwrite=True)

    def value(self, name: str, of: Any = Any) -> Any:
        """The value of a type that was kept last, None if there was none."""
        if not self.at(name).exists() and not self.at(f".{name}.old").exists():
            return None
        found = load_tree(self.at(name), f"{self.what} {name}")
        with naming(self.at(name)):
            check_document({name: found}, {name: of}, "it")
        return found

    def add(self, name: str, row: Any) -> None:
        """Keep a value by name, after those that are there."""
        self._check_owner()
        tree = {"name": name, "place": len(self._rows()), "row": row}
        save_tree(self.at("rows", _file_name(name)), f"{self.what} row", tree, overwrite=True)

    def rows(self, of: Any = Any) -> dict[str, Any]:
        """All values of a type that were added, in order."""
        found = []
        for path in self._rows():
            found.append(load_tree(path, f"{self.what} row"))
            with naming(path):
                check_document(found[-1], {**_ROW, "row": of}, "the row")
        return {entry["name"]: entry["row"] for entry in sorted(found, key=lambda entry: entry["place"])}

    def _rows(self) -> list[Path]:
        found = [self.at("rows", path.name) for path in self.at("rows").glob("[!.]*")]
        return [path for path in found if (path / "manifest.json").exists()]  # other things were left behind

    # ---- where it stands

    def grow(self, name: str, like: Mapping[str, Any]) -> GrowingFile:
        """A new file for arrays of these shapes; checkpoints count what is in it from now on."""
        self.files[name] = GrowingFile.create(self._file(name), like)
        return self.files[name]

    def save(self, cursor: dict[str, Any], state: PyTree, changed: list[str]) -> None:
        """Write a checkpoint that counts what is in the files, those that have changed being synced before."""
        self._check_owner()
        for name in changed:
            self.files[name].sync()
        leaves = {f"{i}": _plain(leaf) for i, leaf in enumerate(jax.tree.leaves(state))}
        kept = {
            name: {"count": file.count, "sha256": file.sha256, "header": file.header}
            for name, file in self.files.items()
        }
        document = {
            "cursor": cursor,
            "kept": kept,
            "count": self.count,
            "setup": self.identity,
            "structure": _structure(state),
        }
        place = self.at(f"checkpoint-{self.count % self.num_checkpoints}")
        write_bundle(place, "checkpoint", document, leaves, overwrite=True)
        self.count += 1

    def latest(self, like: PyTree) -> tuple[dict[str, Any], PyTree, dict[str, GrowingFile]] | None:
        """The newest whole checkpoint, its state in the structure of `like`, and the files with all that it counts.

        None if there is none yet. If all are damaged that is an error, for starting again would overwrite the draws.
        """
        document: Any
        found, damage = [], []
        for place in range(self.num_checkpoints):
            path = self.at(f"checkpoint-{place}")
            try:
                document, arrays = read_bundle(path, "checkpoint")
                with naming(path):
                    check_document(document, _CHECKPOINT, "the checkpoint")
                    for name, kept in document["kept"].items():
                        check_document(kept, _KEPT, name)
                found.append((document, arrays))
            except FileError as error:
                if path.exists():
                    damage.append(str(error))
        for document, arrays in sorted(found, key=lambda item: item[0]["count"], reverse=True):
            if document.get("setup", self.identity) != self.identity:  # earlier versions did not name it
                raise FileError(f"{self.path} has the setup of another run: put back the one that it was made with")
            paths = {name: self._file(name) for name in document["kept"]}
            try:
                files = {
                    name: GrowingFile.open(paths[name], kept["count"], kept["sha256"], kept.get("header"))
                    for name, kept in document["kept"].items()
                }
            except FileError as error:
                damage.append(str(error))
                continue
            for text in damage:
                warnings.warn(f"the last checkpoint is damaged and was passed over: {text}", stacklevel=3)
            self.files, self.count = files, document["count"] + 1
            return document["cursor"], self._state(arrays, like, document.get("structure")), files
        if damage:
            raise FileError(
                f"{self.path} cannot be resumed, its checkpoints or what they count are damaged ({'; '.join(damage)}): "
                "remove all checkpoints to start it again from the beginning"
            )
        return None

    def forget(self) -> None:
        """Remove the files of draws when the posterior has them."""
        for name, file in self.files.items():
            if name.startswith("draws-"):
                file.remove()

    def keep_result(self) -> None:
        """Remove the data and checkpoints of a run that has finished: it can be loaded, and no longer be resumed."""
        if not self.finished:
            raise ValueError(f"{self.path} has not finished: what it goes on with cannot be removed")
        for path in (self.path / self.folder, *self.path.glob("checkpoint-*")):
            shutil.rmtree(self.at(path.name), ignore_errors=True)

    def verify(self) -> None:
        """Compare what is in the files with what was written to them, before it becomes a result."""
        self._check_owner()
        for file in self.files.values():
            file.verify()

    def _check_owner(self) -> None:
        if self._owner is not None:
            self._owner.check()

    @functools.cached_property
    def identity(self) -> str:
        """What decides its setup, and nothing else does: a SHA-256."""
        return sha256_of_bundle(self.at(self.folder))

    def at(self, *names: str) -> Path:
        """A path within it; raises FileError if a part of it is a symbolic link."""
        return inside(self.path, *names)

    def _file(self, name: str) -> Path:
        return self.at(f"{Path(name).name}.safetensors")

    def _state(self, arrays: Mapping[str, np.ndarray], like: PyTree, structure: list[str] | None) -> PyTree:
        leaves, treedef = jax.tree.flatten(like)
        if len(leaves) != len(arrays) or (structure is not None and structure != _structure(like)):
            raise FileError(f"{self.path} belongs to another method or model: its state has other parts")
        return jax.tree.unflatten(treedef, [_like(arrays[f"{i}"], leaf) for i, leaf in enumerate(leaves)])


def _structure(tree: PyTree) -> list[str]:
    """Names of the parts of a state, in order."""
    return [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in jax.tree.leaves_with_path(tree)]


def _plain(leaf: Any) -> np.ndarray:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return np.asarray(jax.random.key_data(leaf))
    return np.asarray(leaf)


def _like(array: np.ndarray, leaf: Any) -> Any:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(leaf))
    if array.shape != leaf.shape or array.dtype != leaf.dtype:
        mode = "" if array.dtype == leaf.dtype else ": jax_enable_x64 must be as it was when the run began"
        stored, expected = f"{array.dtype} {array.shape}", f"{leaf.dtype} {leaf.shape}"
        raise FileError(f"checkpoint has an array {stored} where {expected} was expected{mode}")
    return jnp.asarray(array)


def _file_name(name: str) -> str:
    """A name for a folder: letters and digits, and a few digits of a hash where others were left out."""
    plain = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:60]
    return plain if plain == name else f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
