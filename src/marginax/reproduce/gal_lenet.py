"""Dropout as a Bayesian approximation, in a convnet (Gal & Ghahramani, 2016): two ways to average, at three places.

LeNet without dropout, with dropout before its last layer, and with dropout after every layer but the last. Weight
averaging is the pass without dropout through the same weights, which is how dropout is used; Monte Carlo averaging is
the mean of class probabilities over passes with it. After convolutions only the second is an average.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import marginax as mx
from marginax._extras import require
from marginax.reproduce.experiment import Experiment, Row, Workbench

_COMMON = {"rate": 0.5, "batch_size": 64, "num_test": 10_000}
SETTINGS: dict[str, dict[str, Any]] = {
    "small": _COMMON
    | {
        "num_train": 10_000,
        "channels": (10, 20),
        "hidden": 100,
        "stages": ((2, 0.02), (2, 0.02), (4, 0.005)),  # epochs and step size
        "num_test": 5000,
        "num_passes": 20,
    },
    "full": _COMMON
    | {
        "num_train": 60_000,
        "channels": (20, 50),
        "hidden": 500,
        "stages": ((1, 0.02), (1, 0.02), (2, 0.02), (4, 0.01), (8, 0.005), (8, 0.001)),
        "num_passes": 50,
    },
}
PLACES = ("no dropout", "dropout at the end", "dropout everywhere")
AVERAGES = ("weight averaging", "Monte Carlo averaging")


def _with_dropout_at_end(net: mx.nets.LeNet, rate: float) -> eqx.nn.Sequential:
    """The same layers, and dropout before the last of them."""
    relu, pool = eqx.nn.Lambda(jax.nn.relu), eqx.nn.MaxPool2d(2, 2)
    convolutions = [part for layer in net.convolutions for part in (layer, pool, relu)]
    dropped = eqx.nn.Dropout(rate)
    return eqx.nn.Sequential([*convolutions, eqx.nn.Lambda(jnp.ravel), net.hidden, relu, dropped, net.output])


def network(place: str, settings: Any, *, key: int) -> Any:
    """The LeNet with dropout at a place."""
    shape = {"channels": settings["channels"], "hidden": settings["hidden"]}
    if place == "dropout everywhere":
        return mx.nets.LeNet(**shape, dropout=settings["rate"], key=key)
    plain = mx.nets.LeNet(**shape, key=key)
    return plain if place == "no dropout" else _with_dropout_at_end(plain, settings["rate"])


def _judged(posterior: Any, x: np.ndarray, y: np.ndarray, num_passes: int) -> dict[str, Any]:
    """Digits that are wrong, and nats per digit, by both averages."""
    found = {}
    scaled, passes = posterior, None
    if not posterior.is_point:
        params = jax.tree.map(lambda leaf: leaf[:, None], posterior.params)
        scaled = mx.posterior.Draws(model=posterior.model, params=params, spec=posterior.spec)
        passes = posterior.predict(x, num_samples=num_passes)
    predictions: list[Any] = [scaled.predict(x), passes]
    for name, prediction in zip(AVERAGES, predictions, strict=True):
        if prediction is not None:
            wrong = np.flatnonzero(prediction.labels != y)
            found[name] = {"wrong": wrong.tolist(), "nll": (-prediction.log_prob(y)).tolist()}
    return found


def run(bench: Workbench) -> tuple[list[Row], list[str], dict[str, Any], Any]:
    """Train in stages, count by both averages after each."""
    settings, drawing = bench.settings, require("matplotlib.figure")
    x, y = (part[: settings["num_train"]] for part in mx.data.load_mnist("train"))
    test, labels = (part[: settings["num_test"]] for part in mx.data.load_mnist("test"))
    rows, curves = [], {}
    for place in PLACES:
        model = mx.Model(network(place, settings, key=0), mx.likelihoods.Categorical(), mx.priors.Normal(1.0))
        posterior, epochs, seconds, found = None, 0, 0.0, {}
        for stage, (num_epochs, rate) in enumerate(settings["stages"]):
            descent = mx.infer.SGD(rate, schedule=mx.infer.Constant())
            training = {"num_epochs": num_epochs, "batch_size": settings["batch_size"], "optimiser": descent}
            method = mx.infer.MAP(**training) if place == PLACES[0] else mx.infer.MCDropout(**training)
            name = f"{place} stage {stage}"
            posterior = bench.fit(name, model, (x, y), method, key=stage, init=posterior)
            found = bench.measure(name, lambda p=posterior: _judged(p, test, labels, settings["num_passes"]))
            seconds, epochs = seconds + bench.seconds(posterior), epochs + num_epochs
            for average, each in found.items():
                error = 100 * len(each["wrong"]) / len(labels)
                curves.setdefault(f"{place}, {average}", []).append([epochs, error, float(np.mean(each["nll"]))])
        wrong = {average: 100.0 * np.isin(np.arange(len(labels)), each["wrong"]) for average, each in found.items()}
        nll = {average: np.asarray(each["nll"]) for average, each in found.items()}
        for average in found:
            name = f"{place}, {average}"
            rows.append(Row(f"{name}: wrong, %", *_mean(wrong[average]), seconds=seconds))
            rows.append(Row(f"{name}: nats", *_mean(nll[average]), seconds=seconds))
        if len(found) == 2:
            for what, values in (("wrong, %", wrong), ("nats", nll)):
                apart = values[AVERAGES[1]] - values[AVERAGES[0]]
                rows.append(Row(f"{place}, Monte Carlo less weight averaging: {what}", *_mean(apart)))
    remarks = [
        f"{len(x)} training and {len(test)} test digits; LeNet with {settings['channels']} maps and "
        f"{settings['hidden']} hidden units; dropout {settings['rate']:g}; {settings['num_passes']} passes. "
        "The paper has curves and no table.",
        "Standard errors are over test digits, those of differences over the differences. Curves are (epochs, % of "
        "test digits wrong, nats); none was used to stop or to choose.",
    ]
    return rows, remarks, curves, _picture(drawing, curves)


def _mean(values: np.ndarray) -> tuple[float, float]:
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


def _picture(drawing: Any, curves: dict[str, Any]) -> Any:
    figure = drawing.Figure(figsize=(9, 3.6), layout="constrained")
    for ax, column, title in zip(figure.subplots(1, 2), (1, 2), ("% of test digits wrong", "nats"), strict=True):
        for place, color in zip(PLACES, ("C0", "C1", "C3"), strict=True):
            for average, line in zip(AVERAGES, ("--", "-"), strict=True):
                curve = np.asarray(curves.get(f"{place}, {average}", np.empty((0, 3))))
                if len(curve):
                    ax.plot(
                        curve[:, 0], curve[:, column], line, marker="o", ms=3, color=color, label=f"{place}, {average}"
                    )
        ax.set(xlabel="epochs", ylabel=title, yscale="log")
        for axis in (ax.yaxis.set_major_formatter, ax.yaxis.set_minor_formatter):
            axis(lambda value, place: f"{value:g}")
    figure.axes[0].legend(frameon=False, fontsize=7)
    return figure


_LESSON = (
    "Dropout at test time is an average over networks; scaled weights guess at it in one pass. How good either is, "
    "and by which score, is a question to the data."
)
EXPERIMENT = Experiment("gal-lenet", "Dropout in a convnet, averaged in two ways", SETTINGS, run, _LESSON)
