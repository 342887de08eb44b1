"""Carbon dioxide, extrapolated (Gal & Ghahramani, 2016): which bands open beyond the last measurement?

Monthly values at Mauna Loa, trend removed by a straight line of the training years, time in units of its spread. A
network with dropout at prediction, by relu and by tanh; an ordinary network; and as a reference the same network, small
enough, by Hamiltonian Monte Carlo and by variational inference.
"""

from typing import Any

import jax
import numpy as np

import marginax as mx
from marginax._extras import require
from marginax.reproduce.experiment import Experiment, Row, Workbench

_COMMON = {"rate": 0.1, "learning_rate": 5e-3, "num_warmup": 500}
SETTINGS = {
    "small": _COMMON | {"every": 6, "hidden": (64, 64), "num_epochs": 2000, "num_samples": 300, "num_draws": 500},
    "full": _COMMON
    | {
        "every": 1,
        "hidden": (256, 256, 256),
        "num_epochs": 5000,
        "num_samples": 1000,
        "num_draws": 1000,
    },
}
_LAST, _SHOWN = 1998.0, (1950.0, 2040.0)


def _methods(settings: Any) -> dict[str, tuple[Any, tuple[int, ...], Any]]:
    """Method, widths and activation of each."""
    infer, relu, tanh = mx.infer, jax.nn.relu, jax.nn.tanh
    adam = infer.Adam(settings["learning_rate"])
    training = {"num_epochs": settings["num_epochs"], "batch_size": None, "optimiser": adam}
    return {
        "dropout, relu": (infer.MCDropout(settings["rate"], **training), settings["hidden"], relu),
        "dropout, tanh": (infer.MCDropout(settings["rate"], **training), settings["hidden"], tanh),
        "ordinary network, relu": (infer.MAP(**training), settings["hidden"], relu),
        "HMC, relu": (infer.HMC(settings["num_warmup"], settings["num_samples"]), (16, 16), relu),
        "VI, relu": (infer.VI(**training), (16, 16), relu),
    }


def run(bench: Workbench) -> tuple[list[Row], list[str], dict[str, Any], Any]:
    """All on the years before 1998."""
    settings, drawing = bench.settings, require("matplotlib.figure")
    year, ppm = (values[:: settings["every"]] for values in mx.data.load_co2())
    train = year < _LAST
    line = np.polyfit(year[train], ppm[train], 1)
    rest = ppm - np.polyval(line, year)
    centre, spread, unit = year[train].mean(), year[train].std(), rest[train].std()
    grid = np.linspace(*_SHOWN, 181)
    data = ((year[train, None] - centre) / spread, rest[train] / unit)
    rows, curves, bands = [], {}, {}
    for name, (method, hidden, activation) in _methods(settings).items():
        model = mx.Model(mx.nets.MLP(1, hidden, 1, activation=activation, key=0), mx.likelihoods.Gaussian())
        chains = 4 if name.startswith("HMC") else None
        posterior = bench.fit(name, model, data, method, key=0, num_chains=chains)
        prediction: Any = posterior.predict((grid[:, None] - centre) / spread, num_samples=settings["num_draws"])
        mean = unit * np.ravel(prediction.mean)
        epistemic, total = (unit * np.sqrt(np.ravel(each)) for each in (prediction.epistemic, prediction.variance))
        bands[name] = np.stack([mean, epistemic, total])
        curves[name] = bands[name].tolist()
        if chains:
            checked = mx.evaluate.diagnose_chains(posterior, (grid[:, None] - centre) / spread)
            rows.append(Row(f"{name}: largest R-hat of predictions", checked.predictions.worst_r_hat))
        at = {when: int(np.argmin(np.abs(grid - when))) for when in (1980.0, 2010.0, 2040.0)}
        seconds = bench.seconds(posterior)
        rows += [
            Row(f"{name}: epistemic sd in {when:.0f}, ppm", float(epistemic[place]), seconds=seconds)
            for when, place in at.items()
        ]
        later: Any = posterior.predict((year[~train, None] - centre) / spread, num_samples=settings["num_draws"])
        low, high = later.interval(0.95)
        inside = (np.ravel(low) <= rest[~train] / unit) & (rest[~train] / unit <= np.ravel(high))
        rows.append(
            Row(f"{name}: of later values within 95%", float(inside.mean()), lower_is_better=False, seconds=seconds)
        )
    remarks = [
        f"{int(train.sum())} values before {_LAST:.0f}, {int((~train).sum())} after; in ppm above a line of the "
        "years before. The paper has a picture, no figure.",
        f"Dropout 1-{'-'.join(map(str, settings['hidden']))}-1, rate {settings['rate']:g}; HMC and VI 1-16-16-1.",
        "Widths, rates and epochs were not tuned. HMC is a reference as far as its chains agree, for which R-hat is 1.",
    ]
    return rows, remarks, curves | {"year": grid.tolist()}, _picture(drawing, year, rest, grid, bands)


def _picture(drawing: Any, year: np.ndarray, rest: np.ndarray, grid: np.ndarray, bands: dict[str, np.ndarray]) -> Any:
    figure = drawing.Figure(figsize=(3.0 * len(bands), 3.0), layout="constrained")
    for ax, (name, (mean, epistemic, total)) in zip(
        figure.subplots(1, len(bands), sharey=True), bands.items(), strict=True
    ):
        for sd, alpha, label in ((total, 0.15, "with noise"), (epistemic, 0.35, "of the curve")):
            ax.fill_between(grid, mean - 2 * sd, mean + 2 * sd, color="C0", alpha=alpha, lw=0, label=f"two sd, {label}")
        ax.plot(grid, mean, color="C0", lw=1.4)
        ax.plot(year, rest, "k.", ms=1.5)
        ax.axvline(_LAST, color="C3", ls="--", lw=0.8)
        ax.set(title=name, xlabel="year", ylim=(-30, 60))
        ax.title.set_size(9)
    figure.axes[0].set_ylabel("ppm above a line")
    figure.axes[0].legend(frameon=False, fontsize=7, loc="upper left")
    return figure


_LESSON = (
    "Beyond the last measurement the best curve goes on as if it knew; what is believed about it should widen "
    "with the distance."
)
EXPERIMENT = Experiment("gal-co2", "Carbon dioxide beyond the last measurement", SETTINGS, run, _LESSON)
