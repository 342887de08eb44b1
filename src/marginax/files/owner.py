"""One owner per directory: a lock that the kernel releases when the process ends, however it ends."""

import contextlib
import datetime
import errno
import json
import os
import platform
import stat
import warnings
from collections.abc import Iterator
from pathlib import Path

from marginax.files.disk import plain_path, system_errors
from marginax.files.error import FileError
from marginax.files.handles import opened

try:
    import fcntl
except ImportError:  # Windows: directories have no owner there
    fcntl = None

__all__ = ["LOCK", "Owner", "owned"]

LOCK = ".lock"
_HELD = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)
_MOST_BYTES = 1024


class Owner:
    """Who holds a directory.

    Attributes:
        path: of the directory.
    """

    def __init__(self, path: Path, fd: int | None):
        self.path, self._fd = path, fd

    def check(self) -> None:
        """Raise if the directory was removed or replaced meanwhile: another process may own what is there now."""
        if self._fd is not None and not _is_open(self._fd, self.path / LOCK):
            raise FileError(
                f"{self.path} was removed or replaced while it was in use, nothing more is written there: "
                "begin again in another directory"
            )


@contextlib.contextmanager
def owned(directory: Path) -> Iterator[Owner]:
    """Be the only one who writes in a directory, which is made if need be; raises FileError naming the owner.

    The lock is on a small file in the directory that says who has it, and that goes with the lock. A directory with
    nothing else in it goes, too.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with owned(folder), owned(folder):
    ...     pass
    Traceback (most recent call last):
    marginax.files.error.FileError: ... is in use by process ... on ... since ...: wait for it, or end it
    """
    path = plain_path(directory)
    made = not os.path.lexists(path)
    with system_errors(f"{path} cannot be written"):
        path.mkdir(parents=True, exist_ok=True)
        fd = None if fcntl is None else _locked(path)
    try:
        yield Owner(path, fd)
    finally:
        if fd is not None:
            if _is_open(fd, path / LOCK):
                (path / LOCK).unlink(missing_ok=True)
            os.close(fd)
        if made:
            with contextlib.suppress(OSError):  # something is in it
                path.rmdir()


def _locked(path: Path) -> int | None:
    assert fcntl is not None
    while True:
        fd = opened(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise FileError(f"{path / LOCK} is not a regular file: remove it")
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            text = os.pread(fd, _MOST_BYTES, 0)
            os.close(fd)
            if error.errno in _HELD:
                raise FileError(f"{path} is in use by {_who(text)}: wait for it, or end it") from None
            warnings.warn(f"{path} is on a file system without locks: use it from one process only", stacklevel=4)
            return None
        except BaseException:
            os.close(fd)
            raise
        if _is_open(fd, path / LOCK):  # or the owner before has removed it since
            now = datetime.datetime.now(datetime.UTC).isoformat(" ", "seconds")
            text = json.dumps({"process": os.getpid(), "host": platform.node(), "since": now}).encode()
            with contextlib.suppress(OSError):  # a full disk: the lock holds, without a name
                os.ftruncate(fd, 0)
                os.pwrite(fd, text, 0)
            return fd
        os.close(fd)


def _is_open(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.lstat())
    except OSError:
        return False


def _who(text: bytes) -> str:
    try:
        owner = json.loads(text)
        return f"process {int(owner['process'])} on {owner['host']!s:.80} since {owner['since']!s:.40}"
    except (ValueError, TypeError, KeyError, RecursionError):
        return "another process"
