r"""How many weights are needed (Blundell et al., 2015, section 5.3): errors when those of low signal-to-noise are gone.

The network of `blundell-mnist` with a scale mixture as prior. Weights are ranked by $|\mu| / \sigma$; the lowest are
set to zero, for good, and the others keep their distribution.
"""

import math
from typing import Any

import jax
import numpy as np

import marginax as mx
from marginax._extras import require
from marginax.reproduce.blundell_mnist import MIXTURE, chosen, digits, judged, train, variational
from marginax.reproduce.experiment import Experiment, Row, Workbench

_COMMON: dict[str, Any] = {
    "fractions": (0.0, 0.5, 0.75, 0.95, 0.98),
    "choosing_fraction": 0.95,
    "choosing_width": 400,
    "num_test": 10_000,
    "batch_size": 128,
    "rate": 0.0,
}
_SMALL_START = variational(gain=0.3, initial_scale=0.1, wide=math.exp(-1))
SETTINGS: dict[str, dict[str, Any]] = {
    "small": _COMMON
    | {
        "width": 400,
        "num_train": 10_000,
        "num_valid": 2000,
        "num_epochs": 10,
        "candidates": (variational(gain=1.0, initial_scale=0.3, wide=1.0), _SMALL_START),
        "choosing_epochs": 10,
        "num_draws": 10,
    },
    "full": _COMMON
    | {
        "width": 1200,
        "num_train": 60_000,
        "num_valid": 10_000,
        "num_epochs": 100,
        "candidates": (
            variational(gain=1.0, initial_scale=0.3, wide=1.0),
            variational(gain=0.3, initial_scale=0.1, wide=1.0),
            _SMALL_START,
            variational(gain=0.3, initial_scale=0.1, wide=math.exp(-1), weight=0.25),
            variational(gain=0.3, initial_scale=0.1, wide=math.exp(-2), weight=0.25),
            variational(gain=0.2, initial_scale=0.1, wide=math.exp(-1), weight=0.25),
        ),
        "choosing_epochs": 40,
        "num_draws": 50,
    },
}
_SOURCE, _AIM = "Blundell et al. 2015", 0.15
_PUBLISHED = {0.0: 1.24, 0.5: 1.24, 0.75: 1.24, 0.95: 1.29, 0.98: 1.39}


def run(bench: Workbench) -> tuple[list[Row], list[str], dict[str, Any], Any]:
    """Choose, train once, remove more and more."""
    settings, drawing = bench.settings, require("matplotlib.figure")
    data, (x, y) = digits("train", settings["num_train"]), digits("test", settings["num_test"])
    width, num_draws, removed = settings["width"], settings["num_draws"], settings["choosing_fraction"]

    def error(posterior: Any, x: np.ndarray, y: np.ndarray) -> float:
        """Mean of the errors of the whole network and of what is left of it, in percent."""
        parts = (posterior, mx.decide.prune(posterior, removed).posterior)
        return 100 * float(np.mean([len(judged(part, x, y, num_draws)["wrong"]) / len(y) for part in parts]))

    options, losses = chosen(bench, MIXTURE, settings["candidates"], error)
    posterior = train(bench, f"{width} {MIXTURE} seed 0", data, MIXTURE, options, width, settings["num_epochs"], 0)
    seconds, rows, wrong = bench.seconds(posterior), [], {}
    for fraction in settings["fractions"]:
        found = bench.measure(
            f"{fraction:g} removed",
            lambda f=fraction: judged(mx.decide.prune(posterior, f).posterior, x, y, num_draws),
        )
        wrong[fraction] = 100.0 * np.isin(np.arange(len(x)), found["wrong"])[None]
        published = _PUBLISHED.get(fraction) if width == 1200 else None
        beside = (published, _SOURCE) if published else ()
        what = f"{100 * fraction:g}% removed: wrong, %"
        rows.append(Row.of_runs(what, wrong[fraction], *beside, seconds=seconds))
    for fraction in settings["fractions"][1:]:
        rows.append(Row.of_runs(f"{100 * fraction:g}% removed costs, points", wrong[fraction] - wrong[0.0]))
    if removed in wrong:
        cost = float((wrong[removed] - wrong[0.0]).mean())
        what = f"{100 * removed:g}% removed costs, points, against what was aimed at"
        rows.append(Row(what, cost, None, _AIM, "our aim, without allowance"))
    size = sum(leaf.size for leaf in jax.tree.leaves(posterior.starting_points(1).network))
    rows.append(Row("weights and biases", float(size), lower_is_better=False))
    decibels = _decibels(posterior)
    remarks = [
        f"784-{width}-{width}-10, {len(data[0])} training and {len(x)} test digits, {settings['num_epochs']} epochs; "
        f"averages of {num_draws} draws, the same for all fractions. Biases are ranked with the weights.",
        f"Chosen, by the mean of the errors whole and without {100 * removed:g}% among {settings['num_valid']} "
        f"validation digits after {settings['choosing_epochs']} epochs at {settings['choosing_width']} units: "
        f"{options}. Candidates, and these errors in %: {list(zip(settings['candidates'], losses, strict=False))}.",
        "Published figures are of 1,200 units. Standard errors are over test digits, those of costs over the "
        "differences. One network was trained: there is no error over runs, and so no verdict beside what was "
        "published of the same digits. Curves are decibels of weights (1,001 quantiles) and % wrong by fraction.",
    ]
    curves = {
        "decibels": np.quantile(decibels, np.linspace(0, 1, 1001)).tolist(),
        "wrong": [[fraction, float(each.mean())] for fraction, each in wrong.items()],
        "validation % wrong": losses,
    }
    return rows, remarks, curves, _picture(drawing, decibels, rows, settings["fractions"])


def _decibels(posterior: Any) -> np.ndarray:
    ratios = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(mx.decide.signal_to_noise(posterior))])
    return np.sort(10 * np.log10(np.maximum(ratios, 1e-6)))


def _picture(drawing: Any, decibels: np.ndarray, rows: list[Row], fractions: tuple[float, ...]) -> Any:
    """Density and cumulative distribution of the ratios, as in the paper, and what removing costs."""
    figure = drawing.Figure(figsize=(10, 3.4), layout="constrained")
    density, cumulative, cost = figure.subplots(1, 3)
    share = np.linspace(0, 1, len(decibels))
    low, high = np.quantile(decibels, [0.001, 1.0])
    density.hist(decibels, np.linspace(low, high, 120), density=True, color="C0", alpha=0.5)
    cumulative.plot(decibels[:: max(1, len(decibels) // 5000)], share[:: max(1, len(decibels) // 5000)], color="C0")
    for i, fraction in enumerate(fractions[1:]):
        place = decibels[round(fraction * len(decibels)) - 1]
        for ax in (density, cumulative):
            ax.axvline(place, color=f"C{i + 1}", ls="--", lw=1.2, label=f"{100 * fraction:g}% removed")
    for ax, title in ((density, "density"), (cumulative, "cumulative")):
        ax.set(xlabel="signal-to-noise ratio, dB", ylabel=title, xlim=(low, high))
    density.legend(frameon=False, fontsize=7)
    shown = rows[: len(fractions)]
    place = 100 * np.array(fractions)
    cost.errorbar(
        place, [row.ours for row in shown], yerr=[row.standard_error or 0 for row in shown], fmt="o-", label="ours"
    )
    if all(row.published is not None for row in shown):
        cost.plot(place, [row.published for row in shown], "kx", label="published")
    cost.set(xlabel="% of weights removed", ylabel="% of test digits wrong", xticks=place[:-1])
    cost.legend(frameon=False, fontsize=8)
    return figure


_LESSON = "A weight that is small beside its own noise says nothing: most weights can go, and the answers stay."
EXPERIMENT = Experiment("blundell-pruning", "Weights removed by signal-to-noise", SETTINGS, run, _LESSON)
