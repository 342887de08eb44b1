"""Single files that are replaced at once or not at all."""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from marginax.files.disk import naming, open_regular, real_path, replacing_file, system_errors
from marginax.files.tensors import read_tensors, write_all, write_tensors

__all__ = ["read_arrays", "write_arrays", "write_text"]

PathLike = str | os.PathLike[str]


def write_arrays(path: PathLike, arrays: Mapping[str, Any]) -> str:
    """Write arrays as one safetensors file, replacing an existing file at once or not at all.

    Args:
        path: The file to write.
        arrays: Arrays by name.

    Returns:
        The SHA-256 of the file (hex), for `read_arrays`.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from marginax.files import read_arrays, write_arrays
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     sha256 = write_arrays(folder + "/draws.safetensors", {"weight": np.arange(3)})
        ...     read_arrays(folder + "/draws.safetensors", sha256)
        {'weight': array([0, 1, 2])}
    """
    with naming(path), system_errors("nothing was written, what was there before is unchanged"):
        with replacing_file(real_path(path)) as fd:
            sha256, _ = write_tensors(fd, arrays)
        return sha256


def write_text(path: PathLike, text: str) -> None:
    """Write a text file, replacing an existing one at once or not at all; to a pipe or a device as it comes."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: PathLike, content: bytes) -> None:
    """Write a file, as `write_text` does."""
    data = memoryview(content)
    with naming(path), system_errors("nothing was written, what was there before is unchanged"):
        target = real_path(path)
        if target.exists() and not target.is_file() and not target.is_dir():
            target.write_bytes(data)
            return
        with replacing_file(target) as fd:
            write_all(fd, data)


def read_arrays(path: PathLike, sha256: str | None = None) -> dict[str, np.ndarray]:
    """Read one safetensors file.

    Args:
        path: The file.
        sha256: The hash that `write_arrays` returned. Without it only the structure of the file is checked:
            flipped bits in the data go unnoticed.

    Returns:
        The arrays by name.
    """
    with naming(path), system_errors(), open_regular(real_path(path)) as (fd, size):
        return read_tensors(fd, size, sha256)
