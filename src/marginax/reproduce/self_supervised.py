"""Few labels of garments: a prior around weights that were found without labels, against one around zero.

After Shwartz-Ziv et al. (2022), who take the posterior of a self-supervised objective for the prior of a task. A
network is trained to tell views of a garment from those of others (Chen et al., 2020), on training images whose labels
nobody looks at. Its body is then that of a classifier with a new head, and its weights are the centre of a normal prior
whose width is chosen on validation images. The other prior is around zero, and its width is chosen in the same way, for
each number of labels. Heads have the same prior. Both priors are judged by the mode that they lead to. Test images are
looked at once, at the end.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

import marginax as mx
from marginax._extras import require
from marginax.reproduce.experiment import Experiment, Row, Workbench

_SMALL = {
    "num_unlabelled": 20_000,
    "num_labels": (100, 1000),
    "num_valid": 2000,
    "num_test": 10_000,
    "channels": (8, 16),
    "features": 64,
    "projection": 32,
    "padding": 4,
    "degrees": 10.0,
    "noise": 0.1,
    "temperature": 0.2,
    "pretraining_epochs": 5,
    "pretraining_batch_size": 256,
    "learning_rate": 1e-3,
    "around_features": (0.03, 0.1, 0.3, 1.0),
    "around_zero": (1.4, 2.8, 5.6, 11.0),
    "num_seeds": 5,
    "num_steps": 400,
    "batch_size": 100,
}
SETTINGS = {
    "small": _SMALL,
    "full": _SMALL
    | {
        "num_unlabelled": 50_000,
        "channels": (32, 64),
        "features": 256,
        "projection": 64,
        "pretraining_epochs": 100,
        "pretraining_batch_size": 512,
        "around_features": (0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 1.0),
        "around_zero": (0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0, 11.0, 16.0),
        "num_seeds": 20,
        "num_steps": 4000,
    },
}

_NAMES = {"features": "self-supervised prior", "zero": "zero-mean prior"}
_HEAD = 10.0  # wide
_SELECTION_SEED = 1000  # labels by which widths are chosen are none of those of the reported seeds


def _garments(split: str) -> tuple[np.ndarray, np.ndarray]:
    x, y = mx.data.load_fashion_mnist(split)
    return x.reshape(len(x), 1, 28, 28).astype(np.float32), np.asarray(y)


def _body(settings: Any, seed: int) -> eqx.Module:
    return mx.nets.ConvEncoder((1, 28, 28), settings["channels"], settings["features"], key=seed)


def transforms_of(settings: Any) -> list[Any]:
    """What is done to a garment without changing what it is."""
    turned = [mx.data.Rotate(settings["degrees"]), mx.data.RandomCrop(settings["padding"])]
    return [*turned, mx.data.Flip(), mx.data.GaussianNoise(settings["noise"])]


def _pretrained(bench: Workbench, x: np.ndarray) -> tuple[Any, float]:
    """The body, and the seconds that it took."""
    settings = bench.settings
    head = mx.nets.MLP(settings["features"], (settings["features"],), settings["projection"], key=1)
    objective = mx.self_supervised.Contrastive(transforms_of(settings), settings["temperature"])
    model = mx.SelfSupervised(mx.nets.WithHead(_body(settings, 0), head), objective)
    epochs, batch_size = settings["pretraining_epochs"], settings["pretraining_batch_size"]
    adam = mx.infer.Adam(settings["learning_rate"])
    method = mx.infer.MAP(num_epochs=epochs, batch_size=batch_size, optimiser=adam)
    posterior = bench.fit("without labels", model, x, method, key=0)
    return posterior.network().body, bench.seconds(posterior)


def model_of(settings: Any, body: Any, kind: str, width: float, seed: int) -> mx.Model:
    """A classifier whose body has weights around those of the trained one, or around zero."""
    head = mx.nets.MLP(settings["features"], (), 10, key=100 + seed)
    net = mx.nets.WithHead(body if kind == "features" else _body(settings, 1 + seed), head)
    of_body = {
        "features": lambda: mx.priors.FromPosterior(net, scale=width),
        "zero": lambda: mx.priors.Normal(mx.priors.FanIn(width)),
    }[kind]()
    prior = mx.priors.ByPath({"head/*": mx.priors.Normal(mx.priors.FanIn(_HEAD))}, default=of_body)
    return mx.Model(net, mx.likelihoods.Categorical(), prior)


def few_labels(y: np.ndarray, num: int, seed: int) -> np.ndarray:
    """Rows whose labels are known: as many of each class."""
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.choice(np.flatnonzero(y == k), num // 10, replace=False) for k in range(10)])


def _fitted(bench: Workbench, model: mx.Model, data: Any, name: str, seed: int) -> Any:
    settings, num = bench.settings, len(data[1])
    batch_size = min(settings["batch_size"], num)
    method = mx.infer.MAP(num_epochs=-(-settings["num_steps"] * batch_size // num), batch_size=batch_size)
    return bench.fit(name, model, data, method, key=seed)


def _scores(posterior: Any, x: np.ndarray, y: np.ndarray) -> list[float]:
    """Accuracy and nats per image."""
    prediction = posterior.predict(x)
    return [float(np.mean(prediction.labels == y)), float(-np.mean(prediction.log_prob(y)))]


def run(bench: Workbench) -> tuple[list[Row], list[str], dict[str, Any], Any]:
    """Train without labels, choose widths on validation images, compare modes on test images, draw."""
    settings, drawing = bench.settings, require("matplotlib.figure")
    (x, y), (x_test, y_test) = _garments("train"), _garments("test")
    num, num_valid = settings["num_unlabelled"], settings["num_valid"]
    valid = x[num : num + num_valid], y[num : num + num_valid]
    test = x_test[: settings["num_test"]], y_test[: settings["num_test"]]
    x, y = x[:num], y[:num]
    body, pretraining = _pretrained(bench, x)

    def fitted(kind: str, width: float, labels: int, seed: int) -> Any:
        rows = few_labels(y, labels, seed)
        model = model_of(settings, body, kind, width, seed)
        name = f"{_NAMES[kind]} {width:g}, {labels} labels, seed {seed}"
        return name, _fitted(bench, model, (x[rows], y[rows]), name, seed)

    rows: list[Row] = []
    curves: dict[str, Any] = {"validation": {}, "test": {}}
    chosen: dict[str, float] = {}
    for labels in settings["num_labels"]:
        found: dict[str, np.ndarray] = {}
        for kind, name in _NAMES.items():
            losses = []
            for width in settings[f"around_{kind}"]:
                called, posterior = fitted(kind, width, labels, _SELECTION_SEED)
                losses.append(bench.measure(f"{called} valid", lambda p=posterior: _scores(p, *valid))[1])
            curves["validation"][f"{name}, {labels} labels"] = losses
            width = settings[f"around_{kind}"][int(np.argmin(losses))]
            chosen[f"{name}, {labels} labels"] = width
            scores, seconds = [], 0.0
            for seed in range(settings["num_seeds"]):
                called, posterior = fitted(kind, width, labels, seed)
                scores.append(bench.measure(f"{called} test", lambda p=posterior: _scores(p, *test)))
                seconds += bench.seconds(posterior)
            found[name] = np.array(scores)
            curves["test"][f"{name}, {labels} labels"] = scores
            rows += _rows(f"{name}, {labels} labels", found[name], seconds)
        rows += _rows(f"difference, {labels} labels", found[_NAMES["features"]] - found[_NAMES["zero"]], 0.0)
    remarks = [
        f"{num} training images without labels, convolutions of {settings['channels']} filters, {settings['features']} "
        f"features and a head of ten outputs; training without labels took {pretraining:.0f} s, once for all seeds.",
        f"Widths were chosen by {num_valid} validation images, with labels that are none of those of the seeds: "
        + ", ".join(f"{width:g} for {name}" for name, width in chosen.items())
        + ". Other settings of priors and inference are the same for both. Of an earlier network, fully connected on "
        "14 x 14 pixels, the wide prior of heads and the mode in place of stochastic-gradient HMC were set after a "
        "look at 2,000 training images, rows 50,000 to 51,999, with 100 labels. Its self-supervised prior gained "
        "nothing on test images; convolutions, crops, smaller steps and wider ranges of widths were taken after a look "
        "at that.",
        f"Standard errors are over {settings['num_seeds']} seeds, each with labels of its own, and paired for "
        f"differences; all scores are of the same {len(test[0])} test images and the same trained body.",
    ]
    return rows, remarks, curves, _picture(drawing, curves, settings, x)


def _rows(name: str, scores: np.ndarray, seconds: float) -> list[Row]:
    errors = scores.std(0, ddof=1) / np.sqrt(len(scores)) if len(scores) > 1 else (None, None)
    one, other = (None if error is None else float(error) for error in errors)
    return [
        Row(f"{name}: accuracy", float(scores[:, 0].mean()), one, lower_is_better=False, seconds=seconds),
        Row(f"{name}: nats per image", float(scores[:, 1].mean()), other),
    ]


def _picture(drawing: Any, curves: dict[str, Any], settings: Any, x: np.ndarray) -> Any:
    """Views of garments, validation of widths, scores of all seeds."""
    figure = drawing.Figure(figsize=(10, 6.5), layout="constrained")
    axes = figure.subplots(2, 2)
    network = mx.nets.Augmented(_body(settings, 0), transforms_of(settings), 6)
    rows = [np.concatenate([image[0], *np.asarray(network.views(jnp.asarray(image)))[:, 0]], axis=1) for image in x[:4]]
    axes[0, 0].imshow(np.concatenate(rows), cmap="gray_r", vmin=0, vmax=1)
    axes[0, 0].set(title="garments (left) and views of them", xticks=[], yticks=[])
    for kind, name in _NAMES.items():
        for labels in settings["num_labels"]:
            losses = curves["validation"][f"{name}, {labels} labels"]
            style = "o-" if kind == "features" else "s--"
            axes[0, 1].semilogx(settings[f"around_{kind}"], losses, style, label=f"{name}, {labels} labels")
    axes[0, 1].set(xlabel="width of the prior", ylabel="nats per validation image", title="widths to choose from")
    axes[0, 1].legend(frameon=False, fontsize=8)
    for column, what in enumerate(("accuracy", "nats per image")):
        ax, ticks = axes[1, column], []
        for i, labels in enumerate(settings["num_labels"]):
            for kind, name in _NAMES.items():
                scores = np.array(curves["test"][f"{name}, {labels} labels"])[:, column]
                at = 3 * i + list(_NAMES).index(kind)
                ax.plot(np.full(len(scores), at), scores, "o" if kind == "features" else "s", alpha=0.7)
                ticks.append((at, f"{name.partition(' ')[0]}\n{labels} labels"))
        ax.set_xticks(*zip(*ticks, strict=True), fontsize=7)
        ax.set(ylabel=what, title="test images, every seed")
    return figure


EXPERIMENT = Experiment("self-supervised", "A prior from images without labels", SETTINGS, run)
