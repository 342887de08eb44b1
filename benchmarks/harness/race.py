"""Races whose result is more than a time: each contestant's run is a process that prints its scores as JSON.

Contestants run in turn, never at the same time, and the whole is repeated; the table shows medians over the repeats.
"""

import argparse
import json
import os
import statistics
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.harness.arena import BUSY
from benchmarks.harness.entry import Environment
from benchmarks.harness.environments import ROOT, python_of
from benchmarks.harness.load import Others

if TYPE_CHECKING:
    from rich.console import Console

MARK = "@race "
Scores = dict[str, float]


@dataclass(frozen=True)
class Runner:
    """A contestant: run(seed) does everything from imports on and returns scores, one of them "seconds"."""

    name: str
    run: Callable[[int], Scores]
    environment: Environment | None = None


def compete(module: str, runners: tuple[Runner, ...], repeats: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Scores of every runner, one per repeat, and how busy the machine was with other things."""
    results: dict[str, Any] = {runner.name: {"scores": [], "others": []} for runner in runners}
    for repeat in range(repeats):
        for index, runner in enumerate(runners):
            say(f"repeat {repeat + 1}/{repeats}: {runner.name}")
            command = [python_of(runner.environment), "-m", module, "--contestant", str(index), "--seed", str(repeat)]
            others = Others(os.getpid())  # whose children count as its own once they have ended
            process = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
            lines = [line for line in process.stdout.splitlines() if line.startswith(MARK)]
            if process.returncode or not lines:
                raise SystemExit(f"{runner.name} failed\n{process.stderr[-3000:]}")
            results[runner.name]["scores"].append(json.loads(lines[-1].removeprefix(MARK)))
            results[runner.name]["others"].append(others.cores())
    return results


def table(title: str, results: dict[str, Any], scores: tuple[str, ...], out: "Console") -> None:
    """Medians over the repeats, and a warning if the machine was not quiet."""
    from rich.table import Table

    rows = Table(title=title, title_justify="left")
    rows.add_column("")
    for score in scores:
        rows.add_column(score, justify="right")
    for name in results:
        rows.add_row(name, *(f"{median(results, name, score):.4g}" for score in scores))
    out.print(rows)
    busiest = max(load for result in results.values() for load in result["others"])
    if busiest > BUSY:
        out.print(f"[yellow]other processes used up to {busiest:.1f} cores meanwhile: not a quiet machine[/yellow]")


def verdict(text: str, measured: float, limit: float, out: "Console", *, at_most: bool = True) -> dict[str, Any]:
    """Print a claim and whether it holds."""
    met = measured <= limit if at_most else measured >= limit
    word = "[green]met[/green]" if met else "[red]missed[/red]"
    out.print(f"{text} = {measured:.3g}, target at {'most' if at_most else 'least'} {limit:g}: {word}")
    return {"claim": text, "measured": measured, "limit": limit, "at_most": at_most, "met": met}


def median(results: dict[str, Any], name: str, score: str) -> float:
    """Median over the repeats."""
    return statistics.median(scores[score] for scores in results[name]["scores"])


def contestant(runners: tuple[Runner, ...], arguments: list[str]) -> bool:
    """In a contestant's own process: run it and print its scores. False if this is not one."""
    if "--contestant" not in arguments:
        return False
    parser = argparse.ArgumentParser()
    parser.add_argument("--contestant", type=int)
    parser.add_argument("--seed", type=int)
    options, _ = parser.parse_known_args(arguments)
    print(MARK + json.dumps(runners[options.contestant].run(options.seed)), flush=True)
    return True
