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

from marginax.files.disk import open_regular, plain_path, system_errors
from marginax.files.error import FileError, InUseError
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

    def __init__(self, path: Path):
        self.path = path
        self._fd: int | None = None  # set as soon as it is open: whatever interrupts us, `release` closes it
        self._is_ours = False
        self._text = b""  # what we wrote into it

    def check(self) -> None:
        """Raise if the directory was removed or replaced meanwhile: another process may own what is there now.

        Some network file systems lock for each machine alone. Who comes second there writes its name over ours.
        """
        if self._is_ours and not self._is_there():
            raise FileError(
                f"{self.path} was removed or replaced while it was in use, nothing more is written there: "
                "begin again in another directory"
            )
        if self._is_ours and self._text and (found := self._written()) not in (None, self._text):
            raise FileError(
                f"{self.path} was taken by {_who(found)} while it was in use, nothing more is written there: its file "
                "system does not share locks among machines"
            )

    def acquire(self) -> None:
        """Lock the directory; raises FileError naming who has it."""
        assert fcntl is not None
        while not self._is_ours:
            self._fd = opened(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK)
            if not stat.S_ISREG(os.fstat(self._fd).st_mode):
                raise FileError(f"{self.path / LOCK} is not a regular file: remove it")
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno in _HELD:
                    who = _who(os.pread(self._fd, _MOST_BYTES, 0))
                    raise InUseError(f"{self.path} is in use by {who}: wait for it, or end it") from None
                text = f"{self.path} is on a file system without locks: use it from one process only"
                warnings.warn(text, stacklevel=5)
                return
            self._is_ours = self._is_there()
            if not self._is_ours:  # the owner before has removed it since
                self.release()
        now = datetime.datetime.now(datetime.UTC).isoformat(" ", "seconds")
        text = json.dumps({"process": os.getpid(), "host": platform.node(), "since": now}).encode()
        with contextlib.suppress(OSError):  # a full disk: the lock holds, without a name
            descriptor = -1 if self._fd is None else self._fd
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, text, 0)
            self._text = text

    def release(self) -> None:
        """Let go, and take the lock's file away if it is ours."""
        try:
            if self._is_ours and self._is_there():
                (self.path / LOCK).unlink(missing_ok=True)
        finally:
            if self._fd is not None:
                os.close(self._fd)
            self._fd, self._is_ours, self._text = None, False, b""

    def _written(self) -> bytes | None:
        """What is in the lock's file, opened anew: what is open may be remembered by this machine."""
        try:
            with open_regular(self.path / LOCK) as (fd, size):
                return os.read(fd, min(size, _MOST_BYTES)) or None  # empty for a moment: ask again at the next one
        except (OSError, FileError):
            return None

    def _is_there(self) -> bool:
        return self._fd is not None and _is_open(self._fd, self.path / LOCK)


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
    marginax.files.error.InUseError: ... is in use by process ... on ... since ...: wait for it, or end it
    """
    path = plain_path(directory)
    made = not os.path.lexists(path)
    owner = Owner(path)
    try:
        with system_errors(f"{path} cannot be written"):
            path.mkdir(parents=True, exist_ok=True)
            if fcntl is not None:
                owner.acquire()
        yield owner
    finally:
        owner.release()
        if made:
            with contextlib.suppress(OSError):  # something is in it
                path.rmdir()


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
