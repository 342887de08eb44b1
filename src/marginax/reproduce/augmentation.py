"""Augmentation of data, tempered or not, against augmentation inside of the likelihood; and strengths that are learned.

After Nabarro et al. (2022): posteriors by stochastic-gradient HMC of a network of few digits. Augmented data are the
usual heuristic, whose posterior is often better when it is cold (Wenzel et al., 2020); its temperature is the one with
the best validation digits, which are none of the training digits. Averages of logits or probabilities over views are
likelihoods, and stay at temperature one. Strengths are learned by evidence as Immer et al. (2022) do, of digits that
are turned at random, and of digits whose label says to which side they were turned. Test digits are looked at once, at
the end.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import marginax as mx
from marginax._extras import require
from marginax.data.transforms import rotate
from marginax.reproduce.experiment import Experiment, Row, Workbench

_SMALL = {
    "num_train": 1000,
    "num_valid": 1000,
    "num_test": 2000,
    "hidden": 50,
    "num_views": 8,
    "max_degrees": 15.0,
    "max_shift": 1.0,
    "temperatures": (0.3, 0.1, 0.03, 0.01, 0.003, 0.0),  # 0 is ascent to a mode
    "num_seeds": 2,
    "num_epochs": 100,
    "num_warmup": 1000,
    "num_samples": 40,
    "thin": 50,
    "batch_size": 100,
    "learning": {
        "num_train": 400,
        "hidden": 32,
        "num_views": 5,
        "start": 10.0,
        "num_rounds": 10,
        "num_epochs": 300,
        "batch_size": 100,
        "learning_rate": 0.1,
        "training_rate": 5e-3,
        "turned": 60.0,
        "sideways": 15.0,
    },
}
SETTINGS = {
    "small": _SMALL,
    "full": _SMALL
    | {
        "num_train": 5000,
        "num_valid": 5000,
        "num_test": 10_000,
        "hidden": 200,
        "num_views": 16,
        "num_seeds": 5,
        "num_warmup": 10_000,
        "num_samples": 200,
        "learning": _SMALL["learning"] | {"num_train": 2000, "num_views": 8, "num_rounds": 30},
    },
}

_AVERAGES = {"logits": mx.nets.Logits(), "probabilities": mx.nets.Probabilities()}


def _digits(split: str) -> tuple[np.ndarray, np.ndarray]:
    """Half as wide and as high."""
    x, y = mx.data.load_mnist(split)
    return x.reshape(len(x), 1, 14, 2, 14, 2).mean((3, 5)).astype(np.float32), np.asarray(y)


def _model(hidden: int, num_classes: int, seed: int) -> mx.Model:
    mlp = mx.nets.MLP(196, (hidden,), num_classes, activation=jax.nn.tanh, key=seed)
    return mx.Model(eqx.nn.Sequential([eqx.nn.Lambda(jnp.ravel), mlp]), mx.likelihoods.Categorical())


def _transforms(settings: Any) -> list[Any]:
    return [mx.data.Rotate(settings["max_degrees"]), mx.data.Shift(settings["max_shift"])]


def _sampled(bench: Workbench, name: str, model: mx.Model, data: Any, temperature: float, seed: int) -> Any:
    settings = bench.settings
    method = mx.infer.SGHMC(
        temperature=temperature,
        num_warmup=settings["num_warmup"],
        num_samples=settings["num_samples"],
        thin=settings["thin"],
        batch_size=settings["batch_size"],
        training=mx.infer.MAP(num_epochs=settings["num_epochs"], batch_size=settings["batch_size"]),
    )
    return bench.fit(f"{name} seed {seed}", model, data, method, key=seed)


def _scores(posterior: Any, x: np.ndarray, y: np.ndarray) -> list[float]:
    return [round(float(value), 5) for value in -posterior.predict(x).log_prob(y)]


def run(bench: Workbench) -> tuple[list[Row], list[str], dict[str, Any], Any]:
    """Sample, temper by validation digits, compare on test digits, learn strengths, draw."""
    settings, drawing = bench.settings, require("matplotlib.figure")
    (x, y), (x_test, y_test) = _digits("train"), _digits("test")
    num, num_valid = settings["num_train"], settings["num_valid"]
    spread = x[:num].std()  # priors of weights expect inputs of about one
    x, x_test = x / spread, x_test / spread
    train, valid = (x[:num], y[:num]), (x[num : num + num_valid], y[num : num + num_valid])
    test = x_test[: settings["num_test"]], y_test[: settings["num_test"]]
    transforms, batch_size = _transforms(settings), settings["batch_size"]
    augmented = mx.data.augment(train, transforms, batch_size=batch_size)
    views = {"num_views": settings["num_views"]}

    def plain(seed: int) -> mx.Model:
        return _model(settings["hidden"], 10, seed)

    losses: dict[float, float] = {}
    for temperature in (1.0, *settings["temperatures"]):
        name = f"augmented data at {temperature:g}"
        posterior = _sampled(bench, name, plain(0), augmented, temperature, 0)
        losses[temperature] = bench.measure(f"{name} valid", lambda p=posterior: float(np.mean(_scores(p, *valid))))
    cold = min(losses, key=lambda t: losses[t])

    found: dict[str, list[list[float]]] = {}
    seconds: dict[str, float] = {}
    for seed in range(settings["num_seeds"]):
        posteriors = {
            "no augmentation": _sampled(bench, "no augmentation", plain(seed), train, 1.0, seed),
            "augmented data": _sampled(bench, "augmented data at 1", plain(seed), augmented, 1.0, seed),
            "augmented data, tempered": _sampled(
                bench, f"augmented data at {cold:g}", plain(seed), augmented, cold, seed
            ),
        }
        averaged = mx.augment(posteriors["augmented data, tempered"], transforms, average=_AVERAGES["logits"], **views)
        posteriors["augmented data, tempered, views at test time"] = averaged
        for name, average in _AVERAGES.items():
            model = mx.augment(plain(seed), transforms, average=average, **views)
            posteriors[f"likelihood of {name}"] = _sampled(bench, f"likelihood of {name}", model, train, 1.0, seed)
        for name, posterior in posteriors.items():
            scores = bench.measure(f"{name} test seed {seed}", lambda p=posterior: _scores(p, *test))
            found.setdefault(name, []).append(scores)
            seconds[name] = seconds.get(name, 0.0) + bench.seconds(posterior)
    rows = [_row(f"{name}: nats per digit", np.array(scores), seconds[name]) for name, scores in found.items()]
    for name in _AVERAGES:
        for other in ("augmented data, tempered", "augmented data, tempered, views at test time"):
            gap = np.array(found[f"likelihood of {name}"]) - np.array(found[other])
            rows.append(_row(f"likelihood of {name} less {other}", gap, 0.0))
    learned = _learn(bench, x, y)
    rows += [
        Row(f"learned degrees, {name}", curve[-1], lower_is_better=False, seconds=learned["seconds"][name])
        for name, curve in learned["curves"].items()
    ]
    remarks = [
        f"{num} training digits of 14x14 pixels, network 196-{settings['hidden']}-10, stochastic-gradient HMC, "
        f"{settings['num_seeds']} seeds; rotations up to {settings['max_degrees']:g} degrees, shifts up to "
        f"{settings['max_shift']:g} pixels, {settings['num_views']} views.",
        f"The temperature {cold:g} was chosen among {', '.join(f'{t:g}' for t in losses)} by {num_valid} validation "
        "digits; an earlier grid ended at 0.01, which was its best. Pixels are in units of their spread. The other "
        "settings were not chosen by scores.",
        f"Standard errors are over {len(test[0])} test digits, of means over seeds; those of differences are paired.",
        f"Strengths are learned from {settings['learning']['num_train']} digits: turned by up to "
        f"{settings['learning']['turned']:g} degrees, with the digit as label; and turned by "
        f"{settings['learning']['sideways']:g} degrees to one side or the other, with the side as label.",
    ]
    curves = {"validation": [[t, loss] for t, loss in losses.items()], "learned": learned["curves"]}
    return rows, remarks, curves, _picture(drawing, found, losses, learned["curves"], settings, x)


def _row(what: str, scores: np.ndarray, seconds: float) -> Row:
    each = scores.mean(0)
    return Row(what, float(each.mean()), float(each.std(ddof=1) / np.sqrt(len(each))), seconds=seconds)


# ---- strengths


def turned_digits(x: np.ndarray, y: np.ndarray, name: str, settings: Any) -> tuple[np.ndarray, np.ndarray, int]:
    """Digits turned at random with their own labels, or turned to one of two sides with the side as label."""
    rng = np.random.default_rng(0)
    side = rng.integers(0, 2, size=len(x))
    any_way = rng.uniform(-settings["turned"], settings["turned"], size=len(x))
    angles = any_way if name == "turned at random" else settings["sideways"] * (2 * side - 1)
    images = np.asarray(jax.jit(jax.vmap(rotate))(jnp.asarray(x), jnp.asarray(angles, jnp.float32)))
    return (images, y, 10) if name == "turned at random" else (images, side, 2)


def _learn(bench: Workbench, x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    settings = bench.settings["learning"]
    curves, seconds = {}, {}
    for name in ("turned at random", "the side is the label"):
        num = settings["num_train"]
        images, labels, num_classes = turned_digits(x[:num], y[:num], name, settings)
        model = _model(settings["hidden"], num_classes, 0)
        model = mx.augment(model, mx.data.Rotate(settings["start"]), num_views=settings["num_views"])
        rule = mx.infer.Strengths(learning_rate=settings["learning_rate"])
        method = mx.infer.Laplace(
            tuning=mx.infer.Online(settings["num_rounds"], strengths=rule),
            training=mx.infer.MAP(
                num_epochs=settings["num_epochs"],
                batch_size=settings["batch_size"],
                optimiser=mx.infer.Adam(settings["training_rate"]),
            ),
        )
        posterior = bench.fit(f"strengths {name}", model, (images, labels), method, key=0)
        rounds = posterior.record.in_order(posterior.record.info)
        steps = [value for phase, info in rounds if phase.startswith("strengths") for value in _strengths(info)]
        curves[name], seconds[name] = [settings["start"], *steps], bench.seconds(posterior)
    return {"curves": curves, "seconds": seconds}


def _strengths(info: dict[str, np.ndarray]) -> list[float]:
    values = next(value for name, value in info.items() if name.endswith("max_degrees"))
    return [round(float(value), 3) for value in np.ravel(values)]


# ---- picture


def _picture(
    drawing: Any,
    found: dict[str, list[list[float]]],
    losses: dict[float, float],
    curves: dict[str, list[float]],
    settings: Any,
    x: np.ndarray,
) -> Any:
    """Views of a digit, scores, temperatures, strengths."""
    figure = drawing.Figure(figsize=(10, 7), layout="constrained")
    axes = figure.subplots(2, 2)
    network = mx.nets.Augmented(mx.nets.MLP(196, (), 10, key=0), _transforms(settings), settings["num_views"])
    views = np.asarray(network.views(jnp.asarray(x[0])))[:8, 0]
    tiles = [np.concatenate(list(views[i : i + 4]), axis=1) for i in range(0, len(views) - len(views) % 4, 4)]
    axes[0, 0].imshow(np.concatenate(tiles or [views[0]]), cmap="gray_r")
    axes[0, 0].set(title="views of a digit", xticks=[], yticks=[])
    names = list(found)
    means = [np.mean(found[name]) for name in names]
    errors = [np.mean(found[name], axis=0).std(ddof=1) / np.sqrt(len(found[name][0])) for name in names]
    axes[0, 1].errorbar(means, range(len(names)), xerr=errors, fmt="o")
    axes[0, 1].set_yticks(range(len(names)), [name.replace(", ", ",\n", 1) for name in names], fontsize=8)
    axes[0, 1].set(xlabel="nats per test digit", title="scores and standard errors")
    coldest = min(temperature for temperature in losses if temperature > 0)
    axes[1, 0].plot(*zip(*sorted(losses.items()), strict=True), "o-")
    axes[1, 0].set_xscale("symlog", linthresh=coldest)
    axes[1, 0].set(xlabel="temperature", ylabel="nats per validation digit", title="augmented data")
    for name, curve in curves.items():
        axes[1, 1].plot(curve, label=name)
    axes[1, 1].set(xlabel="steps on the evidence", ylabel="degrees", title="learned range of rotation", ylim=(0, None))
    axes[1, 1].legend(frameon=False)
    return figure


EXPERIMENT = Experiment("augmentation", "Augmentation of data and of likelihoods", SETTINGS, run)
