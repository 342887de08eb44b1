"""Peak memory of a Laplace fit and predictions on the MLP 784-400-400-10: ours beside laplace-torch.

    make bench NAME=laplace_memory

Each in a process of its own: fit in batches of 128, predict, and ask the system for the largest resident size. Ours
has 10,000 images for both; laplace-torch, whose peak is that of one batch or call, is fitted to two batches and
predicts as many images per call as in `laplace`.
"""

import argparse
import resource
import sys
import time
from functools import partial

from benchmarks.entries.laplace import BATCH, KINDS, NUM_IMAGES, Kind, images, laplace, ours, peer
from benchmarks.harness.entry import LAPLACE
from benchmarks.harness.race import Runner, Scores, compete, contestant, table


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def marginax(kind: Kind, seed: int) -> Scores:
    """Ours, on all images."""
    del seed
    fit, (x, _) = ours(partial(laplace, kind)), images(NUM_IMAGES)
    before, began = _peak(), time.perf_counter()
    posterior = fit()
    fitted = _peak()
    posterior.predict(x)
    return {"seconds": time.perf_counter() - began, "MB before": before, "MB fit": fitted, "MB both": _peak()}


def laplace_torch(kind: Kind, seed: int) -> Scores:
    """Theirs, on two batches and on one call's worth of images."""
    del seed
    fit = peer(kind, 2 * BATCH)
    import torch

    rows = torch.from_numpy(images(kind.num_predicted)[0])
    before, began = _peak(), time.perf_counter()
    approximation = fit()
    fitted = _peak()
    approximation(rows, pred_type="glm", link_approx="probit")
    return {"seconds": time.perf_counter() - began, "MB before": before, "MB fit": fitted, "MB both": _peak()}


RUNNERS = tuple(
    runner
    for kind in KINDS
    for runner in (
        Runner(f"laplace-torch, {kind.name}, {kind.num_predicted:,} per call", partial(laplace_torch, kind), LAPLACE),
        Runner(f"marginax, {kind.name}, {NUM_IMAGES:,} per call", partial(marginax, kind)),
    )
)


def main(arguments: list[str]) -> None:
    """Run all in turn, print a table, save the record."""
    from benchmarks.harness import report

    parser = argparse.ArgumentParser(prog="python -m benchmarks laplace_memory", description=__doc__)
    parser.add_argument("--repeats", type=int, default=1)
    options = parser.parse_args(arguments)
    console = report.console()
    with report.progress(console) as say:
        results = compete("benchmarks.entries.laplace_memory", RUNNERS, options.repeats, say)
    title = "Peak memory of fit and predictions, MLP 784-400-400-10, batch of 128"
    table(title, results, ("MB before", "MB fit", "MB both"), console)
    path = report.write("laplace_memory", {"title": title, "results": results})
    console.print(f"saved: benchmarks/results/{path.name}")


if __name__ == "__main__" and not contestant(RUNNERS, sys.argv[1:]):
    main(sys.argv[1:])
