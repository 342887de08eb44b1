"""Weight uncertainty on digits (Blundell et al., 2015): errors of SGD, dropout and Bayes by Backprop; their weights.

Two hidden layers of rectified units, no augmentation, pixels divided by 126. Settings are chosen by the last 10,000
training digits, then every network is trained on all of them. Bayes by Backprop is trained as has been learned since:
outputs are drawn in place of weights, the divergence is the same in every batch and grows during the first half.
"""

from typing import Any

import jax
import numpy as np

import marginax as mx
from marginax._extras import require
from marginax.reproduce.experiment import Experiment, Row, Workbench

SGD, DROPOUT, GAUSSIAN, MIXTURE = METHODS = ("SGD", "dropout", "Gaussian prior", "scale mixture")
_DESCENT = tuple({"learning_rate": rate} for rate in (0.05, 0.01))
_VARIATIONAL = (
    *(
        {"optimiser": "Adam", "learning_rate": 1e-3, "initial_scale": s, "wide": w}
        for s in (0.05, 0.3)
        for w in (1.0, 0.14)
    ),
    *({"optimiser": "SGD", "learning_rate": 0.0128, "initial_scale": s, "wide": 1.0} for s in (0.3, 1.0)),
)
_FULL: dict[str, Any] = {
    "num_train": 60_000,
    "num_test": 10_000,
    "candidates": {SGD: _DESCENT, DROPOUT: _DESCENT, GAUSSIAN: _VARIATIONAL, MIXTURE: _VARIATIONAL},
    "choosing_epochs": 20,
    "choosing_width": 400,
    "num_valid": 10_000,
    "num_draws": 50,
}
SETTINGS: dict[str, dict[str, Any]] = {
    "small": _FULL
    | {
        "num_seeds": ((400, 1),),  # of each width
        "num_train": 10_000,
        "num_epochs": {SGD: 10, DROPOUT: 10, GAUSSIAN: 10, MIXTURE: 10},
        "candidates": {
            SGD: _DESCENT[:1],
            DROPOUT: _DESCENT[:1],
            GAUSSIAN: _VARIATIONAL[2:3],
            MIXTURE: _VARIATIONAL[2:3],
        },
        "num_draws": 10,
    },
    # Planned, not measured: an hour on two cores, if steps take 2, 3, 5.5 and 9 ms in the order of METHODS. The first
    # is that of the benchmark, the last 4.5 times as much, as on a busy core.
    "full": _FULL | {"num_seeds": ((400, 3),), "num_epochs": {SGD: 60, DROPOUT: 100, GAUSSIAN: 120, MIXTURE: 120}},
    # The wider networks, one seed each: a step takes three and five times as long.
    "wide": _FULL
    | {"num_seeds": ((800, 1), (1200, 1)), "num_epochs": {SGD: 60, DROPOUT: 60, GAUSSIAN: 60, MIXTURE: 60}},
}
_PUBLISHED = {
    400: {SGD: 1.83, DROPOUT: 1.51, GAUSSIAN: 1.82, MIXTURE: 1.36},
    800: {SGD: 1.84, DROPOUT: 1.33, GAUSSIAN: 1.99, MIXTURE: 1.34},
    1200: {SGD: 1.88, DROPOUT: 1.36, GAUSSIAN: 2.04, MIXTURE: 1.32},
}
_DROPPED, _NARROW, _BATCH, _WHITE = 0.5, float(np.exp(-6.0)), 128, 255 / 126


def digits(part: str, num: int) -> tuple[np.ndarray, np.ndarray]:
    """The first digits of a part as rows, in the paper's units."""
    x, y = mx.data.load_mnist(part)
    return _WHITE * x[:num].reshape(num, -1), y[:num]


def train(
    bench: Workbench,
    label: str,
    data: Any,
    name: str,
    options: dict[str, Any],
    width: int,
    num_epochs: int,
    seed: int,
) -> Any:
    """One network by one of the methods."""
    dropped, rate = _DROPPED if name == DROPOUT else 0.0, options["learning_rate"]
    net = mx.nets.MLP(784, (width, width), 10, activation=jax.nn.relu, dropout=dropped, key=seed)
    if name in (SGD, DROPOUT):  # the latter predicts without, its weights being those of the average
        descent = mx.infer.SGD(rate)
        prior, method = None, mx.infer.MLE(num_epochs=num_epochs, batch_size=_BATCH, optimiser=descent)
    else:
        wide = options["wide"]
        prior = mx.priors.Normal(wide) if name == GAUSSIAN else mx.priors.ScaleMixture(wide=wide, narrow=_NARROW)
        family = mx.infer.MeanField(initial_scale=options["initial_scale"])
        optimiser = {"Adam": mx.infer.Adam, "SGD": mx.infer.SGD}[options["optimiser"]](rate)
        method = mx.infer.VI(family=family, num_epochs=num_epochs, batch_size=_BATCH, optimiser=optimiser)
    return bench.fit(label, mx.Model(net, mx.likelihoods.Categorical(), prior), data, method, key=seed)


def judged(posterior: Any, x: np.ndarray, y: np.ndarray, num_draws: int) -> dict[str, Any]:
    """Which digits are wrong, and nats per digit."""
    prediction = posterior.predict(x, num_samples=None if posterior.is_point else num_draws)
    wrong = np.flatnonzero(prediction.labels != y)
    return {"wrong": wrong.tolist(), "nll": -float(np.mean(prediction.log_prob(y)))}


def _chosen(bench: Workbench, name: str) -> tuple[dict[str, Any], list[float]]:
    """The candidate with the fewest errors among validation digits, which it was not trained on, and all errors."""
    settings, errors = bench.settings, []
    width, num_epochs = settings["choosing_width"], settings["choosing_epochs"]
    candidates = settings["candidates"][name]
    if len(candidates) == 1:
        return candidates[0], []
    x, y = digits("train", settings["num_train"])
    rest = len(x) - settings["num_valid"]
    for i, options in enumerate(candidates):
        label = f"choosing {name} {i}"
        posterior = train(bench, label, (x[:rest], y[:rest]), name, options, width, num_epochs, 0)
        found = bench.measure(label, lambda p=posterior: judged(p, x[rest:], y[rest:], settings["num_draws"]))
        errors.append(100 * len(found["wrong"]) / settings["num_valid"])
    return candidates[int(np.argmin(errors))], errors


def run(bench: Workbench) -> tuple[list[Row], list[str], dict[str, Any], Any]:
    """Choose, train, count; test digits come last."""
    settings, drawing = bench.settings, require("matplotlib.figure")
    data, (x, y) = digits("train", settings["num_train"]), digits("test", settings["num_test"])
    rows, shown, curves = [], {}, {"validation % wrong": {}, "test % wrong": {}, "test nats": {}}
    options = {}
    for name in METHODS:
        options[name], curves["validation % wrong"][name] = _chosen(bench, name)
    for width, num_seeds in settings["num_seeds"]:
        share = {}
        for name in METHODS:
            wrong, nll, seconds = [], [], 0.0
            for seed in range(num_seeds):
                label = f"{width} {name} seed {seed}"
                posterior = train(bench, label, data, name, options[name], width, settings["num_epochs"][name], seed)
                found = bench.measure(label, lambda p=posterior: judged(p, x, y, settings["num_draws"]))
                wrong.append(np.isin(np.arange(len(x)), found["wrong"]))
                nll.append(found["nll"])
                seconds += bench.seconds(posterior)
                shown.setdefault(name, posterior)
            share[name] = 100 * np.mean(wrong, axis=0)
            published = _PUBLISHED.get(width, {}).get(name)
            source = "Blundell et al. 2015" if published else ""
            rows.append(Row(f"{width} units, {name}: wrong, %", *_mean(share[name]), published, source, True, seconds))
            curves["test % wrong"][f"{width} {name}"] = (100 * np.mean(wrong, axis=1)).tolist()
            curves["test nats"][f"{width} {name}"] = nll
        rows += [
            Row(f"{width} units, {MIXTURE} less {name}: wrong, %", *_mean(share[MIXTURE] - share[name]))
            for name in METHODS[:-1]
        ]
    remarks = [
        f"{len(data[0])} training and {len(x)} test digits, batches of {_BATCH}; seeds of each width: "
        f"{dict(settings['num_seeds'])}; averages of {settings['num_draws']} draws. Dropout is of hidden units, "
        f"{_DROPPED:g}, and predicts by the average weights; {MIXTURE}: half of it wide, the other exp(-6).",
        f"Chosen by validation digits, each after {settings['choosing_epochs']} epochs at the first width: {options}."
        if any(curves["validation % wrong"].values())
        else f"Settings were not chosen in this run: {options}.",
        "Standard errors are over test digits, of means of the seeds; differences are of the same digits and seeds.",
    ]
    return rows, remarks, curves, _picture(drawing, rows, shown)


def _mean(values: np.ndarray) -> tuple[float, float]:
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


def _weights(posterior: Any) -> np.ndarray:
    """Of a network: a draw."""
    network = posterior.sample(1, key=0)
    return np.concatenate([np.ravel(layer.weight) for layer in network.layers])


def _picture(drawing: Any, rows: list[Row], shown: dict[str, Any]) -> Any:
    """Errors beside the published ones, and where the weights are."""
    figure = drawing.Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    rows = [row for row in rows if " less " not in row.what]
    place = np.arange(len(rows))[::-1]
    left.errorbar(
        [row.ours for row in rows], place, xerr=[row.standard_error or 0 for row in rows], fmt="o", label="ours"
    )
    known = [(row.published, at) for row, at in zip(rows, place, strict=True) if row.published is not None]
    if known:
        left.plot(*zip(*known, strict=True), "kx", label="published")
    left.set(yticks=place, xlabel="% of test digits wrong")
    left.set_yticklabels([row.what.removesuffix(": wrong, %") for row in rows])
    left.legend(frameon=False, fontsize=8)
    for name, color in ((SGD, "C0"), (DROPOUT, "C1"), (MIXTURE, "C3")):
        right.hist(
            _weights(shown[name]), np.linspace(-0.25, 0.25, 101), density=True, histtype="step", color=color, label=name
        )
    right.set(xlabel="weight", ylabel="density", xlim=(-0.25, 0.25))
    right.legend(frameon=False, fontsize=8)
    return figure


_LESSON = (
    "Every weight is a distribution in place of a number: its noise keeps the network from learning by heart, "
    "and its width says how much the weight matters."
)
EXPERIMENT = Experiment("blundell-mnist", "Weight uncertainty on digits", SETTINGS, run, _LESSON)
