"""Which forecasts are judged together."""

import abc
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int


class AbstractBins(abc.ABC):
    """A rule that puts probabilities into bins."""

    @abc.abstractmethod
    def assign(self, probs: Float[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        """The number of each probability's bin, from 0."""


@dataclass(frozen=True)
class EqualWidth(AbstractBins):
    """Bins (0, 1/B], (1/B, 2/B], ..., as Guo et al. (2017) have them; 0 is in the first.

    >>> EqualWidth(4).assign(np.array([0.0, 0.25, 0.3, 1.0])).tolist()
    [0, 0, 1, 3]

    Args:
        num_bins: B.
    """

    num_bins: int = 15

    def __post_init__(self):
        _check_num_bins(self.num_bins)

    def assign(self, probs: Float[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        return np.searchsorted(np.arange(1, self.num_bins) / self.num_bins, probs, side="left")


@dataclass(frozen=True)
class EqualMass(AbstractBins):
    """Bins between quantiles of the forecasts, so that each has about as many; equal forecasts share a bin.

    >>> EqualMass(2).assign(np.array([0.1, 0.9, 0.2, 0.8])).tolist()
    [0, 1, 0, 1]

    Args:
        num_bins: how many.
    """

    num_bins: int = 15

    def __post_init__(self):
        _check_num_bins(self.num_bins)

    def assign(self, probs: Float[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        edges = np.quantile(probs, np.arange(1, self.num_bins) / self.num_bins)
        return np.searchsorted(edges, probs, side="left")


@dataclass(frozen=True)
class Distinct(AbstractBins):
    """A bin for every value that was forecast: for forecasts that take few values.

    >>> Distinct().assign(np.array([0.5, 0.1, 0.5])).tolist()
    [1, 0, 1]
    """

    def assign(self, probs: Float[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        return np.unique(probs, return_inverse=True)[1]


def check_bins(bins: object) -> AbstractBins:
    """An object, not a number of bins."""
    if not isinstance(bins, AbstractBins):
        raise TypeError(f"bins must be EqualWidth(), EqualMass() or Distinct(), got {bins!r}")
    return bins


def _check_num_bins(num_bins: object) -> None:
    if isinstance(num_bins, bool) or not isinstance(num_bins, int | np.integer) or num_bins < 1:
        raise ValueError(f"num_bins must be an int >= 1, got {num_bins!r}")
