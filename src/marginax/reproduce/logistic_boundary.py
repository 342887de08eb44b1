"""One best line against the average over all lines that the data allow.

Logistic regression in the plane, from a few points: weights are drawn from the prior and labels given these, so that
nobody can do better on average than the posterior does. The point estimate is the mode of the same posterior. Both have
the same boundary, nearly; what differs is how sure they are far from the data.
"""

import time
from typing import Any

import numpy as np

import marginax as mx
from marginax._extras import require
from marginax.evaluate.score import mean_score
from marginax.reproduce.experiment import Experiment, Row, Workbench

_COMMON = {"num_train": 10, "num_test": 400, "scale": 3.0, "num_warmup": 200, "num_samples": 200, "first_seed": 1000}
SETTINGS = {"small": _COMMON | {"num_sets": 300}, "full": _COMMON | {"num_sets": 1000}}
_NAMES = {"point estimate": 0, "posterior average": 1}


def _data(settings: Any, seed: int) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Rows to learn from and to judge by, of weights that the prior gave."""
    rng = np.random.default_rng(seed)
    weights = settings["scale"] * rng.normal(size=3)
    x = rng.normal(size=(settings["num_train"] + settings["num_test"], 2))
    y = (rng.random(len(x)) < 1 / (1 + np.exp(-(x @ weights[:2] + weights[2])))).astype(int)
    first = settings["num_train"]
    return (x[:first], y[:first]), (x[first:], y[first:])


def _fitted(settings: Any, data: Any, seed: int) -> tuple[Any, Any]:
    """The mode, and draws."""
    model = mx.Model(
        mx.nets.MLP(2, (), 1, key=0), mx.likelihoods.Bernoulli(), prior=mx.priors.Normal(settings["scale"])
    )
    mode = mx.infer.MAP(num_epochs=200, batch_size=None, optimiser=mx.infer.LBFGS())
    nuts = mx.infer.NUTS(num_warmup=settings["num_warmup"], num_samples=settings["num_samples"])
    point = mx.fit(model, data, mode, key=seed, progress=False)
    return point, mx.fit(model, data, nuts, num_chains=4, key=seed, progress=False)


def _judged(settings: Any, seed: int) -> dict[str, list[float]]:
    """Of both answers to one data set: nats per test row, share of right ones, mean confidence, seconds."""
    began = time.monotonic()
    data, (x, y) = _data(settings, seed)
    predictions = [posterior.predict(x) for posterior in _fitted(settings, data, seed)]
    return {
        "nll": [float(-np.mean(each.log_prob(y))) for each in predictions],
        "right": [float(np.mean(each.labels == y)) for each in predictions],
        "confidence": [float(np.mean(each.confidence)) for each in predictions],
        "seconds": [time.monotonic() - began],
    }


def run(bench: Workbench) -> tuple[list[Row], list[str], dict[str, Any], Any]:
    """Many small data sets, and a picture of one."""
    settings, drawing = bench.settings, require("matplotlib.figure")
    first = settings["first_seed"]
    seeds = range(first, first + settings["num_sets"])
    found = [bench.measure(f"set {seed}", lambda s=seed: _judged(settings, s)) for seed in seeds]
    values = {what: np.array([each[what] for each in found]) for what in ("nll", "right", "confidence")}
    values["gap"] = values["confidence"] - values["right"]
    seconds = float(sum(each["seconds"][0] for each in found))
    rows = []
    for what, words in (("nll", "nats per row"), ("right", "share right"), ("gap", "confidence less share right")):
        for name, column in _NAMES.items():
            score = mean_score(values[what][:, column], name=what)
            low = what != "right"
            rows.append(
                Row(f"{name}: {words}", score.value, score.standard_error, lower_is_better=low, seconds=seconds)
            )
    gain = mean_score(values["nll"][:, 0] - values["nll"][:, 1], name="gain")
    rows.append(Row("gained by averaging: nats per row", gain.value, gain.standard_error, seconds=seconds))
    remarks = [
        f"{settings['num_sets']} data sets of {settings['num_train']} rows, judged on {settings['num_test']} others "
        f"each; weights have a standard deviation of {settings['scale']:g}, which both answers know.",
        f"Standard errors are over data sets, of seeds from {first} on. Their number was set beforehand, by the spread "
        "of the gain among the first hundred seeds, which are not among these: it should come out at some four "
        "standard errors.",
    ]
    return rows, remarks, {what: each.tolist() for what, each in values.items()}, _picture(drawing, settings, seeds)


def _picture(drawing: Any, settings: Any, seeds: range) -> Any:
    """The first set that has at least four points of each class."""
    balanced = (seed for seed in seeds if 4 <= _data(settings, seed)[0][1].sum() <= settings["num_train"] - 4)
    seed = next(balanced, seeds[0])
    (x, y), _ = _data(settings, seed)
    figure = drawing.Figure(figsize=(8.4, 3.6), layout="constrained")
    axes = figure.subplots(1, 2, sharex=True, sharey=True)
    for ax, name, posterior in zip(axes, _NAMES, _fitted(settings, (x, y), seed), strict=True):
        mx.plot.plot_boundary(ax, posterior, x=x, margin=2.0)
        for label, mark, color in ((0, "o", "white"), (1, "^", "black")):
            ax.plot(*x[y == label].T, mark, ms=8, color=color, mec="black", label=f"class {label + 1}")
        ax.set_title(f"{name}: probability of the second class", fontsize=9)
    axes[0].legend(fontsize=8, loc="lower left")
    return figure


_LESSON = (
    "One boundary is sure of itself at any distance; averaged over all boundaries that the data allow, "
    "certainty fades away from the data."
)
EXPERIMENT = Experiment(
    "logistic-boundary", "A point estimate and the posterior average, in the plane", SETTINGS, run, _LESSON
)
