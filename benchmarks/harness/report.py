"""Tables for people, JSON for the record. No host names, no paths."""

import contextlib
import datetime
import json
import os
import platform
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.harness.arena import BUSY, Result, ratio
from benchmarks.harness.entry import Entry

RESULTS = Path(__file__).resolve().parents[1] / "results"


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": platform.system(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
    }


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"


def console() -> Console:
    """A console that does not squeeze tables when the output is not a terminal."""
    plain = Console()
    return plain if plain.is_terminal else Console(width=120)


@contextlib.contextmanager
def progress(out: Console) -> Iterator[Callable[[str], None]]:
    """A way to say what is going on: one line that changes on a terminal, lines on standard error elsewhere."""
    if not out.is_terminal:
        yield lambda text: print(text, file=sys.stderr, flush=True)
        return
    with out.status("") as status:
        yield status.update


def readable(seconds: float) -> str:
    """A duration in the unit that suits it.

    >>> readable(0.00204), readable(0.8), readable(0.0000305)
    ('2.04 ms', '800 ms', '30.5 us')
    """
    for factor, unit in ((1.0, "s"), (1e-3, "ms")):
        if abs(seconds) >= factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} us"


def verdicts(entry: Entry, results: list[list[Result]]) -> list[dict[str, Any]]:
    """The claims of an entry, with what was measured."""
    found = []
    for group, rows in zip(entry.groups, results, strict=True):
        by_name = {row.contestant.name: row for row in rows}
        for target in group.targets:
            measured = ratio(by_name[target.ours], by_name[target.peer])
            found.append(
                {
                    "group": group.title,
                    "ours": target.ours,
                    "peer": target.peer,
                    "ratio": measured,
                    "at_most": target.at_most,
                    "met": measured <= target.at_most,
                }
            )
    return found


def show(entry: Entry, results: list[list[Result]], out: Console) -> None:
    """Print one table per group, and the claims."""
    out.print(f"\n[bold]{entry.title}[/bold]")
    for group, rows in zip(entry.groups, results, strict=True):
        table = Table(title=group.title or None, title_justify="left")
        table.add_column("")
        for header in (f"median per {entry.unit}", "quartiles", f"ratio to {rows[0].contestant.name}"):
            table.add_column(header, justify="right")
        for row in rows:
            low, high = row.quartiles
            relative = "1" if row is rows[0] else f"{ratio(row, rows[0]):.3g}"
            table.add_row(row.contestant.name, readable(row.median), f"{readable(low)} - {readable(high)}", relative)
        out.print(table)
    for claim in verdicts(entry, results):
        where = f"{claim['group']}: " if claim["group"] else ""
        word = "[green]met[/green]" if claim["met"] else "[red]missed[/red]"
        fraction = f"{claim['ours']} / {claim['peer']} = {claim['ratio']:.3g}"
        out.print(f"{where}{fraction}, target at most {claim['at_most']:g}: {word}")
    disturbed = [load > BUSY for rows in results for row in rows for load in row.others]
    if any(disturbed):
        share = f"{sum(disturbed)} of {len(disturbed)}"
        out.print(f"[yellow]Other processes were busy during {share} measurements: run it on a quiet machine.[/yellow]")


def save(name: str, entry: Entry, results: list[list[Result]]) -> Path:
    """Write the record of a run, replacing that of an earlier one."""
    groups = []
    for group, rows in zip(entry.groups, results, strict=True):
        contestants = [
            {
                "name": row.contestant.name,
                "median": row.median,
                "quartiles": row.quartiles,
                "seconds": row.seconds,
                "cores_used_by_others": row.others,
                "steps_per_repeat": row.contestant.steps,
                "versions": row.versions,
            }
            for row in rows
        ]
        groups.append({"title": group.title, "contestants": contestants})
    record = {"title": entry.title, "unit": f"seconds per {entry.unit}"}
    return write(name, record | {"targets": verdicts(entry, results), "groups": groups})


def write(name: str, record: dict[str, Any]) -> Path:
    """Write a record with the date and the machine."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    path.write_text(json.dumps({"name": name, "date": today, "machine": machine()} | record, indent=1) + "\n")
    return path
