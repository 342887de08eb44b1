"""Digits in five tasks, one after the other: what a network forgets, and what its posterior remembers.

The set-up of Nguyen et al. (2018): permuted MNIST (the pixels of each task in an order of their own, one head, hidden
layers of 100 and 100) and split MNIST (two digits a task, a head for each, 256 and 256). Variational continual
learning without and with a coreset of random rows, online Laplace (Ritter et al., 2018) with a diagonal curvature,
beside training that goes on and forgets, and training on all tasks together. The figure is the accuracy after the last
task, averaged over tasks; test digits are looked at once, at the end.
"""

from typing import Any

import numpy as np

import marginax as mx
from marginax import continual
from marginax._extras import require
from marginax.reproduce.experiment import Experiment, Row, Workbench

_NAMES = ("fine-tuning", "VCL", "VCL and coreset", "online Laplace", "joint training")
_COMMON = {
    "num_tasks": 5,
    "part": "test",  # or "valid": rows of the training digits, for choosing settings
    "batch_size": 128,
    "learning_rate": 5e-3,
    "prior_scale": 1.0,
    "num_samples": 10,
    "coreset": {"permuted": 200, "split": 40},
    "hidden": {"permuted": (100, 100), "split": (256, 256)},
}
SETTINGS = {
    "small": _COMMON | {"num_train": 5000, "num_test": 2000, "num_epochs": 25},
    "full": _COMMON | {"num_train": 55_000, "num_test": 10_000, "num_epochs": 100, "learning_rate": 1e-3},
}
_PUBLISHED = {
    ("permuted", "VCL"): 93.3,
    ("permuted", "VCL and coreset"): 96.3,
    ("split", "VCL"): 95.5,
}
_SOURCE = "Nguyen et al. 2018"


def _digits(settings: Any) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Rows to learn from and to be judged on, as vectors; validation rows are the last of the training digits."""
    x, y = mx.data.load_mnist("train")
    train = (x[: settings["num_train"]], y[: settings["num_train"]])
    judge = (x[55_000:], y[55_000:]) if settings["part"] == "valid" else mx.data.load_mnist("test")
    pairs = [train, (judge[0][: settings["num_test"]], judge[1][: settings["num_test"]])]
    first, second = ((images.reshape(len(images), -1), labels) for images, labels in pairs)
    return first, second


def _tasks(kind: str, settings: Any) -> list[continual.Task]:
    data, test = _digits(settings)
    if kind == "permuted":
        return continual.permuted_tasks(data, test, settings["num_tasks"], seed=0)
    return continual.split_tasks(data, test, [(2 * i, 2 * i + 1) for i in range(settings["num_tasks"])])


def _learned(kind: str, name: str, settings: Any, progress: bool | None) -> dict[str, Any]:
    hidden, num_tasks = settings["hidden"][kind], settings["num_tasks"]
    network: Any = mx.nets.MLP(784, hidden, 10 if kind == "permuted" else 2 * num_tasks, key=0)
    if kind == "split":
        network = continual.MultiHead(network, num_tasks)
    model = mx.Model(network, mx.likelihoods.Categorical(), mx.priors.Normal(settings["prior_scale"]))
    training = {
        "num_epochs": settings["num_epochs"],
        "batch_size": settings["batch_size"],
        "optimiser": mx.infer.Adam(settings["learning_rate"]),
    }
    method: Any = mx.infer.MAP(**training)
    options: dict[str, Any] = {"carrying": continual.AsStart()}
    if name == "joint training":
        options = {"carrying": continual.AllData()}
    elif name == "online Laplace":
        plain = mx.predict.ThroughNetwork()
        options, method = {}, mx.infer.Laplace(mx.curvature.Diagonal(), predictive=plain, training=method)
    elif name != "fine-tuning":
        options, method = {}, mx.infer.VI(kl_warmup=0.0, **training)
    if name == "VCL and coreset":
        options = {"coreset": continual.RandomCoreset(settings["coreset"][kind])}
    tasks = _tasks(kind, settings)
    result = continual.learn(
        model, tasks, method, key=0, num_samples=settings["num_samples"], progress=progress, **options
    )
    seconds = sum(sum(p.record.seconds.values()) for p in {id(p): p for p in result.posteriors + result.final}.values())
    accuracy = np.where(np.isnan(result.accuracy), -1.0, result.accuracy)  # of tasks to come: JSON knows no NaN
    return {"accuracy": accuracy.tolist(), "sizes": [len(t.test[1]) for t in tasks], "seconds": float(seconds)}


def run(bench: Workbench) -> tuple[list[Row], list[str], dict[str, Any], Any]:
    """Learn both kinds of tasks in all ways, and draw accuracy against tasks."""
    settings, drawing = bench.settings, require("matplotlib.figure")
    rows, curves = [], {}
    for kind in ("permuted", "split"):
        for name in _NAMES:
            measure = lambda k=kind, n=name: _learned(k, n, settings, bench.progress)  # noqa: E731
            found = bench.measure(f"{kind} {name}", measure)
            accuracy = np.array(found["accuracy"])
            accuracy[accuracy < 0] = np.nan
            last = accuracy[-1]
            error = float(np.sqrt(np.mean(last * (1 - last) / np.array(found["sizes"]))))
            curves[f"{kind} {name}"] = np.nanmean(accuracy, axis=1).tolist()
            published = _PUBLISHED.get((kind, name))
            rows.append(
                Row(
                    f"{kind}: {name}",
                    100 * float(last.mean()),
                    100 * error,
                    published,
                    _SOURCE if published is not None else "",
                    lower_is_better=False,
                    seconds=found["seconds"],
                )
            )
    sizes = f"{settings['num_train']} training digits (of 60,000) and {settings['num_test']} test digits"
    remarks = [
        f"Accuracy in per cent after {settings['num_tasks']} tasks, averaged over them; {sizes}; "
        f"{settings['num_epochs']} epochs a task; coresets of {settings['coreset']} random rows a task.",
        "Published figures, read off the curves of the authors' code, are of all digits and of longer training.",
        "Standard errors are over test digits, as if tasks shared all of theirs. Settings are first guesses, and were "
        "not tuned.",
    ]
    return rows, remarks, curves, _picture(drawing, curves)


def _picture(drawing: Any, curves: dict[str, list[float]]) -> Any:
    """Average accuracy of the tasks so far."""
    figure = drawing.Figure(figsize=(8, 3.2), layout="constrained")
    for axis, kind in zip(figure.subplots(1, 2), ("permuted", "split"), strict=True):
        for name in _NAMES:
            values = 100 * np.array(curves[f"{kind} {name}"])
            axis.plot(np.arange(1, len(values) + 1), values, marker="o", markersize=3, label=name)
        axis.set(title=f"{kind} MNIST", xlabel="tasks so far", ylabel="accuracy, per cent")
        axis.grid(alpha=0.3)
    figure.axes[0].legend(fontsize=7)
    return figure


EXPERIMENT = Experiment("continual", "Digits in tasks, one after the other", SETTINGS, run)
