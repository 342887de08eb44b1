"""Folders of images: what is in them, checked before anything is decoded; pixels of some of them at a time."""

import concurrent.futures
import hashlib
import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, Int, UInt8

from marginax._machine import available_memory
from marginax.data.arrays import Arrays
from marginax.data.image_labels import counted, few, labels_of_folders, labels_of_table
from marginax.data.pictures import MAX_PIXELS, SUFFIXES, Header, read_bytes, read_header, read_pixels
from marginax.data.scaling import Scaling, scaling_of
from marginax.data.texts import Texts
from marginax.files import FileError, register

NUM_THREADS = 4
_MOST_LOOKED_AT = 2000  # images whose pixels tell mean and deviation
_BLOCK = 512


@register("data/image_folder")
class ImageFolder(eqx.Module):
    """Images in files, known by their names, none of them decoded; see `load_images`.

    Args:
        folder: where they are.
        files: their names below it.
        stamps: a hash of the bytes of each, so that one that has changed is noticed.
        labels: positions in `classes`; -1 where there is no label.
        classes: names of the classes, in order.
        shape: (channels, height, width) that every image is brought to.
        notes: what was found, in sentences.
        max_pixels: of an image before it is resized.
    """

    folder: str = eqx.field(static=True)
    files: Texts
    stamps: np.ndarray
    labels: np.ndarray
    classes: tuple[str, ...] = eqx.field(static=True)
    shape: tuple[int, int, int] = eqx.field(static=True)
    notes: tuple[str, ...] = eqx.field(static=True, default=())
    max_pixels: int = eqx.field(static=True, default=MAX_PIXELS)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def names(self) -> list[str]:
        """Of the files, below the folder."""
        return [str(name) for name in self.files.list()]

    @property
    def num_bytes(self) -> int:
        """Of all pixels as the model sees them."""
        return len(self) * math.prod(self.shape) * jax.dtypes.canonicalize_dtype(np.float64).itemsize

    def take(self, rows: Int[np.ndarray, " k"]) -> "ImageFolder":
        """Some of the images."""
        names = self.names
        files = Texts.of([names[row] for row in rows])
        return ImageFolder(
            self.folder, files, self.stamps[rows], self.labels[rows], self.classes, self.shape, (), self.max_pixels
        )

    def pixels(self, rows: Int[np.ndarray, " k"] | None = None) -> Float[np.ndarray, "k channels height width"]:
        """Some images, or all, decoded: numbers in [0, 1]."""
        return as_numbers(self.bytes(rows))

    def bytes(self, rows: Int[np.ndarray, " k"] | None = None) -> UInt8[np.ndarray, "k channels height width"]:
        """Some images, or all, decoded: numbers from 0 to 255."""
        rows = np.arange(len(self)) if rows is None else np.asarray(rows)
        need = len(rows) * math.prod(self.shape)
        if need > available_memory():
            raise MemoryError(f"{len(rows):,} images take {need / 2**30:.1f} GiB: take fewer at a time")
        names = self.names
        found = np.empty((len(rows), *self.shape), np.uint8)
        with concurrent.futures.ThreadPoolExecutor(NUM_THREADS) as pool:
            for i, image in enumerate(pool.map(lambda row: self.decode(int(row), names), rows)):
                found[i] = image
        return found

    def decode(self, row: int, names: Sequence[str]) -> UInt8[np.ndarray, "channels height width"]:
        """One image, if its file is still that which was found."""
        path = Path(self.folder) / names[row]
        content = read_bytes(path)
        if stamp_of(content) != self.stamps[row]:
            raise FileError(f"{path} has changed since it was looked at: put back the file as it was, or begin again")
        return read_pixels(path, content, self.shape, max_pixels=self.max_pixels)

    def blocks(self, size: int = _BLOCK) -> Iterator[tuple[np.ndarray, Float[np.ndarray, "k channels height width"]]]:
        """Rows and pixels of all images, some at a time."""
        for start in range(0, len(self), size):
            rows = np.arange(start, min(start + size, len(self)))
            yield rows, self.pixels(rows)

    def scaling(self) -> Scaling:
        """Mean and standard deviation of each channel: of all images, or of many evenly spaced."""
        rows = np.unique(np.linspace(0, len(self) - 1, min(len(self), _MOST_LOOKED_AT)).astype(int))
        return scaling_of(self.pixels(rows), np.zeros(len(rows), np.int32))

    def arrays(self) -> Arrays:
        """All images and labels in memory, standardised, if they fit."""
        self.check_labels()
        need, free = 3 * self.num_bytes, available_memory()
        if need > free:
            raise MemoryError(
                f"{len(self):,} images take about {need / 2**30:.1f} GiB in memory, and {free / 2**30:.1f} GiB are "
                "free: use mx.data.ImageFiles, which reads them batch by batch, or a smaller size="
            )
        scaling = self.scaling()
        return Arrays(scaling.transform_x(self.pixels()), self.labels, scaling=scaling)

    def check_labels(self) -> None:
        """Raise unless every image has a label."""
        if len(without := np.flatnonzero(self.labels < 0)):
            names = self.names
            raise ValueError(
                f"{counted([names[i] for i in without], 'image')} without a label, such as {names[int(without[0])]}"
            )


def load_images(
    folder: str | os.PathLike[str],
    labels: str | os.PathLike[str] | None = None,
    *,
    label: str | None = None,
    size: int | tuple[int, int] | None = None,
    colour: bool | None = None,
    max_pixels: int = MAX_PIXELS,
    labelled: bool = True,
) -> ImageFolder:
    """Look at a folder of images (PNG or JPEG): names, sizes and labels; pixels are decoded when they are asked for.

    All files are read once, and every header is checked: those that are damaged, or say that they have too many pixels,
    are refused by name. Labels are joined to images by the names of files. `notes` has labels without a file and images
    without a label, by number and name.

    Args:
        folder: with images, also in folders below.
        labels: a text file with a column of names of files and one of labels; without it, images have the label of the
            folder that they are in.
        label: name of the column of labels, where there are several.
        size: height and width, or one number for both, that all images are resized to; None if all have one size.
        colour: whether images have three channels; None if any of them does.
        max_pixels: of an image as it is stored.
        labelled: whether only images with a label are wanted; else those without have -1 in `labels`.

    Returns:
        The folder: `pixels(rows)`, `arrays()` for all in memory, `mx.data.ImageFiles` for batches from disk.

    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as place:
    ...     for name in ("cat", "dog"):
    ...         Path(place, name).mkdir()
    ...         Image.new("RGB", (8, 6)).save(Path(place, name, "1.png"))
    ...     images = load_images(place)
    >>> images.names, images.classes, images.shape
    (['cat/1.png', 'dog/1.png'], ('cat', 'dog'), (3, 6, 8))
    """
    root = Path(folder).absolute()
    names = _names_in(root)
    found, notes = labels_of_folders(names) if labels is None else labels_of_table(Path(labels), names, label)
    if labelled:
        kept = [i for i, each in enumerate(found) if each is not None]
        if not kept:
            raise FileError(
                f"{root}: images have no labels: pass labels=, or put each into a folder named as its class"
            )
        names, found = [names[i] for i in kept], [found[i] for i in kept]
    headers, stamps = _look_at(root, names, max_pixels)
    if size is None:
        height, width = _one_size(root, names, headers)
    else:
        height, width = _check_size(size)
        if any((each.height, each.width) != (height, width) for each in headers):
            notes.append(f"Images are resized to {height} x {width} pixels.")
    classes = _in_order({each for each in found if each is not None})
    places = {name: i for i, name in enumerate(classes)}
    shape = (3 if (any(each.colour for each in headers) if colour is None else colour) else 1, height, width)
    return ImageFolder(
        str(root),
        Texts.of(list(names)),
        stamps,
        np.array([-1 if each is None else places[each] for each in found], np.int32),
        tuple(classes),
        shape,
        (f"{len(names):,} images.", *notes),
        max_pixels,
    )


def as_numbers(pixels: UInt8[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Numbers in [0, 1]."""
    return np.divide(pixels, 255, dtype=np.float32)


def stamp_of(content: bytes) -> np.uint64:
    """A hash of the bytes of a file."""
    return np.frombuffer(hashlib.blake2b(content, digest_size=8).digest(), np.uint64)[0]


def _names_in(root: Path) -> list[str]:
    """Of all images below a folder, in the order of names; hidden files and folders, and links to others, are not."""
    if not root.is_dir():
        raise FileError(f"{root}: {'is a file, not a folder' if root.exists() else 'no such folder'}")
    found = []
    for place, folders, files in os.walk(root):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        below = Path(place).relative_to(root)
        kept = (name for name in files if name.lower().endswith(SUFFIXES) and not name.startswith("."))
        found += [(below / name).as_posix() for name in kept]
    if not found:
        raise FileError(f"{root}: holds no image (.png, .jpg, .jpeg)")
    return sorted(found)


def _look_at(root: Path, names: Sequence[str], max_pixels: int) -> tuple[list[Header], np.ndarray]:
    """Headers and stamps of all files; those that cannot be used are named together."""
    bad: list[str] = []

    def look(name: str) -> tuple[Header, np.uint64] | None:
        try:
            content = read_bytes(root / name)
            return read_header(name, content, max_pixels=max_pixels), stamp_of(content)
        except FileError as error:
            bad.append(str(error))
            return None

    with concurrent.futures.ThreadPoolExecutor(NUM_THREADS) as pool:
        found = [each for each in pool.map(look, names) if each is not None]
    if bad:
        raise FileError(f"{root}: {counted(bad, 'image')} not usable: {'; '.join(sorted(bad)[:3])}")
    return [header for header, _ in found], np.array([stamp for _, stamp in found], np.uint64)


def _one_size(root: Path, names: Sequence[str], headers: Sequence[Header]) -> tuple[int, int]:
    counts = Counter((each.height, each.width) for each in headers)
    (height, width), _ = counts.most_common(1)[0]
    others = [name for name, each in zip(names, headers, strict=True) if (each.height, each.width) != (height, width)]
    if others:
        raise ValueError(
            f"size must be given where images have several: most in {root} have {height} x {width} pixels, "
            f"{len(others):,} have not: {few(others)}"
        )
    return height, width


def _check_size(size: Any) -> tuple[int, int]:
    pair = (size, size) if isinstance(size, int) else size
    good = isinstance(pair, tuple | list) and len(pair) == 2
    if isinstance(size, bool) or not good or not all(isinstance(each, int) and each >= 1 for each in pair):
        raise ValueError(f"size must be a number of pixels, or (height, width), got {size!r}")
    return pair[0], pair[1]


def _in_order(names: set[str]) -> list[str]:
    """As numbers, if they all are; else as texts.

    >>> _in_order({"10", "9"}), _in_order({"b", "a"})
    (['9', '10'], ['a', 'b'])
    """
    if all(name.isdecimal() for name in names):
        return sorted(names, key=lambda name: (int(name), name))
    return sorted(names)
