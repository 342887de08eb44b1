r"""Selective prediction: answer where the prediction is sure, and know what the answers cost.

Rows are accepted in the order of their uncertainty. The risk at a coverage is the mean loss of the accepted; the area
under the risk-coverage curve (AURC) judges the order, and its excess over that of the perfect order (E-AURC) judges it
whatever the accuracy is (Geifman, Uziel & El-Yaniv, 2019).
"""

import abc
import math
import warnings
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Bool, Float
from scipy import special

from marginax.decide.rules import read_mean_and_std
from marginax.files import register
from marginax.predict.checks import check_array, check_count, check_level, check_targets
from marginax.predict.reading import outcome_of, read_one_class


class AbstractRiskBound(eqx.Module):
    """An upper bound of the risk that holds, with the confidence, for the threshold that is chosen by it.

    The bound is computed at `num_cuts` evenly spaced coverages, at each of them with its share of the doubt
    1 - confidence, so that it holds at all of them together.
    """

    confidence: eqx.AbstractVar[float]
    num_cuts: eqx.AbstractVar[int]

    @abc.abstractmethod
    def check_losses(self, losses: Float[np.ndarray, " n"]) -> None:
        """Refuse losses for which the bound does not hold."""

    @abc.abstractmethod
    def upper(self, total: Any, num: Any, doubt: float) -> Float[np.ndarray, "..."]:
        """What the expected loss exceeds with probability at most `doubt`, given the total of num >= 1 losses."""


@register("selective/clopper_pearson")
class ClopperPearson(AbstractRiskBound):
    """The exact binomial bound, for losses that are 0 or 1: selection with guaranteed risk (Geifman & El-Yaniv, 2017).

    Args:
        confidence: probability that the risk is below the bound.
        num_cuts: coverages to choose from.

    >>> ClopperPearson().upper(total=0, num=58, doubt=0.05).round(4).item()
    0.0503
    """

    confidence: float = 0.95
    num_cuts: int = 20

    def __check_init__(self):
        _check_bound(self)

    def check_losses(self, losses: Float[np.ndarray, " n"]) -> None:
        wrong = (losses != 0) & (losses != 1)
        if wrong.any():
            raise ValueError(f"losses must be 0 or 1 for ClopperPearson, got {losses[wrong][0]:g}: use Hoeffding")

    def upper(self, total: Any, num: Any, doubt: float) -> Float[np.ndarray, "..."]:
        total, num = np.asarray(total, np.float64), np.asarray(num)
        return np.where(total < num, special.betaincinv(total + 1, np.maximum(num - total, 1), 1 - doubt), 1.0)


@register("selective/hoeffding")
class Hoeffding(AbstractRiskBound):
    """A bound for any losses between 0 and a largest one (Hoeffding, 1963).

    Args:
        max_loss: the largest loss there can be.
        confidence: probability that the risk is below the bound.
        num_cuts: coverages to choose from.

    >>> Hoeffding().upper(total=10, num=100, doubt=0.05).round(4).item()
    0.2224
    """

    max_loss: float | int = 1.0
    confidence: float = 0.95
    num_cuts: int = 20

    def __check_init__(self):
        _check_bound(self)
        if not 0 < self.max_loss < math.inf:
            raise ValueError(f"max_loss must be > 0 and finite, got {self.max_loss}")

    def check_losses(self, losses: Float[np.ndarray, " n"]) -> None:
        if losses.min() < 0 or losses.max() > self.max_loss:
            wrong = losses.min() if losses.min() < 0 else losses.max()
            raise ValueError(f"losses must be from 0 to max_loss={self.max_loss:g} for Hoeffding, got {wrong:g}")

    def upper(self, total: Any, num: Any, doubt: float) -> Float[np.ndarray, "..."]:
        total, num = np.asarray(total, np.float64), np.asarray(num)
        return np.asarray(total / num + self.max_loss * np.sqrt(-math.log(doubt) / (2 * num)))


@register("selective/threshold")
@dataclass(frozen=True)
class Threshold:
    """Where to stop accepting, from `RiskCoverage.threshold`; for `select`.

    Attributes:
        uncertainty: the largest that is accepted; -inf if nothing is.
        coverage: fraction of the rows that were accepted.
        risk: mean loss of those; NaN if there are none.
        risk_bound: what the risk is below with the confidence asked for; None if no bound was.
        score: which uncertainty it is about: "entropy", "std" or "given".
    """

    uncertainty: float
    coverage: float
    risk: float
    risk_bound: float | None = None
    score: str = "given"


class RiskCoverage(eqx.Module):
    """Risk as a function of coverage. Rows of equal uncertainty are accepted together.

    Args:
        uncertainty: of each row, shape (n,).
        losses: of each row, shape (n,).
        score: the name of the uncertainty.

    >>> curve = RiskCoverage([0.1, 0.4, 0.3, 0.2], [0, 1, 0, 1])
    >>> curve.coverage.tolist(), curve.risk.round(3).tolist()
    ([0.25, 0.5, 0.75, 1.0], [0.0, 0.5, 0.333, 0.5])
    >>> round(curve.aurc, 4), round(curve.excess_aurc, 4)
    (0.3333, 0.125)

    Attributes:
        uncertainty: in ascending order.
        losses: in that order.
        score: the name of the uncertainty.
    """

    uncertainty: Float[np.ndarray, " n"]
    losses: Float[np.ndarray, " n"]
    score: str = eqx.field(static=True)

    def __init__(self, uncertainty: Any, losses: Any, score: str = "given"):
        uncertainty = _rows(check_array(uncertainty, "uncertainty", infinite=True), "uncertainty")
        losses = _rows(check_array(losses, "losses"), "losses")
        if uncertainty.shape != losses.shape:
            raise ValueError(f"losses must have shape {uncertainty.shape} as uncertainty has, got {losses.shape}")
        order = np.argsort(uncertainty, kind="stable")
        self.uncertainty, self.losses, self.score = uncertainty[order], losses[order], score

    @property
    def coverage(self) -> Float[np.ndarray, " cuts"]:
        """Fractions of the rows that can be accepted, ascending to 1."""
        return self._num_accepted / len(self.losses)

    @property
    def risk(self) -> Float[np.ndarray, " cuts"]:
        """Mean loss of the accepted rows."""
        return np.cumsum(self.losses)[self._num_accepted - 1] / self._num_accepted

    @property
    def thresholds(self) -> Float[np.ndarray, " cuts"]:
        """The largest uncertainty that is accepted."""
        return self.uncertainty[self._num_accepted - 1]

    @property
    def aurc(self) -> float:
        """Mean of the risks at coverages 1/n, 2/n, ..., 1; within ties, that of a random order on average."""
        num = np.arange(1, len(self.losses) + 1)
        totals = np.cumsum(self.losses)[self._num_accepted - 1]
        return float(np.mean(np.interp(num, np.append(0, self._num_accepted), np.append(0, totals)) / num))

    @property
    def best_aurc(self) -> float:
        """That of the perfect order: smallest losses first."""
        return float(np.mean(np.cumsum(np.sort(self.losses)) / np.arange(1, len(self.losses) + 1)))

    @property
    def excess_aurc(self) -> float:
        """How far `aurc` is from that of the perfect order."""
        return max(self.aurc - self.best_aurc, 0.0)

    def threshold(self, target_risk: float | int, bound: AbstractRiskBound | None = None) -> Threshold:
        """The largest coverage at which the risk is at most the target.

        Without a bound, the risk is that of the rows at hand. With one, the risk of new rows from the same source is
        at most the target, with the bound's confidence; exactly so where uncertainties do not tie.

        Args:
            target_risk: to keep to.
            bound: `ClopperPearson()` or `Hoeffding()`.

        Returns:
            The threshold; one that accepts nothing, with a warning, if the target cannot be kept to.
        """
        if not np.isfinite(target_risk):
            raise ValueError(f"target_risk must be finite, got {target_risk}")
        if bound is None:
            cuts, limits = np.arange(len(self._num_accepted)), self.risk
        else:
            bound.check_losses(self.losses)
            cuts, limits = self._bounded(bound)
        kept = np.flatnonzero(limits <= target_risk)
        if not kept.size:
            warnings.warn(
                f"target_risk={target_risk:g} cannot be kept to at any coverage (at best {limits.min():.3g}): "
                "nothing is accepted",
                stacklevel=3,  # the caller of a method of an Equinox module
            )
            return Threshold(-math.inf, 0.0, math.nan, None, self.score)
        cut, limit = cuts[kept[-1]], float(limits[kept[-1]])
        found, coverage, risk = (float(values[cut]) for values in (self.thresholds, self.coverage, self.risk))
        return Threshold(found, coverage, risk, None if bound is None else limit, self.score)

    @property
    def _num_accepted(self) -> np.ndarray:
        """Of each cut, which are between different uncertainties."""
        ends = np.append(self.uncertainty[1:] != self.uncertainty[:-1], True)
        return np.flatnonzero(ends) + 1

    def _bounded(self, bound: AbstractRiskBound) -> tuple[np.ndarray, np.ndarray]:
        """Cuts that were fixed beforehand by their ranks, and bounds that hold for all of them together."""
        num, accepted = len(self.losses), self._num_accepted
        ranks = np.unique(np.ceil(num * np.arange(1, bound.num_cuts + 1) / bound.num_cuts).astype(int))
        cuts = np.searchsorted(accepted, ranks)
        # The row that defines the cut is not a random one of those below it: it does not count as evidence.
        least = np.minimum.reduceat(self.losses, np.append(0, accepted[:-1]))[cuts]
        totals, evidence = np.cumsum(self.losses)[accepted[cuts] - 1] - least, accepted[cuts] - 1
        limits = bound.upper(totals, np.maximum(evidence, 1), (1 - bound.confidence) / len(ranks))
        return cuts, np.where(evidence > 0, limits, np.inf)


def risk_coverage(prediction: Any, y: Any = None, *, uncertainty: Any = None, losses: Any = None) -> RiskCoverage:
    """The risk-coverage curve of a prediction on rows with known targets.

    Args:
        prediction: a `ClassificationPrediction` or class probabilities (n, k), or a `RegressionPrediction` or a pair
            (mean, std) of arrays of shape (n,).
        y: the targets.
        uncertainty: of each row; by default the entropy of classes and the standard deviation of numbers.
        losses: of each row, in place of y; by default 1 for a wrong label and the squared error of the mean.

    >>> risk_coverage([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8]], [0, 0, 1]).risk.round(3).tolist()
    [0.0, 0.0, 0.333]
    """
    if (y is None) == (losses is None):
        raise ValueError("y or losses must be given, and not both")
    given = uncertainty is not None
    default, score, loss_of = _read(prediction)
    return RiskCoverage(
        uncertainty if given else default, losses if y is None else loss_of(y), "given" if given else score
    )


def select(prediction: Any, threshold: Threshold | float | int) -> Bool[np.ndarray, " n"]:
    """Which inputs to answer: those whose uncertainty is at most the threshold.

    Args:
        prediction: at new inputs, as in `risk_coverage`, or their uncertainties (n,) if those were given there.
        threshold: from `RiskCoverage.threshold`, or a number.

    >>> select([[0.9, 0.1], [0.4, 0.6]], threshold=0.5).tolist()
    [True, False]
    """
    cut = threshold.uncertainty if isinstance(threshold, Threshold) else float(threshold)
    if math.isnan(cut):
        raise ValueError("threshold must be a number, got nan")
    if outcome_of(prediction) is None and np.ndim(prediction) == 1:
        return check_array(prediction, "prediction", infinite=True) <= cut
    uncertainty, score, _ = _read(prediction)
    if isinstance(threshold, Threshold) and threshold.score != score:
        wanted = "uncertainties that were given" if threshold.score == "given" else threshold.score
        raise ValueError(f"threshold is one of {wanted}, not of {score}: pass the uncertainties of the new inputs")
    return uncertainty <= cut


def _read(prediction: Any) -> tuple[np.ndarray, str, Any]:
    """Uncertainty, its name, and losses as a function of targets."""
    outcome = outcome_of(prediction)
    if outcome is not None and outcome.is_number:
        mean, std = read_mean_and_std(prediction)
        if mean.size != len(mean):
            raise ValueError(
                f"prediction must have one output, got {mean.shape[1]}: give uncertainty and losses to RiskCoverage"
            )
        return std.ravel(), "std", lambda y: np.ravel((check_targets(y, mean.shape) - mean) ** 2)
    classes = read_one_class(prediction, name="a risk-coverage curve")
    return classes.entropy, "entropy", lambda y: (classes.check(y) != classes.labels).astype(float)


def _rows(values: np.ndarray, name: str) -> np.ndarray:
    if values.ndim != 1:
        raise ValueError(f"{name} must have shape (n,), got {values.shape}")
    return values


def _check_bound(bound: AbstractRiskBound) -> None:
    check_level(bound.confidence, "confidence")
    check_count(bound.num_cuts, "num_cuts")
