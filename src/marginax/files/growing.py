"""Arrays that are filled slot by slot while a run goes on: on disk as one safetensors file, or in memory.

Every array has axes (row, slot, ...), in a run (chain, step) or (chain, draw). How many slots there will be is known
from the start, so each has its place in the file: it is written once, and the full file is what a reader wants. Slots
count when the caller has stored `count` and `sha256`; what a crash left behind them is written again.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from marginax.files.disk import naming, open_regular, plain_path, replacing_file, system_errors
from marginax.files.error import FileError
from marginax.files.tensors import Entry, header_of, layout_of, map_tensors, pieces, write_all

__all__ = ["GrowingArrays", "GrowingFile"]

_BLOCK = 2**24


class GrowingArrays:
    """Slots in memory.

    Args:
        like: shape and dtype of each array when it is full.

    >>> growing = GrowingArrays({"a": np.empty((2, 5), np.float32)})
    >>> growing.write(0, {"a": np.ones((2, 3))})
    >>> growing.arrays()["a"].shape
    (2, 3)
    """

    def __init__(self, like: Mapping[str, Any]):
        self._full = {name: np.empty(leaf.shape, leaf.dtype) for name, leaf in like.items()}
        self.count = 0

    @property
    def names(self) -> frozenset[str]:
        """Of the arrays."""
        return frozenset(self._full)

    def write(self, start: int, values: Mapping[str, np.ndarray]) -> None:
        """Put values with axes (row, new slot, ...) into the slots from `start` on."""
        for name, value in values.items():
            self.count = start + value.shape[1]
            self._full[name][:, start : self.count] = value

    def arrays(self) -> dict[str, np.ndarray]:
        """All filled slots."""
        return {name: value[:, : self.count] for name, value in self._full.items()}

    def gather(self, rows: Sequence[int]) -> tuple[dict[str, np.ndarray], None]:
        """The filled slots of some rows, copied only if they are not all."""
        arrays = self.arrays()
        return {name: value if len(rows) == len(value) else value[list(rows)] for name, value in arrays.items()}, None


class GrowingFile:
    """Slots in a safetensors file; none of them stays in memory.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "draws.safetensors"
    ...     growing = GrowingFile.create(path, {"a": np.empty((2, 5), np.float32)})
    ...     growing.write(0, {"a": np.ones((2, 3), np.float32)})
    ...     growing.sync()
    ...     GrowingFile.open(path, growing.count, growing.sha256).arrays()["a"].shape
    (2, 3)
    """

    def __init__(self, path: Path, entries: Sequence[Entry]):
        self.path = path
        self.count = 0
        self.header = _header_hash(entries)
        self._entries = {entry.name: entry for entry in entries}
        self._hashes = {(entry.name, row): hashlib.sha256() for entry in entries for row in range(entry.shape[0])}

    @classmethod
    def create(cls, path: Path, like: Mapping[str, Any]) -> "GrowingFile":
        """Make a file with room for arrays of these shapes and dtypes, in place of what was there."""
        target = plain_path(path)
        with naming(path), system_errors():
            header, _ = header_of(like)
            size = len(header) + sum(int(np.prod(leaf.shape)) * leaf.dtype.itemsize for leaf in like.values())
            with replacing_file(target) as fd:
                write_all(fd, memoryview(header))
                os.ftruncate(fd, size)
            with open_regular(target) as (fd, size):
                return cls(target, layout_of(fd, size))

    @classmethod
    def open(cls, path: Path, count: int, sha256: str, header: str | None = None) -> "GrowingFile":
        """Go on with a file whose first `count` slots have been written; raises FileError if they have changed.

        The hash of names, shapes and places of the arrays is compared where the caller has it.
        """
        target = plain_path(path)
        with naming(path):
            with system_errors(), open_regular(target) as (fd, size):
                growing = cls(target, layout_of(fd, size))
            if not all(len(entry.shape) > 1 and count <= entry.shape[1] for entry in growing._entries.values()):
                raise FileError(f"damaged: it has no room for {count} slots")
            if header is not None and growing.header != header:
                raise FileError("damaged: its header is not the one that was written")
            growing._rewind(count)
            if growing.sha256 != sha256:
                raise FileError(f"damaged: the SHA-256 of the first {count} slots does not match")
        return growing

    def verify(self) -> None:
        """Raise FileError if what is in the file is not what was written to it."""
        GrowingFile.open(self.path, self.count, self.sha256, self.header)

    @property
    def names(self) -> frozenset[str]:
        """Of the arrays."""
        return frozenset(self._entries)

    @property
    def sha256(self) -> str:
        """Of all filled slots; how they were cut into writes leaves no trace in it."""
        digests = [self._hashes[key].digest() for key in sorted(self._hashes)]
        return hashlib.sha256(b"".join(digests)).hexdigest()

    def write(self, start: int, values: Mapping[str, np.ndarray]) -> None:
        """Put values with axes (row, new slot, ...) into the slots from `start` on."""
        if start > self.count:
            raise ValueError(f"start must be <= {self.count}, the number of filled slots, got {start}")
        if start < self.count:
            self._rewind(start)
        num = next(iter(values.values())).shape[1]
        hashes = {key: value.copy() for key, value in self._hashes.items()}
        consequence = "what was kept before is whole: make room, then go on with mx.resume"
        with naming(self.path), system_errors(consequence), open_regular(self.path, writable=True) as (fd, _):
            for name, value in values.items():
                _, dtype, shape, offset, nbytes = self._entries[name]
                rows, slots = shape[:2]
                if value.shape != (rows, num, *shape[2:]) or value.dtype != dtype or start + num > slots:
                    raise FileError(f"array {name!r}: {value.dtype} {value.shape} at slot {start} does not fit {shape}")
                for row in range(rows):
                    os.lseek(fd, offset + (row * slots + start) * nbytes // max(1, rows * slots), os.SEEK_SET)
                    for piece in pieces(value[row]):
                        hashes[name, row].update(piece)
                        write_all(fd, piece)
        self._hashes, self.count = hashes, start + num

    def sync(self) -> None:
        """Make what was written survive a power failure."""
        with naming(self.path), system_errors(), open_regular(self.path, writable=True) as (fd, _):
            os.fsync(fd)

    def arrays(self) -> dict[str, np.ndarray]:
        """All filled slots, as read-only memory maps."""
        return {name: value[:, : self.count] for name, value in self._mapped().items()}

    def gather(self, rows: Sequence[int]) -> tuple[dict[str, np.ndarray], Path | None]:
        """The filled slots of some rows as memory maps, and the file that holds these and nothing else.

        Rows that lie apart, because some are left out or not all slots are filled, are copied to a file beside this
        one: whoever merges the axes (row, slot) would otherwise copy them into memory.
        """
        full = self._mapped()
        wanted = {name: value[: len(rows), : self.count] for name, value in full.items()}
        everything = all(len(value) == len(rows) for value in full.values())
        if everything and all(value.shape == full[name].shape for name, value in wanted.items()):
            return full, self.path
        if everything and len(rows) == 1:
            return wanted, None
        part = GrowingFile.create(self.path.with_name(f"part-of-{self.path.name}"), wanted)
        step = max(1, self.count * _BLOCK // max(1, sum(value.nbytes for value in wanted.values())))
        for start in range(0, self.count, step):
            stop = min(start + step, self.count)
            part.write(start, {name: value[list(rows), start:stop] for name, value in full.items()})
        part.sync()
        return part._mapped(), part.path

    def remove(self) -> None:
        """Delete the file, and what `gather` put beside it; maps of them stay valid."""
        for path in (self.path, self.path.with_name(f"part-of-{self.path.name}")):
            path.unlink(missing_ok=True)

    def _mapped(self) -> dict[str, np.ndarray]:
        with naming(self.path), system_errors(), open_regular(self.path) as (fd, size):
            return map_tensors(fd, size)

    def _rewind(self, count: int) -> None:
        for name, value in self._mapped().items():
            for row in range(value.shape[0]):
                digest = hashlib.sha256()
                for piece in pieces(value[row, :count]):
                    digest.update(piece)
                self._hashes[name, row] = digest
        self.count = count


def _header_hash(entries: Sequence[Entry]) -> str:
    text = "\n".join(f"{name!r} {dtype} {shape} {offset}" for name, dtype, shape, offset, _ in sorted(entries))
    return hashlib.sha256(text.encode()).hexdigest()
