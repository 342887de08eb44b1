"""Runs the contestants in turn. All processes stay alive, but only one works at a time, so that whatever else the
machine does falls on all of them alike."""

import json
import statistics
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.entry import Contestant, Entry
from benchmarks.environments import ROOT, python_of
from benchmarks.worker import MARK


@dataclass
class Result:
    """Seconds per step of a contestant, one number per repeat."""

    contestant: Contestant
    versions: dict[str, str]
    seconds: list[float] = field(default_factory=list)

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
        command = [python_of(contestant.environment), "-m", "benchmarks.worker", name, str(group), str(index)]
        self.contestant = contestant
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        self.versions: dict[str, str] = self._answer()["versions"]

    def seconds(self, units: int) -> float:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"units": units}) + "\n")
        self.process.stdin.flush()
        return self._answer()["seconds"]

    def seconds_per_step(self) -> float:
        short, long = self.contestant.units
        before = self.seconds(short)
        return (self.seconds(long) - before) / self.contestant.steps

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


def compete(name: str, entry: Entry, repeats: int, report: Callable[[str], None]) -> list[list[Result]]:
    """Results of all contestants, by group."""
    return [_compete(name, number, entry, repeats, report) for number in range(len(entry.groups))]


def _compete(name: str, number: int, entry: Entry, repeats: int, report: Callable[[str], None]) -> list[Result]:
    group = entry.groups[number]
    workers: list[Worker] = []
    try:
        for index, contestant in enumerate(group.contestants):
            report(f"{group.title}: start {contestant.name}" if group.title else f"start {contestant.name}")
            worker = Worker(name, number, index, contestant)
            workers.append(worker)
            for units in contestant.units:  # compile, and warm the caches
                worker.seconds(units)
        results = [Result(worker.contestant, worker.versions) for worker in workers]
        for repeat in range(repeats):
            report(f"{group.title}: repeat {repeat + 1}/{repeats}" if group.title else f"repeat {repeat + 1}/{repeats}")
            for worker, result in zip(workers, results, strict=True):
                result.seconds.append(worker.seconds_per_step())
        return results
    finally:
        for worker in workers:
            worker.close()
