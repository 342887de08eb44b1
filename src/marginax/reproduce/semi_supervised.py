"""Digits of which a hundred have labels: what unlabelled ones teach (Kingma, Rezende, Mohamed & Welling, 2014).

The autoencoder M2, in which a label is a latent that is seen for a few rows. Its bound does not train the classifier by
these; a term of their own does, and without it labels are known up to their names only. Beside both stands a classifier
that is trained on the labelled digits alone. The weight of the term is chosen by validation digits, with labelled ones
that are none of those of the reported seeds. Test digits are looked at once, at the end.
"""

from typing import Any

import jax
import numpy as np

import marginax as mx
from marginax._extras import require
from marginax.reproduce.experiment import Experiment, Row, Workbench
from marginax.reproduce.self_supervised import few_labels

_COMMON: dict[str, Any] = {
    "num_labels": 100,
    "batch_size": 100,
    "learning_rate": 1e-3,
    "alone_epochs": 200,
}
SETTINGS: dict[str, dict[str, Any]] = {
    "small": _COMMON
    | {
        "num_train": 3000,
        "num_valid": 1000,
        "num_test": 5000,
        "hidden": (128,),
        "latent_size": 16,
        "weights": (3.0, 30.0),
        "num_epochs": 30,
        "num_seeds": 1,
    },
    "full": _COMMON
    | {
        "num_train": 50_000,
        "num_valid": 10_000,
        "num_test": 10_000,
        "hidden": (500,),
        "latent_size": 50,
        "weights": (5.0, 50.0, 500.0),
        "num_epochs": 20,
        "num_seeds": 3,
    },
}
_WITH, _WITHOUT, _ALONE = "with the label term", "without the label term", "labels alone"
_PUBLISHED = {_WITH: 93.2, _WITHOUT: 22.5, _ALONE: 77.1}
_SOURCE = "Pyro's tutorial of the same model"
_SELECTION_SEED = 1000


def _digits(split: str) -> tuple[np.ndarray, np.ndarray]:
    x, y = mx.data.load_mnist(split)
    return (x.reshape(len(x), -1) > 0.5).astype(np.float32), np.asarray(y)


def _classifier(settings: Any, seed: int) -> mx.nets.MLP:
    return mx.nets.MLP(784, settings["hidden"], 10, key=seed)


def model_of(settings: Any, weight: float, seed: int) -> mx.latent.SemiSupervisedVAE:
    """Networks that see a label behind their input, and a classifier."""
    latent, hidden = settings["latent_size"], settings["hidden"]
    encoder = mx.nets.MLP(784 + 10, hidden, 2 * latent, activation=jax.nn.softplus, key=seed)
    decoder = mx.nets.MLP(latent + 10, hidden, 784, activation=jax.nn.softplus, key=seed + 1)
    vae = mx.latent.VAE(encoder, decoder, latent)
    return mx.latent.SemiSupervisedVAE(vae, _classifier(settings, seed + 2), num_labels=10, label_weight=weight)


def _fitted(bench: Workbench, x: np.ndarray, y: np.ndarray, weight: float, seed: int) -> Any:
    """A model of all digits, of which those of a seed show their labels."""
    settings = bench.settings
    label = np.full(len(y), -1)
    rows = few_labels(y, settings["num_labels"], seed)
    label[rows] = y[rows]
    adam = mx.infer.Adam(settings["learning_rate"])
    method = mx.infer.MAP(num_epochs=settings["num_epochs"], batch_size=settings["batch_size"], optimiser=adam)
    data = {"x": x, "label": label}
    return bench.fit(f"weight {weight:g}, seed {seed}", model_of(settings, weight, seed), data, method, key=seed)


def _alone(bench: Workbench, x: np.ndarray, y: np.ndarray, seed: int) -> Any:
    """A classifier of the labelled digits, and of nothing else."""
    settings = bench.settings
    rows = few_labels(y, settings["num_labels"], seed)
    adam = mx.infer.Adam(settings["learning_rate"])
    method = mx.infer.MAP(num_epochs=settings["alone_epochs"], batch_size=None, optimiser=adam)
    model = mx.Model(_classifier(settings, seed + 2), mx.likelihoods.Categorical())
    return bench.fit(f"{_ALONE}, seed {seed}", model, (x[rows], y[rows]), method, key=seed)


def _known(posterior: Any, x: np.ndarray, y: np.ndarray) -> list[int]:
    """Which digits the classifier knows."""
    probs = posterior.classify(x) if hasattr(posterior, "classify") else posterior.predict(x).probs
    return (probs.argmax(axis=1) == y).astype(int).tolist()


def run(bench: Workbench) -> tuple[list[Row], list[str], dict[str, Any], Any]:
    """Choose the weight, train in three ways, count."""
    settings, drawing = bench.settings, require("matplotlib.figure")
    (x, y), test = _digits("train"), tuple(part[: settings["num_test"]] for part in _digits("test"))
    num, num_valid = settings["num_train"], settings["num_valid"]
    valid, (x, y) = (x[num : num + num_valid], y[num : num + num_valid]), (x[:num], y[:num])
    tried = {}
    for weight in settings["weights"]:
        posterior = _fitted(bench, x, y, weight, _SELECTION_SEED)
        found = bench.measure(f"weight {weight:g} valid", lambda p=posterior: _known(p, *valid))
        tried[weight] = 100 * float(np.mean(found))
    chosen = max(tried, key=lambda weight: tried[weight])
    right: dict[str, list[list[int]]] = {}
    seconds: dict[str, float] = {}
    shown = None
    for seed in range(settings["num_seeds"]):
        ways = {
            _WITH: _fitted(bench, x, y, chosen, seed),
            _WITHOUT: _fitted(bench, x, y, 0.0, seed),
            _ALONE: _alone(bench, x, y, seed),
        }
        shown = shown or ways[_WITH]
        for name, posterior in ways.items():
            known = bench.measure(f"{name}, seed {seed}, test", lambda p=posterior: _known(p, *test))
            right.setdefault(name, []).append(known)
            seconds[name] = seconds.get(name, 0.0) + bench.seconds(posterior)
    percent = {name: 100.0 * np.array(each) for name, each in right.items()}
    high: dict[str, Any] = {"lower_is_better": False}
    rows = [
        Row.of_runs(f"{name}: right, %", each, _PUBLISHED[name], _SOURCE, **high, seconds=seconds[name])
        for name, each in percent.items()
    ]
    for other in (_WITHOUT, _ALONE):
        rows.append(Row.of_runs(f"{_WITH} less {other}: right, %", percent[_WITH] - percent[other], **high))
    remarks = [
        f"{num} training digits, of which {settings['num_labels']} have labels, as many of each; pixels are black or "
        f"white; networks with {'-'.join(map(str, settings['hidden']))} hidden units, {settings['latent_size']} "
        "latents.",
        f"The weight {chosen:g} of the label term was chosen by {num_valid} validation digits, whose labels are more "
        "than those that networks saw: % right "
        f"{', '.join(f'{value:.1f} with {weight:g}' for weight, value in tried.items())}. "
        "Nothing else was tuned.",
        "Standard errors are over test digits, and over seeds, each with labelled digits of its own, where there are "
        "several. One seed has no verdict.",
    ]
    curves = {"validation, % right": [list(pair) for pair in tried.items()]}
    return rows, remarks, curves, _picture(drawing, rows, shown)


def _picture(drawing: Any, rows: list[Row], posterior: Any) -> Any:
    """How many are known, and digits that nobody wrote, a column for each label."""
    figure = drawing.Figure(figsize=(9, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    shown = [row for row in rows if row.published is not None]
    place = np.arange(len(shown))[::-1]
    left.errorbar(
        [row.ours for row in shown], place, xerr=[2 * (row.standard_error or 0) for row in shown], fmt="o", label="ours"
    )
    left.plot([row.published for row in shown], place, "kx", label="published")
    left.set(yticks=place, xlabel="% of test digits right", xlim=(0, 100))
    left.set_yticklabels([row.what.removesuffix(": right, %") for row in shown])
    left.legend(frameon=False, fontsize=8)
    tiles = posterior.generate(80, key=0).reshape(8, 10, 28, 28).transpose(0, 2, 1, 3).reshape(8 * 28, 10 * 28)
    right.imshow(tiles, cmap="gray_r")
    right.set(title="digits that nobody wrote, by label", yticks=[], xticks=28 * np.arange(10) + 14)
    right.set_xticklabels([str(digit) for digit in range(10)])
    return figure


EXPERIMENT = Experiment("semi-supervised", "Digits of which few have labels", SETTINGS, run)
