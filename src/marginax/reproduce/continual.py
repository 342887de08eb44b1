"""Tasks in turn: permuted and split MNIST by posteriors that become priors, beside what forgets and what sees all.

Variational continual learning with and without coresets (Nguyen et al., 2018), and online Laplace (Ritter, Botev &
Barber, 2018), beside training that goes on from the last weights and training on all tasks so far. Of each way there
are a few settings, of which the one is taken whose average accuracy of validation digits of all tasks is highest after
the last. Test digits are looked at once, at the end.
"""

from typing import Any

import numpy as np

import marginax as mx
from marginax._extras import require
from marginax.continual import AbstractCarrying, AllData, AsPrior, AsStart, ContinualResult, RandomCoreset, Task
from marginax.evaluate.score import mean_score
from marginax.reproduce.experiment import Experiment, Row, Workbench

_SMALL = {
    "num_train": 3000,
    "num_valid": 1000,
    "num_test": 2000,
    "num_tasks": 5,
    "hidden": {"permuted": (100, 100), "split": (100, 100)},
    "num_epochs": {"VI": 40, "MAP": 20},
    "batch_size": 100,
    "learning_rate": {"VI": 3e-3, "MAP": 1e-3},
    "coreset": 40,
    "initial_scales": (0.05, 0.01),
    "kl_warmups": (0.0,),  # of its task: a prior that counts less at first forgets what it is a memory of
    "widths": (1.0, 0.3),
    "num_seeds": 1,
    "num_samples": 20,
}
SETTINGS = {
    "small": _SMALL,
    "full": _SMALL
    | {
        "num_train": 55_000,
        "num_valid": 5000,
        "num_test": 10_000,
        "hidden": {"permuted": (100, 100), "split": (256, 256)},
        "num_epochs": {"VI": 20, "MAP": 5},
        "batch_size": 256,
        "coreset": 200,
        "num_seeds": 3,
    },
}
_SOURCE = "Nguyen et al. 2018"
_PUBLISHED = {
    ("permuted", "VCL"): 93.3,
    ("permuted", "VCL with coreset"): 96.3,
    ("split", "VCL"): 95.5,
    ("split", "VCL with coreset"): 96.9,
}
_WAYS = ("VCL", "VCL with coreset", "online Laplace", "fine-tuning", "all tasks at once")
_PAIRS = ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))


def tasks_of(kind: str, settings: Any, seed: int) -> tuple[list[Task], list[Task]]:
    """Tasks that are judged on validation digits, and the same ones judged on test digits."""
    x, y = mx.data.load_mnist("train")
    order = np.random.default_rng(seed).permutation(len(x))[: settings["num_train"] + settings["num_valid"]]
    x, y = x[order].reshape(len(order), -1).astype(np.float32), y[order]
    num = settings["num_train"]
    test = mx.data.load_mnist("test")
    test = test[0].reshape(len(test[0]), -1).astype(np.float32), test[1]
    test = tuple(part[: settings["num_test"]] for part in test)

    def tasks(others: Any) -> list[Task]:
        data = x[:num], y[:num]
        if kind == "split":
            return mx.continual.split_tasks(data, others, _PAIRS[: settings["num_tasks"]])
        return mx.continual.permuted_tasks(data, others, settings["num_tasks"], seed=seed, first_as_is=True)

    return tasks((x[num:], y[num:])), tasks(test)


def _model(kind: str, settings: Any, seed: int) -> mx.Model:
    net: Any = mx.nets.MLP(784, settings["hidden"][kind], 10, key=seed)
    return mx.Model(mx.continual.MultiHead(net, 5) if kind == "split" else net, mx.likelihoods.Categorical())


def _candidates(way: str, settings: Any) -> dict[str, tuple[Any, AbstractCarrying, Any]]:
    """Methods, what a task leaves to the next, and coresets, by what is varied."""
    options = {
        name: {
            "num_epochs": settings["num_epochs"][name],
            "batch_size": settings["batch_size"],
            "optimiser": mx.infer.Adam(settings["learning_rate"][name]),
        }
        for name in ("VI", "MAP")
    }
    if way.startswith("VCL"):
        coreset = RandomCoreset(settings["coreset"]) if way.endswith("coreset") else None
        return {
            f"initial scale {scale:g}, warm-up {warmup:g}": (
                mx.infer.VI(mx.infer.MeanField(scale), kl_warmup=warmup, **options["VI"]),
                AsPrior(),
                coreset,
            )
            for scale in settings["initial_scales"]
            for warmup in settings["kl_warmups"]
        }
    training = mx.infer.MAP(**options["MAP"])
    if way == "online Laplace":
        laplace = mx.infer.Laplace(mx.curvature.Diagonal(), training=training)
        return {f"width {scale:g}": (laplace, AsPrior(scale), None) for scale in settings["widths"]}
    return {"": (training, AsStart() if way == "fine-tuning" else AllData(), None)}


class _Study:
    """One way through the tasks of a seed, by the settings that validation digits prefer."""

    def __init__(self, bench: Workbench, kind: str, way: str, seed: int):
        settings = bench.settings
        valid, test = tasks_of(kind, settings, seed)
        found: dict[str, ContinualResult] = {}
        for words, (method, carrying, coreset) in _candidates(way, settings).items():
            name = f"{kind} {seed} {way} {words}".strip()
            bench.callback(f"learning {name}")
            found[name] = mx.continual.learn(
                _model(kind, settings, seed),
                valid,
                method,
                key=seed,
                coreset=coreset,
                carrying=carrying,
                num_samples=settings["num_samples"],
                directory=bench.run.run(name).path,
                progress=bench.progress,
            )
            bench.keep_all(name, (*found[name].posteriors, *found[name].final))
        self.curves = {name: each.average.tolist() for name, each in found.items()}
        self.name = max(found, key=lambda name: float(found[name].average[-1]))
        result = found[self.name]
        self.right = bench.measure(f"{self.name} test", lambda: _right(result, test, settings["num_samples"]))
        self.seconds = sum(bench.seconds(each) for each in result.posteriors)


def _right(result: ContinualResult, tasks: list[Task], num_samples: int) -> list[float]:
    """Share of known test digits of each task after the last, in percent."""
    found = []
    for task in tasks:
        prediction: Any = result.final[-1].predict(task.test[0], num_samples=num_samples)
        found.append(100 * float(np.mean(prediction.labels == task.test[1])))
    return found


def run(bench: Workbench) -> tuple[list[Row], list[str], dict[str, Any], Any]:
    """Both problems, all ways."""
    settings = bench.settings
    figures = require("matplotlib.figure")  # what is missing is missed before, not after
    rows, curves, averages, chosen = [], {}, {}, []
    for kind in ("permuted", "split"):
        for way in _WAYS:
            studies = [_Study(bench, kind, way, seed) for seed in range(settings["num_seeds"])]
            chosen += [study.name for study in studies if len(study.curves) > 1]
            curves |= {name: curve for study in studies for name, curve in study.curves.items()}
            averages[kind, way] = np.mean([study.curves[study.name] for study in studies], axis=0)
            means = np.array([np.mean(study.right) for study in studies])
            what = f"{kind}: {way}, % after {settings['num_tasks']} tasks"
            score = mean_score(means, name=what) if len(means) > 1 else None
            full = settings["num_train"] > 50_000 and settings["num_tasks"] == 5  # of fewer digits less can be learned
            published = _PUBLISHED.get((kind, way)) if full else None
            source = "" if published is None else _SOURCE
            error = None if score is None else score.standard_error
            seconds = sum(study.seconds for study in studies)
            rows.append(
                Row(
                    what,
                    float(means.mean()),
                    error,
                    published,
                    source,
                    lower_is_better=False,
                    seconds=seconds,
                    compared=error is not None,
                )
            )
    remarks = [
        f"{settings['num_train']} training digits, {settings['num_valid']} for validation, {settings['num_test']} for "
        f"the test; networks 784-{'-'.join(map(str, settings['hidden']['permuted']))} for permuted and "
        f"784-{'-'.join(map(str, settings['hidden']['split']))} with a head for each task for split digits.",
        f"Coresets have {settings['coreset']} digits of each task, at random. Curves are average accuracies of "
        "validation digits of the tasks so far, for all settings that were tried.",
        f"Chosen by the last of these: {'; '.join(dict.fromkeys(chosen))}. Candidates: initial scales "
        f"{settings['initial_scales']} and warm-ups {settings['kl_warmups']} of the divergence for VCL, widths "
        f"{settings['widths']} for online Laplace; epochs and learning rates were not varied in this run.",
        "Standard errors are over seeds; with one seed there are none, and no verdict.",
    ]
    return rows, remarks, curves, _picture(figures, averages)


def _picture(figures: Any, averages: dict[tuple[str, str], np.ndarray]) -> Any:
    """Average accuracy of the tasks so far."""
    figure = figures.Figure(figsize=(9, 3.4), layout="constrained")
    for ax, kind in zip(figure.subplots(1, 2), ("permuted", "split"), strict=True):
        for way in _WAYS:
            average = averages[kind, way]
            ax.plot(np.arange(1, len(average) + 1), 100 * average, "o-", ms=4, lw=1.2, label=way)
        ax.set(title=f"{kind} MNIST", xlabel="tasks so far")
    figure.axes[0].set_ylabel("validation digits of these that are known, %")
    figure.axes[0].legend(frameon=False, fontsize="small")
    return figure


EXPERIMENT = Experiment("continual", "Tasks in turn", SETTINGS, run)
