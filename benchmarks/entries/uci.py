"""Deep ensembles, or another method, on the UCI sets with their 20 standard splits, beside published figures.

    make bench NAME=uci                             concrete
    make bench NAME="uci boston yacht"              other sets
    make bench NAME="uci all --splits 5"
    make bench NAME="uci concrete --method VI"      a method with its defaults, and noise that is the same everywhere

The protocol is that of Lakshminarayanan et al. (2017) and Gal & Ghahramani (2016): one hidden layer of 50 units, inputs
and targets standardised with the training rows, scores in the units of the targets, mean and standard error over
splits.
"""

import argparse
import time
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.harness import report

# RMSE and negative log-likelihood as published; lower is better.
PUBLISHED = {
    "boston": {"PBP": (3.01, 2.57), "MC dropout": (2.97, 2.46), "deep ensembles": (3.28, 2.41)},
    "concrete": {"PBP": (5.67, 3.16), "MC dropout": (5.23, 3.04), "deep ensembles": (6.03, 3.06)},
    "energy": {"PBP": (1.80, 2.04), "MC dropout": (1.66, 1.99), "deep ensembles": (2.09, 1.38)},
    "kin8nm": {"PBP": (0.10, -0.90), "MC dropout": (0.10, -0.95), "deep ensembles": (0.09, -1.20)},
    "power": {"PBP": (4.12, 2.84), "MC dropout": (4.02, 2.80), "deep ensembles": (4.11, 2.79)},
    "wine": {"PBP": (0.64, 0.97), "MC dropout": (0.62, 0.93), "deep ensembles": (0.64, 0.94)},
    "yacht": {"PBP": (1.02, 1.63), "MC dropout": (1.11, 1.55), "deep ensembles": (1.58, 1.18)},
}


def main(arguments: list[str]) -> None:
    """Run ensembles on the sets asked for, print a table, save the record."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks uci", description=__doc__)
    parser.add_argument("sets", nargs="*", default=["concrete"], help=f"{', '.join(PUBLISHED)} or all")
    parser.add_argument("--splits", type=int, default=20, help="how many of the 20 splits (default all)")
    parser.add_argument("--members", type=int, default=10, help="networks per ensemble (default 10)")
    parser.add_argument("--method", default=None, help="a name in mx.infer, run with its defaults")
    parser.add_argument("--hidden", type=int, default=50, help="hidden units (default 50)")
    parser.add_argument("--epochs", type=int, default=None, help="default: what mx.infer.MAP does by itself")
    options = parser.parse_args(arguments)
    names = list(PUBLISHED) if options.sets == ["all"] else options.sets
    for name in names:
        if name not in PUBLISHED:
            parser.error(f"set must be one of {', '.join(PUBLISHED)} or all, got {name}")
    console = report.console()
    for name in names:
        scores, seconds = evaluate(name, options, console)
        show(name, scores, seconds, console, options.method)
        suffix = "" if options.method is None else f"_{options.method}"
        path = report.write(f"uci_{name}{suffix}", record(scores, seconds, options))
        console.print(f"saved: benchmarks/results/{path.name}")


def evaluate(name: str, options: argparse.Namespace, console: Console) -> tuple[np.ndarray, float]:
    """RMSE and negative log-likelihood of every split, and the seconds of all."""
    import marginax as mx

    data = mx.data.load_uci(name)
    began = time.perf_counter()
    scores = []
    with report.progress(console) as say:
        for index in range(options.splits):
            say(f"{name}: split {index + 1}/{options.splits}")
            scores.append(one_split(mx, data.split(index), options, seed=index))
    return np.array(scores), time.perf_counter() - began


def one_split(mx: Any, split: Any, options: argparse.Namespace, seed: int) -> tuple[float, float]:
    """Train on the training rows of a split, score on the others."""
    x, y, x_test, y_test = split
    if options.method is None:
        scale, method = mx.likelihoods.FromNetwork(), mx.infer.MAP(num_epochs=options.epochs)
        method = mx.infer.DeepEnsemble(options.members, member=method)
        model = mx.Model(_network(mx, x, 2, options, seed), likelihood=mx.likelihoods.Gaussian(scale=scale))
    else:
        method = getattr(mx.infer, options.method)()
        model = mx.Model(_network(mx, x, 1, options, seed), likelihood=mx.likelihoods.Gaussian())
    posterior = mx.fit(model, mx.data.standardise((x, y)), method, key=seed, progress=False)
    prediction = posterior.predict(x_test)
    rmse = np.sqrt(np.mean((np.asarray(prediction.mean).reshape(-1) - y_test) ** 2))
    return float(rmse), float(-np.mean(prediction.log_prob(y_test)))


def _network(mx: Any, x: np.ndarray, out_size: int, options: argparse.Namespace, seed: int) -> Any:
    return mx.nets.MLP(in_size=x.shape[1], hidden=(options.hidden,), out_size=out_size, key=seed)


def summary(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error over splits."""
    error = scores.std(axis=0, ddof=1) / np.sqrt(len(scores)) if len(scores) > 1 else np.zeros(2)
    return scores.mean(axis=0), error


def show(name: str, scores: np.ndarray, seconds: float, console: Console, method: str | None) -> None:
    """Print ours beside the published figures."""
    mean, error = summary(scores)
    table = Table(title=f"{name}, {len(scores)} splits, {seconds:.0f} s", title_justify="left")
    for column in ("", "RMSE", "negative log-likelihood"):
        table.add_column(column, justify="left" if not column else "right")
    ours = [f"{m:.3f} ± {e:.3f}" for m, e in zip(mean, error, strict=True)]
    table.add_row(f"marginax, {method or 'deep ensemble'}", *ours)
    for peer, (rmse, nll) in PUBLISHED[name].items():
        table.add_row(f"{peer} (published)", f"{rmse:.2f}", f"{nll:.2f}")
    console.print(table)
    peer = "deep ensembles" if method is None else "PBP"
    for title, ours, limit in zip(("RMSE", "NLL"), mean, PUBLISHED[name][peer], strict=True):
        word = "[green]met[/green]" if ours <= limit else "[red]missed[/red]"
        console.print(f"{title} {ours:.3f}, target at most {limit:g} (published {peer}): {word}")


def record(scores: np.ndarray, seconds: float, options: argparse.Namespace) -> dict[str, Any]:
    """What is kept of a run."""
    mean, error = summary(scores)
    return {
        "title": f"{options.method or f'deep ensemble of {options.members}'}, {options.hidden} hidden units",
        "num_epochs": options.epochs,
        "rmse": {"mean": mean[0], "standard_error": error[0], "splits": scores[:, 0].tolist()},
        "nll": {"mean": mean[1], "standard_error": error[1], "splits": scores[:, 1].tolist()},
        "seconds": round(seconds, 1),
    }
