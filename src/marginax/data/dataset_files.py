"""Files of data sets: where they are found, and arrays read from them without trusting them."""

import gzip
import os
import struct
import zipfile
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from marginax._extras import require
from marginax.files import FileError

__all__ = ["FileSource", "find_file", "read_idx", "read_npz"]

_VARIABLE = "MARGINAX_DATA"

# fmt: off
_NPZ_ERRORS = (
    OSError, EOFError, KeyError, MemoryError, RuntimeError, SyntaxError, TypeError, ValueError,
    zipfile.BadZipFile, zlib.error,
)
# fmt: on


class FileSource(NamedTuple):
    """Where a file comes from: a public address and the SHA-256 of its bytes, or else words."""

    url: str | None = None
    sha256: str | None = None
    origin: str = ""


def find_file(folder: str, file: str, source: FileSource) -> Path:
    """A file of the user's folder of data sets, or else of the cache, downloaded if need be."""
    # Read at every call: nothing depends on the environment at import.
    root = os.environ.get(_VARIABLE)
    if root and (local := Path(root) / folder / file).is_file():
        return local
    place = f"{folder}/{file} in the folder that the environment variable {_VARIABLE} names"
    place += f" ({root!r} now)" if root else " (not set now)"
    if source.url is None:
        raise FileError(f"{file} is missing and has no download: put it as {place}. It is {source.origin}")
    pooch = require("pooch")

    try:
        cached = pooch.retrieve(
            source.url, f"sha256:{source.sha256}", fname=file, path=Path(pooch.os_cache("marginax")) / folder
        )
    except (OSError, ValueError) as error:
        reason = f"{file} could not be downloaded from {source.url} ({error})"
        raise FileError(f"{reason}: try again, or put it as {place}") from error
    return Path(cached)


def read_idx(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """Bytes of a known shape, as MNIST is stored."""
    # Magic number (type 8: unsigned bytes; number of axes), the axes, then the bytes.
    header = struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape)
    size = len(header) + int(np.prod(shape))
    try:
        with gzip.open(path, "rb") as file:
            content = file.read(size + 1)  # no more than expected is ever unpacked
    except (OSError, EOFError, zlib.error) as error:
        raise FileError(f"{path}: damaged or not a gzip file ({error})") from error
    if not content.startswith(header):
        raise FileError(f"{path}: not idx data of shape {shape}, it begins with {content[:16].hex()!r}")
    if len(content) != size:
        more = "more than" if len(content) > size else f"{len(content)} instead of"
        raise FileError(f"{path}: damaged, it holds {more} {size} bytes")
    return np.frombuffer(content, np.uint8, offset=len(header)).reshape(shape)


def read_npz(path: Path, expected: dict[str, tuple[tuple[int, ...], str]]) -> dict[str, np.ndarray]:
    """Arrays of known shapes and kinds of numbers; no more than these is ever unpacked."""
    names = ", ".join(expected)
    most = {
        f"{name}.npy": (256 if kind == "U" else 8) * int(np.prod(shape)) + 1024
        for name, (shape, kind) in expected.items()
    }
    try:
        with zipfile.ZipFile(path) as archive:
            members = {member.filename: member.file_size for member in archive.infolist()}
        if members.keys() != most.keys():
            raise FileError(f"{path}: must hold the arrays {names} and nothing else")
        if any(size > most[file] for file, size in members.items()):
            raise FileError(f"{path}: holds more than the arrays {names} of the expected shapes")
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in expected}
    except FileError:
        raise
    except _NPZ_ERRORS as error:
        raise FileError(f"{path}: damaged or not an npz file ({error})") from error
    for name, (shape, kind) in expected.items():
        value = arrays[name]
        if value.shape != shape or value.dtype.kind != kind or (kind == "u" and value.dtype != np.uint8):
            raise FileError(f"{path}: {name} must be of shape {shape}, is {value.dtype} {value.shape}")
    return arrays
