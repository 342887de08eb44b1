"""Named parts in one bundle, of which some may be missing because they hold the user's code.

A part is stored as the document of its tree, `{"stored": ...}`, with its arrays under `name/`; or there is a note why
it could not be, `{"missing": why}`, and the user brings it when the bundle is read. What the user may bring has a
fingerprint, and what is brought must have the same.
"""

import os
from collections.abc import Mapping
from typing import Any

from marginax.files.disk import naming, well_formed
from marginax.files.error import FileError
from marginax.files.fingerprint import differences, fingerprint
from marginax.files.hints import check_document
from marginax.files.store import read_bundle, write_bundle
from marginax.files.tree import decode, encode

__all__ = ["Parts"]


class Parts:
    """What a bundle is made of.

    >>> parts = Parts.encode({"size": 3, "network": lambda x: x}, optional={"network": [["weight", [2]]]})
    >>> parts.get("size"), "network" in parts
    (3, False)
    >>> parts.get("network", argument="model")
    Traceback (most recent call last):
    marginax.files.error.FileError: the parts: does not hold its model (...): pass model=..., or register ...
    """

    def __init__(self, document: dict[str, Any], arrays: dict[str, Any], path: str | os.PathLike[str] = "the parts"):
        self.document, self.arrays, self._path = document, arrays, os.fspath(path)

    @classmethod
    def encode(cls, parts: Mapping[str, Any], optional: Mapping[str, Any] | None = None) -> "Parts":
        """Parts by name.

        Args:
            parts: what `encode` takes.
            optional: names of those that may be missing, each with what is compared when the user brings it (JSON, or
                None for nothing).

        Raises:
            FileError: if a part that must not be missing cannot be stored.
        """
        document, arrays = {}, {}
        for name, tree in parts.items():
            brought = optional is not None and name in optional
            marks = {"fingerprint": fingerprint(tree)} if brought else {}
            try:
                stored, inner = encode(tree)
            except FileError as error:
                if optional is None or not brought:
                    raise
                document[name] = {"missing": str(error), "structure": optional[name], **marks}
                continue
            document[name] = {"stored": stored, **marks}
            arrays |= {f"{name}/{place}": array for place, array in inner.items()}
        return cls(document, arrays)

    @classmethod
    def read(cls, path: str | os.PathLike[str], kind: str, *, mapped: bool = False) -> "Parts":
        """Those of a bundle; `mapped` as in `read_bundle`."""
        document, arrays = read_bundle(path, kind, mapped=mapped)
        if not isinstance(document, dict) or not all(isinstance(part, dict) for part in document.values()):
            raise FileError(f"{path} is not a marginax {kind}")
        return cls(document, arrays, path)

    def write(self, path: str | os.PathLike[str], kind: str, **options: Any) -> None:
        """As a bundle; options as in `write_bundle`."""
        write_bundle(path, kind, self.document, self.arrays, **options)

    def __contains__(self, name: str) -> bool:
        return "stored" in self.document.get(name, {})

    def get(
        self,
        name: str,
        given: Any = None,
        *,
        structure: Any = None,
        argument: str | None = None,
        same: bool = True,
        of: Any = Any,
    ) -> Any:
        """A part: what the user brings, or else what is stored.

        Args:
            name: of the part.
            given: what the user brings; needed where the part is missing.
            structure: what is compared with that of a part that is missing.
            argument: by which the user brings it; None if there is no way.
            same: whether what is brought must be what it was.
            of: the type of what is stored, as an annotation.
        """
        with naming(self._path):
            entry = self.document.get(name)
            if entry is None:
                raise FileError(f"has no part {name!r}")
            is_stored = "stored" in entry
            if not is_stored and given is None:
                remedy = "" if argument is None else f"pass {argument}=..., or "
                raise FileError(
                    f"does not hold its {argument or name} ({entry.get('missing')}): {remedy}register what is yours "
                    "with @mx.register before it is stored"
                )
            if given is not None and entry.get("structure") is not None and entry["structure"] != structure:
                raise FileError(f"{argument or name} does not match: its weights have other names or shapes")
            marks = entry.get("fingerprint")
            if given is None:
                found = self._decoded(name)
                check_document({name: found}, {name: of}, "it")
            else:
                found = given
                marks = fingerprint(self._decoded(name)) if marks is None and is_stored else marks
            if same and marks is not None:
                _check_same(marks, found, argument or name)
            return found

    def _decoded(self, name: str) -> Any:
        inner = {place.removeprefix(f"{name}/"): array for place, array in self.arrays.items()}
        with well_formed(name):
            return decode(self.document[name]["stored"], inner)


def _check_same(marks: Any, found: Any, name: str) -> None:
    if not isinstance(marks, dict) or not all(isinstance(text, str) for text in marks.values()):
        raise FileError(f"damaged: malformed fingerprint of {name}")
    if text := differences(marks, fingerprint(found)):
        raise FileError(f"{name} is not what it was when this was stored: {text}")
