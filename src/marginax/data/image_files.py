"""Images larger than memory: minibatches decoded from their files, ahead of the steps that need them."""

import concurrent.futures
import functools
import math
import os
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, UInt8

from marginax._kernels.permutation import rows_on_host
from marginax.data.arrays import DataSpec
from marginax.data.image_folder import NUM_THREADS, ImageFolder, as_numbers
from marginax.data.scaling import Scaling
from marginax.data.sources import AbstractSource, Batch
from marginax.files import register

_STEPS_AHEAD = 16


@register("data/image_files")
class ImageFiles(AbstractSource):
    """Shuffled minibatches of the images of a folder, standardised by channel.

    While a step is computed, threads decode the images of those that follow. What is decoded stays in memory, as bytes,
    as long as there is room for it, so that small sets are decoded once; `memory` bounds all of it. All chains see the
    same batches.

    Args:
        images: from `load_images`, all with labels.
        batch_size: images per step.
        memory: bytes that decoded images may take.
        scaling: how pixels in [0, 1] are brought to standard units; by default by their mean and deviation by channel.
    """

    on_host: ClassVar[bool] = True
    images: ImageFolder
    batch_size: int = eqx.field(static=True)
    memory: int = eqx.field(static=True)
    scaling: Scaling

    def __init__(
        self, images: ImageFolder, *, batch_size: int = 128, memory: int = 2**28, scaling: Scaling | None = None
    ):
        images.check_labels()
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise ValueError(f"batch_size must be an int >= 1, got {batch_size!r}")
        self.images, self.batch_size = images, min(batch_size, len(images))
        least = 2 * self.batch_size * math.prod(images.shape)
        if memory < least:
            raise ValueError(f"memory must hold two batches, {least:,} bytes, got {memory!r}")
        self.memory = int(memory)
        self.scaling = images.scaling() if scaling is None else scaling

    @property
    def spec(self) -> DataSpec:
        return DataSpec(self.images.shape, (), len(self.images), self.scaling)

    def batch(self, step: Int[Array, ""] | int, *, key: PRNGKeyArray) -> Batch:
        """Decode the images of one step (host only)."""
        rows, pixels = self._reader.batch(int(step), key)
        labels = self.images.labels[rows]
        return Batch((self._standard(pixels), jnp.asarray(labels)), jnp.asarray(rows), len(self.images))

    def examples(self, num: int) -> tuple[np.ndarray, np.ndarray]:
        rows = np.arange(min(num, len(self.images)))
        return np.asarray(self._standard(self.images.bytes(rows))), self.images.labels[rows]

    def fingerprint_parts(self) -> dict[str, object]:
        """What decides what is computed: contents, wherever they are, and how they are cut."""
        images = self.images
        parts = {"contents": images.stamps, "labels": images.labels, "shape": images.shape}
        return parts | {"batch_size": self.batch_size, "scaling": self.scaling}

    def _standard(self, pixels: UInt8[np.ndarray, "k channels height width"]) -> Array:
        real = jax.dtypes.canonicalize_dtype(np.float64)
        return jnp.asarray(np.asarray(self.scaling.transform_x(as_numbers(pixels)), real))

    @property
    def _reader(self) -> "_Reader":
        identity = (self.images.folder, self.images.stamps.tobytes(), self.images.files.utf8.tobytes())
        return _reader(_Same(self.images, (*identity, self.images.shape)), self.batch_size, self.memory)


class _Same:
    """Images that are equal if their files are."""

    def __init__(self, images: ImageFolder, identity: tuple[object, ...]):
        self.images, self.identity = images, identity

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.identity == other.identity

    def __hash__(self) -> int:
        return hash(self.identity)


@functools.lru_cache(maxsize=1)
def _reader(same: _Same, batch_size: int, memory: int) -> "_Reader":
    return _Reader(same.images, batch_size, memory)


class _Reader:
    """Decodes ahead, and keeps what there is room for: what it gives depends on nothing but step and key.

    Args:
        images: to read.
        batch_size: images per step.
        memory: bytes, a quarter of which, or at least two batches, are for images of steps to come.
    """

    def __init__(self, images: ImageFolder, batch_size: int, memory: int):
        self.images, self.names, self.batch_size = images, images.names, batch_size
        size = math.prod(images.shape)
        self.ahead = int(np.clip(memory // 4 // (size * batch_size), 1, _STEPS_AHEAD))
        self.num_kept = min(len(images), max(0, memory - (self.ahead + 1) * size * batch_size) // size)
        self.kept = np.empty((self.num_kept, *images.shape), np.uint8)
        self.is_kept = np.zeros(self.num_kept, bool)
        self.pending: dict[tuple[bytes, int], tuple[np.ndarray, concurrent.futures.Future[np.ndarray]]] = {}
        self.pool = concurrent.futures.ThreadPoolExecutor(min(NUM_THREADS, os.cpu_count() or 1))

    def batch(self, step: int, key: PRNGKeyArray) -> tuple[np.ndarray, np.ndarray]:
        """Rows and pixels of a step; those of the next ones are begun."""
        name = np.asarray(jax.random.key_data(key)).tobytes()
        for place in [each for each in self.pending if each[0] != name or not step <= each[1] <= step + self.ahead]:
            self.pending.pop(place)[1].cancel()
        for each in range(step, step + self.ahead + 1):
            if (name, each) not in self.pending:
                rows = rows_on_host(each, self.batch_size, len(self.images), key=key)
                self.pending[name, each] = rows, self.pool.submit(self.decode, rows)
        rows, future = self.pending.pop((name, step))
        return rows, future.result()

    def decode(self, rows: np.ndarray) -> np.ndarray:
        """Pixels of some images."""
        return np.stack([self.image(int(row)) for row in rows])

    def image(self, row: int) -> np.ndarray:
        """From memory, or from its file."""
        if row < self.num_kept and self.is_kept[row]:
            return self.kept[row]
        pixels = self.images.decode(row, self.names)
        if row < self.num_kept:
            self.kept[row] = pixels
            self.is_kept[row] = True
        return pixels
