"""A digit 1, rotated (Gal & Ghahramani, 2016): logits that spread before the answer changes.

LeNet with dropout before its last layer, trained on upright digits. The first test digit 1 is turned through twelve
angles, and 100 stochastic passes are drawn at each: where the ranges of two logits overlap, softmax outputs of single
passes may be sure and disagree.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy import ndimage

import marginax as mx
from marginax._extras import require
from marginax.evaluate.score import mean_score
from marginax.reproduce.experiment import Experiment, Row, Workbench
from marginax.reproduce.gal_lenet import PLACES, network

_COMMON = {"rate": 0.5, "batch_size": 128, "num_angles": 12, "most_degrees": 90.0, "num_passes": 100, "sure": 0.9}
SETTINGS = {
    "small": _COMMON | {"num_train": 6000, "num_epochs": 12, "channels": (8, 16), "hidden": 100},
    "full": _COMMON | {"num_train": 60_000, "num_epochs": 20, "channels": (20, 50), "hidden": 500},
}
_PLACE = PLACES[1]  # dropout at the end


def _rotated(image: np.ndarray, degrees: np.ndarray) -> np.ndarray:
    turned = [ndimage.rotate(image[0], float(angle), reshape=False, order=1) for angle in degrees]
    return np.clip(np.stack(turned), 0, 1).astype(np.float32)[:, None]


def run(bench: Workbench) -> tuple[list[Row], list[str], dict[str, Any], Any]:
    """Train, turn, pass."""
    settings, drawing = bench.settings, require("matplotlib.figure")
    x, y = (part[: settings["num_train"]] for part in mx.data.load_mnist("train"))
    test, labels = mx.data.load_mnist("test")
    method = mx.infer.MCDropout(num_epochs=settings["num_epochs"], batch_size=settings["batch_size"])
    model = mx.Model(network(_PLACE, settings, key=0), mx.likelihoods.Categorical())
    posterior = bench.fit("LeNet", model, (x, y), method, key=0)
    degrees = np.linspace(0, settings["most_degrees"], settings["num_angles"])
    turned = _rotated(test[np.flatnonzero(labels == 1)[0]], degrees)
    networks = posterior.sample(settings["num_passes"], key=1)
    logits = np.asarray(eqx.filter_vmap(lambda network: jax.vmap(network)(jnp.asarray(turned)))(networks), np.float64)
    probs = np.exp(logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True))
    prediction = mx.predict.ClassificationPrediction.from_draws(probs)
    seconds = bench.seconds(posterior)
    error = mx.evaluate.accuracy(posterior.predict(test[:2000], num_samples=20), labels[:2000])
    upright, most = 0, int(np.argmax(prediction.mutual_information))
    answers = probs.argmax(-1)
    rows = [
        Row("test digits right, of 2,000", error.value, error.standard_error, lower_is_better=False, seconds=seconds),
        Row("upright: mutual information, nats", float(prediction.mutual_information[upright]), seconds=seconds),
        Row(
            "at the most uncertain angle: mutual information, nats",
            float(prediction.mutual_information[most]),
            seconds=seconds,
        ),
        Row("at the most uncertain angle: degrees", float(degrees[most]), seconds=seconds),
        Row(
            "upright: passes that agree with the most frequent answer", _agreeing(answers[:, upright]), seconds=seconds
        ),
        Row("at the most uncertain angle: passes that agree", _agreeing(answers[:, most]), seconds=seconds),
        Row(
            "at the most uncertain angle: mean confidence of a pass",
            float(probs[:, most].max(-1).mean()),
            seconds=seconds,
        ),
        _contradicting(probs[:, most], settings["sure"], seconds),
    ]
    remarks = [
        f"{len(x)} training digits; dropout {settings['rate']:g} before the last layer of LeNet; "
        f"{settings['num_passes']} passes at each of {settings['num_angles']} angles. The paper has a picture.",
        f"The digit is the first 1 of the test digits, and it is turned by up to {settings['most_degrees']:g} degrees, "
        "where it is nobody's 1 any more; neither was chosen by its picture. Shown are the three classes that passes "
        "answer most often over all angles. Nothing was tuned.",
    ]
    curves = {"degrees": degrees.tolist(), "probs": prediction.probs.tolist()}
    return rows, remarks, curves, _picture(drawing, degrees, turned, logits, probs)


def _contradicting(probs: np.ndarray, sure: float, seconds: float) -> Row:
    """How many passes are sure of another answer than most."""
    answers = probs.argmax(-1)
    other = answers != np.bincount(answers).argmax()
    score = mean_score((other & (probs.max(-1) > sure)).astype(float), name="share")
    what = f"at the most uncertain angle: passes that are sure ({sure:g}) of another answer than most"
    return Row(what, score.value, score.standard_error, lower_is_better=False, seconds=seconds)


def _agreeing(answers: np.ndarray) -> float:
    return float(np.bincount(answers).max() / len(answers))


def _picture(drawing: Any, degrees: np.ndarray, turned: np.ndarray, logits: np.ndarray, probs: np.ndarray) -> Any:
    """Inputs and outputs of the softmax for the classes most often answered, and below each angle its digit."""
    shown = np.sort(np.argsort(-np.bincount(probs.argmax(-1).ravel(), minlength=10), kind="stable")[:3])
    figure = drawing.Figure(figsize=(9, 6), layout="constrained")
    grid = figure.add_gridspec(3, len(degrees), height_ratios=(4, 4, 1.2))
    jitter = np.random.default_rng(0).uniform(-0.2, 0.2, size=logits.shape[:2])
    for line, (values, title) in enumerate(((logits, "softmax input"), (probs, "softmax output"))):
        ax = figure.add_subplot(grid[line, :])
        for digit, color in zip(shown, ("C0", "C1", "C2"), strict=True):
            place = np.arange(len(degrees)) + jitter
            ax.plot(place.ravel(), values[..., digit].ravel(), ".", ms=2, color=color, alpha=0.6, label=str(digit))
        ax.set(ylabel=title, xlim=(-0.5, len(degrees) - 0.5), xticks=[])
        ax.legend(frameon=False, ncols=3, fontsize=8, loc="upper right")
    for place, angle in enumerate(degrees):
        ax = figure.add_subplot(grid[2, place])
        ax.imshow(turned[place, 0], cmap="gray_r")
        ax.set(xticks=[], yticks=[])
        ax.set_xlabel(f"{angle:.0f}°", fontsize=8)
    return figure


_LESSON = "A softmax output near one is not certainty: passes that are each sure may contradict each other."
EXPERIMENT = Experiment("gal-rotated-one", "A digit 1, rotated", SETTINGS, run, _LESSON)
