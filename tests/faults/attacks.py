"""How it is attacked. An attack gives, for every case, what came of it: one of `OUTCOMES`."""

import contextlib
import errno
import hashlib
import json
import os
import random
import shutil
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tests.faults import processes
from tests.faults.work import REFUSALS, RefusedError, Work, data, judge

import marginax as mx
from marginax.files import store

OUTCOMES = ("same", "read", "refused", "loss", "wrong", "error", "outside", "hang")
GOOD = ("same", "read", "refused")
CALLS = ("mkdir", "rename", "replace", "unlink", "rmdir", "write", "fsync", "ftruncate", "link")
TOKENS = (b"[", b"{", b'"', b"-1", b"9" * 30, b"null", b"\0", b";", b"\xff", b"1e999")
Case = tuple[str, str]  # outcome, and what was done


class Calls:
    """Every call of the file system that changes something, counted, with something to do at some of them."""

    def __init__(self, root: Path, do: Callable[[int], None]):
        self.count, self._root, self._do, self._inside = 0, root, do, False
        self._real = {name: getattr(os, name) for name in CALLS}

    def __enter__(self) -> "Calls":
        for name in CALLS:
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


def _count_calls(work: Work, folder: Path) -> int:
    with Calls(folder, lambda number: None) as calls:
        work.begin(folder / "counted")
    return calls.count


def _chosen(total: int, num: int | None, rng: random.Random) -> list[int]:
    every = list(range(1, total + 1))
    return every if num is None or num >= total else sorted(rng.sample(every, num))


def crash(work: Work, truth: list[np.ndarray], folder: Path, num: int | None, rng: random.Random) -> Iterator[Case]:
    """The files as a kill leaves them, after every call and inside of every write; then the work goes on."""
    chosen = set(_chosen(_count_calls(work, folder), num, rng))

    def copy(number: int) -> None:
        if number in chosen:
            source = folder / "run"
            if source.exists():
                shutil.copytree(source, folder / f"run-{number}", symlinks=True)

    with Calls(folder, copy):
        work.begin(folder / "run")
    for number in sorted(chosen):
        path = folder / f"run-{number}"
        yield judge(work, path, truth, may_refuse=False), f"killed at call {number}"
        shutil.rmtree(path, ignore_errors=True)


def full(work: Work, truth: list[np.ndarray], folder: Path, num: int | None, rng: random.Random) -> Iterator[Case]:
    """A disk that is full from some call on; then there is room again."""
    for number in _chosen(_count_calls(work, folder), num, rng):
        path = folder / f"run-{number}"

        def fill(count: int, number: int = number) -> None:
            if count >= number:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        said = ""
        try:
            with Calls(folder, fill):
                work.begin(path)
        except (*REFUSALS, RefusedError, OSError) as error:
            said = str(error)
        except Exception as error:
            yield "error", f"full at call {number}: {type(error).__name__}"
            continue
        outcome = judge(work, path, truth, may_refuse=False)
        yield outcome, f"full at call {number} ({said:.80})"
        shutil.rmtree(path, ignore_errors=True)


def damage(work: Work, truth: list[np.ndarray], folder: Path, num: int | None, rng: random.Random) -> Iterator[Case]:
    """A flipped bit, a cut, an addition or zeros in any file, of a run in the middle and of a finished one."""
    total = _count_calls(work, folder)
    places = {total // 3, 2 * total // 3}

    def copy(number: int) -> None:
        if number in places and (folder / "run").exists():
            shutil.copytree(folder / "run", folder / f"at-{number}")

    with Calls(folder, copy):
        work.begin(folder / "run")
    states = [path for path in [*folder.glob("at-*"), folder / "run"] if path.exists()]
    for number in range(num or 160):
        path = folder / "damaged"
        shutil.copytree(rng.choice(states), path)
        file = rng.choice(sorted(each for each in path.rglob("*") if each.is_file()))
        what = _harm(file, rng)
        yield judge(work, path, truth, may_refuse=True), f"case {number}: {what} in {file.relative_to(path)}"
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
    total = _count_calls(work, folder)

    def copy(number: int) -> None:
        if number == 2 * total // 3:
            shutil.copytree(folder / "run", folder / "middle")

    with Calls(folder, copy):
        work.begin(folder / "run")
    inner = sorted(each.relative_to(folder / "middle") for each in (folder / "middle").rglob("*"))
    for place in inner if num is None else rng.sample(inner, min(num, len(inner))):
        path, outside = folder / "linked", folder / "outside"
        shutil.copytree(folder / "middle", path)
        (path / place).rename(outside)
        (path / place).symlink_to(outside)
        before = _contents(outside)
        outcome = judge(work, path, truth, may_refuse=True)
        yield ("outside" if _contents(outside) != before else outcome), f"{place} is a link"
        shutil.rmtree(path)
        shutil.rmtree(outside) if outside.is_dir() else outside.unlink(missing_ok=True)


def _contents(path: Path) -> dict[str, bytes]:
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    return {str(each): each.read_bytes() for each in files}


def removal(work: Work, truth: list[np.ndarray], folder: Path, num: int | None, rng: random.Random) -> Iterator[Case]:
    """The directory, or a part of it, is removed or made read-only while the run goes on; the folder changes."""
    total = _count_calls(work, folder)
    home = Path.cwd()
    for number in _chosen(total, num or 12, rng):
        how = rng.choice(["remove", "replace", "chdir"])
        path = folder / f"run-{number}"

        def act(count: int, number: int = number, how: str = how, path: Path = path) -> None:
            if count == number and how == "chdir":
                os.chdir("/")
            elif count == number:
                shutil.rmtree(path, ignore_errors=True)
                if how == "replace":
                    path.mkdir(exist_ok=True)

        outcome = "same"
        try:
            with Calls(folder, act):
                work.begin(path)
            if how == "chdir":
                outcome = judge(work, path, truth, may_refuse=False)
        except (*REFUSALS, RefusedError, OSError):
            outcome = "loss" if how == "chdir" else "refused"
        except Exception:
            outcome = "error"
        finally:
            os.chdir(home)
        yield outcome, f"{how} at call {number}"
        shutil.rmtree(path, ignore_errors=True)


def signals(work: Work, truth: list[np.ndarray], folder: Path, num: int | None, rng: random.Random) -> Iterator[Case]:
    """SIGINT or SIGTERM at some call of a run; then it goes on."""

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        for number in _chosen(_count_calls(work, folder), num or 12, rng):
            which = rng.choice([signal.SIGINT, signal.SIGTERM])
            path = folder / f"run-{number}"

            def send(count: int, number: int = number, which: signal.Signals = which) -> None:
                if count == number:
                    os.kill(os.getpid(), which)

            with contextlib.suppress(KeyboardInterrupt, *REFUSALS, RefusedError), Calls(folder, send):
                work.begin(path)
            yield judge(work, path, truth, may_refuse=False), f"{which.name} at call {number}"
            shutil.rmtree(path, ignore_errors=True)
    finally:
        signal.signal(signal.SIGTERM, before)


def fuzz(work: Work, truth: list[np.ndarray], folder: Path, num: int | None, rng: random.Random) -> Iterator[Case]:
    """Changed manifests with a valid hash, headers and tables, to whatever reads them: an answer or a refusal, soon."""
    total = _count_calls(work, folder)

    def copy(count: int) -> None:
        if count == total // 2:
            shutil.copytree(folder / "run", folder / "middle")

    with Calls(folder, copy):
        work.begin(folder / "run")
    x, y = data()
    table = "a;b;y\n" + "\n".join(f"{u:.3f};text {v:.1f};{w:.2f}" for (u, v), w in zip(x, y, strict=True))
    readers: list[Callable[[Path], Any]] = [mx.load, mx.estimators.load, work.answer]
    for number in range(num or 8000):
        path, kind = folder / "fuzzed", rng.random()
        if kind < 0.3:
            path = folder / "table.csv"
            path.write_bytes(_mutated(table.encode(), rng))
            read, what = (lambda path: mx.data.read_table(path, rng.choice(["y", None]))), "table"
        else:
            shutil.copytree(folder / ("middle" if kind > 0.9 else "run"), path)
            read = work.go_on if kind > 0.9 else rng.choice(readers)
            files = sorted(each for each in path.rglob("*") if each.is_file())
            what = _fuzz_file(rng.choice([each for each in files if each.stat().st_size < 2**16]), rng)
        began, outcome = time.monotonic(), "read"
        try:
            read(path)
        except (*REFUSALS, RefusedError) as error:
            outcome = "refused" if "\n" not in str(error).strip() else "error"
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(where.filename).name}:{where.lineno}"
            outcome, what = "error", f"{what}: {type(error).__name__} {error} in {place}"
        yield "hang" if time.monotonic() - began > 10 else outcome, f"case {number}: {what:.200}"
        shutil.rmtree(path, ignore_errors=True)


def _fuzz_file(file: Path, rng: random.Random) -> str:
    content = file.read_bytes()
    if file.name == "manifest.json" and rng.random() < 0.7:
        file.write_bytes(_restructured(content, rng))
    elif file.name == "manifest.json" and rng.random() < 0.8:
        file.write_bytes(_sealed(_mutated(content, rng)))
    else:
        file.write_bytes(_mutated(content, rng))
    return f"{file.parent.name}/{file.name}"


def _mutated(content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 4, 16])):
        place = rng.randrange(len(changed) + 1)
        how = rng.randrange(5)
        if how == 0 and place < len(changed):
            changed[place] = rng.randrange(256)
        elif how == 1:
            del changed[place : place + rng.randrange(1, 20)]
        elif how == 2:
            changed[place:place] = rng.choice(TOKENS)
        elif how == 3:
            other = rng.randrange(len(changed) + 1)
            changed[place:place] = changed[other : other + 40]
        elif place < len(changed):
            changed[place] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _restructured(manifest: bytes, rng: random.Random) -> bytes:
    """Another value somewhere in the document, well-formed and with a valid hash: only crafted files are like that."""
    whole = json.loads(manifest)
    places: list[tuple[Any, Any]] = []

    def visit(node: Any) -> None:
        for key in range(len(node)) if isinstance(node, list) else list(node):
            places.append((node, key))
            if isinstance(node[key], list | dict):
                visit(node[key])

    visit(whole["document"])
    node, key = rng.choice(places)
    other, its = rng.choice(places)
    if rng.random() < 0.2:
        del node[key]
    else:
        node[key] = rng.choice(
            [
                None,
                3,
                -1,
                2**70,
                1.5,
                "text",
                [],
                {},
                [1],
                True,
                json.loads(json.dumps(other[its]))
                if its in (other if isinstance(other, dict) else range(len(other)))
                else 0,
            ]
        )
    files = {name: (entry["sha256"], entry["size"]) for name, entry in whole["files"].items()}
    return store._manifest(whole["kind"], json.dumps(whole["document"]), files)


def _sealed(manifest: bytes) -> bytes:
    body = manifest[: -store._TAIL_SIZE]
    return body + store._TAIL % hashlib.sha256(body).hexdigest().encode()


ATTACKS = {
    "crash": crash,
    "killed": processes.killed,
    "full": full,
    "damage": damage,
    "links": links,
    "removal": removal,
    "signals": signals,
    "rivals": processes.rivals,
    "fuzz": fuzz,
}
SIZES = {
    "crash": 400,
    "killed": 77,
    "full": 60,
    "damage": 160,
    "links": 40,
    "removal": 12,
    "signals": 16,
    "rivals": 6,
    "fuzz": 8000,
}
