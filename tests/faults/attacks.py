"""How it is attacked. An attack gives, for every case, what came of it: one of `OUTCOMES`."""

import contextlib
import errno
import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tests.faults import processes
from tests.faults.calls import CALLS, Calls, chosen_of, copy_states, count_calls
from tests.faults.fuzz import fuzz
from tests.faults.work import REFUSALS, RefusedError, Work, judge

OUTCOMES = ("same", "read", "refused", "loss", "wrong", "error", "outside", "hang")
GOOD = ("same", "read", "refused")
NEED_ROOM = ("mkdir", "write", "ftruncate", "fsync", "link", "rename", "replace")
Case = tuple[str, str]  # outcome, and what was done


def crash(work: Work, truth: list[np.ndarray], folder: Path, num: int | None, rng: random.Random) -> Iterator[Case]:
    """The files as a kill leaves them, after every call and inside of every write; then the work goes on."""
    for path in chosen_of(copy_states(work, folder), num, rng):
        yield judge(work, path, truth, f"killed at call {path.name.removeprefix('run-')}", may_refuse=False)
        shutil.rmtree(path, ignore_errors=True)


def full(work: Work, truth: list[np.ndarray], folder: Path, num: int | None, rng: random.Random) -> Iterator[Case]:
    """A disk that is full from some call on that needs room; then there is room again."""
    yield from _failing(work, truth, folder, num, rng, errno.ENOSPC, NEED_ROOM)


def forbidden(work: Work, truth: list[np.ndarray], folder: Path, num: int | None, rng: random.Random) -> Iterator[Case]:
    """Permission is taken away (chmod, a file system that turns read-only) at some call; then it is back."""
    yield from _failing(work, truth, folder, num, rng, rng.choice([errno.EACCES, errno.EROFS]), CALLS)


def _failing(
    work: Work,
    truth: list[np.ndarray],
    folder: Path,
    num: int | None,
    rng: random.Random,
    reason: int,
    names: tuple[str, ...],
) -> Iterator[Case]:
    every = list(range(1, count_calls(work, folder, names) + 1))
    for number in chosen_of(every, num, rng):
        path = folder / f"run-{number}"

        def fail(count: int, number: int = number) -> None:
            if count >= number:
                raise OSError(reason, os.strerror(reason))

        said = ""
        try:
            with Calls(fail, names):
                work.begin(path)
        except (*REFUSALS, RefusedError, OSError) as error:
            said = str(error)
        except Exception as error:
            yield "error", f"{errno.errorcode[reason]} at call {number}: {type(error).__name__}"
            continue
        outcome, what = judge(work, path, truth, f"{errno.errorcode[reason]} at call {number}", may_refuse=False)
        yield ("error" if "\n" in said.strip() else outcome), f"{what} ({said:.80})"
        shutil.rmtree(path, ignore_errors=True)


def damage(work: Work, truth: list[np.ndarray], folder: Path, num: int | None, rng: random.Random) -> Iterator[Case]:
    """A flipped bit, a cut, an addition or zeros in every file in turn, of runs in the middle and finished."""
    states = copy_states(work, folder)
    chosen = [states[len(states) // 3], states[2 * len(states) // 3], folder / "run"]
    files = [(state, each.relative_to(state)) for state in chosen for each in state.rglob("*") if each.is_file()]
    rng.shuffle(files)
    for number in range(num or 2 * len(files)):
        (state, place), path = files[number % len(files)], folder / "damaged"
        shutil.copytree(state, path)
        what = _harm(path / place, rng)
        yield judge(work, path, truth, f"case {number}: {what} in {place}", may_refuse=True)
        shutil.rmtree(path)


def _harm(file: Path, rng: random.Random) -> str:
    content = bytearray(file.read_bytes())
    how = rng.choice(["flip", "flip", "flip", "cut", "add", "zero", "remove"])
    place = rng.randrange(len(content)) if content else 0
    if rng.random() < 0.5 and len(content) > 200:  # headers are small
        place = rng.randrange(200)
    if how == "remove":
        file.unlink()
        return "removed"
    if how == "flip" and content:
        content[place] ^= 1 << rng.randrange(8)
    elif how == "cut":
        del content[place:]
    elif how == "add":
        content += bytes(rng.randrange(256) for _ in range(8))
    elif content:
        content[place : place + 64] = bytes(len(content[place : place + 64]))
    file.write_bytes(content)
    return f"{how} at byte {place}"


def links(work: Work, truth: list[np.ndarray], folder: Path, num: int | None, rng: random.Random) -> Iterator[Case]:
    """Each file and folder of a run in the middle replaced by a link to what lies outside, which must not change."""
    states = copy_states(work, folder)
    middle = states[2 * len(states) // 3]
    inner = sorted(each.relative_to(middle) for each in middle.rglob("*"))
    for place in inner if num is None else rng.sample(inner, min(num, len(inner))):
        path, outside = folder / "linked", folder / "outside"
        shutil.copytree(middle, path)
        (path / place).rename(outside)
        (path / place).symlink_to(outside)
        before = _contents(outside)
        outcome, what = judge(work, path, truth, f"{place} is a link", may_refuse=True)
        yield ("outside" if _contents(outside) != before else outcome), what
        shutil.rmtree(path)
        shutil.rmtree(outside) if outside.is_dir() else outside.unlink(missing_ok=True)


def _contents(path: Path) -> dict[str, bytes]:
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    return {str(each): each.read_bytes() for each in files}


def removal(work: Work, truth: list[np.ndarray], folder: Path, num: int | None, rng: random.Random) -> Iterator[Case]:
    """The directory is removed or replaced while the run goes on; the working directory changes."""
    every = list(range(1, count_calls(work, folder) + 1))
    home = Path.cwd()
    for number in chosen_of(every, num or 24, rng):
        how = rng.choice(["remove", "replace", "chdir"])
        path = folder / f"run-{number}"

        def act(count: int, number: int = number, how: str = how, path: Path = path) -> None:
            if count == number and how == "chdir":
                os.chdir("/")
            elif count == number:
                shutil.rmtree(path, ignore_errors=True)
                if how == "replace":
                    path.mkdir(exist_ok=True)

        outcome, what = "same", f"{how} at call {number}"
        try:
            with Calls(act):
                work.begin(path)
            if how == "chdir":
                outcome, what = judge(work, path, truth, what, may_refuse=False)
        except (*REFUSALS, RefusedError, OSError) as error:
            outcome, what = "loss" if how == "chdir" else "refused", f"{what}: {error}"
        except Exception as error:
            outcome, what = "error", f"{what}: {type(error).__name__} {error}"
        finally:
            os.chdir(home)
        yield outcome, what
        shutil.rmtree(path, ignore_errors=True)


def signals(work: Work, truth: list[np.ndarray], folder: Path, num: int | None, rng: random.Random) -> Iterator[Case]:
    """SIGINT or SIGTERM at some call of a run, or at some moment between calls; then it goes on."""

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    def send(which: signal.Signals) -> None:
        os.kill(os.getpid(), which)

    began, every = time.monotonic(), list(range(1, count_calls(work, folder) + 1))
    seconds = time.monotonic() - began
    # what a shell starts in the background ignores SIGINT
    before = {each: signal.signal(each, end) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        for number in [rng.choice(every) for _ in range(num or 32)]:
            which, at_call = rng.choice([signal.SIGINT, signal.SIGTERM]), rng.random() < 0.5
            path, moment = folder / f"run-{number}", rng.random() * seconds
            timer = threading.Timer(moment, send, [which])

            def at(count: int, number: int = number, which: signal.Signals = which, at_call: bool = at_call) -> None:
                if at_call and count == number:
                    send(which)

            with contextlib.suppress(KeyboardInterrupt, *REFUSALS, RefusedError):
                if not at_call:
                    timer.start()
                with Calls(at):
                    work.begin(path)
            with contextlib.suppress(KeyboardInterrupt):
                timer.cancel()
                if not at_call:
                    timer.join()
            where = f"call {number}" if at_call else f"{moment:.3f} s of {seconds:.3f}"
            yield judge(work, path, truth, f"{which.name} at {where}", may_refuse=False)
            shutil.rmtree(path, ignore_errors=True)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


ATTACKS = {
    "fuzz": fuzz,
    "crash": crash,
    "killed": processes.killed,
    "full": full,
    "forbidden": forbidden,
    "damage": damage,
    "links": links,
    "removal": removal,
    "signals": signals,
    "rivals": processes.rivals,
}
# Cases of a kind of work in a full run; of thirteen kinds. None: every one that there is, and the number for a part.
SIZES: dict[str, int | tuple[None, int]] = {
    "fuzz": 7_700,
    "crash": (None, 200),
    "killed": 77,
    "full": (None, 150),
    "forbidden": 12,
    "damage": 154,
    "links": (None, 40),
    "removal": 12,
    "signals": 32,
    "rivals": 6,
}


def size_of(attack: str, share: float) -> int | None:
    """How many cases a share is; None is all."""
    size = SIZES[attack]
    if isinstance(size, tuple):
        return None if share >= 1 else max(1, round(size[1] * share))
    return max(1, round(size * share))
