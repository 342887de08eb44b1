"""Scores that are shares of rows, and how well a share is known."""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool

from marginax.evaluate.score import AbstractScore, mean_score
from marginax.files import register


@register("score/proportion")
@dataclass(frozen=True, eq=False, repr=False)
class Proportion(AbstractScore):
    r"""A share of rows, with Wilson's (1927) interval in place of a standard error, which is 0 where all are right.

    >>> Proportion(36, 36), Proportion(45, 50)
    (1.000 [0.904, 1.000] (n=36), 0.90 [0.79, 0.96] (n=50))

    Attributes:
        hits: rows that count.
        num: how many rows.
    """

    hits: int
    num: int

    @property
    def value(self) -> float:
        """The share."""
        return self.hits / self.num

    @property
    def standard_error(self) -> float:
        """Of the share, over data sets of as many rows; NaN where the rows cannot tell, for all of them are alike."""
        if self.hits in (0, self.num):
            return math.nan
        return math.sqrt(self.value * (1 - self.value) / (self.num - 1))

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95% interval: the shares that a score test does not reject."""
        square = 1.959964**2
        middle = (self.hits + square / 2) / (self.num + square)
        half = math.sqrt(square * (self.value * (1 - self.value) * self.num + square / 4)) / (self.num + square)
        return max(0.0, middle - half), min(1.0, middle + half)

    @property
    def texts(self) -> tuple[str, str]:
        low, high = self.interval
        places = max(2, math.ceil(-math.log10(high - low)) + 1)
        if any(0 < end < 1 and round(end, places) in (0.0, 1.0) for end in (low, high)):
            places += 1  # what is not certain does not look so
        return f"{self.value:.{places}f}", f"[{low:.{places}f}, {high:.{places}f}]"


def share_score(hits: Bool[np.ndarray, "n *rest"], *, name: str) -> AbstractScore:
    """The share of rows that are hits; a row of several has a share of its own, and the mean of them is scored.

    >>> share_score(np.array([True, True, True, False]), name="accuracy")
    0.75 [0.30, 0.95] (n=4)
    """
    if hits.size == len(hits):
        return Proportion(int(hits.sum()), len(hits))
    return mean_score(hits, name=name)
