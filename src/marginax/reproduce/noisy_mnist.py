"""Digits with wrong labels: likelihoods that know of errors against networks that take labels as they are.

The noise of Co-teaching (Han et al., 2018): 20% and 50% of the labels drawn evenly from the other digits, and 45% of
them the next digit. The matrix of transitions is known, or learned with a prior that leans to the diagonal: one rate of
errors for all (`SymmetricTransition`), or a matrix (`FullTransition`), whichever gives digits kept for validation the
higher likelihood. A convolutional network can learn wrong labels by heart, and then a learned matrix says that there
are none; so training ends where the likelihood of validation digits is highest. Their labels are as noisy as the
others. Test digits are looked at once, at the end.
"""

from typing import Any

import numpy as np

import marginax as mx
from marginax._extras import require
from marginax.evaluate.score import mean_score
from marginax.model.likelihoods.noisy_labels import NoisyLabels
from marginax.reproduce.experiment import Experiment, Row, Workbench

_SMALL = {
    "num_train": 2000,
    "num_valid": 1000,
    "num_test": 2000,
    "channels": (6, 12),
    "hidden": 32,
    "num_seeds": 1,
    "num_epochs": 12,
    "batch_size": 32,
    "learning_rate": 3e-3,
    "patience": 4,
    "rate": 0.2,
    "accuracy": 0.6,
    "strength": 10.0,
    "num_members": 3,
    "num_samples": 20,
}
SETTINGS = {
    "small": _SMALL,
    "full": _SMALL
    | {
        "num_train": 55_000,
        "num_valid": 5000,
        "num_test": 10_000,
        "channels": (10, 20),
        "hidden": 100,
        "num_seeds": 3,
        "num_epochs": 8,
        "batch_size": 128,
        "learning_rate": 2e-3,
    },
}
_SOURCE = "Co-teaching"
_PUBLISHED = {"symmetric 20%": 97.7, "symmetric 50%": 91.7, "pair 45%": 87.6}
_LEARNED = ("symmetric", "full")


def transition(noise: str, num_classes: int = 10) -> np.ndarray:
    """The matrix by which labels became wrong, a row for each true one.

    >>> transition("pair 45%", 3).tolist()
    [[0.55, 0.45, 0.0], [0.0, 0.55, 0.45], [0.45, 0.0, 0.55]]
    >>> transition("symmetric 20%", 3).tolist()
    [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]]
    """
    kind, _, share = noise.partition(" ")
    rate, right = float(share.rstrip("%")) / 100, np.eye(num_classes)
    wrong = np.roll(right, 1, axis=1) if kind == "pair" else (1 - right) / (num_classes - 1)
    return (1 - rate) * right + rate * wrong


def with_errors(y: np.ndarray, matrix: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Labels that went through a matrix.

    >>> with_errors(np.array([0, 1]), np.array([[0.0, 1.0], [0.0, 1.0]]), np.random.default_rng(0)).tolist()
    [1, 1]
    """
    chances = rng.uniform(size=(len(y), 1))
    return np.minimum((chances > matrix.cumsum(axis=1)[y]).sum(axis=1), len(matrix) - 1)


class _Noise:
    """Digits of a seed whose labels are wrong in one way, and what was fitted to them."""

    def __init__(self, bench: Workbench, noise: str, seed: int):
        settings, rng = bench.settings, np.random.default_rng(seed)
        x, y = mx.data.load_mnist("train")
        order = rng.permutation(len(x))[: settings["num_train"] + settings["num_valid"]]
        self.matrix = transition(noise)
        self.truth, given = y[order], with_errors(y[order], self.matrix, rng)
        x = x[order].astype(np.float32)
        num = settings["num_train"]
        self.train, self.valid = (x[:num], given[:num]), (x[num:], given[num:])
        self.bench, self.noise, self.seed = bench, noise, seed
        self.posteriors: dict[str, Any] = {}

    def likelihood(self, name: str) -> Any:
        """Of labels that are right, or that went through a matrix of which this is known."""
        belief = self.bench.settings["accuracy"], self.bench.settings["strength"]
        right = mx.likelihoods.Categorical()
        if name == "ignored":
            return right
        known = {
            "known": self.matrix,
            "symmetric": mx.likelihoods.SymmetricTransition(*belief),
            "full": mx.likelihoods.FullTransition(*belief),
        }
        return NoisyLabels(right, known[name])

    def method(self, name: str) -> Any:
        """Of inference."""
        settings = self.bench.settings
        training = {
            "num_epochs": settings["num_epochs"],
            "batch_size": settings["batch_size"],
            "optimiser": mx.infer.Adam(settings["learning_rate"]),
        }
        if name == "MC dropout":
            return mx.infer.MCDropout(rate=settings["rate"], **training)
        if name == "VI":
            return mx.infer.VI(**training)
        member = mx.infer.MAP(**training)
        return mx.infer.DeepEnsemble(settings["num_members"], member) if name == "ensemble" else member

    def fit(self, likelihood: str, method: str, *, stops: bool = True) -> str:
        """Fit, unless that is done, and give the name of it."""
        settings = self.bench.settings
        name = f"{self.noise} {self.seed} {likelihood} {method}{'' if stops else ' to the end'}"
        if name not in self.posteriors:
            net = mx.nets.LeNet(channels=settings["channels"], hidden=settings["hidden"], key=self.seed)
            model = mx.Model(net, self.likelihood(likelihood))
            stopping = mx.infer.EarlyStopping(self.valid, patience=settings["patience"])
            self.posteriors[name] = self.bench.fit(
                name,
                model,
                self.train,
                self.method(method),
                key=self.seed,
                **({"hooks": (stopping,)} if stops else {}),
            )
        return name

    def log_likelihood(self, name: str) -> float:
        """Of the noisy labels of validation digits, per digit."""
        x, y = self.valid
        predict = lambda: self.posteriors[name].predict_observed(x, num_samples=self.bench.settings["num_samples"])  # noqa: E731
        return self.bench.measure(f"{name} valid", lambda: float(predict().log_prob(y).mean()))

    def right(self, name: str, test: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """Of each test digit, whether it is known."""
        x, y = test
        predict = lambda: self.posteriors[name].predict(x, num_samples=self.bench.settings["num_samples"])  # noqa: E731
        return np.array(self.bench.measure(f"{name} test", lambda: (predict().labels == y).astype(int).tolist()))


def _variants(found: _Noise) -> dict[str, str]:
    """What is compared, by what it is called in the table; the kind of a learned matrix is chosen by validation."""
    kinds = {kind: found.fit(kind, "MC dropout") for kind in _LEARNED}
    best = max(kinds, key=lambda kind: found.log_likelihood(kinds[kind]))
    return {
        "ignored, MAP to the end": found.fit("ignored", "MAP", stops=False),
        "ignored, MC dropout": found.fit("ignored", "MC dropout"),
        "known, MC dropout": found.fit("known", "MC dropout"),
        "known, VI": found.fit("known", "VI"),
        "learned, MC dropout": kinds[best],
        "learned, VI": found.fit(best, "VI"),
        "learned, ensemble": found.fit(best, "ensemble"),
    }


def _row(what: str, right: np.ndarray, published: float | None, seconds: float) -> Row:
    """Percent, with the standard error over seeds, or over test digits where there is one seed."""
    values = 100 * (right.mean(axis=1) if len(right) > 1 else right[0])
    score = mean_score(values, name=what)
    source = "" if published is None else _SOURCE
    return Row(what, score.value, score.standard_error, published, source, lower_is_better=False, seconds=seconds)


def run(bench: Workbench) -> tuple[list[Row], list[str], dict[str, Any], Any]:
    """All kinds of noise, and what is known of the labels in the end."""
    settings = bench.settings
    x, y = mx.data.load_mnist("test")
    test = x[: settings["num_test"]].astype(np.float32), y[: settings["num_test"]]
    figures = require("matplotlib.figure")  # what is missing is missed before, not after
    rows, curves, accuracies, shown = [], {}, {}, None
    for noise, published in _PUBLISHED.items():
        right: dict[str, list[np.ndarray]] = {}
        seconds: dict[str, float] = {}
        rates = []
        for seed in range(settings["num_seeds"]):
            found = _Noise(bench, noise, seed)
            names = _variants(found)
            for what, name in names.items():
                right.setdefault(what, []).append(found.right(name, test))
                seconds[what] = seconds.get(what, 0.0) + bench.seconds(found.posteriors[name])
            values = {name: found.log_likelihood(name) for name in found.posteriors}
            curves |= {f"nats per noisy label of validation, {name}": value for name, value in values.items()}
            learned = names["learned, MC dropout"]
            rates.append(1 - float(found.posteriors[learned].confusion().accuracy))
            shown = found, learned
        stacked = {what: np.stack(each) for what, each in right.items()}
        accuracies[noise] = {what: float(100 * each.mean()) for what, each in stacked.items()}
        for what, each in stacked.items():
            ours = not what.startswith("ignored") and settings["num_train"] > 50_000  # of fewer digits less is learned
            rows.append(_row(f"{noise}: {what}, %", each, published if ours else None, seconds[what]))
        for what in ("known, MC dropout", "learned, MC dropout"):
            gap = stacked[what] - stacked["ignored, MC dropout"]
            rows.append(_row(f"{noise}: {what}, less ignored, %", gap, None, 0.0))
        rows.append(Row(f"{noise}: learned rate of errors, %", 100 * float(np.mean(rates))))
    assert shown is not None, "there is a seed"
    remarks = [
        f"LeNet with {settings['channels']} channels and {settings['hidden']} hidden units; {settings['num_train']} "
        f"training digits, and {settings['num_valid']} for validation, whose labels are as noisy.",
        "The kind of a learned matrix, of one rate or of all, was chosen under MC dropout by the likelihood of labels "
        "of validation digits, and taken for VI and the ensemble. All but the first row of a noise end training where "
        "that likelihood is highest.",
        "Standard errors are over seeds, or over test digits where there is one seed; differences are paired.",
        "Published figures are of all digits and another network.",
    ]
    return rows, remarks, curves, _picture(figures, accuracies, *shown)


def _picture(figures: Any, accuracies: dict[str, dict[str, float]], found: _Noise, name: str) -> Any:
    """Accuracies by noise, and wrong labels among the most suspicious."""
    figure = figures.Figure(figsize=(10, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for what in next(iter(accuracies.values())):
        marks = "x--" if what.startswith("ignored") else "o-"
        left.plot(list(accuracies), [each[what] for each in accuracies.values()], marks, label=what, lw=1, ms=4)
    left.plot(list(_PUBLISHED), list(_PUBLISHED.values()), "k_", ms=14, label=f"{_SOURCE}, all digits")
    left.set_ylabel("test digits known, %")
    left.legend(frameon=False, fontsize="x-small")
    x, given = (part[:2000] for part in found.train)
    settings = found.bench.settings
    errors = found.posteriors[name].label_errors(x, given, num_samples=settings["num_samples"])
    mx.plot.plot_label_errors(right, errors, given != found.truth[: len(given)], label=f"{found.noise}, learned")
    return figure


EXPERIMENT = Experiment("noisy-mnist", "Digits with wrong labels", SETTINGS, run)
