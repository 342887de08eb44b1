"""Whom to ask next: answers that are expected to say most, against as many random ones.

Pictures of birds that 39 people labelled (Welinder et al., 2010), and textual entailment with ten answers an item (Snow
et al., 2008). To begin with there are two answers of each item; then those are asked for whose mutual information with
the true label is highest given all answers so far, or any. Every round fits Dawid and Skene's model to the answers
that there are. Gold labels are looked at to judge the consensus, and nothing was chosen by them.
"""

from functools import partial
from typing import Any

import numpy as np

import marginax as mx
from marginax._extras import require
from marginax.evaluate.score import mean_score
from marginax.model.likelihoods.annotators import Annotators
from marginax.reproduce.experiment import Experiment, Row, Workbench

_SMALL = {
    "crowds": ("bluebirds",),
    "num_first": 2,
    "num_more": 4,
    "num_rounds": 8,
    "num_epochs": 200,
    "num_seeds": 5,
}
SETTINGS = {"small": _SMALL, "full": _SMALL | {"crowds": ("bluebirds", "snow_rte"), "num_rounds": 24, "num_seeds": 20}}
_RULES = {
    "most informative": mx.decide.ExpectedInformation(),
    "random": mx.decide.RandomQuestions(),
}


def _curve(settings: Any, crowd: Any, rule: str, seed: int) -> dict[str, list[float]]:
    """Accuracy of the consensus by answers of an item."""
    num, people = crowd.answers.shape
    order = np.where(crowd.answers >= 0, np.random.default_rng(seed).uniform(size=(num, people)), np.inf)
    first = np.where(order.argsort(axis=1).argsort(axis=1) < settings["num_first"], crowd.answers, -1)
    model = mx.Model(mx.nets.Intercept(crowd.num_classes), Annotators(crowd.num_classes, people))
    found = mx.decide.relabel_actively(
        model,
        np.zeros((num, 1)),
        first,
        mx.decide.KnownAnswers(crowd.answers),
        mx.infer.MAP(num_epochs=settings["num_epochs"], batch_size=None),
        _RULES[rule],
        batch_size=-(-num * settings["num_more"] // settings["num_rounds"]),
        budget=num * settings["num_more"],
        key=seed,
        truth=crowd.gold,
    )
    return {
        "answers": (found.curve.num_labels / num).tolist(),
        "accuracy": (100 * (1 - found.curve.error)).tolist(),
    }


def run(bench: Workbench) -> tuple[list[Row], list[str], dict[str, Any], Any]:
    """Curves of both rules from the same first answers."""
    settings = bench.settings
    figure = require("matplotlib.figure").Figure(figsize=(4.6 * len(settings["crowds"]), 3.4), layout="constrained")
    rows, curves = [], {}
    for ax, name in zip(figure.subplots(1, len(settings["crowds"]), squeeze=False)[0], settings["crowds"], strict=True):
        crowd = mx.data.load_crowd(name)
        found = {
            rule: [
                bench.measure(f"{name} {rule} {seed}", partial(_curve, settings, crowd, rule, seed))
                for seed in range(settings["num_seeds"])
            ]
            for rule in _RULES
        }
        accuracy = {rule: np.array([each["accuracy"] for each in several]) for rule, several in found.items()}
        answers = np.array(found["random"][0]["answers"])
        rows += _rows(name, accuracy, answers)
        for rule, values in accuracy.items():
            curves[f"{name} {rule}"] = [answers.tolist(), values.mean(axis=0).tolist()]
            ax.errorbar(answers, values.mean(axis=0), _errors(values), fmt="o-", ms=3, lw=1.2, capsize=2, label=rule)
        ax.set(title=name, xlabel="answers of an item", ylabel="consensus that is right, %")
        ax.legend(frameon=False)
    remarks = [
        f"To begin with each item has {settings['num_first']} answers, by people at random; then "
        f"{settings['num_rounds']} rounds ask for {settings['num_more']} more of an item on average, "
        "in a round about an item once at most.",
        f"Means and standard errors are over {settings['num_seeds']} choices of first answers; differences are paired. "
        "Curves are answers of an item, and accuracies in percent.",
    ]
    return rows, remarks, curves, figure


def _rows(name: str, accuracy: dict[str, np.ndarray], answers: np.ndarray) -> list[Row]:
    """Accuracies over all rounds after the first, which is the same for both, and at the end."""
    informed, random = (accuracy[rule] for rule in _RULES)
    values = {f"{name}: {rule}, mean of rounds, %": each[:, 1:].mean(axis=1) for rule, each in accuracy.items()}
    values |= {f"{name}: {rule}, {answers[-1]:.0f} answers, %": each[:, -1] for rule, each in accuracy.items()}
    values[f"{name}: most informative less random, mean of rounds, %"] = (informed - random)[:, 1:].mean(axis=1)
    scores = {what: mean_score(each, name=what) for what, each in values.items()}
    return [Row(what, each.value, each.standard_error, lower_is_better=False) for what, each in scores.items()]


def _errors(values: np.ndarray) -> np.ndarray:
    """Standard errors of means over seeds."""
    return values.std(axis=0, ddof=1) / np.sqrt(len(values))


EXPERIMENT = Experiment("relabelling", "Whom to ask next", SETTINGS, run)
