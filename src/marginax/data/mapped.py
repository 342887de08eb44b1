"""Data larger than memory: .npy files that stay on disk and are read a batch at a time."""

import os
from pathlib import Path
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from marginax._kernels.permutation import shuffled_rows
from marginax.data.arrays import DataSpec
from marginax.data.scaling import Scaling
from marginax.data.sources import AbstractSource, Batch
from marginax.files import register


@register("data/mapped_files")
class MappedFiles(AbstractSource):
    """Shuffled minibatches from two memory-mapped .npy files (x, one row per example, and y).

    Rows are read only when their batch is due. All chains see the same batches, so that each row is read once.
    Values are checked as they are read: a NaN stops the run with the row's number.

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

    def __init__(
        self,
        x_path: str | os.PathLike[str],
        y_path: str | os.PathLike[str],
        *,
        batch_size: int,
        scaling: Scaling | None = None,
    ):
        """Open both files to check that they fit together; nothing is read yet."""
        self.x_path, self.y_path = str(Path(x_path)), str(Path(y_path))
        x, y = _open(self.x_path, "x_path"), _open(self.y_path, "y_path")
        if len(x) != len(y) or len(x) == 0:
            raise ValueError(f"x_path and y_path must have the same number of rows (> 0), got {len(x)} and {len(y)}")
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise ValueError(f"batch_size must be an int >= 1, got {batch_size!r}")
        self.batch_size = min(batch_size, len(x))
        self.scaling = scaling

    @property
    def spec(self) -> DataSpec:
        x, y = _open(self.x_path, "x_path"), _open(self.y_path, "y_path")
        return DataSpec(x.shape[1:], y.shape[1:], len(x), self.scaling)

    def batch(self, step: Int[Array, ""] | int, *, key: PRNGKeyArray) -> Batch:
        """Read the rows of one step from disk (host only)."""
        x, y = _open(self.x_path, "x_path"), _open(self.y_path, "y_path")
        epoch, offset = divmod(int(step) * self.batch_size, len(x))
        rows = np.asarray(_rows(jnp.uint32(epoch), jnp.uint32(offset), self.batch_size, len(x), key))
        batch_x, batch_y = self._read(x, y, rows)
        return Batch((jnp.asarray(batch_x), jnp.asarray(batch_y)), jnp.asarray(rows), len(x))

    def examples(self, num: int) -> tuple[np.ndarray, np.ndarray]:
        x, y = _open(self.x_path, "x_path"), _open(self.y_path, "y_path")
        return self._read(x, y, np.arange(min(num, len(x))))

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


@eqx.filter_jit
def _rows(epoch, offset, size, num, key):
    return shuffled_rows(epoch, offset, size, num, key=key)


def _open(path: str, name: str) -> np.ndarray:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(f"{name} must be a readable .npy file, got {path}: {error}") from None
    if not isinstance(array, np.ndarray) or array.ndim == 0 or array.dtype.kind not in "fiub":
        raise ValueError(f"{name} must hold one numeric array with a row per example, got {path}")
    return array
