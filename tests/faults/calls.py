"""Every call that changes the file system, counted, with something to do at some of them."""

import hashlib
import os
import random
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.faults.work import Work

CALLS = ("mkdir", "rename", "replace", "unlink", "rmdir", "write", "fsync", "ftruncate", "link")


class Calls:
    """Counts them while it is entered, and does something with the number of each, in the middle of a write."""

    def __init__(self, do: Callable[[int], None], names: tuple[str, ...] = CALLS):
        self.count, self._do, self._inside, self._names = 0, do, False, names
        self._real = {name: getattr(os, name) for name in self._names}

    def __enter__(self) -> "Calls":
        for name in self._names:
            setattr(os, name, self._wrapped(name))
        return self

    def __exit__(self, *_: object) -> None:
        for name, call in self._real.items():
            setattr(os, name, call)

    def _wrapped(self, name: str) -> Callable[..., Any]:
        call = self._real[name]

        def wrapped(*args: Any, **options: Any) -> Any:
            if self._inside or threading.current_thread() is not threading.main_thread():
                return call(*args, **options)
            if name == "write" and len(args[1]) > 1:  # a write can be cut anywhere
                half = call(args[0], bytes(args[1])[: len(args[1]) // 2])
                self._happen()
                return half + call(args[0], bytes(args[1])[half:])
            result = call(*args, **options)
            self._happen()
            return result

        return wrapped

    def _happen(self) -> None:
        self.count += 1
        self._inside = True
        try:
            self._do(self.count)
        finally:
            self._inside = False


def count_calls(work: Work, folder: Path, names: tuple[str, ...] = CALLS) -> int:
    """How many there are in a run that nothing happens to."""
    with Calls(lambda number: None, names) as calls:
        work.begin(folder / "counted")
    shutil.rmtree(folder / "counted")
    return calls.count


def chosen_of(every: list[int], num: int | None, rng: random.Random) -> list[int]:
    """Some of them, in order; all if there is no number."""
    return every if num is None or num >= len(every) else sorted(rng.sample(every, num))


def copy_states(work: Work, folder: Path) -> list[Path]:
    """A run, and copies of its files after every call that has changed them, and inside of every write.

    A kill at another call (a sync, say) leaves what one of these does.
    """
    found, last = [], b""

    def copy(number: int) -> None:
        nonlocal last
        now = _digest(folder / "run")
        if now != last:
            found.append(folder / f"run-{number}")
            if (folder / "run").exists():
                shutil.copytree(folder / "run", found[-1], symlinks=True)
        last = now

    with Calls(copy):
        work.begin(folder / "run")
    return found


def _digest(path: Path) -> bytes:
    digest = hashlib.sha256()
    for each in sorted(path.rglob("*")):
        digest.update(f"{each.relative_to(path)} {each.is_dir()} ".encode())
        if each.is_file():
            digest.update(each.read_bytes())
    return digest.digest()
