"""Scores of predicted classes, and of several yes-or-no labels: those of a row are averaged."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from marginax.evaluate.bins import AbstractBins, EqualWidth, check_bins
from marginax.evaluate.proportion import share_score
from marginax.evaluate.score import CLASSES, AbstractScore, Score, mean_score, score
from marginax.predict.reading import read_classes


@score("accuracy", outcomes=CLASSES, better="more", shown="headline", place=0, words="share of right answers")
def accuracy(prediction: Any, y: Any) -> AbstractScore:
    """Fraction of rows whose most probable class is the right one (of labels: fraction of right labels).

    Args:
        prediction: of classes or labels, or probabilities (n, k), or (n,) for two classes.
        y: labels.

    >>> accuracy([0.2, 0.9, 0.6, 0.4], [0, 1, 0, 0])
    0.75 [0.30, 0.95] (n=4)
    """
    classes = read_classes(prediction, name="accuracy")
    return share_score(np.asarray(classes.labels == classes.check(y)), name="accuracy")


@score(
    "brier",
    outcomes=CLASSES,
    better="less",
    shown="comparison",
    place=30,
    words="squared error of the probabilities; lower is better",
)
def brier(prediction: Any, y: Any) -> Score:
    r"""Mean squared error of probabilities (Brier, 1950); less is better. The standard error is that of the mean.

    $\sum_k (p_k - 1\{y = k\})^2$, in [0, 2]; for two classes and for labels half of that, $(p_1 - y)^2$ in [0, 1], as
    is the custom (scikit-learn's, too).

    Args:
        prediction: of classes or labels, or probabilities (n, k), or (n,) for two classes.
        y: labels.

    >>> round(float(brier([0.2, 0.9, 0.6], [0, 1, 1])), 4)
    0.07
    """
    classes = read_classes(prediction, name="brier")
    probs, happened = classes.events(y)
    return mean_score(_events_per_answer(classes.num_classes) * (probs - happened) ** 2, name="brier")


@dataclass(frozen=True)
class BrierDecomposition:
    r"""What the Brier score is made of (Murphy, 1973; Stephenson, Coelho & Jolliffe, 2008).

    Brier score = reliability - resolution + uncertainty + within_bin_variance - within_bin_covariance, exactly. The
    last two vanish where all forecasts in a bin are equal, as they are in bins of `Distinct()` forecasts.

    Attributes:
        reliability: mean squared distance of forecasts from what happened, by bin; 0 if calibrated.
        resolution: variance between bins of what happened; more is better.
        uncertainty: variance of what happened, which no forecast changes.
        within_bin_variance: of forecasts.
        within_bin_covariance: twice that of forecasts and what happened.
    """

    reliability: float
    resolution: float
    uncertainty: float
    within_bin_variance: float
    within_bin_covariance: float

    @property
    def brier(self) -> float:
        """The Brier score: the sum of the parts, with their signs."""
        within = self.within_bin_variance - self.within_bin_covariance
        return self.reliability - self.resolution + self.uncertainty + within

    @property
    def generalised_resolution(self) -> float:
        """Resolution with the terms within bins, so that brier = reliability - it + uncertainty."""
        return self.resolution - self.within_bin_variance + self.within_bin_covariance

    def __str__(self) -> str:
        parts = {
            "brier": self.brier,
            "= reliability": self.reliability,
            "- resolution": self.resolution,
            "+ uncertainty": self.uncertainty,
            "+ variance within bins": self.within_bin_variance,
            "- covariance within bins": self.within_bin_covariance,
        }
        return "\n".join(f"{name:<25} {value:8.4f}" for name, value in parts.items())


def brier_decomposition(prediction: Any, y: Any, *, bins: AbstractBins = EqualWidth()) -> BrierDecomposition:
    """The parts of the Brier score; with three classes or more, the sum over classes, each against the rest.

    Args:
        prediction: of classes or labels, or probabilities (n, k), or (n,) for two classes.
        y: labels.
        bins: which forecasts are judged together.

    >>> from marginax.evaluate import Distinct
    >>> print(brier_decomposition([0.8, 0.8, 0.8, 0.8, 0.2, 0.2], [1, 1, 1, 0, 0, 1], bins=Distinct()))
    brier                       0.2400
    = reliability               0.0317
    - resolution                0.0139
    + uncertainty               0.2222
    + variance within bins      0.0000
    - covariance within bins    0.0000
    """
    bins = check_bins(bins)
    classes = read_classes(prediction, name="brier_decomposition")
    events = zip(*(part.T for part in classes.events(y)), strict=True)
    parts = [_decompose(probs, happened.astype(float), bins) for probs, happened in events]
    return BrierDecomposition(*(_events_per_answer(classes.num_classes) * np.mean(parts, axis=0)).tolist())


def _decompose(probs: Float[np.ndarray, " n"], happened: Float[np.ndarray, " n"], bins: AbstractBins) -> np.ndarray:
    group = bins.assign(probs)
    counts = np.maximum(np.bincount(group), 1)
    forecast, observed = (np.bincount(group, values) / counts for values in (probs, happened))
    weights = np.bincount(group) / len(probs)
    base = happened.mean()
    apart = probs - forecast[group]
    return np.array(
        [
            np.sum(weights * (forecast - observed) ** 2),
            np.sum(weights * (observed - base) ** 2),
            base * (1 - base),
            np.mean(apart**2),
            2 * np.mean(apart * (happened - observed[group])),
        ]
    )


def _events_per_answer(num_classes: int) -> int:
    """Events whose squared errors are added up: those of all classes, or the one of two classes."""
    return 1 if num_classes == 2 else num_classes
