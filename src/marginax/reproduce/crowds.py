"""Answers of crowds: is a consensus that knows who errs better than a vote, and a network that knows it better, too?

Dawid and Skene's model (1979), drawn by NUTS, on pictures of birds (Welinder et al., 2010) and textual entailment (Snow
et al., 2008); and networks on features of pictures of LabelMe (Rodrigues & Pereira, 2018), trained on the answers of
annotators, on their vote, and on the truth. Gold labels of the crowds' items and test pictures are looked at to judge.
"""

from typing import Any

import numpy as np

import marginax as mx
from marginax._extras import require
from marginax.evaluate.score import mean_score
from marginax.model.likelihoods.annotators import Annotators
from marginax.reproduce.experiment import Experiment, Row, Workbench

SETTINGS = {
    "small": {
        "crowds": ("bluebirds", "snow_rte"),
        "num_warmup": 200,
        "num_samples": 200,
        "num_chains": 2,
        "hidden": (64,),
        "num_epochs": 30,
        "batch_size": 100,
        "num_members": 1,
    },
    "full": {
        "crowds": ("bluebirds", "snow_rte", "snow_temp"),
        "num_warmup": 1000,
        "num_samples": 1000,
        "num_chains": 4,
        "hidden": (128,),
        "num_epochs": 100,
        "batch_size": 100,
        "num_members": 5,
    },
}
_TARGETS = ("annotators", "vote", "truth")


def _right(probs: np.ndarray, gold: np.ndarray) -> np.ndarray:
    """Of each item, whether it is right; a share where several labels are equally probable."""
    most = probs == probs.max(axis=1, keepdims=True)
    return (most / most.sum(axis=1, keepdims=True))[np.arange(len(gold)), gold]


def _accuracies(posterior: Any, x: np.ndarray, gold: np.ndarray) -> list[float]:
    return _right(posterior.predict(x).probs, gold).tolist()


def _consensus(bench: Workbench, name: str) -> tuple[list[Row], Any]:
    """Rows of one crowd without inputs, and the confusions that were found."""
    settings, crowd = bench.settings, mx.data.load_crowd(name)
    x = np.zeros((len(crowd.gold), 1))
    model = mx.Model(mx.nets.Intercept(crowd.num_classes), Annotators(crowd.num_classes, crowd.answers.shape[1]))
    nuts = mx.infer.NUTS(num_warmup=settings["num_warmup"], num_samples=settings["num_samples"])
    posterior = bench.fit(name, model, (x, crowd.answers), nuts, key=0, num_chains=settings["num_chains"])
    vote = _right(mx.data.majority_vote(crowd.answers, crowd.num_classes), crowd.gold)
    measure = lambda: _right(posterior.consensus(x, crowd.answers).probs, crowd.gold).tolist()  # noqa: E731
    ours = np.array(bench.measure(f"{name} consensus", measure))
    seconds = bench.seconds(posterior)
    scores = {"majority vote": vote, "consensus": ours, "consensus less vote": ours - vote}
    return [_row(f"{name}: {what}", values, seconds) for what, values in scores.items()], posterior.confusion()


def _row(what: str, values: np.ndarray, seconds: float) -> Row:
    score = mean_score(100 * values, name=what)
    return Row(f"{what}, %", score.value, score.standard_error, lower_is_better=False, seconds=seconds)


def _networks(bench: Workbench) -> tuple[list[Row], dict[str, Any]]:
    """Networks on features of pictures: test accuracy by what they were trained on."""
    settings, crowd = bench.settings, mx.data.load_crowd("labelme")
    assert crowd.x is not None
    assert crowd.test is not None
    assert crowd.valid is not None
    centre, spread = crowd.x.mean(axis=0), crowd.x.std(axis=0) + 1e-6
    parts = {"valid": crowd.valid, "test": crowd.test}
    training = mx.infer.MAP(num_epochs=settings["num_epochs"], batch_size=settings["batch_size"])
    rows, curves, right = [], {}, {}
    for name in _TARGETS:
        likelihood: Any = mx.likelihoods.Categorical()
        y: np.ndarray = crowd.gold
        if name == "vote":
            y = mx.data.majority_vote(crowd.answers, crowd.num_classes).argmax(axis=1)
        elif name == "annotators":
            likelihood, y = Annotators(crowd.num_classes, crowd.answers.shape[1]), crowd.answers
        network = mx.nets.MLP(crowd.x.shape[1], settings["hidden"], crowd.num_classes, key=0)
        method = mx.infer.DeepEnsemble(settings["num_members"], training)
        data = ((crowd.x - centre) / spread, y)
        posterior = bench.fit(f"labelme {name}", mx.Model(network, likelihood), data, method, key=0)
        for split, (inputs, gold) in parts.items():
            scaled = (inputs - centre) / spread
            measure = lambda p=posterior, x=scaled, g=gold: _accuracies(p, x, g)  # noqa: E731
            right[name, split] = np.array(bench.measure(f"labelme {name} {split}", measure))
        curves[f"labelme {name}"] = [float(right[name, split].mean()) for split in parts]
        rows.append(_row(f"labelme: network on the {name}", right[name, "test"], bench.seconds(posterior)))
    gap = right["annotators", "test"] - right["vote", "test"]
    return [*rows, _row("labelme: network on the annotators less on the vote", gap, 0.0)], curves


def run(bench: Workbench) -> tuple[list[Row], list[str], dict[str, Any], Any]:
    """Consensus of crowds, networks, and a picture of the annotators."""
    rows, confusions = [], {}
    for name in bench.settings["crowds"]:
        found, confusions[name] = _consensus(bench, name)
        rows += found
    of_networks, curves = _networks(bench)
    figure = require("matplotlib.figure").Figure(figsize=(10, 3), layout="constrained")
    axes = figure.subplots(1, len(confusions), squeeze=False)[0]
    for ax, (name, confusion) in zip(axes, confusions.items(), strict=True):
        mx.plot.plot_annotators(ax, confusion)
        ax.set_title(name, fontsize="small")
        ax.set_ylim(bottom=0)
    remarks = [
        "Ties of a vote count as shares. Standard errors are over items or test pictures; differences are paired.",
        "Nothing was chosen by looking at gold labels: priors are the defaults, and the settings of networks were "
        "fixed before any was trained. The network on the truth is trained on gold labels. Curves are accuracies on "
        "validation and test pictures.",
        "Features of LabelMe are those of a VGG-16 averaged over the picture, so figures do not compare with those "
        "that were published for other features.",
    ]
    return rows + of_networks, remarks, curves, figure


EXPERIMENT = Experiment("crowds", "Answers of crowds", SETTINGS, run)
