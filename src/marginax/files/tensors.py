"""Reading and writing the safetensors format, with the checks and the hash in one pass.

Ours instead of the `safetensors` package: its NumPy writer stores non-contiguous arrays wrongly without an
error, and it does not hash, so that a verified read takes a second pass. Tested against it both ways.

Layout: 8 bytes header length (little endian), a JSON header `{name: {dtype, shape, data_offsets}}`, the data.
"""

import hashlib
import json
import math
import mmap
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from marginax.files.error import FileError

__all__ = [
    "Entry",
    "hash_file",
    "header_of",
    "layout_of",
    "map_tensors",
    "parse_json",
    "pieces",
    "read_tensors",
    "storable",
    "write_all",
    "write_tensors",
]

_MAX_HEADER = 32 * 2**20
_MAX_NDIM = 32
_CHUNK = 4 * 2**20

_DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype("bool"),
    "I8": np.dtype("int8"),
    "I16": np.dtype("int16"),
    "I32": np.dtype("int32"),
    "I64": np.dtype("int64"),
    "U8": np.dtype("uint8"),
    "U16": np.dtype("uint16"),
    "U32": np.dtype("uint32"),
    "U64": np.dtype("uint64"),
    "F16": np.dtype("float16"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F32": np.dtype("float32"),
    "F64": np.dtype("float64"),
    "C64": np.dtype("complex64"),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}


class Entry(NamedTuple):
    """Where an array lies in a file."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int
    nbytes: int


def storable(dtype: np.dtype[Any]) -> bool:
    """Whether arrays of this dtype have a place in the format."""
    return dtype.newbyteorder("=") in _CODES


def write_tensors(fd: int, arrays: Mapping[str, Any]) -> tuple[str, int]:
    """Write arrays to an open file; returns the SHA-256 (hex) and the size in bytes."""
    values = {name: np.asarray(value) for name, value in arrays.items()}
    header, order = header_of(values)
    digest = hashlib.sha256(header)
    write_all(fd, memoryview(header))
    size = len(header)
    for name in order:
        for piece in pieces(values[name]):
            size += len(piece)
            digest.update(piece)
            write_all(fd, piece)
    return digest.hexdigest(), size


def pieces(value: np.ndarray) -> Iterator[memoryview]:
    """The bytes of an array (little endian, C order), a few MiB at a time, copied only where they lie apart."""
    if not value.flags.c_contiguous and value.nbytes > _CHUNK:
        step = max(1, len(value) * _CHUNK // value.nbytes)
        for start in range(0, len(value), step):
            part = value[start : start + step]
            yield from pieces(part[0] if step == 1 else part)
        return
    little = np.asarray(value, dtype=value.dtype.newbyteorder("<"), order="C")
    data = little.reshape(-1).view(np.uint8).data
    for start in range(0, len(data), _CHUNK):
        yield data[start : start + _CHUNK]


def read_tensors(fd: int, size: int, sha256: str | None = None) -> dict[str, np.ndarray]:
    """Read all arrays of an open file of that size.

    Everything is checked against the size before memory is allocated for it, and the hash (when given) before
    anything is returned.
    """
    digest = hashlib.sha256()
    arrays: dict[str, np.ndarray] = {}
    for name, dtype, shape, _, nbytes in layout_of(fd, size, digest):
        try:
            data = np.empty(nbytes, np.uint8)
            value = data.view(dtype).reshape(shape)
        except (MemoryError, ValueError):
            raise FileError(f"array {name!r:.80} of shape {shape} does not fit in memory") from None
        _read_into(fd, data.data, None if sha256 is None else digest)
        _check_bool(name, dtype, data)
        arrays[name] = value
    _check_hash(digest, sha256)
    return arrays


def map_tensors(fd: int, size: int, sha256: str | None = None) -> dict[str, np.ndarray]:
    """All arrays of an open file as read-only memory maps, with the checks of `read_tensors`.

    The hash (when given) takes one pass over the file, in a few MiB of memory.
    """
    digest = hashlib.sha256()
    entries = layout_of(fd, size, digest)
    if sha256 is not None:
        _hash_rest(fd, digest)
    _check_hash(digest, sha256)
    data = np.frombuffer(mmap.mmap(fd, size, access=mmap.ACCESS_READ), np.uint8)
    arrays: dict[str, np.ndarray] = {}
    for name, dtype, shape, offset, nbytes in entries:
        part = data[offset : offset + nbytes]
        _check_bool(name, dtype, part)
        arrays[name] = part.view(dtype).reshape(shape)
    return arrays


def hash_file(fd: int) -> str:
    """The SHA-256 (hex) of an open file, from where it stands."""
    digest = hashlib.sha256()
    _hash_rest(fd, digest)
    return digest.hexdigest()


def write_all(fd: int, data: memoryview) -> None:
    """Write all of the data (one call of `os.write` may take less)."""
    while data:
        data = data[os.write(fd, data) :]


def parse_json(text: bytes) -> Any:
    """Strict JSON: UTF-8, no repeated keys, no NaN; `FileError` for anything else."""
    try:
        return json.loads(text.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant)
    except RecursionError:
        raise FileError("damaged: nested too deeply") from None
    except FileError:
        raise
    except ValueError as error:
        raise FileError(f"damaged: not valid JSON ({error})") from None


def header_of(arrays: Mapping[str, Any]) -> tuple[bytes, list[str]]:
    """The beginning of a file with arrays of these names, shapes and dtypes, and the order of their data."""
    for name, array in arrays.items():
        if not isinstance(name, str) or not name or name == "__metadata__" or not name.isprintable():
            raise FileError(f"array names must be non-empty printable strings, got {name!r}")
        if not storable(array.dtype):
            raise FileError(f"array {name!r}: dtype {array.dtype} cannot be stored")
    # Widest first keeps every array aligned to its item size.
    order = sorted(arrays, key=lambda name: -arrays[name].dtype.itemsize)
    entries, offset = {}, 0
    for name in order:
        shape, dtype = arrays[name].shape, arrays[name].dtype
        end = offset + math.prod(shape) * dtype.itemsize
        code = _CODES[dtype.newbyteorder("=")]
        entries[name] = {"dtype": code, "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > _MAX_HEADER:
        raise FileError(f"too many arrays for one file: {len(entries)} need a header of {len(text)} bytes")
    return len(text).to_bytes(8, "little") + text, order


def layout_of(fd: int, size: int, digest: Any = None) -> list[Entry]:
    """Read the header of an open file of that size: what lies where, in order and without gaps."""
    if size < 10:
        raise FileError(f"truncated: {size} bytes are too few for a safetensors file")
    prefix = bytearray(8)
    _read_into(fd, memoryview(prefix), digest)
    length = int.from_bytes(prefix, "little")
    if length > min(size - 8, _MAX_HEADER):
        raise FileError(
            f"damaged or not a safetensors file: the header would take {length} bytes, "
            f"the file has {size} and {_MAX_HEADER} are allowed"
        )
    text = bytearray(length)
    _read_into(fd, memoryview(text), digest)
    return _layout(bytes(text), 8 + length, size)


def _layout(text: bytes, start: int, size: int) -> list[Entry]:
    if not text.startswith(b"{"):
        raise FileError("damaged or not a safetensors file: the header is not a JSON object")
    header = parse_json(text)
    header.pop("__metadata__", None)
    entries = [_entry(name, entry) for name, entry in header.items()]
    entries.sort(key=lambda item: item[3:])
    expected = 0
    for name, _, _, begin, end in entries:
        if begin != expected:
            raise FileError(f"damaged: array {name!r:.80} begins at byte {begin} of the data, not at {expected}")
        expected = end
    if expected != size - start:
        raise FileError(f"truncated or damaged: the arrays take {expected} bytes, the file has {size - start}")
    return [Entry(name, dtype, shape, start + begin, end - begin) for name, dtype, shape, begin, end in entries]


def _entry(name: str, entry: Any) -> tuple[str, np.dtype[Any], tuple[int, ...], int, int]:
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise FileError(f"damaged: malformed header entry of array {name!r:.80}")
    code, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    dtype = _DTYPES.get(code) if isinstance(code, str) else None
    if dtype is None:
        raise FileError(f"array {name!r:.80} has the unknown dtype {code!r:.80}")
    if not _sizes(shape) or len(shape) > _MAX_NDIM or not _sizes(offsets) or len(offsets) != 2:
        raise FileError(f"damaged: malformed header entry of array {name!r:.80}")
    begin, end = offsets
    if end - begin != math.prod(shape) * dtype.itemsize:
        raise FileError(f"damaged: array {name!r:.80} of shape {shape!r:.80} does not take {end - begin} bytes")
    return name, dtype, tuple(shape), begin, end


def _sizes(values: Any) -> bool:
    return type(values) is list and all(type(value) is int and 0 <= value < 2**63 for value in values)


def _check_bool(name: str, dtype: np.dtype[Any], data: np.ndarray) -> None:
    if dtype == np.bool_ and data.size and data.max() > 1:
        raise FileError(f"damaged: array {name!r:.80} is boolean with values other than 0 and 1")


def _check_hash(digest: Any, sha256: str | None) -> None:
    if sha256 is not None and digest.hexdigest() != sha256:
        raise FileError("damaged: the SHA-256 of the contents does not match")


def _hash_rest(fd: int, digest: Any) -> None:
    while part := os.read(fd, _CHUNK):
        digest.update(part)


def _read_into(fd: int, target: memoryview, digest: Any) -> None:
    done = 0
    while done < len(target):
        chunk = target[done : done + _CHUNK]
        count = os.readv(fd, [chunk]) if hasattr(os, "readv") else _read_copy(fd, chunk)
        if count == 0:
            raise FileError("truncated: the file ended while it was read")
        if digest is not None:
            digest.update(chunk[:count])
        done += count


def _read_copy(fd: int, target: memoryview) -> int:
    data = os.read(fd, len(target))
    target[: len(data)] = data
    return len(data)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise FileError("damaged: a key is repeated in a JSON object")
    return result


def _no_constant(name: str) -> Any:
    raise FileError(f"damaged: {name} is not valid JSON")
