"""Masks on which four graders disagree: do sampled masks vary as theirs do?

The set-up of Kohl et al. (2018) and Monteiro et al. (2020): slices around lung nodules of LIDC-IDRI, a U-Net that gives
one mask, U-Nets with dropout and in an ensemble, the stochastic segmentation network and the probabilistic U-Net. A
sample is the mask of a network (and of drawn logits or latents) without noise of single pixels, as in those papers.
Patients of the test part are looked at once, at the end; standard errors are over patients.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

import marginax as mx
from marginax._extras import require
from marginax.evaluate.score import mean_score
from marginax.evaluate.segmentation import energy_distances, hungarian_ious
from marginax.reproduce.experiment import Experiment, Row, Workbench

_COMMON = {"num_samples": 16, "dropout": 0.1, "batch_size": 32, "groups": 8, "latent_size": 6}
SETTINGS = {
    "small": _COMMON
    | {
        "size": 32,  # of the square in the middle of a slice
        "num_train": 1905,
        "num_test": 389,
        "channels": (8, 16, 32),
        "num_members": 3,
        "rank": 6,
        "num_mc": 20,
        "num_epochs": 15,
        "learning_rate": 8e-3,
    },
    "full": _COMMON
    | {
        "size": 64,
        "num_train": 1905,
        "num_test": 389,
        "channels": (32, 64, 128, 192),
        "num_members": 8,
        "rank": 10,
        "num_mc": 20,
        "num_epochs": 30,
        "learning_rate": 1e-3,
    },
}
_STOCHASTIC, _PROBABILISTIC = "stochastic network", "probabilistic U-Net"
_PUBLISHED = {
    "U-Net": (0.61, "Monteiro et al. 2020"),
    _STOCHASTIC: (0.225, "Monteiro et al. 2020"),
    "dropout": (0.47, "Kohl et al. 2018"),
    "ensemble": (0.49, "Kohl et al. 2018"),
    _PROBABILISTIC: (0.25, "Kohl et al. 2018, fig.: .25-.29"),
}
_BACKGROUND, _LOG_DIAGONAL, _SPREAD = -4.0, -5.0, 0.3  # where networks start: no nodule, and nearly sure of it


def _network(settings: Any, num_maps: int, *, dropout: float = 0.0) -> mx.nets.UNet:
    """A U-Net that starts with the background, and for several maps with little spread."""
    size = settings["size"]
    net = mx.nets.UNet(
        (1, size, size), settings["channels"], num_maps, groups=settings["groups"], dropout=dropout, key=0
    )
    start = jnp.zeros(num_maps).at[:2].set(jnp.array([_BACKGROUND, _LOG_DIAGONAL])[:num_maps])
    assert net.output.bias is not None
    bias = net.output.bias + start.reshape(net.output.bias.shape)
    weight = net.output.weight.at[1:].multiply(_SPREAD)
    return eqx.tree_at(lambda net: (net.output.bias, net.output.weight), net, (bias, weight))


def _model(settings: Any, name: str) -> Any:
    """The network of a name, and what it says about masks."""
    likelihoods, size = mx.likelihoods, settings["size"]
    if name == _PROBABILISTIC:
        more = {"groups": settings["groups"], "first_logit": _BACKGROUND, "num_graders": 1, "key": 0}
        return mx.latent.ProbabilisticUNet((1, size, size), settings["channels"], settings["latent_size"], **more)
    likelihood, maps = likelihoods.Bernoulli(), 1
    if name == _STOCHASTIC:
        likelihood = likelihoods.StochasticSegmentation(settings["rank"], settings["num_mc"])
        maps = 2 + settings["rank"]
    network = _network(settings, maps, dropout=settings["dropout"] if name == "dropout" else 0.0)
    return mx.Model(network, likelihoods.Graders(likelihood))


def _fitted(bench: Workbench, name: str, data: tuple[np.ndarray, np.ndarray]) -> Any:
    settings, infer = bench.settings, mx.infer
    training = {
        "num_epochs": settings["num_epochs"],
        "batch_size": settings["batch_size"],
        "optimiser": infer.Adam(settings["learning_rate"]),
    }
    method: Any = infer.MCDropout(**training) if name == "dropout" else infer.MAP(**training)
    if name == "ensemble":
        method = infer.DeepEnsemble(settings["num_members"], method)
    return bench.fit(name, _model(settings, name), data, method, key=0)


def _sampled(posterior: Any, x: np.ndarray, num: int, *, key: int) -> np.ndarray:
    """Masks of images, (sample, image, pixel): of several networks and what they draw, or of latents."""
    if hasattr(posterior, "sample_masks"):
        masks = posterior.sample_masks(x, num, key=key)
    else:
        masks = posterior.predict(x, num_samples=max(num, 16), key=0).sample_masks(num, key=key)
    return masks.reshape(num, len(x), -1).astype(float)


def _part(split: str, size: int, num: int | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images, masks of the graders and patients, cut to the middle."""
    x, masks, patient = mx.data.load_lidc(split)
    edge = (x.shape[-1] - size) // 2
    middle = (..., slice(edge, edge + size), slice(edge, edge + size))
    return x[middle][:num], masks[middle][:num], patient[:num]


def _judged(posterior: Any, x: np.ndarray, masks: np.ndarray, num: int) -> dict[str, Any]:
    """Of each image, energy distance and matched IoU."""
    samples = _sampled(posterior, x, num, key=1)
    graders = masks.reshape(*masks.shape[:2], -1).astype(float)
    return {
        "energy": energy_distances(samples, graders).tolist(),
        "iou": hungarian_ious(samples, graders).tolist(),
    }


def run(bench: Workbench) -> tuple[list[Row], list[str], dict[str, Any], Any]:
    """Train on patients, compare on others, draw."""
    settings, drawing = bench.settings, require("matplotlib.figure")
    size, num = settings["size"], settings["num_samples"]
    x, masks, _ = _part("train", size, settings["num_train"])
    parts = {split: _part(split, size, settings["num_test"]) for split in ("valid", "test")}
    centre, spread = float(x.mean()), float(x.std())
    patient = parts["test"][2]
    energy, rows, curves, posteriors = {}, [], {}, {}
    for name, (published, source) in _PUBLISHED.items():
        posteriors[name] = posterior = _fitted(bench, name, ((x - centre) / spread, masks))
        found = {}
        for split, (inputs, graders, _) in parts.items():
            inputs = (inputs - centre) / spread
            measure = lambda p=posterior, i=inputs, g=graders: _judged(p, i, g, num)  # noqa: E731
            found[split] = bench.measure(f"{name} {split}", measure)
        curves[name] = {
            split: [float(np.mean(values[what])) for what in ("energy", "iou")] for split, values in found.items()
        }
        energy[name], seconds = np.array(found["test"]["energy"]), bench.seconds(posterior)
        for what, values in (("energy distance", found["test"]["energy"]), ("matched IoU", found["test"]["iou"])):
            score = mean_score(np.array(values), name=what, groups=patient)
            beside = (published, source) if what == "energy distance" else (None, "")
            low = what == "energy distance"
            error = score.standard_error
            options = {"lower_is_better": low, "seconds": seconds, "compared": False}
            rows.append(Row(f"{name}: {what}", score.value, error, *beside, **options))
    rows += _compared(energy, patient)
    remarks = [
        f"{len(x)} slices of training patients, {len(patient)} of {len(np.unique(patient))} others; the middle "
        f"{size} x {size} pixels of slices of 64 x 64; {num} samples; an ensemble of {settings['num_members']}.",
        "Published figures are of crops that are larger, in pixels and in detail, and of longer training: no verdict.",
        "Standard errors are over test patients. Learning rate, epochs and the start of the networks were chosen by "
        "patients of the validation part, on few trials; curves are its and the test part's energy distance and IoU.",
        "The probabilistic U-Net was tried there with one grader of each image at a step and, at two learning rates, "
        "with all four; its published figure is read off a picture, at the better end of its range.",
    ]
    return rows, remarks, curves, _picture(drawing, posteriors, parts["test"], centre, spread)


def _compared(energy: dict[str, np.ndarray], patient: np.ndarray) -> list[Row]:
    """The stochastic network's energy distance as a share of the U-Net's, and less the others', over patients.

    And what the probabilistic U-Net adds to it.
    """
    ours, plain = energy[_STOCHASTIC], energy["U-Net"]
    share = ours.mean() / plain.mean()
    error = mean_score((ours - share * plain) / plain.mean(), name="share", groups=patient).standard_error
    rows = [Row(f"{_STOCHASTIC}: share of the U-Net's energy distance", float(share), error)]
    for name in ("dropout", "ensemble"):
        gap = mean_score(ours - energy[name], name="difference", groups=patient)
        rows.append(Row(f"{_STOCHASTIC} less {name}: energy distance", gap.value, gap.standard_error))
    gap = mean_score(energy[_PROBABILISTIC] - ours, name="difference", groups=patient)
    rows.append(Row(f"{_PROBABILISTIC} less {_STOCHASTIC}: energy distance", gap.value, gap.standard_error))
    return rows


def _picture(drawing: Any, posteriors: dict[str, Any], part: Any, centre: float, spread: float) -> Any:
    """Slices on which graders disagree, their masks, and three sampled ones by each method."""
    x, masks, _ = part
    num, size = min(5, len(x)), x.shape[-1]
    apart = masks.reshape(*masks.shape[:2], -1).astype(float).std(1).sum(-1)
    chosen = np.sort(np.argsort(-apart)[:: max(1, len(x) // (4 * num))][:num])
    inputs = (x[chosen] - centre) / spread
    columns = [("slice", x[chosen, 0]), *((f"grader {g + 1}", masks[chosen, g]) for g in range(masks.shape[1]))]
    for name, posterior in posteriors.items():
        drawn = _sampled(posterior, inputs, 3, key=2).reshape(3, num, size, size)
        columns += [(name if i == 1 else "", drawn[i]) for i in range(3)]
    figure = drawing.Figure(figsize=(0.8 * len(columns), 0.85 * num + 0.3), layout="constrained")
    axes = figure.subplots(num, len(columns), squeeze=False)
    for j, (title, images) in enumerate(columns):
        axes[0, j].set_title(title, fontsize=7)
        for i, image in enumerate(images):
            axes[i, j].imshow(image, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
            axes[i, j].set(xticks=[], yticks=[])
    return figure


EXPERIMENT = Experiment("segmentation", "Masks on which graders disagree", SETTINGS, run)
