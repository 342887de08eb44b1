"""Models of handwritten digits: autoencoders by two bounds and with two priors, and what they have learned.

The set-up of Burda, Grosse & Salakhutdinov (2016): fixed binarised MNIST, two hidden layers of 200 units, 50 latents,
in stages with smaller and smaller steps. Of the 50 draws of IWAE the full budget differentiates five, chosen by weight,
which is the same in expectation and takes 0.4 of the time. With a VampPrior all latents may be the same for all digits,
at no cost, and a network that starts there stays there: its first stage counts the divergence a tenth. Of each model
the stage is taken whose log density of validation digits is highest; test digits are looked at once, at the end.
"""

from typing import Any

import jax
import numpy as np

import marginax as mx
from marginax._extras import require
from marginax.reproduce.experiment import Experiment, Row, Workbench

SETTINGS = {
    "small": {
        "num_train": 3000,
        "hidden": (100, 100),
        "latent_size": 20,
        "num_particles": 5,
        "num_pseudo_inputs": 50,
        "stages": {  # epochs, learning rate, weight of the divergence
            "VAE": [(60, 1e-3, 1.0), (40, 3e-4, 1.0)],
            "IWAE": [(60, 1e-3, 1.0), (40, 3e-4, 1.0)],
            "VampPrior": [(60, 1e-3, 0.1), (60, 1e-3, 1.0), (40, 3e-4, 1.0)],
            "map": [(60, 1e-3, 1.0)],
        },
        "batch_size": 100,
        "num_valid": 200,
        "num_test": 300,
        "num_importance": 100,
    },
    "full": {
        "num_train": 50_000,
        "hidden": (200, 200),
        "latent_size": 50,
        "num_particles": 50,
        "num_kept": 5,
        "num_pseudo_inputs": 500,
        "stages": {
            "VAE": [(30, 1e-3, 1.0), (90, 5e-4, 1.0), (180, 2e-4, 1.0), (180, 1e-4, 1.0)],
            "IWAE": [(10, 1e-3, 1.0), (20, 1e-3, 1.0), (40, 5e-4, 1.0), (60, 2e-4, 1.0), (60, 1e-4, 1.0)],
            "VampPrior": [(10, 1e-3, 0.1), (30, 1e-3, 1.0), (90, 5e-4, 1.0), (180, 2e-4, 1.0), (180, 1e-4, 1.0)],
            "map": [(60, 1e-3, 1.0), (60, 2e-4, 1.0)],
        },
        "batch_size": 100,
        "num_valid": 1000,
        "num_test": 10_000,
        "num_importance": 5000,
    },
}

_PUBLISHED = {
    "VAE": (89.8, "pythae, 200 samples"),
    "IWAE": (87.1, "Burda et al. 2016"),
    "VampPrior": (None, ""),
}


def _model(bench: Workbench, name: str, beta: float) -> mx.latent.VAE:
    settings = bench.settings
    latent_size = 2 if name == "map" else settings["latent_size"]
    encoder = mx.nets.MLP(784, settings["hidden"], 2 * latent_size, activation=jax.nn.tanh, key=0)
    decoder = mx.nets.MLP(latent_size, settings["hidden"], 784, activation=jax.nn.tanh, key=1)
    bound = mx.latent.ELBO(beta=beta)
    if name == "IWAE":
        kept = settings.get("num_kept")
        gradient = mx.latent.Reparameterised() if kept is None else mx.latent.Resampled(kept)
        bound = mx.latent.IWAE(settings["num_particles"], gradient)
    latent_prior = mx.latent.VampPrior(settings["num_pseudo_inputs"]) if name == "VampPrior" else None
    prior = mx.priors.Normal(1.0)
    return mx.latent.VAE(encoder, decoder, latent_size, bound=bound, latent_prior=latent_prior, prior=prior)


def _trained(bench: Workbench, name: str, x: np.ndarray, valid: np.ndarray) -> tuple[Any, list[list[float]]]:
    """The best stage of a model by validation digits, and their negative log density against seconds and epochs."""
    found: list[tuple[Any, list[float]]] = []
    posterior, seconds, epochs = None, 0.0, 0.0
    for stage, (num_epochs, learning_rate, beta) in enumerate(bench.settings["stages"][name]):
        adam = mx.infer.Adam(learning_rate, schedule=mx.infer.Constant())
        method = mx.infer.MAP(num_epochs=num_epochs, batch_size=bench.settings["batch_size"], optimiser=adam)
        label = f"{name} stage {stage}"
        posterior = bench.fit(label, _model(bench, name, beta), x, method, key=stage, init=posterior)
        seconds, epochs = seconds + bench.seconds(posterior), epochs + float(num_epochs)
        nll = bench.measure(label, lambda p=posterior: -p.log_likelihood(valid, num_importance=100, key=0).mean)
        found.append((posterior, [seconds, epochs, nll]))
    best = min(found, key=lambda pair: np.nan_to_num(pair[1][2], nan=np.inf))
    return best[0], [entry for _, entry in found]


def _nll(posterior: Any, x: np.ndarray, num_importance: int) -> dict[str, float]:
    found = posterior.log_likelihood(x, num_importance=num_importance, key=1)
    spread = float(found.values.std(ddof=1) / np.sqrt(len(x)))
    return {"nll": -found.mean, "spread": spread, "monte_carlo": found.mean_standard_error}


def run(bench: Workbench) -> tuple[list[Row], list[str], dict[str, Any], Any]:
    """Train, compare, draw."""
    settings = bench.settings
    x = mx.data.load_binarized_mnist("train")[: settings["num_train"]].astype(np.float32)
    valid = mx.data.load_binarized_mnist("valid")[: settings["num_valid"]].astype(np.float32)
    pick = np.random.default_rng(0).permutation(10_000)[: settings["num_test"]]  # they are sorted by digit
    test = mx.data.load_binarized_mnist("test")[pick].astype(np.float32)
    drawn = mx.data.load_mnist("test"), require("matplotlib.figure")  # what is missing is missed before, not after
    rows, curves, posteriors = [], {}, {}
    for name, (published, source) in _PUBLISHED.items():
        posteriors[name], curves[name] = _trained(bench, name, x, valid)
        measured = bench.measure(f"{name} test", lambda p=posteriors[name]: _nll(p, test, settings["num_importance"]))
        label = f"{name}-{settings['num_particles']}" if name == "IWAE" else name
        published = published if len(x) == 50_000 else None  # of fewer digits less can be learned
        seconds = curves[name][-1][0]
        rows.append(
            Row(
                f"{label}: nats per digit",
                measured["nll"],
                measured["spread"],
                published,
                source,
                seconds=seconds,
                compared=False,
            )
        )
    flat, curves["map"] = _trained(bench, "map", x, valid)
    remarks = [
        f"Networks 784-{'-'.join(map(str, settings['hidden']))}, {settings['latent_size']} latents; "
        f"{len(x)} training digits; {settings['num_importance']} importance samples of {len(test)} test digits.",
        "Standard errors are over test digits. Curves are (seconds, epochs, nats per validation digit by 100 samples).",
        "Published figures are of other numbers of importance samples, of which more are to the good, and of the same "
        "test digits as one run of ours: there is no verdict.",
        "The stage of each model with the best validation digits was taken.",
    ]
    return rows, remarks, curves, _picture(*drawn, posteriors, flat, test, curves)


def _picture(
    labelled: tuple[np.ndarray, np.ndarray],
    drawing: Any,
    posteriors: dict[str, Any],
    flat: Any,
    test: np.ndarray,
    curves: dict[str, Any],
) -> Any:
    """Where digits are among two latents, digits that are no one's, and the way to the scores."""
    figure = drawing.Figure(figsize=(9, 8.4), layout="constrained")
    axes = figure.subplots(2, 2)
    digits, labels = labelled
    binary = (digits.reshape(-1, 784) > 0.5).astype(np.float32)[:2000]
    mx.plot.latent_map(axes[0, 0], flat, binary, labels[:2000], size=4.0)
    axes[0, 0].set_title("test digits among two latents")
    best = posteriors["VampPrior"]
    _show(axes[0, 1], best.generate(64, key=0), 8, "digits that nobody wrote (VampPrior)")
    pairs = np.stack([test[:32], best.reconstruct(test[:32])], 1).reshape(64, 784)
    _show(axes[1, 0], pairs, 8, "test digits, and what is made of their latents")
    for name, curve in curves.items():
        if name != "map":
            seconds, _, nll = np.array(curve).T
            axes[1, 1].plot(seconds, nll, "o-", label=name)
    axes[1, 1].set(xlabel="seconds", ylabel="nats per validation digit", title="training")
    axes[1, 1].legend(frameon=False)
    return figure


def _show(ax: Any, digits: np.ndarray, columns: int, title: str) -> None:
    rows = len(digits) // columns
    tiles = digits.reshape(rows, columns, 28, 28).transpose(0, 2, 1, 3).reshape(28 * rows, 28 * columns)
    ax.imshow(tiles, cmap="gray_r", interpolation="nearest")
    ax.set(title=title, xticks=[], yticks=[])


EXPERIMENT = Experiment("digits", "Models of handwritten digits", SETTINGS, run)
