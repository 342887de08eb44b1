"""The few careful file-system operations that bundles are made of."""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from marginax.files.error import FileError
from marginax.files.handles import Resolved, opened

try:
    import fcntl
except ImportError:  # Windows: abandoned temporaries are then left alone
    fcntl = None

__all__ = [
    "inside",
    "naming",
    "new_file",
    "open_directory",
    "open_regular",
    "plain_path",
    "real_path",
    "remove_abandoned",
    "remove_directory",
    "replacing_file",
    "sync_directory",
    "system_errors",
    "temporary_directory",
    "temporary_name",
    "well_formed",
]

_BINARY = getattr(os, "O_BINARY", 0)
_CAREFUL = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | _BINARY


@contextlib.contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Put the path in front of the message of every `FileError`, which is one line, whatever it quotes."""
    try:
        yield
    except FileError as error:
        raise FileError(f"{os.fspath(path)}: {' '.join(str(error).splitlines())}") from error.__cause__


_FORGED = (ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


@contextlib.contextmanager
def well_formed(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn what goes wrong with whole files of wrong contents, which only a forger writes, into a `FileError`."""
    try:
        yield
    except (FileError, FloatingPointError):  # these say what is wrong themselves
        raise
    except _FORGED as error:
        text = " ".join(str(error).split())
        raise FileError(
            f"{os.fspath(path)}: cannot go on with what is stored there ({type(error).__name__}: {text:.200}): "
            "take another copy, or begin again"
        ) from error


@contextlib.contextmanager
def system_errors(consequence: str = "") -> Iterator[None]:
    """Turn what the operating system refuses into a `FileError` that says so."""
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise FileError(f"{reason}; {consequence}" if consequence else reason) from error


def real_path(path: str | os.PathLike[str]) -> Resolved:
    """The absolute path with symbolic links resolved, once: what is resolved stays as it is."""
    if isinstance(path, Resolved):
        return path
    if not os.fspath(path):
        raise FileError("path is empty")
    try:
        return Resolved(os.path.realpath(path))
    except ValueError as error:  # an embedded null character
        raise FileError(f"not a valid path: {error}") from None


def plain_path(path: str | os.PathLike[str]) -> Resolved:
    """The absolute path with symbolic links on the way resolved, and the last name as it is."""
    given = path if isinstance(path, Resolved) else Path(path)
    if isinstance(given, Resolved) or given.name in ("", ".."):
        return real_path(given)
    return real_path(given.parent) / given.name


def inside(root: Path, *names: str) -> Path:
    """A path in a directory, of which no part below the root may be a symbolic link."""
    path = root
    for name in names:
        path = path / name
        if path.is_symlink():
            raise FileError(f"{path} is a symbolic link, and links within {root} are not followed: remove it")
    return path


@contextlib.contextmanager
def open_directory(path: Path) -> Iterator[int | None]:
    """Hold a directory open: what is read in it belongs together, even if it is renamed meanwhile."""
    if os.open not in os.supports_dir_fd:  # Windows
        yield None
        return
    fd = opened(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def open_regular(path: Path, directory: int | None = None, *, writable: bool = False) -> Iterator[tuple[int, int]]:
    """Open a regular file (no link, pipe or device); gives the descriptor and the size.

    Args:
        path: The file.
        directory: The descriptor of its directory, where that is held open.
        writable: For reading and writing, or for reading alone.
    """
    name = path if directory is None else path.name
    flags = (os.O_RDWR if writable else os.O_RDONLY) | _CAREFUL
    mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    if not stat.S_ISREG(mode):
        what = "a symbolic link" if stat.S_ISLNK(mode) else "not a regular file"
        raise FileError(f"{path.name} is {what}")
    fd = opened(path, flags) if directory is None else os.open(name, flags, dir_fd=directory)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise FileError(f"{path.name} is not a regular file")
        yield fd, status.st_size
    finally:
        os.close(fd)


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[int]:
    """Make a file that does not exist yet, and sync it to disk at the end; gives the descriptor."""
    fd = opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY)
    try:
        _lock(fd)
        yield fd
        os.fsync(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def replacing_file(target: Path) -> Iterator[int]:
    """A file beside the target that takes its place at the end, at once and synced; gives the descriptor."""
    if os.path.lexists(target) and not stat.S_ISREG(target.lstat().st_mode):
        raise FileError("exists and is not a regular file")
    remove_abandoned(target, ())
    temporary = temporary_name(target)
    try:
        with new_file(temporary) as fd:
            yield fd
        temporary.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_directory(target.parent)


def temporary_name(target: Path) -> Path:
    """A fresh hidden name beside the target, which `remove_abandoned` recognises."""
    return target.parent / f".{target.name}.new-{secrets.token_hex(8)}"


@contextlib.contextmanager
def temporary_directory(target: Path, names: tuple[str, ...]) -> Iterator[Path]:
    """A directory beside the target; unless it was renamed, it and the named files are removed at the end."""
    path = temporary_name(target)
    path.mkdir()
    fd = None
    try:
        if fcntl is not None:
            fd = opened(path, os.O_RDONLY)
            _lock(fd)
        yield path
    finally:
        remove_directory(path, names)
        if fd is not None:
            os.close(fd)


def remove_abandoned(target: Path, names: tuple[str, ...]) -> None:
    """Remove the temporaries of interrupted writes to this target; those of running writers are locked."""
    for path in list(target.parent.iterdir()):
        if path.name.startswith(f".{target.name}.new-") and _abandoned(path):
            remove_directory(path, names)
            with contextlib.suppress(OSError):
                path.unlink()


def remove_directory(path: Path, names: tuple[str, ...]) -> None:
    """Remove the named files and then the directory, if nothing else is in it; never follows a link."""
    with contextlib.suppress(OSError):
        if not stat.S_ISDIR(path.lstat().st_mode):
            return
        for name in names:
            (path / name).unlink(missing_ok=True)
        path.rmdir()


def sync_directory(path: Path) -> None:
    """Make renames and new files in a directory durable, where the system can."""
    if os.name == "nt":
        return
    fd = opened(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBADF, errno.ENOTSUP):
            raise
    finally:
        os.close(fd)


def _lock(fd: int) -> bool:
    if fcntl is None:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _abandoned(path: Path) -> bool:
    if fcntl is None:
        return False
    try:
        fd = opened(path, os.O_RDONLY | _CAREFUL)
    except OSError:
        return False
    try:
        return _lock(fd)
    finally:
        os.close(fd)
