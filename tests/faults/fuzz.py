"""Changed files and tables to whatever reads them: an answer or a refusal in one line, soon."""

import hashlib
import json
import random
import shutil
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tests.faults.calls import copy_states
from tests.faults.work import REFUSALS, RefusedError, Work, data

import marginax as mx
from marginax.files import store

TOKENS = (b"[", b"{", b'"', b"-1", b"9" * 30, b"null", b"\0", b";", b"\xff", b"1e999")
VALUES = (None, 3, -1, 2**70, 1.5, "text", [], {}, [1], True)
TABLES, ANSWERS, GOING_ON = 0.4, 0.05, 0.03  # shares of the cases; the others are loaded
Case = tuple[str, str]  # outcome, and what was done


def fuzz(work: Work, truth: list[np.ndarray], folder: Path, num: int | None, rng: random.Random) -> Iterator[Case]:
    """Changed manifests with a valid hash, headers and tables, to all that reads them."""
    states = copy_states(work, folder)
    whole, middle = folder / "run", states[len(states) // 2]
    posteriors = sorted(each for each in whole.rglob("posterior*") if (each / "manifest.json").exists())
    x, y = data()
    table = "a;b;y\n" + "\n".join(f"{u:.3f};text {v:.1f};{w:.2f}" for (u, v), w in zip(x, y, strict=True))
    for number in range(num or 7_700):
        kind = rng.random()
        if kind < TABLES:
            path, target = folder / "table.csv", rng.choice(["y", None])
            path.write_bytes(_mutated(table.encode(), rng))
            yield _outcome(lambda path: mx.data.read_table(path, target), path, f"case {number}: table")  # noqa: B023
            continue
        if kind < TABLES + ANSWERS + GOING_ON:  # these may write
            path, going_on = folder / "fuzzed", kind < TABLES + GOING_ON
            shutil.copytree(middle if going_on else whole, path)
            file = rng.choice(_small_files(path))
            _fuzz_file(file, rng)
            what = f"case {number}: {file.relative_to(path)} {'goes on' if going_on else 'answers'}"
            # of an estimator that can be read it is not asked what it would predict
            answer = mx.estimators.load if work.is_estimator else work.answer
            yield _outcome(work.go_on if going_on else answer, path, what)
            shutil.rmtree(path)
            continue
        read = mx.estimators.load if work.is_estimator and rng.random() < 0.7 else mx.load
        path = whole if read is mx.estimators.load else rng.choice(posteriors)
        file = rng.choice(_small_files(path))
        before = {each: each.read_bytes() for each in file.parent.iterdir() if each.is_file()}
        _fuzz_file(file, rng)
        yield _outcome(read, path, f"case {number}: {file.relative_to(whole)} {read.__module__}")
        for each, content in before.items():
            each.write_bytes(content)


def _small_files(path: Path) -> list[Path]:
    """Manifests more often than others: objects are made from these."""
    found = sorted(each for each in path.rglob("*") if each.is_file() and each.stat().st_size < 2**16)
    return found + 3 * [each for each in found if each.name == "manifest.json"]


def _outcome(read: Any, path: Path, what: str) -> Case:
    began, outcome = time.monotonic(), "read"
    try:
        read(path)
    except (*REFUSALS, RefusedError) as error:
        outcome = "refused" if "\n" not in str(error).strip() else "error"
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        outcome, what = "error", f"{what}: {type(error).__name__} {error} in {Path(where.filename).name}:{where.lineno}"
    return "hang" if time.monotonic() - began > 10 else outcome, f"{what:.300}"


def _fuzz_file(file: Path, rng: random.Random) -> None:
    content, how, manifest = file.read_bytes(), rng.random(), file.with_name("manifest.json")
    if file == manifest and how < 0.8:
        file.write_bytes(_restructured(content, rng))
    elif file == manifest and how < 0.95:
        file.write_bytes(_sealed(_mutated(content, rng)))
    else:
        file.write_bytes(_mutated(content, rng))
    if file != manifest and manifest.exists() and how < 0.9:  # the manifest knows the hash of what was changed
        whole = json.loads(manifest.read_bytes())
        changed = file.read_bytes()
        whole["files"][file.name] = {"sha256": hashlib.sha256(changed).hexdigest(), "size": len(changed)}
        manifest.write_bytes(_manifest(whole))


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
    copied = json.loads(json.dumps(other[its]))
    if rng.random() < 0.2:
        del node[key]
    else:
        node[key] = rng.choice([*VALUES, copied, copied])
    return _manifest(whole)


def _manifest(whole: Any) -> bytes:
    files = {name: (entry["sha256"], entry["size"]) for name, entry in whole["files"].items()}
    return store._manifest(whole["kind"], json.dumps(whole["document"]), files)


def _sealed(manifest: bytes) -> bytes:
    body = manifest[: -store._TAIL_SIZE]
    return body + store._TAIL % hashlib.sha256(body).hexdigest().encode()
