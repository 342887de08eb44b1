"""One cell of the table: an attack on a kind of work."""

import random
import tempfile
import time
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

from tests.faults.attacks import ATTACKS, GOOD
from tests.faults.work import quiet, works

MEMORY = Path("/dev/shm")  # files of a killed process outlive it here, too, and a sync costs nothing


def run_cell(attack: str, name: str, seed: int, num: int | None) -> dict[str, Any]:
    """One attack on one kind of work: how often it came to what, and what went wrong."""
    rng = random.Random(zlib.crc32(f"{seed} {attack} {name}".encode()))
    counts: Counter[str] = Counter()
    failures = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder, quiet():
        root, work = Path(folder).resolve(), works()[name]
        work.begin(root / "truth")
        truth = work.answer(root / "truth")
        (root / "attack").mkdir()
        for outcome, what in ATTACKS[attack](work, truth, root / "attack", num, rng):
            counts[outcome] += 1
            if outcome not in GOOD:
                failures.append(f"{outcome}: {what}")
    return {
        "attack": attack,
        "work": name,
        "seed": seed,
        "num": num,
        "counts": dict(counts),
        "failures": failures,
        "seconds": round(time.monotonic() - began, 1),
    }
