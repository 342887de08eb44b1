"""Paths whose files are reached through handles of directories, so that no link on the way to them is followed.

Links are refused by name before a path is used, which gives the better message; but a directory can change between the
look and the use. Here every step of the way is opened relative to the one before, and a link is an error of the system.
Where it has no such calls (Windows, macOS), paths are used as they are.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["Resolved", "link", "opened"]

_HANDLES = os.open in os.supports_dir_fd and hasattr(os, "O_PATH")
_STEP = getattr(os, "O_PATH", 0) | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)


class Resolved(type(Path())):
    """An absolute path without symbolic links, which is not resolved again; what changes files does not follow any."""

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """As of `Path`."""
        try:
            with _held(self) as fd:
                os.mkdir(self.name if fd is not None else self, mode, dir_fd=fd)
        except FileNotFoundError:
            if not parents or self.parent == self:
                raise
            self.parent.mkdir(parents=True, exist_ok=True)
            self.mkdir(mode, exist_ok=exist_ok)
        except OSError:
            if not exist_ok or not self.is_dir():
                raise

    def rename(self, target: str | os.PathLike[str]) -> "Resolved":
        """As of `Path`, to a place where nothing is."""
        with _held(self) as fd, _held(Resolved(target)) as other:
            names = (self, target) if fd is None else (self.name, Path(target).name)
            os.rename(*names, src_dir_fd=fd, dst_dir_fd=other)
        return Resolved(target)

    def replace(self, target: str | os.PathLike[str]) -> "Resolved":
        """As of `Path`."""
        with _held(self) as fd, _held(Resolved(target)) as other:
            names = (self, target) if fd is None else (self.name, Path(target).name)
            os.replace(*names, src_dir_fd=fd, dst_dir_fd=other)
        return Resolved(target)

    def unlink(self, missing_ok: bool = False) -> None:
        """As of `Path`."""
        try:
            with _held(self) as fd:
                os.unlink(self.name if fd is not None else self, dir_fd=fd)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def rmdir(self) -> None:
        """As of `Path`."""
        with _held(self) as fd:
            os.rmdir(self.name if fd is not None else self, dir_fd=fd)


def opened(path: Path, flags: int, mode: int = 0o666) -> int:
    """A file or a directory, as `os.open` does; without following a link on the way if the path is `Resolved`."""
    with _held(path) as fd:
        return os.open(path.name if fd is not None else path, flags, mode, dir_fd=fd)


def link(source: Path, target: Path) -> None:
    """A second name for a file."""
    with _held(source) as fd, _held(target) as other:
        if fd is None or other is None:
            os.link(source, target)
        else:
            os.link(source.name, target.name, src_dir_fd=fd, dst_dir_fd=other, follow_symlinks=False)


@contextlib.contextmanager
def _held(path: Path) -> Iterator[int | None]:
    """A handle of the directory that a path is in."""
    if not _HANDLES or not isinstance(path, Resolved) or not path.name:
        yield None
        return
    fd = os.open(path.anchor, _STEP)
    try:
        for name in path.parent.parts[1:]:
            inner = os.open(name, _STEP, dir_fd=fd)
            os.close(fd)
            fd = inner
        yield fd
    finally:
        os.close(fd)
