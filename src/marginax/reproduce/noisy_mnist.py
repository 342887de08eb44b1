"""Digits with wrong labels: likelihoods that know of errors against networks that take labels as they are.

The noise of Co-teaching (Han et al., 2018): 20% and 50% of the labels drawn evenly from the other digits, and 45% of
them the next digit. The matrix of transitions is known, or learned with a prior that leans to the diagonal: one rate of
errors for all (`SymmetricTransition`), or a matrix (`FullTransition`), whichever gives digits kept for validation the
higher likelihood; labels as they are compete for that, too. A network learns labels long before a matrix of its own has
moved, and if nearly half are the next digit, it learns these; so a learned matrix starts from what a few epochs with
labels as they are say: the mean prediction where an answer is given. A convolutional network can learn wrong labels by
heart, and then a learned matrix says that there are none; so training ends where the likelihood of validation digits is
highest, but under variational inference, whose best mean and last scales would not belong together. Their labels are as
noisy as the others. Test digits are looked at once, at the end.
"""

from typing import Any

import equinox as eqx
import jax
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
    "start_epochs": 2,
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
_LEAST = 1e-3  # of the entries of an estimated matrix


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


def estimated(probs: np.ndarray) -> np.ndarray:
    """A matrix of transitions from predictions of labels as they are: their mean where an answer is given.

    >>> estimated(np.array([[0.6, 0.4], [0.5, 0.5], [0.2, 0.8]])).round(2).tolist()
    [[0.55, 0.45], [0.2, 0.8]]
    """
    answers, right = probs.argmax(axis=1), np.eye(probs.shape[1])
    found = [probs[answers == k].mean(axis=0) if (answers == k).any() else right[k] for k in range(len(right))]
    matrix = np.maximum(found, _LEAST)
    return matrix / matrix.sum(axis=1, keepdims=True)


def unknowns(kind: str, matrix: np.ndarray) -> np.ndarray:
    """Where a learned matrix starts so as to be this one, or of the same rate of errors.

    >>> (
    ...     unknowns("full", np.array([[0.5, 0.5], [0.2, 0.8]])).round(2).tolist(),
    ...     unknowns("symmetric", np.eye(2) / 2 + 0.25),
    ... )
    ([[0.0], [-1.39]], array([-1.09...]))
    """
    size, right = len(matrix), np.diag(matrix)
    if kind == "symmetric":
        rate = 1 - right.mean()
        return np.log([rate / (1 - rate)])
    return np.log(matrix[~np.eye(size, dtype=bool)].reshape(size, -1) / right[:, None])


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

    def method(self, name: str, num_epochs: int | None = None) -> Any:
        """Of inference."""
        settings = self.bench.settings
        training = {
            "num_epochs": num_epochs or settings["num_epochs"],
            "batch_size": settings["batch_size"],
            "optimiser": mx.infer.Adam(settings["learning_rate"]),
        }
        if name == "MC dropout":
            return mx.infer.MCDropout(rate=settings["rate"], **training)
        if name == "VI":
            return mx.infer.VI(**training)
        member = mx.infer.MAP(**training)
        return mx.infer.DeepEnsemble(settings["num_members"], member) if name == "ensemble" else member

    def model(self, likelihood: str) -> mx.Model:
        """The network and what it says about labels."""
        settings = self.bench.settings
        net = mx.nets.LeNet(channels=settings["channels"], hidden=settings["hidden"], key=self.seed)
        return mx.Model(net, self.likelihood(likelihood))

    def start(self, likelihood: str, method: str) -> Any:
        """Networks that know labels as they are, a little, and the matrix that their predictions say."""
        kind = "MAP" if method == "VI" else method
        training = self.method(kind, self.bench.settings["start_epochs"])
        name = f"{self.noise} {self.seed} start {kind}"
        known = self.bench.fit(name, self.model("ignored"), self.train, training, key=self.seed)
        predict: Any = lambda: known.predict(self.train[0], num_samples=self.bench.settings["num_samples"])  # noqa: E731
        matrix = self.bench.measure(name, lambda: estimated(predict().probs).tolist())
        axes = 2 if isinstance(known, mx.posterior.Draws) else 1  # chains, and of draws how many
        chains = jax.tree.leaves(known.params)[0].shape[:axes]
        ratios = unknowns(likelihood, np.array(matrix)).astype(np.float32)
        begun = {"transition": np.broadcast_to(ratios, (*chains, *ratios.shape))}
        return eqx.tree_at(lambda posterior: posterior.params.likelihood, known, begun)

    def fit(self, likelihood: str, method: str, *, stops: bool = True) -> str:
        """Fit, unless that is done, and give the name of it."""
        settings, stops = self.bench.settings, stops and method != "VI"
        name = f"{self.noise} {self.seed} {likelihood} {method}{'' if stops else ' to the end'}"
        if name not in self.posteriors:
            options = {"init": self.start(likelihood, method)} if likelihood in _LEARNED else {}
            if stops:
                options["hooks"] = (mx.infer.EarlyStopping(self.valid, patience=settings["patience"]),)
            given = self.model(likelihood), self.train, self.method(method)
            self.posteriors[name] = self.bench.fit(name, *given, key=self.seed, **options)
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
    """What is compared, by what it is called in the table; the kind of a matrix, or none, is chosen by validation."""
    kinds = {kind: found.fit(kind, "MC dropout") for kind in ("ignored", *_LEARNED)}
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


def _row(what: str, right: np.ndarray, published: float | None, seconds: float, *, compared: bool = True) -> Row:
    """Percent, with the standard error over seeds, or over test digits where there is one seed."""
    values = 100 * (right.mean(axis=1) if len(right) > 1 else right[0])
    score = mean_score(values, name=what)
    source = "" if published is None else _SOURCE
    beside = (score.standard_error, published, source)
    return Row(what, score.value, *beside, lower_is_better=False, seconds=seconds, compared=compared)


def run(bench: Workbench) -> tuple[list[Row], list[str], dict[str, Any], Any]:
    """All kinds of noise, and what is known of the labels in the end."""
    settings = bench.settings
    x, y = mx.data.load_mnist("test")
    test = x[: settings["num_test"]].astype(np.float32), y[: settings["num_test"]]
    figures = require("matplotlib.figure")  # what is missing is missed before, not after
    rows, curves, accuracies, shown, kinds = [], {}, {}, [], []
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
            kinds.append(f"{noise}, seed {seed}: {learned.split()[3]}")
            learns = learned.split()[3] in _LEARNED
            rates.append(1 - float(found.posteriors[learned].confusion().accuracy) if learns else 0.0)
            if seed == 0:
                shown.append((found, names["learned, MC dropout" if learns else "known, MC dropout"]))
        stacked = {what: np.stack(each) for what, each in right.items()}
        accuracies[noise] = {what: float(100 * each.mean()) for what, each in stacked.items()}
        for what, each in stacked.items():
            ours = not what.startswith("ignored") and settings["num_train"] > 50_000  # of fewer digits less is learned
            beside, seeds = published if ours else None, len(each) > 1
            compared = seeds and what.startswith("learned")
            rows.append(_row(f"{noise}: {what}, %", each, beside, seconds[what], compared=compared))
        for what in ("known, MC dropout", "learned, MC dropout"):
            gap = stacked[what] - stacked["ignored, MC dropout"]
            rows.append(_row(f"{noise}: {what}, less ignored, %", gap, None, 0.0))
        rows.append(Row(f"{noise}: learned rate of errors, %", 100 * float(np.mean(rates))))
    remarks = [
        f"LeNet with {settings['channels']} channels and {settings['hidden']} hidden units; {settings['num_train']} "
        f"training digits, and {settings['num_valid']} for validation, whose labels are as noisy.",
        "The kind of a learned matrix, of one rate, of all, or none, was chosen under MC dropout by the likelihood of "
        f"labels of validation digits, and taken for VI and the ensemble: {'; '.join(kinds)}. It starts where "
        f"{settings['start_epochs']} epochs with labels as they are end, with the matrix that they say. All but VI and "
        "the first row of a noise end training where that likelihood is highest.",
        "Standard errors are over seeds, or over test digits where there is one seed; differences are paired. One seed "
        "has no verdict: published figures are of the same test digits.",
        "Published figures are of all digits and another network. Co-teaching knows the rate of errors. Rows of known "
        "matrices know more, all of the matrix, and have no verdict; those of learned ones know less.",
    ]
    return rows, remarks, curves, _picture(figures, accuracies, shown)


def _picture(figures: Any, accuracies: dict[str, dict[str, float]], shown: list[tuple[_Noise, str]]) -> Any:
    """Accuracies by noise, and for each noise wrong labels among the most suspicious."""
    figure = figures.Figure(figsize=(4.4 + 3 * len(shown), 3.6), layout="constrained")
    left, *others = figure.subplots(1, 1 + len(shown), width_ratios=(1.5, *[1] * len(shown)))
    names, places = list(next(iter(accuracies.values()))), np.arange(len(accuracies))
    for i, what in enumerate(names):
        at = places + 0.7 * (i / (len(names) - 1) - 0.5)
        marks = "x" if what.startswith("ignored") else "o"
        left.plot(at, [each[what] for each in accuracies.values()], marks, label=what, ms=5)
    left.hlines(list(_PUBLISHED.values()), places - 0.4, places + 0.4, color="k", lw=1, label=f"{_SOURCE}, all digits")
    left.set(xticks=places, xticklabels=list(accuracies), ylabel="test digits known, %")
    figure.legend(
        *left.get_legend_handles_labels(), loc="outside lower left", ncols=4, frameon=False, fontsize="x-small"
    )
    for ax, (found, name) in zip(others, shown, strict=True):
        x, given = (part[:2000] for part in found.train)
        num_samples = found.bench.settings["num_samples"]
        errors = found.posteriors[name].label_errors(x, given, num_samples=num_samples)
        mx.plot.plot_label_errors(ax, errors, given != found.truth[: len(given)])
        ax.set_title(f"{found.noise}, matrix {'known' if ' known ' in name else 'learned'}", fontsize=9)
        ax.xaxis.label.set_size(8)
    return figure


EXPERIMENT = Experiment("noisy-mnist", "Digits with wrong labels", SETTINGS, run)
