"""Pictures in files, PNG or JPEG: read without trusting them."""

import io
import os
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import UInt8

from marginax._extras import require
from marginax.files import FileError

SUFFIXES = (".png", ".jpg", ".jpeg")
FORMATS = ("PNG", "JPEG")
MAX_BYTES = 2**28
"""Of a file."""
MAX_PIXELS = 2**26
"""Of a picture; a small file can say that it has many more, and would fill the memory (a decompression bomb)."""

_GREY = ("1", "L", "LA", "La", "I", "I;16", "I;16B", "I;16L")
_SIDEWAYS = (5, 6, 7, 8)  # orientations in which height and width are exchanged
_ORIENTATION = 0x0112


class Header(NamedTuple):
    """What a file says of its picture: shape as it is shown, and whether it has colours."""

    height: int
    width: int
    colour: bool


def read_bytes(path: Path) -> bytes:
    """All of a file, if it is one and not too large."""
    try:
        if not path.is_file():
            raise FileError(f"{path}: {'is no file' if path.exists() else 'no such file'}")
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise FileError(f"{path}: has {size:,} bytes, more than the {MAX_BYTES:,} that a picture may have")
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror})") from None


def read_header(path: str | os.PathLike[str], content: bytes, *, max_pixels: int = MAX_PIXELS) -> Header:
    """Size and kind of a picture, before memory for its pixels is taken."""
    with _opened(path, content, max_pixels) as image:
        width, height = image.size
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what other software wrote beside the pixels
            try:
                turned = image.getexif().get(_ORIENTATION) in _SIDEWAYS
            except Exception:  # what cannot be read says nothing
                turned = False
        return Header(*((width, height) if turned else (height, width)), image.mode not in _GREY)


def read_pixels(
    path: str | os.PathLike[str],
    content: bytes,
    shape: tuple[int, int, int],
    *,
    max_pixels: int = MAX_PIXELS,
) -> UInt8[np.ndarray, "channels height width"]:
    """The pixels of a picture, upright, in 1 or 3 channels, resized if it has another size.

    What is transparent is laid on white.
    """
    operations = require("PIL.ImageOps")
    channels, height, width = shape
    with _opened(path, content, max_pixels) as image:
        try:
            image.load()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                image = operations.exif_transpose(image)
        except Exception as error:  # the decoders raise what they like
            raise FileError(f"{path}: a damaged picture ({_short(error)})") from None
        image = _plain(image, "L" if channels == 1 else "RGB")
        if image.size != (width, height):
            image = image.resize((width, height), require("PIL.Image").Resampling.BILINEAR, reducing_gap=3.0)
        pixels = np.asarray(image, np.uint8)
    return pixels[None] if channels == 1 else np.ascontiguousarray(np.moveaxis(pixels, 2, 0))


def to_png(pixels: UInt8[np.ndarray, "channels height width"], *, enlarge: int = 1) -> bytes:
    """A picture as the bytes of a PNG file, every pixel a square of some.

    >>> to_png(np.zeros((1, 2, 3), np.uint8))[1:4]
    b'PNG'
    """
    large = np.repeat(np.repeat(pixels, enlarge, axis=1), enlarge, axis=2)
    image = require("PIL.Image").fromarray(large[0] if len(large) == 1 else np.moveaxis(large, 0, 2))
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def _opened(path: str | os.PathLike[str], content: bytes, max_pixels: int) -> Any:
    """The picture, of which only the header has been read."""
    images = require("PIL.Image")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", images.DecompressionBombWarning)  # our own limit is stricter
        try:
            image = images.open(io.BytesIO(content), formats=FORMATS)
        except images.DecompressionBombError:
            raise FileError(f"{path}: says that it has more than {max_pixels:,} pixels, and was not decoded") from None
        except Exception as error:  # the decoders raise what they like
            raise FileError(f"{path}: neither a PNG nor a JPEG picture ({_short(error)})") from None
    width, height = image.size
    if width * height > max_pixels:
        image.close()
        raise FileError(
            f"{path}: says that it has {height:,} x {width:,} pixels, more than {max_pixels:,}, and was not decoded"
        )
    return image


def _plain(image: Any, mode: str) -> Any:
    """Eight bits a channel, nothing transparent."""
    images = require("PIL.Image")
    if image.mode.startswith("I"):  # sixteen bits, of which the upper eight are kept
        values = np.clip(np.asarray(image, np.int64), 0, 2**16 - 1)
        image = images.fromarray((values >> 8).astype(np.uint8))
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        over = image.convert("RGBA")
        image = images.alpha_composite(images.new("RGBA", over.size, "white"), over)
    return image.convert(mode)


def _short(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return "it is not what it says" if "BytesIO" in text else text[:100]
