r"""The noisy curve of Blundell et al. (2015): weights that are uncertain, and a network that is sure of itself.

$y = x + 0.3 \sin(2\pi(x + \epsilon)) + 0.3 \sin(4\pi(x + \epsilon)) + \epsilon$ with $\epsilon \sim N(0, 0.02)$,
observed for x between 0 and 0.5. The picture shows medians and interquartile ranges between -0.4 and 1.2: those of
Bayes by Backprop open where there are no data, those of an ordinary network with the same likelihood do not.
"""

from typing import Any

import jax
import numpy as np

import marginax as mx
from marginax._extras import require
from marginax.reproduce.experiment import Experiment, Row, Workbench

_COMMON = {"num_rows": 500, "hidden": (100,), "num_draws": 500, "batch_size": 100, "learning_rate": 5e-3}
SETTINGS = {"small": _COMMON | {"num_epochs": 3000}, "full": _COMMON | {"num_epochs": 20_000}}
_SEEN, _SHOWN = (0.0, 0.5), (-0.4, 1.2)
_NOISE = 0.02
_NAMES = ("Bayes by Backprop", "ordinary network")


def _curve(x: np.ndarray, noise: np.ndarray) -> np.ndarray:
    return x + 0.3 * np.sin(2 * np.pi * (x + noise)) + 0.3 * np.sin(4 * np.pi * (x + noise)) + noise


def _data(num: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.uniform(*_SEEN, size=num)
    return x, _curve(x, _NOISE * rng.normal(size=num))


def run(bench: Workbench) -> tuple[list[Row], list[str], dict[str, Any], Any]:
    """Both on the same rows, in units of their spread."""
    settings, drawing = bench.settings, require("matplotlib.figure")
    x, y = _data(settings["num_rows"])
    centre, spread, middle, width = x.mean(), x.std(), y.mean(), y.std()
    data = ((x[:, None] - centre) / spread, (y - middle) / width)
    grid = np.linspace(*_SHOWN, 161)
    net = mx.nets.MLP(1, settings["hidden"], 1, activation=jax.nn.relu, key=0)
    training = {
        "num_epochs": settings["num_epochs"],
        "batch_size": settings["batch_size"],
        "optimiser": mx.infer.Adam(settings["learning_rate"]),
    }
    methods: dict[str, Any] = {
        _NAMES[0]: mx.infer.BayesByBackprop(**training),
        _NAMES[1]: mx.infer.MAP(**training),
    }
    rows, curves, bands = [], {}, {}
    for name, method in methods.items():
        posterior = bench.fit(name, mx.Model(net, mx.likelihoods.Gaussian()), data, method, key=0)
        prediction: Any = posterior.predict((grid[:, None] - centre) / spread, num_samples=settings["num_draws"])
        bands[name] = middle + width * np.stack([np.ravel(prediction.quantile(q)) for q in (0.25, 0.5, 0.75)])
        ranges = bands[name][2] - bands[name][0]
        inside = (grid >= _SEEN[0]) & (grid <= _SEEN[1])
        far = (grid < _SEEN[0] - 0.3) | (grid > _SEEN[1] + 0.5)
        seconds = bench.seconds(posterior)
        error = np.sqrt(np.mean((bands[name][1] - _curve(grid, np.zeros_like(grid)))[inside] ** 2))
        rows += [
            Row(f"{name}: interquartile range among the data", float(np.median(ranges[inside])), seconds=seconds),
            Row(f"{name}: interquartile range far away", float(np.median(ranges[far])), seconds=seconds),
            Row(
                f"{name}: how much wider far away",
                float(np.median(ranges[far]) / np.median(ranges[inside])),
                seconds=seconds,
            ),
            Row(f"{name}: root mean squared error among the data", float(error), seconds=seconds),
        ]
        curves[name] = [grid.tolist(), *bands[name].tolist()]
    remarks = [
        f"{len(x)} rows, network 1-{'-'.join(map(str, settings['hidden']))}-1, scale-mixture prior as published, "
        f"{settings['num_draws']} draws. The paper shows a picture and no figure. Far away is beyond -0.3 and 1.0.",
        "Rows, width and epochs were changed once, after a first picture that underfitted; the noise is learned.",
    ]
    return rows, remarks, curves, _picture(drawing, x, y, grid, bands)


def _picture(drawing: Any, x: np.ndarray, y: np.ndarray, grid: np.ndarray, bands: dict[str, np.ndarray]) -> Any:
    figure = drawing.Figure(figsize=(9, 3.4), layout="constrained")
    ends = np.quantile([y.min(), y.max(), *np.ravel(list(bands.values()))], [0.0, 1.0])
    room = 0.05 * (ends[1] - ends[0])
    for ax, (name, (low, median, high)) in zip(figure.subplots(1, 2, sharey=True), bands.items(), strict=True):
        ax.fill_between(grid, low, high, color="C0", alpha=0.3, lw=0, label="interquartile range")
        ax.plot(grid, median, color="C3", label="median")
        ax.plot(x, y, "kx", ms=3, mew=0.7, label="data")
        ax.set(title=name, xlabel="x", ylim=(ends[0] - room, ends[1] + room))
    figure.axes[-1].legend(frameon=False, fontsize=8)
    return figure


_LESSON = (
    "Where there are no data, all networks that explain the data are possible, and they disagree; one network "
    "cannot disagree with itself."
)
EXPERIMENT = Experiment("blundell-regression", "A noisy curve, by uncertain weights", SETTINGS, run, _LESSON)
