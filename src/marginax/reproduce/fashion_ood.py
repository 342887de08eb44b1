"""Trained on garments, shown digits: which networks notice (van Amersfoort, Smith, Teh & Gal, 2020)?

LeNet on Fashion-MNIST: the members of an ensemble one by one and together, a Laplace approximation around the first of
them, MC dropout and Bayes by Backprop. MNIST digits should get a higher entropy than held-out garments, and where
networks are drawn, these should disagree: mutual information. Distances of features to the means of classes need no
posterior, and stand beside the published network that was trained for such distances.
"""

from typing import Any

import numpy as np

import marginax as mx
from marginax._extras import require
from marginax.evaluate.ranking import area_under_roc
from marginax.evaluate.score import mean_score
from marginax.reproduce.experiment import Experiment, Row, Workbench

_SINGLE, _ENSEMBLE, _LAPLACE = "single network", "ensemble", "Laplace"
_DROPOUT, _BACKPROP = "MC dropout", "Bayes by Backprop"
_RIGHT, _NLL = "share right", "nats per garment"
_ENTROPY, _INFORMATION, _DISTANCE = "entropy", "mutual information", "distance of features"
_SOURCE = "van Amersfoort et al. 2020"
_LENET = "LeNet-5 on all garments, from a benchmark that was not noted"  # for orientation: no verdict
_COMMON = {
    "methods": (_ENSEMBLE, _LAPLACE, _DROPOUT, _BACKPROP),
    "num_members": 5,
    "batch_size": 128,
    "learning_rate": 2e-3,
    "rate": 0.1,
    "shrinkage": 1e-3,
}
SETTINGS = {
    "small": _COMMON
    | {
        "num_train": 4000,
        "num_test": 2000,
        "channels": (6, 12),
        "hidden": 64,
        "num_epochs": 10,
        "vi_epochs": 20,
        "num_draws": 20,
    },
    "full": _COMMON
    | {
        "num_train": 60_000,
        "num_test": 10_000,
        "channels": (20, 50),
        "hidden": 500,
        "num_epochs": 30,
        "vi_epochs": 60,
        "num_draws": 50,
    },
}
_PUBLISHED: dict[str, dict[str, tuple[float, str]]] = {
    _SINGLE: {
        f"AUROC by {_ENTROPY}": (0.843, _SOURCE),
        _RIGHT: (0.910, _LENET),
        _NLL: (0.321, _LENET),
        f"AUROC by {_DISTANCE}": (0.955, f"DUQ, {_SOURCE}, which is trained for such distances"),  # no verdict
    },
    _ENSEMBLE: {
        f"AUROC by {_ENTROPY}": (0.861, _SOURCE),
        _RIGHT: (0.932, f"ten of {_LENET}"),
        _NLL: (0.200, f"ten of {_LENET}"),
    },
    _BACKPROP: {_RIGHT: (0.895, f"VI, {_LENET}"), _NLL: (0.292, f"VI, {_LENET}")},
}


def _methods(settings: Any) -> dict[str, Any]:
    infer = mx.infer
    common: dict[str, Any] = {"batch_size": settings["batch_size"], "optimiser": infer.Adam(settings["learning_rate"])}
    training = infer.MAP(num_epochs=settings["num_epochs"], **common)
    quiet = infer.LocalReparameterisation()
    found: dict[str, Any] = {
        _ENSEMBLE: infer.DeepEnsemble(settings["num_members"], training),
        _LAPLACE: infer.Laplace(),
        _DROPOUT: infer.MCDropout(settings["rate"], num_epochs=settings["num_epochs"], **common),
        _BACKPROP: infer.BayesByBackprop(num_epochs=settings["vi_epochs"], estimator=quiet, **common),
    }
    return {name: found[name] for name in settings["methods"]}


def _scored(prediction: Any, y: Any) -> dict[str, list[float]]:
    """Of each picture, how uncertain its prediction is, and of garments how good."""
    found = {_ENTROPY: prediction.entropy.tolist()}
    if prediction.knows_draws and prediction.num_draws > 1:
        found[_INFORMATION] = prediction.mutual_information.tolist()
    if y is not None:
        found |= {_RIGHT: (prediction.labels == y).astype(float).tolist(), _NLL: (-prediction.log_prob(y)).tolist()}
    return found


def _asked(posterior: Any, parts: Any, num: int) -> list[dict[str, list[float]]]:
    """Of garments and of digits."""
    return [_scored(posterior.predict(x, num_samples=num), y) for x, y in parts]


def _members(posterior: Any, parts: Any) -> list[list[dict[str, list[float]]]]:
    """The same of each member alone."""
    each = []
    for x, y in parts:
        probs = np.exp(np.asarray(mx.evaluate.chain_predictions(posterior, x)[:, 0], np.float64))
        each.append([_scored(mx.predict.ClassificationPrediction.from_probs(one), y) for one in probs])
    return [list(pair) for pair in zip(*each, strict=True)]


def _distances(posterior: Any, data: Any, parts: Any, shrinkage: float) -> list[dict[str, list[float]]]:
    """From the means of the classes, in the features of the first member."""
    score = mx.evaluate.Mahalanobis(data, shrinkage=shrinkage)
    return [{_DISTANCE: score.scores(posterior, x).tolist()} for x, _ in parts]


def _area(pair: Any, score: str) -> tuple[float, np.ndarray]:
    """AUROC, and the influence of each picture on it."""
    garments, digits = (part[score] for part in pair)
    both = np.concatenate([garments, digits])
    return area_under_roc(both, np.arange(len(both)) >= len(garments))


def _figures(pair: Any) -> dict[str, tuple[float, float]]:
    """What the table says of a method: value and standard error over pictures."""
    found = {}
    for what in (_RIGHT, _NLL):
        if what in pair[0]:
            score = mean_score(np.array(pair[0][what]), name=what)
            found[what] = (score.value, score.standard_error)
    for what in (_ENTROPY, _INFORMATION, _DISTANCE):
        if what in pair[0]:
            area, influence = _area(pair, what)
            found[f"AUROC by {what}"] = (area, _error(influence))
    return found


def _error(influence: np.ndarray) -> float:
    return float(np.sqrt(np.sum(influence**2)) / len(influence))


def _rows(name: str, figures: dict[str, tuple[float, float]], seconds: float) -> list[Row]:
    beside = _PUBLISHED.get(name, {})
    rows = []
    for what, pair in figures.items():
        published, source = beside.get(what, (None, ""))
        options = {"lower_is_better": what == _NLL, "seconds": seconds, "compared": source == _SOURCE}
        rows.append(Row(f"{name}: {what}", *pair, published, source, **options))
    return rows


def _single(alone: Any, distance: Any, seconds: float) -> list[Row]:
    """Means over members, with errors over them; distances are of one member, with an error over pictures."""
    each = [_figures(pair) for pair in alone]
    values = {what: np.array([figures[what][0] for figures in each]) for what in each[0]}
    figures = {what: (float(v.mean()), float(v.std(ddof=1) / np.sqrt(len(v)))) for what, v in values.items()}
    return _rows(_SINGLE, figures | _figures(distance), seconds)


def _compared(found: dict[str, Any], alone: Any) -> list[Row]:
    """The ensemble beside its members: what it gains on garments, and in telling digits, paired over pictures."""
    together = found[_ENSEMBLE]
    gain = mean_score(np.mean([pair[0][_NLL] for pair in alone], 0) - np.array(together[0][_NLL]), name="gain")
    area, influence = _area(together, _ENTROPY)
    areas, influences = zip(*(_area(pair, _ENTROPY) for pair in alone), strict=True)
    more, error = float(area - np.mean(areas)), _error(influence - np.mean(influences, 0))
    return [
        Row("ensemble, gained on a member: nats per garment", gain.value, gain.standard_error, lower_is_better=False),
        Row("ensemble, gained on a member: AUROC by entropy", more, error, lower_is_better=False),
    ]


def run(bench: Workbench) -> tuple[list[Row], list[str], dict[str, Any], Any]:
    """Train on garments, show both."""
    settings, drawing = bench.settings, require("matplotlib.figure")
    num_train, num_test = settings["num_train"], settings["num_test"]
    data = tuple(part[:num_train] for part in mx.data.load_fashion_mnist("train"))
    x, y = (part[:num_test] for part in mx.data.load_fashion_mnist("test"))
    parts = ((x, y), (mx.data.load_mnist("test")[0][:num_test], None))
    model = mx.Model(
        mx.nets.LeNet(channels=settings["channels"], hidden=settings["hidden"], key=0), mx.likelihoods.Categorical()
    )
    rows, found, alone = [], {}, []
    ensemble: Any = None
    for name, method in _methods(settings).items():
        init = ensemble if name == _LAPLACE else None  # its first member
        posterior = bench.fit(name, model, data, method, key=0, init=init)
        seconds = bench.seconds(posterior)
        if name == _ENSEMBLE:
            ensemble = posterior
            alone = bench.measure(_SINGLE, lambda p=posterior: _members(p, parts))
            distance = bench.measure(_DISTANCE, lambda p=posterior: _distances(p, data, parts, settings["shrinkage"]))
            rows += _single(alone, distance, seconds / settings["num_members"])
        found[name] = bench.measure(name, lambda p=posterior: _asked(p, parts, settings["num_draws"]))
        rows += _rows(name, _figures(found[name]), seconds)
    rows += _compared(found, alone)
    remarks = [
        f"LeNet with {'-'.join(map(str, settings['channels']))} filters and {settings['hidden']} hidden units, "
        f"{num_train} training garments, {len(x)} held-out garments and as many digits; {settings['num_draws']} draws. "
        "Published networks saw all 60,000 garments; published accuracies are of ensembles of ten.",
        f"Figures of a single network are means over the {settings['num_members']} members with standard errors over "
        "these, but for distances of features; the others' are over pictures, and those of what an ensemble gains "
        "are paired.",
        "Laplace is around the first member: Kronecker factors of all layers, linearised; its seconds come on top.",
        "Verdicts are only of AUROC by entropy, whose published networks are like these but larger; networks and "
        "source of the other figures differ. Bayes by Backprop starts with narrow weights, and so few steps hardly "
        "widen them at small budget: what it says there of digits is where it started.",
        "Settings were not tuned; sizes of the small budget are what its minutes allow.",
    ]
    shown = {f"{_SINGLE}, the first": alone[0]} | found
    curves = {name: {what: value for what, (value, _) in _figures(pair).items()} for name, pair in shown.items()}
    return rows, remarks, curves, _picture(drawing, shown)


def _picture(drawing: Any, shown: dict[str, Any]) -> Any:
    """Histograms of garments and digits: entropy above, mutual information below."""
    figure = drawing.Figure(figsize=(2.7 * len(shown), 5.0), layout="constrained")
    axes = figure.subplots(2, len(shown), squeeze=False)
    for column, (name, (garments, digits)) in enumerate(shown.items()):
        for ax, what in zip(axes[:, column], (_ENTROPY, _INFORMATION), strict=True):
            if what not in garments:
                ax.axis("off")
                continue
            mx.plot.plot_ood(ax, mx.evaluate.separate(garments[what], digits[what]), num_bins=30)
            ax.set_title(f"{name}: {ax.get_title()}", fontsize=9)
            ax.set_xlabel(f"{what}, nats")
            ax.get_legend().remove()
    handles, _ = axes[0, 0].get_legend_handles_labels()
    labels = ("garments", "digits", "95% of garments are to the left")
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return figure


_LESSON = (
    "A network that is shown what it has never seen answers all the same; that it does not know shows in how "
    "its answers spread, and in how draws of its weights disagree."
)
EXPERIMENT = Experiment("fashion-ood", "Trained on garments, shown digits", SETTINGS, run, _LESSON)
