"""A comparison of methods on disk.

comparison/setup/         test data, heading, and a fingerprint of what is compared: written once
comparison/rows/NAME/     a line of the table: written when a method is done
comparison/fits/NAME/     the run of a method, with its posterior
"""

import hashlib
import os
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from marginax.data import Arrays
from marginax.files import FileError, load_tree, save_tree
from marginax.infer import resume
from marginax.model import Model
from marginax.posterior import AbstractPosterior, load

PathLike = str | os.PathLike[str]


class ComparisonDirectory:
    """Writes and reads the files of one comparison."""

    def __init__(self, path: Path):
        self.path = path

    def create(self, test: Arrays, heading: str, compared: tuple[Any, Any, dict[str, str]] | None) -> None:
        """Begin a comparison, or see that the one that is there is the same."""
        mark = "" if compared is None else _fingerprint((*compared, test))
        if (self.path / "setup").exists():
            if compared is None or self._setup()["mark"] != mark:
                raise FileExistsError(
                    f"directory {str(self.path)!r} holds another comparison (of other data, methods or seed): "
                    "choose another"
                )
            return
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise FileExistsError(f"directory {str(self.path)!r} exists and is not empty: choose another")
        save_tree(self.path / "setup", "comparison", {"test": test, "heading": heading, "mark": mark})

    def setup(self) -> tuple[Arrays, str]:
        """Test data and heading."""
        found = self._setup()
        return found["test"], found["heading"]

    def add(self, name: str, row: Any) -> None:
        """Keep the line of a method."""
        place = len(list((self.path / "rows").glob("*"))) if (self.path / "rows").exists() else 0
        tree = {"name": name, "place": place, "row": row}
        save_tree(self.path / "rows" / _file_name(name), "comparison row", tree, overwrite=True)

    def rows(self) -> dict[str, Any]:
        """Lines of the methods that are done."""
        folder = self.path / "rows"
        found = [load_tree(path, "comparison row") for path in (folder.glob("*") if folder.exists() else ())]
        return {entry["name"]: entry["row"] for entry in sorted(found, key=lambda entry: entry["place"])}

    def posteriors(self, model: Model | None) -> dict[str, AbstractPosterior]:
        """Theirs."""
        names = [name for name, row in self.rows().items() if row.failure is None]
        return {name: load(self.posterior(name), model=model) for name in names}

    def fit(self, name: str) -> Path:
        """Where a method runs."""
        return self.path / "fits" / _file_name(name)

    def posterior(self, name: str) -> Path:
        """Where a method's posterior is."""
        return self.fit(name) / "posterior"

    def started(self, name: str) -> bool:
        """Whether a method has begun."""
        return self.fit(name).exists()

    def resume(self, name: str, model: Model, progress: bool | None) -> AbstractPosterior:
        """Go on with a method."""
        return resume(self.fit(name), model=model, progress=progress)

    def _setup(self) -> dict[str, Any]:
        if not (self.path / "setup").exists():
            raise FileError(f"{self.path} holds no comparison: it was not made by mx.evaluate.compare")
        return load_tree(self.path / "setup", "comparison")


def _file_name(name: str) -> str:
    """A name for a folder: letters and digits, and a few digits of a hash where others were left out."""
    plain = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:60]
    return plain if plain == name else f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _fingerprint(tree: Any) -> str:
    """A hash of all numbers and texts."""
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(tree):
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        digest.update(leaf.encode() if isinstance(leaf, str) else np.ascontiguousarray(np.asarray(leaf)).tobytes())
    return digest.hexdigest()
