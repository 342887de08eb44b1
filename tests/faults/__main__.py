"""`make faults`: all attacks on all kinds of work, a table at the end; a cell that is done is not done again."""

import argparse
import json
import random
import sys
import tempfile
import time
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

from tests.faults.attacks import ATTACKS, GOOD, OUTCOMES, SIZES
from tests.faults.work import quiet, works

RESULTS = Path(".faults") / "results.jsonl"


def run_cell(attack: str, name: str, seed: int, num: int | None) -> dict[str, Any]:
    """One attack on one kind of work: how often it came to what, and what went wrong."""
    rng = random.Random(zlib.crc32(f"{seed} {attack} {name}".encode()))
    counts: Counter[str] = Counter()
    failures = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, quiet():
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


def table(cells: list[dict[str, Any]]) -> str:
    """Attacks, and how often they came to what."""
    lines = ["| attack | cases | " + " | ".join(OUTCOMES) + " | seconds |", "|---" * (len(OUTCOMES) + 3) + "|"]
    for attack in [*ATTACKS, "all"]:
        own = [cell for cell in cells if attack in (cell["attack"], "all")]
        counts = sum((Counter(cell["counts"]) for cell in own), Counter())
        values = [counts.total(), *(counts[outcome] for outcome in OUTCOMES), round(sum(c["seconds"] for c in own))]
        lines.append(f"| {attack} | " + " | ".join(f"{value:,}" for value in values) + " |")
    return "\n".join(lines)


def main() -> int:
    """Run what is not done yet, print the table; 1 if anything was lost or wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", type=float, default=1.0, help="of the cases")
    parser.add_argument("--only", default=":", help="ATTACK:WORK, either may be left out")
    parser.add_argument("--again", action="store_true", help="forget what was done before")
    options = parser.parse_args()
    RESULTS.parent.mkdir(exist_ok=True)
    if options.again:
        RESULTS.unlink(missing_ok=True)
    done = [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    wanted_attack, _, wanted_work = options.only.partition(":")
    cells = []
    for attack in ATTACKS:
        num = max(1, round(SIZES[attack] * options.share))
        for name in works():
            if wanted_attack not in ("", attack) or wanted_work not in ("", name):
                continue
            place = {"attack": attack, "work": name, "seed": options.seed, "num": num}
            cell = None if options.only != ":" else next((c for c in done if place.items() <= c.items()), None)
            if cell is None:
                cell = run_cell(attack, name, options.seed, num)
                with RESULTS.open("a") as file:
                    file.write(json.dumps(cell) + "\n")
            cells.append(cell)
            said = ", ".join(f"{count} {outcome}" for outcome, count in cell["counts"].items())
            print(f"{attack:8} {name:14} seed {options.seed}: {said} ({cell['seconds']} s)", flush=True)
            for failure in cell["failures"][:5]:
                print(f"    {failure}", flush=True)
            if cell["failures"]:
                again = f"--only {attack}:{name} --seed {options.seed} --share {options.share:g}"
                print(f"    python -m tests.faults {again}", flush=True)
    print(table(cells))
    return int(any(cell["failures"] for cell in cells))


if __name__ == "__main__":
    sys.exit(main())
