r"""The Dawid-Sebastiani score: a proper score that looks at mean and variance alone (Dawid & Sebastiani, 1999)."""

from typing import Any

import numpy as np

from marginax.evaluate.score import NUMBERS, Score, mean_score, score
from marginax.predict.reading import read_numbers


@score(
    "dawid_sebastiani",
    outcomes=NUMBERS,
    better="less",
    title="Dawid-Sebastiani",
    place=35,
    words="squared error in units of the predicted variance, plus its logarithm; lower is better",
)
def dawid_sebastiani(prediction: Any, y: Any) -> Score:
    r"""Mean of $\log \sigma^2 + (y - \mu)^2 / \sigma^2$; less is better. Outputs of a row are averaged.

    It needs no density, so samples have it too; for a normal prediction it is the negative log density, doubled and
    without its constant.

    Args:
        prediction: of numbers, samples (s, n), or a pair (mean, std).
        y: targets.

    >>> round(float(dawid_sebastiani((np.zeros(2), np.full(2, 2.0)), [2.0, 0.0])), 4)  # log 4 + 1/2
    1.8863
    """
    numbers = read_numbers(prediction, name="dawid_sebastiani")
    variance = numbers.std**2
    if not np.all(variance > 0):
        raise ValueError("prediction must have standard deviations > 0 for dawid_sebastiani")
    return mean_score(np.log(variance) + (numbers.check(y) - numbers.mean) ** 2 / variance, name="dawid_sebastiani")
