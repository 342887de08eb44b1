"""Does Langevin dynamics on minibatches give what Hamiltonian dynamics on all data gives?

A small network, whose posterior NUTS can sample thoroughly. SGLD with decreasing steps (Welling & Teh, 2011), SGHMC
(Chen, Fox & Guestrin, 2014) and HMC are compared with it where it counts, in predictions; R-hat is of predictions, too,
since weights of networks may be exchanged.
"""

from typing import Any

import jax
import numpy as np

import marginax as mx
from marginax._extras import require
from marginax.reproduce.experiment import Experiment, Row, Workbench

_COMMON = {"num_rows": 60, "units": 8, "num_warmup": 1000, "vi_epochs": 4000, "noise": 0.15, "batch_size": 20}
SETTINGS = {
    "small": _COMMON | {"num_chains": 4, "num_samples": 400, "thin": 1000, "num_reference": 500, "num_hmc": 1600},
    "full": _COMMON | {"num_chains": 8, "num_samples": 2000, "thin": 5000, "num_reference": 5000, "num_hmc": 8000},
}
_GRID = np.linspace(-1.6, 1.6, 81)
_REFERENCE = "NUTS"
_MIXED = 1.05  # R-hat up to which a chain is said to have mixed


def _data(settings: Any) -> tuple[np.ndarray, np.ndarray]:
    """A sine, with a gap."""
    rng = np.random.default_rng(0)
    x = np.concatenate(
        [rng.uniform(-1.2, -0.2, settings["num_rows"] // 2), rng.uniform(0.3, 1.2, settings["num_rows"] // 2)]
    )
    return x[:, None], np.sin(3 * x) + settings["noise"] * rng.normal(size=len(x))


def _methods(settings: Any) -> dict[str, Any]:
    infer, num, thin = mx.infer, settings["num_samples"], settings["thin"]
    common = {"num_warmup": 20 * thin, "num_samples": num, "thin": thin, "batch_size": settings["batch_size"]}
    decreasing = infer.PolynomialDecay(2e-4, delay=50.0 * thin, power=0.55)
    return {
        _REFERENCE: infer.NUTS(settings["num_warmup"], settings["num_reference"], target_acceptance=0.9),
        "HMC": infer.HMC(settings["num_warmup"], settings["num_hmc"]),
        "SGHMC": infer.SGHMC(step_size=1e-5, friction=0.1, **common),
        "SGLD, decreasing steps": infer.SGLD(step_size=decreasing, **common),
        "VI, for comparison": infer.VI(num_epochs=settings["vi_epochs"], batch_size=None),
    }


def run(bench: Workbench) -> tuple[list[Row], list[str], dict[str, Any], Any]:
    """All of them, beside NUTS."""
    settings, drawing = bench.settings, require("matplotlib.figure")
    data = _data(settings)
    net = mx.nets.MLP(1, (settings["units"],), 1, activation=jax.nn.tanh, key=0)
    model = mx.Model(net, mx.likelihoods.Gaussian(scale=settings["noise"]), prior=mx.priors.Normal(1.5))
    rows, curves, unmixed = [], {}, []
    predictions: dict[str, Any] = {}
    for name, method in _methods(settings).items():
        chains = None if name.startswith("VI") else settings["num_chains"]
        posterior = bench.fit(name, model, data, method, key=0, num_chains=chains)
        prediction: Any = posterior.predict(_GRID[:, None])
        predictions[name] = prediction
        seconds = bench.seconds(posterior)
        if chains:
            found = mx.evaluate.diagnose_chains(posterior, _GRID[:, None])
            rows.append(Row(f"{name}: largest R-hat of predictions", found.predictions.worst_r_hat, seconds=seconds))
            if found.predictions.worst_r_hat > _MIXED:
                unmixed.append(name)
        if name != _REFERENCE:
            apart = mx.evaluate.total_variation(prediction, predictions[_REFERENCE]).value
            error = _error_of_chains(posterior, predictions[_REFERENCE]) if chains else None
            rows.append(Row(f"{name}: total variation from {_REFERENCE}", apart, error, seconds=seconds))
            ratio = np.sqrt(prediction.epistemic / predictions[_REFERENCE].epistemic)
            rows.append(
                Row(f"{name}: epistemic sd over that of {_REFERENCE}", float(np.median(ratio)), seconds=seconds)
            )
        curves[name] = {"mean": prediction.mean.tolist(), "epistemic sd": np.sqrt(prediction.epistemic).tolist()}
    remarks = [
        f"{settings['num_rows']} rows, network 1-{settings['units']}-1 with tanh, noise {settings['noise']:g} known, "
        f"{settings['num_chains']} chains; batches of {settings['batch_size']} for SGHMC and SGLD.",
        f"Total variation is of predicted densities, a mean over {len(_GRID)} inputs. Its standard error is the "
        "jackknife's over chains of the method, each left out in turn; it leaves out that of the reference.",
        f"R-hat above {_MIXED:g}, so that chains do not agree yet and their figures are to be taken with care: "
        f"{', '.join(unmixed) or 'none'}.",
        "Step sizes were chosen by total variation and R-hat on data of another seed, with shorter chains.",
    ]
    return rows, remarks, curves, _picture(drawing, data, predictions)


def _error_of_chains(posterior: Any, reference: Any) -> float:
    """Of the total variation, by leaving out one chain after the other."""
    num = jax.tree.leaves(posterior.params)[0].shape[0]
    left = []
    for chain in range(num):
        params = jax.tree.map(lambda leaf: np.delete(np.asarray(leaf), chain, axis=0), posterior.params)  # noqa: B023
        others = mx.posterior.Draws(model=posterior.model, params=params, spec=posterior.spec)
        left.append(mx.evaluate.total_variation(others.predict(_GRID[:, None]), reference).value)
    return float(np.sqrt((num - 1) * np.var(left)))


def _picture(drawing: Any, data: tuple[np.ndarray, np.ndarray], predictions: dict[str, Any]) -> Any:
    figure = drawing.Figure(figsize=(2.9 * len(predictions), 2.9), layout="constrained")
    axes = figure.subplots(1, len(predictions), sharey=True)
    reference = predictions[_REFERENCE]
    for ax, (name, prediction) in zip(axes, predictions.items(), strict=True):
        mx.plot.plot_band(ax, _GRID, prediction, data=data)
        for sign in (-1, 1):
            edge = reference.mean + sign * np.sqrt(reference.epistemic)
            ax.plot(_GRID, np.ravel(edge), "k:", lw=0.8)
        ax.set_title(name, fontsize=9)
        ax.set_ylim(-3, 3)
    return figure


_LESSON = (
    "Gradient descent with noise of the right size wanders through the posterior; how wrong it is depends on "
    "the step, and an accept step makes it right."
)
EXPERIMENT = Experiment(
    "sgld-vs-hmc", "Langevin dynamics on minibatches beside Hamiltonian dynamics", SETTINGS, run, _LESSON
)
