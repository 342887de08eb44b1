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

_COMMON = {"num_rows": 60, "units": 8, "num_warmup": 1000, "vi_epochs": 4000}
SETTINGS = {
    "small": _COMMON | {"num_chains": 4, "num_samples": 400, "thin": 1000, "num_reference": 500},
    "full": _COMMON | {"num_chains": 8, "num_samples": 2000, "thin": 5000, "num_reference": 5000},
}
_NOISE, _BATCH = 0.15, 20
_GRID = np.linspace(-1.6, 1.6, 81)
_REFERENCE = "NUTS"


def _data(settings: Any) -> tuple[np.ndarray, np.ndarray]:
    """A sine, with a gap."""
    rng = np.random.default_rng(0)
    x = np.concatenate(
        [rng.uniform(-1.2, -0.2, settings["num_rows"] // 2), rng.uniform(0.3, 1.2, settings["num_rows"] // 2)]
    )
    return x[:, None], np.sin(3 * x) + _NOISE * rng.normal(size=len(x))


def _methods(settings: Any) -> dict[str, Any]:
    infer, num, thin = mx.infer, settings["num_samples"], settings["thin"]
    common = {"num_warmup": 20 * thin, "num_samples": num, "thin": thin, "batch_size": _BATCH}
    decreasing = infer.PolynomialDecay(2e-4, delay=50.0 * thin, power=0.55)
    return {
        _REFERENCE: infer.NUTS(settings["num_warmup"], settings["num_reference"], target_acceptance=0.9),
        "HMC": infer.HMC(settings["num_warmup"], num),
        "SGHMC": infer.SGHMC(step_size=1e-5, friction=0.1, **common),
        "SGLD, decreasing steps": infer.SGLD(step_size=decreasing, **common),
        "VI, for comparison": infer.VI(num_epochs=settings["vi_epochs"], batch_size=None),
    }


def run(bench: Workbench) -> tuple[list[Row], list[str], dict[str, Any], Any]:
    """All of them, beside NUTS."""
    settings, drawing = bench.settings, require("matplotlib.figure")
    data = _data(settings)
    net = mx.nets.MLP(1, (settings["units"],), 1, activation=jax.nn.tanh, key=0)
    model = mx.Model(net, mx.likelihoods.Gaussian(scale=_NOISE), prior=mx.priors.Normal(1.5))
    rows, curves = [], {}
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
        if name != _REFERENCE:
            apart = mx.evaluate.total_variation(prediction, predictions[_REFERENCE])
            rows.append(
                Row(f"{name}: total variation from {_REFERENCE}", apart.value, apart.standard_error, seconds=seconds)
            )
            ratio = np.sqrt(prediction.epistemic / predictions[_REFERENCE].epistemic)
            rows.append(
                Row(f"{name}: epistemic sd over that of {_REFERENCE}", float(np.median(ratio)), seconds=seconds)
            )
        curves[name] = {"mean": prediction.mean.tolist(), "epistemic sd": np.sqrt(prediction.epistemic).tolist()}
    remarks = [
        f"{settings['num_rows']} rows, network 1-{settings['units']}-1 with tanh, noise {_NOISE:g} known, "
        f"{settings['num_chains']} chains; batches of {_BATCH} for SGHMC and SGLD.",
        f"Total variation is of predicted densities, a mean over {len(_GRID)} inputs with its standard error. "
        "Step sizes were chosen by total variation and R-hat on data of another seed, with shorter chains.",
    ]
    return rows, remarks, curves, _picture(drawing, data, predictions)


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
