"""What a step costs as data and networks grow: it must grow no faster than they do.

    make bench NAME=scaling

A full-batch gradient (MALA) on three sizes of data, and a step of SGLD (batch of 128, one normal number per weight) on
three sizes of network. A long run minus a short one, so that compilation cancels; medians of interleaved repeats.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

from rich.table import Table

from benchmarks.harness import report

ROWS = (4_000, 16_000, 64_000)
WIDTHS = (200, 400, 800)


def full_batch(num_rows: int) -> Callable[[int], None]:
    """MALA on a network 8-50-50-1."""
    import numpy as np

    import marginax as mx

    x = np.random.default_rng(0).normal(size=(num_rows, 8)).astype(np.float32)
    net = mx.nets.MLP(in_size=8, hidden=(50, 50), out_size=1, key=0)
    model = mx.Model(net, likelihood=mx.likelihoods.Gaussian())

    def run(num_steps: int) -> None:
        method = mx.infer.MALA(num_warmup=1, num_samples=1, thin=num_steps)
        mx.fit(model, (x, np.sin(x[:, 0])), method, key=0, num_chains=1, progress=False)

    return run


def stochastic(width: int) -> Callable[[int], None]:
    """SGLD on a network 784-width-width-10."""
    import numpy as np

    import marginax as mx

    rng = np.random.default_rng(0)
    data = (rng.normal(size=(5_000, 784)).astype(np.float32), rng.integers(0, 10, 5_000))
    net = mx.nets.MLP(in_size=784, hidden=(width, width), out_size=10, key=0)
    model = mx.Model(net, likelihood=mx.likelihoods.Categorical())

    def run(num_steps: int) -> None:
        method = mx.infer.SGLD(step_size=1e-8, num_warmup=0, num_samples=1, thin=num_steps)
        mx.fit(model, data, method, key=0, num_chains=1, init=net, progress=False)

    return run


def per_step(runs: list[Callable[[int], None]], lengths: list[tuple[int, int]], repeats: int) -> list[float]:
    """Seconds per step of each, medians of interleaved repeats."""
    seconds: list[list[float]] = [[] for _ in runs]
    for run, (short, long) in zip(runs, lengths, strict=True):
        run(short)
        run(long)  # compiled from here on
    for _ in range(repeats):
        for taken, run, (short, long) in zip(seconds, runs, lengths, strict=True):
            times = []
            for num in (short, long):
                began = time.perf_counter()
                run(num)
                times.append(time.perf_counter() - began)
            taken.append((times[1] - times[0]) / (long - short))
    return [statistics.median(taken) for taken in seconds]


def main(arguments: list[str]) -> None:
    """Print both tables and save them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks scaling", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args(arguments)
    console = report.console()
    num_weights = [784 * w + w + w * w + w + 10 * w + 10 for w in WIDTHS]
    plans: list[tuple[str, tuple[int, ...], list[Any], list[tuple[int, int]]]] = [
        ("rows, a full-batch step of MALA", ROWS, [full_batch(n) for n in ROWS], [(20, 220), (10, 110), (5, 55)]),
        ("weights, a step of SGLD", tuple(num_weights), [stochastic(w) for w in WIDTHS], [(20, 220)] * 3),
    ]
    record: dict[str, Any] = {"title": "cost per step as data and networks grow"}
    for title, sizes, runs, lengths in plans:
        with report.progress(console) as say:
            say(title)
            seconds = per_step(runs, lengths, options.repeats)
        table = Table(title=title, title_justify="left")
        for name in ("size", "per step", "size, relative", "cost, relative"):
            table.add_column(name, justify="right")
        for size, each in zip(sizes, seconds, strict=True):
            relative = (f"{size / sizes[0]:.2f}", f"{each / seconds[0]:.2f}")
            table.add_row(f"{size:,}", report.readable(each), *relative)
        console.print(table)
        record[title] = {"sizes": sizes, "seconds": seconds}
    path = report.write("scaling", record)
    console.print(f"saved: benchmarks/results/{path.name}")
