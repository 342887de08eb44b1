"""What keeping a run costs: the share of its time in which the chains wait for files.

    make bench NAME=checkpoints

MAP, NUTS and SGHMC with default settings on 500 rows of 8 columns, into a directory. Chains wait while a checkpoint is
written (synced and renamed) and while draws go to their files; both are timed from inside of the run. The driver writes
the next checkpoint when the last one is 2% of what was computed since.
"""

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.harness import report
from benchmarks.harness.race import verdict

HIDDEN = {"MAP": (50, 50), "NUTS": (16,), "SGHMC": (50, 50)}
MOST = 0.02


def main(arguments: list[str]) -> None:
    """Run the three, print the shares, save the record."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks checkpoints", description=__doc__)
    parser.add_argument("methods", nargs="*", default=list(HIDDEN), help=", ".join(HIDDEN))
    options = parser.parse_args(arguments)
    console = report.console()
    rows = {}
    with report.progress(console) as say:
        for name in options.methods:
            rows[name] = study(name)
            say(f"{name}: {rows[name]['seconds']:.0f} s, {100 * share(rows[name]):.2f}% waiting for files")
    table = Table(title="default settings, 500 rows of 8 columns", title_justify="left")
    for column in ("", "seconds", "checkpoints", "ms each", "% of the time", "% for draws"):
        table.add_column(column, justify="left" if not column else "right")
    for name, row in rows.items():
        each = 1000 * row["saving"] / max(1, row["num_checkpoints"])
        shares = [f"{100 * row[part] / row['seconds']:.2f}" for part in ("saving", "keeping")]
        table.add_row(name, f"{row['seconds']:.1f}", str(row["num_checkpoints"]), f"{each:.1f}", *shares)
    console.print(table)
    claims = [verdict(f"{name}, share of time waiting", share(row), MOST, console) for name, row in rows.items()]
    path = report.write("checkpoints", {"title": "What keeping a run costs", "rows": rows, "claims": claims})
    console.print(f"saved: benchmarks/results/{path.name}")


def share(row: dict[str, float]) -> float:
    """Of the time in which the chains wait."""
    return (row["saving"] + row["keeping"]) / row["seconds"]


def study(name: str) -> dict[str, float]:
    """Seconds of a fit, of its checkpoints and of writing its draws."""
    import marginax as mx
    from marginax.infer.driver import Run

    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 8)).astype(np.float32)
    y = np.sin(x[:, 0]) + 0.1 * rng.normal(size=500).astype(np.float32)
    model = mx.Model(mx.nets.MLP(8, HIDDEN[name], 1, key=0), likelihood=mx.likelihoods.Gaussian())
    with tempfile.TemporaryDirectory() as folder, timed(Run, "_checkpoint", "_keep") as (seconds, counts):
        began = time.perf_counter()
        mx.fit(model, (x, y), getattr(mx.infer, name)(), key=0, directory=Path(folder) / "run", progress=False)
        whole = time.perf_counter() - began
    return {
        "seconds": whole,
        "saving": seconds["_checkpoint"],
        "keeping": seconds["_keep"],
        "num_checkpoints": counts["_checkpoint"],
    }


@contextmanager
def timed(cls: type, *names: str) -> Iterator[tuple[Counter[str], Counter[str]]]:
    """Seconds in some methods of a class, and how often they are called."""
    seconds, counts = Counter(), Counter()
    real = {name: getattr(cls, name) for name in names}

    def wrapped(name: str) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            began = time.perf_counter()
            try:
                return real[name](*args, **options)
            finally:
                seconds[name] += time.perf_counter() - began
                counts[name] += 1

        return call

    for name in names:
        setattr(cls, name, wrapped(name))
    try:
        yield seconds, counts
    finally:
        for name, method in real.items():
            setattr(cls, name, method)
