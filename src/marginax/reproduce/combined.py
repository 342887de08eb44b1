"""The table "can be combined": every method alone, and as an ensemble of several chains (Wilson & Izmailov, 2020).

Chains are an axis that every method has: several of MAP are a deep ensemble, several of SWAG are multi-SWAG, several of
MCLMC are nearly a Microcanonical Langevin ensemble. Warm restarts, cyclical SG-MCMC, get several modes from one chain.
One data set: few digits, small enough for samplers that need all of them at each step; garments are what none has seen.
"""

from typing import Any

import numpy as np

import marginax as mx
from marginax._extras import require
from marginax.evaluate.ranking import area_under_roc
from marginax.evaluate.score import mean_score
from marginax.reproduce.experiment import Experiment, Row, Workbench

_NAMES = ("MAP", "MC dropout", "VI", "Laplace", "SWAG", "SGLD", "warm restarts", "MCLMC")
_COMMON = {"methods": _NAMES, "size": 14, "batch_size": 50, "rate": 0.1, "num_draws": 100}
SETTINGS = {
    "small": _COMMON
    | {
        "num_train": 500,
        "num_test": 2000,
        "hidden": (20,),
        "num_chains": 4,
        "num_steps": 1500,
        "vi_steps": 4000,
        "num_samples": 50,
        "thin": 40,
        "mclmc_warmup": 2000,
    },
    "full": _COMMON
    | {
        "num_train": 1000,
        "num_test": 10_000,
        "hidden": (50,),
        "num_chains": 10,
        "num_steps": 5000,
        "vi_steps": 20_000,
        "num_samples": 100,
        "thin": 100,
        "mclmc_warmup": 6000,
    },
}
_NLL, _RIGHT, _AREA = "nats per digit", "share right", "AUROC of garments by entropy"


def _methods(settings: Any) -> dict[str, Any]:
    """By the words of the table; each trains first where that is what it stands on."""
    infer, num_samples, thin = mx.infer, settings["num_samples"], settings["thin"]
    per_epoch = -(-settings["num_train"] // settings["batch_size"])
    common: dict[str, Any] = {
        "batch_size": settings["batch_size"],
        "num_epochs": -(-settings["num_steps"] // per_epoch),
    }
    training = infer.MAP(**common)
    vi: dict[str, Any] = common | {"num_epochs": -(-settings["vi_steps"] // per_epoch)}
    steps: dict[str, Any] = {"num_samples": num_samples, "batch_size": settings["batch_size"], "training": training}
    sgld = infer.SGLD(num_warmup=10 * thin, thin=thin, **steps)
    cycles: dict[str, Any] = {"num_cycles": 4, "cycle_length": num_samples * thin // 2}
    found: dict[str, Any] = {
        "MAP": training,
        "MC dropout": infer.MCDropout(settings["rate"], **common),
        "VI": infer.VI(**vi),
        "Laplace": infer.Laplace(training=training),
        "SWAG": infer.SWAG(num_snapshots=num_samples, every=thin, batch_size=settings["batch_size"], training=training),
        "SGLD": sgld,
        "warm restarts": infer.CyclicalSGMCMC(infer.SGHMC(**steps), **cycles),
        "MCLMC": infer.MCLMC(settings["mclmc_warmup"], num_samples, thin=thin),
    }
    return {name: found[name] for name in settings["methods"]}


def _pooled(images: np.ndarray, size: int) -> np.ndarray:
    """Images of fewer pixels, as rows."""
    by = images.shape[-1] // size
    return images.reshape(len(images), size, by, size, by).mean((2, 4)).reshape(len(images), -1)


def _data(settings: Any) -> tuple[Any, Any, np.ndarray]:
    """Digits to learn from, digits to judge by, garments."""
    num, size = settings["num_test"], settings["size"]
    x, y = (part[: settings["num_train"]] for part in mx.data.load_mnist("train"))
    test, labels = (part[:num] for part in mx.data.load_mnist("test"))
    far = mx.data.load_fashion_mnist("test")[0][:num]
    x, test, far = (_pooled(images, size) for images in (x, test, far))
    spread = x.std()  # priors of weights expect inputs of about one
    return (x / spread, y), (test / spread, labels), far / spread


def _scored(posterior: Any, test: Any, far: np.ndarray, num_draws: int) -> dict[str, Any]:
    """Of each digit its log score and whether it is known, of both kinds of picture the entropy."""
    (x, y), options = test, {"num_samples": num_draws}
    near, away = posterior.predict(x, **options), posterior.predict(far, **options)
    return {
        _NLL: (-near.log_prob(y)).tolist(),
        _RIGHT: (near.labels == y).astype(float).tolist(),
        "entropy": [near.entropy.tolist(), away.entropy.tolist()],
    }


def _area(entropy: Any) -> tuple[float, np.ndarray]:
    """AUROC of the entropies of digits and of garments, and the influence of each picture."""
    return area_under_roc(np.concatenate(entropy), np.repeat([False, True], [len(part) for part in entropy]))


def _rows(name: str, found: dict[str, Any], seconds: float) -> list[Row]:
    rows = []
    for what in (_NLL, _RIGHT):
        score = mean_score(np.array(found[what]), name=what)
        low = what == _NLL
        rows.append(Row(f"{name}: {what}", score.value, score.standard_error, lower_is_better=low, seconds=seconds))
    area, influence = _area(found["entropy"])
    return [*rows, Row(f"{name}: {_AREA}", area, _error(influence), lower_is_better=False, seconds=seconds)]


def _error(influence: np.ndarray) -> float:
    return float(np.sqrt(np.sum(influence**2)) / len(influence))


def _gained(name: str, alone: dict[str, Any], together: dict[str, Any], chains: int) -> list[Row]:
    """By several chains instead of one, paired over pictures."""
    gain = mean_score(np.array(alone[_NLL]) - np.array(together[_NLL]), name=_NLL)
    (first, one), (second, other) = _area(alone["entropy"]), _area(together["entropy"])
    what = f"{name}, gained by {chains} chains"
    return [
        Row(f"{what}: {_NLL}", gain.value, gain.standard_error, lower_is_better=False),
        Row(f"{what}: {_AREA}", second - first, _error(other - one), lower_is_better=False),
    ]


def run(bench: Workbench) -> tuple[list[Row], list[str], dict[str, Any], Any]:
    """Each method twice."""
    settings, drawing = bench.settings, require("matplotlib.figure")
    train, test, far = _data(settings)
    num_chains, hidden = settings["num_chains"], settings["hidden"]
    rows, gains, curves = [], [], {}
    for name, method in _methods(settings).items():
        found = {}
        for chains in (1, num_chains):
            label = name if chains == 1 else f"{name} x {chains}"
            net = mx.nets.MLP(settings["size"] ** 2, hidden, 10, key=chains)
            model = mx.Model(net, mx.likelihoods.Categorical())
            posterior = bench.fit(label, model, train, method, key=chains, num_chains=chains)
            seconds = bench.seconds(posterior)
            found[chains] = bench.measure(label, lambda p=posterior: _scored(p, test, far, settings["num_draws"]))
            rows += _rows(label, found[chains], seconds)
            curves[label] = [seconds, *(row.ours for row in rows[-3:])]
        gains += _gained(name, found[1], found[num_chains], num_chains)
    remarks = [
        f"{len(train[0])} training digits of {settings['size']} x {settings['size']} pixels in units of their "
        f"spread, network {settings['size'] ** 2}-{'-'.join(map(str, hidden))}-10, {len(far)} test digits and as many "
        f"garments; posteriors that are not made of draws are averaged over {settings['num_draws']}.",
        "One chain and several are fitted apart, from different seeds: that several are better is not true by "
        "construction. Standard errors are over pictures, and paired for what is gained; each was run once, so they "
        "leave out how runs differ, most of all those of a single short chain.",
        "Seconds are those of the fit, compilation included; chains run side by side.",
        "Step sizes are the methods' own; nothing was tuned.",
    ]
    return rows + gains, remarks, curves, _picture(drawing, curves, num_chains)


def _picture(drawing: Any, curves: dict[str, list[float]], num_chains: int) -> Any:
    """From one chain to several: log score and AUROC, against seconds."""
    figure = drawing.Figure(figsize=(10, 4.4), layout="constrained")
    names = [name for name in _NAMES if name in curves]
    for ax, (place, words) in zip(figure.subplots(1, 2), ((1, _NLL), (3, _AREA)), strict=True):
        for i, name in enumerate(names):
            (x, *ys), (x_all, *ys_all) = curves[name], curves[f"{name} x {num_chains}"]
            ends = [x, x_all], [ys[place - 1], ys_all[place - 1]]
            ax.plot(*ends, "-", color=f"C{i}", lw=1.2)
            ax.plot(ends[0][0], ends[1][0], "o", color=f"C{i}", mfc="white", ms=6)
            ax.plot(ends[0][1], ends[1][1], "o", color=f"C{i}", ms=6, label=name)
        ax.set(xscale="log", xlabel="seconds", ylabel=words)
        low, high = ax.get_xlim()
        ticks = [tick for tick in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000) if low <= tick <= high]
        ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.set_xticks([], minor=True)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    title = f"one chain (hollow) and {num_chains} (full)"
    figure.legend(handles, labels, title=title, loc="outside right upper", frameon=False, fontsize=8, title_fontsize=8)
    return figure


_LESSON = (
    "Methods can be combined: several chains of any of them are a mixture. What that is worth depends on what one "
    "has seen: a chain that has seen the posterior has nothing to gain."
)
EXPERIMENT = Experiment("combined", "Every method alone, and as an ensemble", SETTINGS, run, _LESSON)
