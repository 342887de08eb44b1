"""Bundles: directories of checked files that are replaced as a whole or not at all.

Writing fills a hidden sibling directory, syncs it to disk and renames it. An existing bundle `run` is first
renamed to `.run.old`; `read_bundle` looks there when `run` is missing, so that a good copy can be found at
every moment, also after a crash between the two renames. The next write cleans up after an interrupted one.
"""

import hashlib
import importlib.metadata
import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from marginax.files import format_1
from marginax.files.disk import (
    naming,
    new_file,
    open_directory,
    open_regular,
    plain_path,
    real_path,
    remove_abandoned,
    remove_directory,
    sync_directory,
    system_errors,
    temporary_directory,
    well_formed,
)
from marginax.files.error import FileError
from marginax.files.handles import link
from marginax.files.tensors import hash_file, map_tensors, parse_json, read_tensors, write_all, write_tensors
from marginax.files.tree import Document, decode, encode

__all__ = [
    "load_tree",
    "read_bundle",
    "save_tree",
    "sha256_of_bundle",
    "write_bundle",
]

PathLike = str | os.PathLike[str]

_FORMAT_VERSION = 2
_MANIFEST, _ARRAYS, _LINKED = "manifest.json", "arrays.safetensors", "draws.safetensors"
_NAMES = (_MANIFEST, _ARRAYS, _LINKED)
_ENTRIES = {"format", "version", "kind", "versions", "files", "document", "sha256"}
_MAX_MANIFEST = 16 * 2**20
_MAX_BRACKETS = 2**19  # in a manifest, so that it is read in about a second
_HEAD = b'{\n"format": "marginax",\n'
_TAIL = b',\n"sha256": "%b"\n}\n'
_TAIL_SIZE = len(_TAIL % bytes(64))


def save_tree(path: PathLike, kind: str, tree: Any, *, overwrite: bool = False) -> None:
    """Store a tree of objects as a bundle: `encode`, then `write_bundle`.

    Args:
        path: The directory to write.
        kind: What the bundle is; the reader has to ask for the same.
        tree: What `encode` accepts.
        overwrite: Whether an existing bundle may be replaced.

    Example:
        >>> import tempfile
        >>> from marginax.files import load_tree, save_tree
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_tree(folder + "/run", "numbers", {"sizes": (1, 2)})
        ...     load_tree(folder + "/run", "numbers")
        {'sizes': (1, 2)}
    """
    document, arrays = encode(tree)
    write_bundle(path, kind, document, arrays, overwrite=overwrite)


def load_tree(path: PathLike, kind: str) -> Any:
    """Read what `save_tree` stored: `read_bundle`, then `decode`.

    Args:
        path: The directory.
        kind: What the bundle has to be.

    Returns:
        The tree.
    """
    document, arrays = read_bundle(path, kind)
    with well_formed(path), naming(path):
        return decode(document, arrays)


def write_bundle(
    path: PathLike,
    kind: str,
    document: Document,
    arrays: Mapping[str, Any],
    *,
    overwrite: bool = False,
    linked: Path | None = None,
) -> None:
    """Write a document and arrays as a directory, as a whole or not at all.

    Args:
        path: The directory to write; missing parents are made. An empty directory may exist already.
        kind: What the bundle is, for example "posterior"; `read_bundle` has to ask for the same.
        document: Anything JSON can hold (no NaN or infinity).
        arrays: Arrays by name.
        overwrite: Whether an existing bundle may be replaced. A directory that holds anything else is never
            replaced.
        linked: A safetensors file whose arrays belong to the bundle, too. The bundle gets a link to it (a copy where
            the file system has no links), so that what is large is not written twice.

    Raises:
        FileError: If nothing could be written (the destination exists, the disk is full, ...). What was there
            before is still there.
    """
    with naming(path), system_errors("nothing was written, what was there before is unchanged"):
        text = _document_text(document)
        target = real_path(path)
        old = _old_name(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        if _current(target) == old:  # a write was interrupted between its two renames: undo it
            if target.exists():
                target.rmdir()
            old.rename(target)
        _check_destination(target, overwrite)
        remove_abandoned(target, _NAMES)
        with temporary_directory(target, _NAMES) as temporary:
            with new_file(temporary / _ARRAYS) as fd:
                files = {_ARRAYS: write_tensors(fd, arrays)}
            if linked is not None:
                files[_LINKED] = _link(plain_path(linked), temporary / _LINKED)
            with new_file(temporary / _MANIFEST) as fd:
                write_all(fd, memoryview(_manifest(kind, text, files)))
            sync_directory(temporary)
            _replace(temporary, target, old)
        with system_errors("it was written, but may not survive a power failure"):
            sync_directory(target.parent)
        remove_directory(old, _NAMES)


def read_bundle(path: PathLike, kind: str, *, mapped: bool = False) -> tuple[Document, dict[str, np.ndarray]]:
    """Read a bundle that `write_bundle` wrote, checking all of it.

    Sizes are checked before memory is allocated, and hashes before anything is returned. Only regular files
    inside the directory are opened.

    Args:
        path: The directory.
        kind: What the bundle has to be.
        mapped: Whether the arrays stay on disk, as read-only memory maps. They are checked all the same, in one pass
            that takes a few MiB of memory.

    Returns:
        The document and the arrays by name.

    Raises:
        FileError: If it is missing, not a marginax bundle, truncated, damaged, of another kind, or written by
            a newer version.
    """
    with naming(path), system_errors():
        target = real_path(path)
        while True:
            current = _current(target)
            stamp = _stamp(current)
            try:
                with open_directory(current) as directory:
                    return _read_directory(current, directory, kind, mapped)
            except (FileError, OSError):
                if _stamp(_current(target)) == stamp:
                    raise
                # Otherwise another process has replaced it while it was read: look again.


def sha256_of_bundle(path: PathLike) -> str:
    """The hash of a bundle's manifest, which has those of its files: what it holds, and nothing else, decides it."""
    with naming(path), system_errors(), open_regular(_current(real_path(path)) / _MANIFEST) as (fd, size):
        os.lseek(fd, max(0, size - _TAIL_SIZE), os.SEEK_SET)
        return hashlib.sha256(_read_all(fd, _TAIL_SIZE)).hexdigest()


def _read_directory(
    path: Path, directory: int | None, kind: str, mapped: bool
) -> tuple[Document, dict[str, np.ndarray]]:
    if not path.is_dir():
        raise FileError("not a marginax bundle: not a directory")
    try:
        with open_regular(path / _MANIFEST, directory) as (fd, size):
            if size > _MAX_MANIFEST:
                raise FileError(f"{_MANIFEST} has {size} bytes, more than the {_MAX_MANIFEST} allowed")
            manifest = _parse_manifest(_read_all(fd, size))
    except FileNotFoundError:
        raise FileError(f"not a marginax bundle: it has no {_MANIFEST}") from None
    if manifest["kind"] != kind:
        raise FileError(f"holds a {manifest['kind']!r:.80}, not a {kind!r}")
    arrays: dict[str, np.ndarray] = {}
    for name, expected in manifest["files"].items():
        try:
            with open_regular(path / name, directory) as (fd, size):
                if size != expected["size"]:
                    raise FileError(f"truncated or damaged: it has {size} bytes instead of {expected['size']}")
                arrays |= (map_tensors if mapped else read_tensors)(fd, size, expected["sha256"])
        except FileNotFoundError:
            raise FileError(f"damaged: {name} is missing") from None
        except FileError as error:
            raise FileError(f"{name}: {error}") from None
    document = manifest["document"]
    return (format_1.document(kind, document, arrays) if manifest["version"] == 1 else document), arrays


def _link(source: Path, target: Path) -> tuple[str, int]:
    with open_regular(source) as (fd, _):
        try:
            link(source, target)
        except OSError:  # another file system, or one without links
            with new_file(target) as copy:
                while part := os.read(fd, 2**22):
                    write_all(copy, memoryview(part))
    with open_regular(target) as (fd, size):
        return hash_file(fd), size


def _document_text(document: Document) -> str:
    try:
        text = json.dumps(document, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise FileError(f"document must be JSON: {error}") from None
    if len(text) > _MAX_MANIFEST - 2**16:
        raise FileError(f"the document takes {len(text)} bytes as JSON, too many: put numbers into arrays")
    if text.count("[") + text.count("{") > _MAX_BRACKETS // 2:
        raise FileError("the document holds too many lists and objects: put numbers into arrays")
    return text


def _manifest(kind: str, document: str, files: Mapping[str, tuple[str, int]]) -> bytes:
    entries = {
        "version": str(_FORMAT_VERSION),
        "kind": json.dumps(kind),
        "versions": json.dumps(_versions()),
        "files": json.dumps({name: {"size": size, "sha256": sha256} for name, (sha256, size) in files.items()}),
        "document": document,
    }
    body = _HEAD + ",\n".join(f'"{name}": {text}' for name, text in entries.items()).encode()
    # The last entry is the hash of every byte before it, so that the manifest, too, is protected.
    return body + _TAIL % hashlib.sha256(body).hexdigest().encode()


def _parse_manifest(text: bytes) -> dict[str, Any]:
    if not text.startswith(_HEAD):
        raise FileError(f"not a marginax bundle: {_MANIFEST} does not begin like one")
    body = text[:-_TAIL_SIZE]
    if text[-_TAIL_SIZE:] != _TAIL % hashlib.sha256(body).hexdigest().encode():
        raise FileError(f"truncated or damaged: the SHA-256 of {_MANIFEST} does not match")
    if text.count(b"[") + text.count(b"{") > _MAX_BRACKETS:
        raise FileError(f"{_MANIFEST} holds more than {_MAX_BRACKETS} lists and objects")
    manifest = parse_json(text)
    version, versions = manifest.get("version"), manifest.get("versions")
    if type(version) is not int or not isinstance(versions, dict):
        raise FileError(f"damaged: {_MANIFEST} has no version")
    if version > _FORMAT_VERSION:
        raise FileError(
            f"written by a newer marginax ({versions.get('marginax')!r:.40}, format {version}; "
            f"this one reads up to {_FORMAT_VERSION}): upgrade marginax"
        )
    if version < 1 or manifest.keys() != _ENTRIES:
        raise FileError(f"damaged: malformed {_MANIFEST}")
    _check_files(manifest["files"])
    return manifest


def _check_files(files: Any) -> None:
    if not isinstance(files, dict):
        raise FileError(f"damaged: malformed {_MANIFEST}")
    for name, entry in files.items():
        if name not in (_ARRAYS, _LINKED):
            raise FileError(f"{_MANIFEST} names the file {name!r:.80}, which is no part of a bundle")
        if not isinstance(entry, dict) or entry.keys() != {"size", "sha256"}:
            raise FileError(f"damaged: malformed {_MANIFEST}")
        if type(entry["size"]) is not int or type(entry["sha256"]) is not str:
            raise FileError(f"damaged: malformed {_MANIFEST}")
    if _ARRAYS not in files:
        raise FileError(f"damaged: malformed {_MANIFEST}")


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in ("marginax", "jax", "equinox", "numpy"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "unknown"
    return versions


def _old_name(target: Path) -> Path:
    return target.parent / f".{target.name}.old"


def _current(target: Path) -> Path:
    # A write that was interrupted between its two renames leaves the good copy under the old name.
    old = _old_name(target)
    return old if _is_vacant(target) and not old.is_symlink() and _is_bundle(old) else target


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns


def _is_vacant(path: Path) -> bool:
    try:
        return not any(path.iterdir())
    except NotADirectoryError:
        return False
    except FileNotFoundError:
        return True


def _replace(temporary: Path, target: Path, old: Path) -> None:
    remove_directory(old, _NAMES)  # left behind by a write that was interrupted after its renames
    try:
        if os.path.lexists(target):
            target.rename(old)
        temporary.rename(target)
    except BaseException:
        if os.path.lexists(old) and not os.path.lexists(target):
            old.rename(target)
        raise


def _read_all(fd: int, size: int) -> bytes:
    parts = []
    while size > 0 and (part := os.read(fd, size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _check_destination(target: Path, overwrite: bool) -> None:
    if not os.path.lexists(target):
        return
    if not target.is_dir():
        raise FileError("exists and is not a directory")
    entries = {entry.name for entry in target.iterdir()}
    if not entries:
        return
    if foreign := sorted(entries - set(_NAMES)):
        raise FileError(f"exists and holds other files ({foreign[0]!r} ...): choose another path")
    if _ARRAYS not in entries and not _is_bundle(target):
        raise FileError("exists and is not a marginax bundle: choose another path")
    if not overwrite:
        raise FileError("exists already: choose another path or pass overwrite=True")


def _is_bundle(directory: Path) -> bool:
    try:
        with open_regular(directory / _MANIFEST) as (fd, _):
            return os.read(fd, len(_HEAD)) == _HEAD
    except (OSError, FileError):
        return False
