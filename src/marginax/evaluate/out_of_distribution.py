"""Does a posterior know when inputs are not of the kind it was trained on? Out-of-distribution scores.

A score is larger out of distribution. `Entropy()`, `MutualInformation()`, `MaxProbability()` and `Energy()` are for
classes, `Std()` for numbers, `Epistemic()` and `Mahalanobis(data)` for both.
"""

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from marginax.evaluate.ranking import area_under_roc, average_precision
from marginax.evaluate.score import Score, ScoreTable
from marginax.predict.reading import read_classes, read_numbers

_LEVEL = 0.95
_OF_NUMBERS = "numbers have Std() and Epistemic()"


class AbstractOODScore(eqx.Module):
    """How far inputs are from what a posterior was trained on."""

    @abc.abstractmethod
    def scores(self, posterior: Any, x: Any) -> Float[np.ndarray, " n"]:
        """One number per input, larger out of distribution."""


class AbstractPredictionScore(AbstractOODScore):
    """A score that needs only the prediction; several outputs or labels of an input are averaged."""

    def scores(self, posterior: Any, x: Any) -> Float[np.ndarray, " n"]:
        return self.of(posterior.predict(x))

    @abc.abstractmethod
    def of(self, prediction: Any) -> Float[np.ndarray, " n"]:
        """From a prediction, or arrays in its place."""


class Entropy(AbstractPredictionScore):
    """Entropy of the averaged class probabilities: total uncertainty. Takes probabilities (n, k), too.

    >>> Entropy().of(np.array([[0.5, 0.5], [1.0, 0.0]])).round(4).tolist()
    [0.6931, 0.0]
    """

    def of(self, prediction: Any) -> Float[np.ndarray, " n"]:
        return _mean_over_outputs(read_classes(prediction, name="Entropy()", remedy=_OF_NUMBERS).entropy)


class MaxProbability(AbstractPredictionScore):
    """Minus the probability of the most probable class (Hendrycks & Gimpel, 2017). Takes probabilities (n, k), too.

    >>> MaxProbability().of(np.array([[0.5, 0.5], [1.0, 0.0]])).tolist()
    [-0.5, -1.0]
    """

    def of(self, prediction: Any) -> Float[np.ndarray, " n"]:
        return -_mean_over_outputs(read_classes(prediction, name="MaxProbability()", remedy=_OF_NUMBERS).confidence)


class MutualInformation(AbstractPredictionScore):
    """What the draws disagree about: the entropy of the average less the average of the entropies.

    Takes probabilities of each draw (s, n, k), too.

    >>> MutualInformation().of([[[1.0, 0.0]], [[0.0, 1.0]]]).round(4).tolist()
    [0.6931]
    """

    def of(self, prediction: Any) -> Float[np.ndarray, " n"]:
        classes = read_classes(prediction, name="MutualInformation()", by_draw=True, remedy=_OF_NUMBERS)
        return _mean_over_outputs(classes.mutual_information)


class Std(AbstractPredictionScore):
    """Standard deviation of predicted numbers, noise included. Takes a pair (mean, std), too.

    >>> Std().of((np.zeros(2), np.array([1.0, 3.0]))).tolist()
    [1.0, 3.0]
    """

    def of(self, prediction: Any) -> Float[np.ndarray, " n"]:
        return _mean_over_outputs(read_numbers(prediction, name="Std()", remedy="classes have Entropy()").std)


class Epistemic(AbstractPredictionScore):
    """What more data would reduce: variance over draws of the mean, or mutual information of classes."""

    def of(self, prediction: Any) -> Float[np.ndarray, " n"]:
        if not getattr(prediction, "knows_draws", False):
            raise TypeError(
                f"prediction must know its draws for Epistemic(), got {type(prediction).__name__}: "
                "use Std() or Entropy()"
            )
        return _mean_over_outputs(prediction.epistemic)


@dataclass(frozen=True, eq=False, repr=False)
class OODResult:
    """How well a score tells inputs apart; print it.

    Attributes:
        auroc: how often an input from elsewhere scores higher than one that is not (DeLong's standard error).
        fpr95: of the inputs from elsewhere, the fraction that passes a threshold which 95% of the others pass; less is
            better. The standard error counts the doubt about the threshold, too.
        aupr: average precision, with inputs from elsewhere as cases.
        scores_in: of inputs of the kind trained on.
        scores_out: of inputs from elsewhere.
    """

    auroc: Score
    fpr95: Score
    aupr: Score
    scores_in: Float[np.ndarray, " n"]
    scores_out: Float[np.ndarray, " m"]

    def __repr__(self) -> str:
        heading = f"{len(self.scores_in)} inputs in, {len(self.scores_out)} out of distribution"
        return repr(ScoreTable({"auroc": self.auroc, "fpr95": self.fpr95, "aupr": self.aupr}, heading))


def ood(posterior: Any, x_in: Any, x_out: Any, score: AbstractOODScore | None = None) -> OODResult:
    """Score inputs of the kind trained on, and others, and measure how well the scores separate them.

    Args:
        posterior: what is asked; or a function of inputs that gives one score for each, larger out of distribution.
        x_in: inputs of the kind trained on, but held out.
        x_out: inputs from elsewhere.
        score: such as `Entropy()`; left out with a function.

    >>> ood(lambda x: np.abs(x[:, 0]), np.array([[0.1], [-0.2], [0.3], [1.1]]), np.array([[1.0], [2.0]]))
    4 inputs in, 2 out of distribution
    auroc  0.88 ± 0.18
    fpr95  0.50 ± 0.35
    aupr   0.83 ± 0.18
    """
    if callable(posterior) and not hasattr(posterior, "predict"):
        if score is not None:
            raise TypeError(f"score must be left out where a function gives the scores, got {score!r}")
        function: Callable[[Any], Any] = posterior
        return separate(function(x_in), function(x_out))
    if not isinstance(score, AbstractOODScore):
        raise TypeError(f"score must be one such as mx.evaluate.Entropy() or Epistemic(), got {score!r}")
    return separate(score.scores(posterior, x_in), score.scores(posterior, x_out))


def separate(scores_in: Any, scores_out: Any) -> OODResult:
    """How well scores, larger out of distribution, tell inputs from elsewhere.

    Args:
        scores_in: of inputs of the kind trained on.
        scores_out: of inputs from elsewhere.

    >>> result = separate([0.1, 0.2, 0.4, 0.3], [0.9, 0.35])
    >>> float(result.auroc), float(result.fpr95)
    (0.875, 0.5)
    """
    near, far = (_check_scores(part, name) for part, name in ((scores_in, "scores_in"), (scores_out, "scores_out")))
    both = np.concatenate([near, far])
    elsewhere = np.arange(len(both)) >= len(near)
    areas = []
    for area in (area_under_roc, average_precision):
        value, influence = area(both, elsewhere)
        areas.append(Score(value, float(np.sqrt(np.sum(influence**2)) / len(both)), len(both)))
    return OODResult(areas[0], _false_positives(near, far), areas[1], near, far)


def _false_positives(near: Float[np.ndarray, " n"], far: Float[np.ndarray, " m"]) -> Score:
    """Variance of the rate at a threshold, and of the threshold: the rate at levels one standard error either way."""

    def rate(level: float) -> float:
        return float(np.mean(far <= np.quantile(near, level, method="inverted_cdf")))

    value, doubt = rate(_LEVEL), np.sqrt(_LEVEL * (1 - _LEVEL) / len(near))
    moved = 0.5 * (rate(min(_LEVEL + doubt, 1.0)) - rate(max(_LEVEL - doubt, 0.0)))
    return Score(value, float(np.sqrt(value * (1 - value) / len(far) + moved**2)), len(near) + len(far))


def _mean_over_outputs(values: Float[np.ndarray, "n *d"]) -> Float[np.ndarray, " n"]:
    return values.reshape(len(values), -1).mean(axis=1)


def _check_scores(values: Any, name: str) -> Float[np.ndarray, " n"]:
    scores = np.asarray(values)
    if scores.ndim != 1 or not scores.size or scores.dtype.kind not in "iufb":
        raise ValueError(
            f"{name} must be numbers of shape (n,), got an array of {scores.dtype} of shape {scores.shape}"
        )
    scores = scores.astype(np.float64)
    if np.isnan(scores).any():
        raise ValueError(f"{name} must not be NaN, got {np.isnan(scores).sum()} of {len(scores)}")
    return scores
