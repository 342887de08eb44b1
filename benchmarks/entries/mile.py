"""MILE with its defaults against sklearn-contrib-bde with its published budget: ten networks [16] * 4, split 0.

    make bench NAME=mile                    concrete and energy

Everything that a user waits for is timed: compilation, training, adaptation and sampling. bde's budget is that of its
own documentation: 1,000 epochs with patience 10, 5,000 steps of warm-up, 2,000 of sampling, every second kept.
"""

import argparse
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness.entry import BDE
from benchmarks.harness.race import Runner, Scores, compete, contestant, median, table, verdict

SETS = ("concrete", "energy")
HIDDEN = (16, 16, 16, 16)
NUM_MEMBERS = 10


def _split(name: str) -> tuple[Any, ...]:
    """Split 0 of a UCI set, read without marginax, so that the peer's environment can."""
    import numpy as np

    folder = Path(os.environ.get("MARGINAX_DATA", "../shared/data"))
    with np.load(folder / "uci" / f"{name}.npz") as file:
        x, y = file["x"].astype(np.float32), file["y"].astype(np.float32).reshape(-1)
        test = file["is_test"][0]
    return x[~test], y[~test], x[test], y[test]


def _scores(log_probs: Any, mean: Any, y: Any, seconds: float) -> Scores:
    import numpy as np

    nll = -float(np.mean(log_probs))
    return {"seconds": seconds, "NLL": nll, "RMSE": float(np.sqrt(np.mean((np.ravel(mean) - y) ** 2)))}


def bde(name: str, seed: int) -> Scores:
    """Its estimator, on all cores."""
    import jax
    import numpy as np

    jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))
    from bde import BdeRegressor

    x, y, x_test, y_test = _split(name)
    centre, spread, mean, scale = x.mean(axis=0), x.std(axis=0), y.mean(), y.std()
    began = time.perf_counter()
    estimator = BdeRegressor(
        n_members=NUM_MEMBERS,
        hidden_layers=list(HIDDEN),
        seed=seed,
        activation="relu",
        epochs=1000,
        patience=10,
        validation_split=0.15,
        lr=1e-3,
        weight_decay=1e-4,
        warmup_steps=5000,
        n_samples=2000,
        n_thinning=2,
    )
    estimator.fit((x - centre) / spread, (y - mean) / scale)
    raw = np.asarray(estimator.predict((x_test - centre) / spread, raw=True), np.float64)
    seconds = time.perf_counter() - began
    location, sigma = raw[..., 0].reshape(-1, len(y_test)), np.logaddexp(0, raw[..., 1]).reshape(-1, len(y_test)) + 1e-6
    z = ((y_test - mean) / scale - location) / sigma
    each = -0.5 * z**2 - np.log(sigma) - 0.5 * np.log(2 * np.pi) - np.log(scale)
    log_probs = np.logaddexp.reduce(each, axis=0) - np.log(len(each))
    return _scores(log_probs, mean + scale * location.mean(axis=0), y_test, seconds)


def marginax(name: str, seed: int) -> Scores:
    """`mx.infer.MILE()` on all cores."""
    import marginax as mx

    mx.use_cores()
    x, y, x_test, y_test = _split(name)
    began = time.perf_counter()
    net = mx.nets.MLP(in_size=x.shape[1], hidden=HIDDEN, out_size=2, key=seed)
    likelihood = mx.likelihoods.Gaussian(scale=mx.likelihoods.FromNetwork())
    model = mx.Model(net, likelihood, mx.priors.Normal(scale=1.0))  # bde's prior
    method = mx.infer.MILE(NUM_MEMBERS)
    posterior = mx.fit(model, mx.data.standardise((x, y)), method, key=seed, progress=False)
    prediction: Any = posterior.predict(x_test)
    log_probs = prediction.log_prob(y_test)
    return _scores(log_probs, prediction.mean, y_test, time.perf_counter() - began)


RUNNERS = tuple(
    runner
    for name in SETS
    for runner in (
        Runner(f"{name}: bde", partial(bde, name), BDE),
        Runner(f"{name}: marginax MILE", partial(marginax, name)),
    )
)


def main(arguments: list[str]) -> None:
    """Run all in turn and compare."""
    from benchmarks.harness import report

    parser = argparse.ArgumentParser(prog="python -m benchmarks mile", description=__doc__)
    parser.add_argument("--repeats", type=int, default=2)
    options = parser.parse_args(arguments)
    console = report.console()
    with report.progress(console) as say:
        results = compete("benchmarks.entries.mile", RUNNERS, options.repeats, say)
    title = f"Ten networks {list(HIDDEN)}, split 0, medians of {options.repeats}"
    table(title, results, ("seconds", "NLL", "RMSE"), console)
    claims = []
    for name in SETS:
        ours, peer = f"{name}: marginax MILE", f"{name}: bde"
        gap = median(results, ours, "NLL") - median(results, peer, "NLL")
        claims.append(verdict(f"{name}: NLL, ours - bde", gap, 0.02, console))
        ratio = median(results, peer, "seconds") / median(results, ours, "seconds")
        claims.append(verdict(f"{name}: seconds, bde / ours", ratio, 3.0, console, at_most=False))
    path = report.write("mile", {"title": title, "claims": claims, "results": results})
    console.print(f"saved: benchmarks/results/{path.name}")


if __name__ == "__main__":
    contestant(RUNNERS, sys.argv[1:])
