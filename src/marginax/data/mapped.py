"""Data larger than memory: .npy files that stay on disk and are read a batch at a time."""

import functools
import hashlib
import os
import warnings
from pathlib import Path
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from marginax._kernels.permutation import rows_on_host
from marginax.data.arrays import DataSpec
from marginax.data.scaling import Scaling
from marginax.data.sources import AbstractSource, Batch
from marginax.files import register

_BLOCK, _NUM_BLOCKS = 2**16, 256  # of the sample that is hashed


@register("data/mapped_files")
class MappedFiles(AbstractSource):
    """Shuffled minibatches from two memory-mapped .npy files (x, one row per example, and y).

    Rows are read only when their batch is due. All chains see the same batches, so that each row is read once.
    Values are checked as they are read: a NaN stops the run with the row's number. So does a file that is no longer the
    one that was opened first, by its size, its time and a hash of its contents (of large ones, of a sample).

    Args:
        x_path: inputs, array of shape (n, ...).
        y_path: targets, array of shape (n,) or (n, outputs).
        batch_size: rows per step.
        scaling: how x and y are brought to standard units, if they are not already.
    """

    on_host: ClassVar[bool] = True
    x_path: str = eqx.field(static=True)
    y_path: str = eqx.field(static=True)
    batch_size: int = eqx.field(static=True)
    scaling: Scaling | None
    stamps: tuple[str, ...] = eqx.field(static=True, default=())

    def __init__(
        self,
        x_path: str | os.PathLike[str],
        y_path: str | os.PathLike[str],
        *,
        batch_size: int,
        scaling: Scaling | None = None,
    ):
        """Open both files to check that they fit together; nothing is read yet."""
        self.x_path, self.y_path = str(Path(x_path).absolute()), str(Path(y_path).absolute())
        x, y = _open(self.x_path, "x_path"), _open(self.y_path, "y_path")
        self.stamps = (_stamp(self.x_path), _stamp(self.y_path))
        if len(x) != len(y) or len(x) == 0:
            raise ValueError(f"x_path and y_path must have the same number of rows (> 0), got {len(x)} and {len(y)}")
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise ValueError(f"batch_size must be an int >= 1, got {batch_size!r}")
        self.batch_size = min(batch_size, len(x))
        self.scaling = scaling

    @property
    def spec(self) -> DataSpec:
        x, y = self._files()
        return DataSpec(x.shape[1:], y.shape[1:], len(x), self.scaling)

    def batch(self, step: Int[Array, ""] | int, *, key: PRNGKeyArray) -> Batch:
        """Read the rows of one step from disk (host only)."""
        x, y = self._files()
        rows = rows_on_host(int(step), self.batch_size, len(x), key=key)
        batch_x, batch_y = self._read(x, y, rows)
        return Batch((jnp.asarray(batch_x), jnp.asarray(batch_y)), jnp.asarray(rows), len(x))

    def examples(self, num: int) -> tuple[np.ndarray, np.ndarray]:
        x, y = self._files()
        return self._read(x, y, np.arange(min(num, len(x))))

    def fingerprint_parts(self) -> dict[str, object]:
        """What decides what is computed: contents, wherever they are and since when."""
        contents = [stamp.rpartition(" ")[0] for stamp in self.stamps]
        return {"contents": contents, "batch_size": self.batch_size, "scaling": self.scaling}

    def _files(self) -> tuple[np.ndarray, np.ndarray]:
        for path, stamp in zip((self.x_path, self.y_path), self.stamps, strict=bool(self.stamps)):
            _check_stamp(path, stamp)
        return _open(self.x_path, "x_path"), _open(self.y_path, "y_path")

    def _read(self, x, y, rows) -> tuple[np.ndarray, np.ndarray]:
        order = np.argsort(rows)  # ascending reads are kinder to a disk
        back = np.argsort(order)
        real = jax.dtypes.canonicalize_dtype(np.float64)
        bx, by = np.asarray(x[rows[order]])[back], np.asarray(y[rows[order]])[back]
        bx = bx.astype(real)
        by = by.astype(real) if np.issubdtype(by.dtype, np.floating) else by.astype(np.int32)
        for name, values in (("x_path", bx), ("y_path", by)):
            bad = ~np.isfinite(values).reshape(len(rows), -1).all(1)
            if bad.any():
                raise ValueError(f"{name} has NaN or infinite values in row {int(rows[bad][0])}")
        if self.scaling is not None:
            bx, by = self.scaling.transform_x(bx), self.scaling.transform_y(by)
        return np.asarray(bx, real), np.asarray(by)


def _open(path: str, name: str) -> np.ndarray:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(f"{name} must be a readable .npy file, got {path}: {error}") from None
    if not isinstance(array, np.ndarray) or array.ndim == 0 or array.dtype.kind not in "fiub":
        raise ValueError(f"{name} must hold one numeric array with a row per example, got {path}")
    return array


def _stamp(path: str) -> str:
    """Size, time and a hash: of all bytes, or of blocks all over a file with more than 16 MiB of them."""
    status = Path(path).stat()
    step = max(_BLOCK, -(-status.st_size // _NUM_BLOCKS))
    digest = hashlib.sha256()
    with Path(path).open("rb") as file:
        for start in range(0, status.st_size, step):
            file.seek(start)
            digest.update(file.read(_BLOCK))
        file.seek(max(0, status.st_size - _BLOCK))
        digest.update(file.read(_BLOCK))
    return f"{status.st_size} {digest.hexdigest()} {status.st_mtime_ns}"


def _check_stamp(path: str, stamp: str) -> None:
    try:
        status = Path(path).stat()
    except OSError:
        return  # opening it says why
    _compare_stamp(path, stamp, status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=64)
def _compare_stamp(path: str, stamp: str, size: int, time: int) -> None:
    """Once for every state that a file is seen in."""
    known, _, before = stamp.rpartition(" ")
    if known.startswith(f"{size} ") and int(before) == time:
        return
    if _stamp(path).rpartition(" ")[0] != known:
        raise ValueError(f"{path} has changed since the run began: put back the file as it was, or begin again")
    if size > _NUM_BLOCKS * _BLOCK:
        warnings.warn(f"{path} has a new time; its size and a sample of its contents are those of before", stacklevel=6)
