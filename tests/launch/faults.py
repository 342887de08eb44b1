"""`python -m tests.launch.faults`: a cluster whose workers are killed, stopped and doubled must give the same draws.

Every case prints what was done to whom and when; `--seed S --only N` does one again. Times are of the machine, so a
case that is repeated meets the same attack at about the same place.
"""

import argparse
import contextlib
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
from tests.launch.test_tasks import LONG, fit, numbers

from marginax.files import RunDirectory
from marginax.infer.launching import Serial, run_task, tasks_of
from marginax.launch import Dask

ATTACKS = ("worker", "both", "checkpoint", "again", "pause", "double")
LONGEST = 300.0  # seconds of a case


class Attack(threading.Thread):
    """What is done while a run goes on, and when.

    Args:
        path: of the run.
        rng: decides.
    """

    def __init__(self, path: Path, rng: random.Random):
        super().__init__()
        self.what, self.done = rng.choice(ATTACKS), list[str]()
        self._path = path
        self._moments, self._victim = [rng.random() for _ in range(3)], rng.randrange(2)

    def run(self) -> None:
        while not list(self._path.rglob("checkpoint-*")):  # from there on it takes some seconds
            time.sleep(0.01)
        self._began = time.monotonic()
        time.sleep(3.0 * self._moments[0])
        if self.what == "double":
            task = tasks_of(RunDirectory(self._path))[int(4 * self._moments[1])]
            self._say(f"{task.name} is done once more")
            run_task(task)
            return
        for _ in range(3 if self.what == "again" else 1):
            if self.what == "checkpoint":
                self._wait_for_a_write()
            self._hit([signal.SIGSTOP, signal.SIGCONT] if self.what == "pause" else [signal.SIGKILL])
            time.sleep(3.0 * self._moments[2])

    def _wait_for_a_write(self) -> None:
        until = time.monotonic() + 5.0
        while time.monotonic() < until and not list(self._path.glob("fits/*/.checkpoint-*.new-*")):
            pass

    def _hit(self, signals: list[signal.Signals]) -> None:
        pids = _pids()
        for pid in pids if self.what == "both" else pids[self._victim % max(1, len(pids)) :][:1]:
            for number in signals:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
                    self._say(f"{number.name} to {pid}")
                if number == signal.SIGSTOP:
                    time.sleep(2.0 * self._moments[1])

    def _say(self, text: str) -> None:
        late = " (after the end)" * (self._path / "posterior").exists()
        self.done.append(f"{time.monotonic() - self._began:.2f} s: {text}{late}")


def _pids() -> list[int]:
    """Of the workers, which are spawned by this process."""
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            found += [child.pid] * any("spawn_main" in each for each in child.cmdline())
    return sorted(found)


def cases(num: int, seed: int, only: int | None = None) -> Iterator[tuple[int, str, str, list[str]]]:
    """Number, attack, outcome and what was done."""
    with tempfile.TemporaryDirectory() as folder, Dask.local(2, num_losses=5) as launcher:
        truth = numbers(fit(Path(folder) / "truth", Serial(), LONG))
        for number in range(num) if only is None else [only]:
            path = Path(folder) / f"run-{number}"
            attack = Attack(path, random.Random(f"{seed}-{number}"))
            attack.start()
            began = time.monotonic()
            try:
                found = numbers(fit(path, launcher, LONG))
                right = all(u.tobytes() == v.tobytes() for u, v in zip(found, truth, strict=True))
                outcome = "same" if right else "wrong"
            except Exception as error:
                outcome = f"error ({type(error).__name__}: {error})"
            attack.join()
            outcome = "hang" if time.monotonic() - began > LONGEST else outcome
            yield number, attack.what, outcome, attack.done


def main() -> int:
    """All cases; 1 if one of them came to another end than the undisturbed run."""
    parser = argparse.ArgumentParser(prog="python -m tests.launch.faults", description=__doc__)
    parser.add_argument("--num", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int)
    options = parser.parse_args()
    counts: Counter[tuple[str, str]] = Counter()
    hits = 0
    print(f"seed {options.seed}", flush=True)
    for number, what, outcome, done in cases(options.num, options.seed, options.only):
        counts[what, outcome.partition(" ")[0]] += 1
        hits += sum("SIGKILL" in text and "after the end" not in text for text in done)
        print(f"case {number}, {what}: {outcome}; {', '.join(done)}", flush=True)
    for (what, outcome), count in sorted(counts.items()):
        print(f"{what:12} {outcome:6} {count}")
    print(f"{hits} kills while a run went on, in {counts.total()} cases")
    return int(any(outcome != "same" for _, outcome in counts))


if __name__ == "__main__":
    sys.exit(main())
