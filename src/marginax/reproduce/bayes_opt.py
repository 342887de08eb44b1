"""Bayesian optimisation of functions with known minima: a Gaussian process, networks, and random search."""

from typing import Any

import numpy as np

import marginax as mx
from marginax._extras import require
from marginax.reproduce.experiment import Experiment, Row, Workbench

SETTINGS = {
    "small": {
        "functions": {"forrester": 15, "branin": 30, "hartmann6": 40},  # evaluations
        "num_initial": {"forrester": 5, "branin": 10, "hartmann6": 15},
        "num_seeds": 3,
        "hidden": (50,),
        "num_epochs": 200,
        "num_members": 5,
    },
    "full": {
        "functions": {"forrester": 25, "branin": 60, "hartmann6": 120},
        "num_initial": {"forrester": 5, "branin": 10, "hartmann6": 20},
        "num_seeds": 10,
        "hidden": (50, 50),
        "num_epochs": 1000,
        "num_members": 10,
    },
}

_WAYS = "Gaussian process", "ensemble of networks", "random search"


def run(bench: Workbench) -> tuple[list[Row], list[str], dict[str, Any], Any]:
    """Search, compare, draw."""
    settings, drawing = bench.settings, require("matplotlib.figure")
    rows, curves = [], {}
    for name, num in settings["functions"].items():
        ends = {}
        for way in _WAYS:
            regret = np.array(
                [
                    bench.measure(
                        f"{name}, {way}, seed {seed}", lambda a=(bench.settings, name, way, seed): _search(*a)
                    )
                    for seed in range(settings["num_seeds"])
                ]
            )
            curves[f"{name}: {way}"], ends[way] = regret.tolist(), regret[:, -1]
            rows.append(_row(f"{name}, log10 regret after {num}: {way}", _logs(ends[way])))
        for way in _WAYS[1:]:
            rows.append(
                _row(
                    f"{name}, log10 regret after {num}: {_WAYS[0]} less {way}", _logs(ends[_WAYS[0]]) - _logs(ends[way])
                )
            )
    remarks = [
        "Regret is the lowest value so far less the minimum of the function; rows are means of its logarithm over "
        f"{settings['num_seeds']} seeds, with standard errors over them; differences are seed by seed. The first "
        "points of the process and of the networks are the same quasi-random ones.",
        "Where to look next is said by expected improvement. Nothing was tuned: no figure was looked at to choose a "
        "setting. Bands in the picture are two standard errors of the mean logarithm.",
    ]
    return rows, remarks, curves, _picture(drawing, settings, curves)


def _search(settings: Any, name: str, way: str, seed: int) -> list[float]:
    """Regret after each evaluation."""
    problem, num = getattr(mx.testing, name)(), settings["functions"][name]
    if way == "random search":
        points = problem.space.from_unit(np.random.default_rng(seed).uniform(size=(num, problem.space.size)))
        values = np.array([problem(x) for x in points])
        return (np.minimum.accumulate(values) - problem.minimum).tolist()
    surrogate = mx.decide.ProcessSurrogate()
    if way == "ensemble of networks":
        net = mx.nets.MLP(problem.space.size, settings["hidden"], 1, key=seed)
        training = mx.infer.MAP(num_epochs=settings["num_epochs"], batch_size=16)
        ensemble = mx.infer.DeepEnsemble(settings["num_members"], training)
        surrogate = mx.decide.NetworkSurrogate(mx.Model(net, likelihood=mx.likelihoods.Gaussian()), ensemble)
    initial = settings["num_initial"][name]
    options = {"num_evaluations": num, "num_initial": initial, "minimum": problem.minimum, "key": seed}
    return mx.decide.optimise(problem, problem.space, surrogate=surrogate, **options).regret.tolist()


def _logs(regret: np.ndarray) -> np.ndarray:
    return np.log10(np.maximum(regret, 1e-12))


def _row(what: str, values: np.ndarray) -> Row:
    error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
    return Row(what, float(values.mean()), error)


def _picture(drawing: Any, settings: Any, curves: dict[str, Any]) -> Any:
    figure = drawing.Figure(figsize=(4.5 * len(settings["functions"]), 4), layout="constrained")
    axes = np.atleast_1d(figure.subplots(1, len(settings["functions"])))
    for ax, name in zip(axes, settings["functions"], strict=True):
        for way in _WAYS:
            logs = _logs(np.array(curves[f"{name}: {way}"]))
            error = logs.std(0, ddof=1) / np.sqrt(len(logs)) if len(logs) > 1 else np.zeros(logs.shape[1])
            places, mean = np.arange(1, logs.shape[1] + 1), logs.mean(0)
            ax.plot(places, 10**mean, label=way)
            ax.fill_between(places, 10 ** (mean - 2 * error), 10 ** (mean + 2 * error), alpha=0.2, lw=0)
        ax.axvline(settings["num_initial"][name], color="0.7", linewidth=0.8)
        ax.set(xlabel="evaluations", ylabel="regret", title=name)
        ax.set_yscale("log")
    axes[0].legend(frameon=False, fontsize="small")
    return figure


EXPERIMENT = Experiment("bayes-opt", "Bayesian optimisation of known functions", SETTINGS, run)
