"""Runs the contestants in turn.

All processes stay alive, but only one works at a time, so that slow spells of the machine fall on all of them alike.
A time taken while other processes were busy is taken again, as long as patience lasts.
"""

import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.harness.entry import Contestant, Entry, Group
from benchmarks.harness.environments import ROOT, python_of
from benchmarks.harness.load import Others
from benchmarks.harness.worker import MARK

BUSY = 0.3
"""Cores used by others from which on a time does not count, if there is time to take it again."""


@dataclass
class Result:
    """Seconds per step of a contestant, one number per repeat."""

    contestant: Contestant
    versions: dict[str, str]
    seconds: list[float] = field(default_factory=list)
    others: list[float] = field(default_factory=list)
    """Cores that other processes used meanwhile."""

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def quartiles(self) -> tuple[float, float]:
        if len(self.seconds) == 1:
            return self.seconds[0], self.seconds[0]
        low, _, high = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return low, high


def ratio(ours: Result, peer: Result) -> float:
    """Median of the ratios within a repeat: a slow spell of the machine falls on both sides of the fraction."""
    return statistics.median(a / b for a, b in zip(ours.seconds, peer.seconds, strict=True))


class Worker:
    """A contestant's process."""

    def __init__(self, name: str, group: int, index: int, contestant: Contestant):
        command = [python_of(contestant.environment), "-m", "benchmarks.harness.worker", name, str(group), str(index)]
        self.contestant = contestant
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        self.versions: dict[str, str] = self._answer()["versions"]

    def seconds(self, units: int) -> float:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"units": units}) + "\n")
        self.process.stdin.flush()
        return self._answer()["seconds"]

    def measure(self) -> tuple[float, float]:
        """Seconds per step, and the cores that others used meanwhile."""
        others = Others(self.process.pid)
        short, long = self.contestant.units
        before = self.seconds(short)
        after = self.seconds(long)
        return (after - before) / self.contestant.steps, others.cores()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def _answer(self) -> dict:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(MARK):
                return json.loads(line.removeprefix(MARK))
        raise SystemExit(f"{self.contestant.name} ended with exit code {self.process.wait()}; its error is above")


class Patience:
    """Seconds that may be spent on waiting for a quiet machine."""

    def __init__(self, seconds: float):
        self.left = seconds

    def measure(self, worker: Worker) -> tuple[float, float]:
        """A time from a quiet machine, or, when patience has run out, the next one."""
        while True:
            began = time.perf_counter()
            if self.left <= 0 or _is_quiet():
                seconds, others = worker.measure()
                if self.left <= 0 or others <= BUSY:
                    return seconds, others
            self.left -= time.perf_counter() - began


def _is_quiet() -> bool:
    others = Others(os.getpid())
    time.sleep(1)
    return others.cores() <= BUSY


def compete(
    name: str, entry: Entry, repeats: int, patience: float, report: Callable[[str], None]
) -> list[list[Result]]:
    """Results of all contestants, by group."""
    return [_compete(name, i, entry.groups[i], repeats, Patience(patience), report) for i in range(len(entry.groups))]


def _compete(
    name: str, number: int, group: Group, repeats: int, patience: Patience, report: Callable[[str], None]
) -> list[Result]:
    heading = f"{group.title}: " if group.title else ""
    workers: list[Worker] = []
    try:
        for index, contestant in enumerate(group.contestants):
            report(f"{heading}start {contestant.name}")
            worker = Worker(name, number, index, contestant)
            workers.append(worker)
            for units in contestant.units:  # compile, and warm the caches
                worker.seconds(units)
        results = [Result(worker.contestant, worker.versions) for worker in workers]
        for repeat in range(repeats):
            report(f"{heading}repeat {repeat + 1}/{repeats}")
            for worker, result in zip(workers, results, strict=True):
                seconds, others = patience.measure(worker)
                result.seconds.append(seconds)
                result.others.append(others)
        return results
    finally:
        for worker in workers:
            worker.close()
