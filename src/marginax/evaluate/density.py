"""Log density of what happened: the score that inference maximises."""

from typing import Any

import numpy as np
from jaxtyping import Float

from marginax.evaluate.score import CLASSES, NUMBERS, Score, mean_score, score
from marginax.predict.reading import outcome_of, read_classes, read_numbers


@score(
    "log_predictive_density",
    outcomes=(*NUMBERS, *CLASSES),
    better="more",
    shown="never",
    words="log-likelihood of what was observed, in nats; higher is better",
)
def log_predictive_density(prediction: Any, y: Any) -> Score:
    r"""Mean log predictive density (for classes and counts: log probability) of the targets, in nats.

    $\frac{1}{n} \sum_i \log p(y_i \mid x_i, D)$; outputs and labels of a row are joint. The standard error is that of
    the mean.

    Args:
        prediction: of numbers or classes, a pair (mean, std), or probabilities. Samples have no density.
        y: targets or labels.

    >>> log_predictive_density(np.array([[0.5, 0.5], [0.1, 0.9]]), [0, 1])
    -0.4 ± 0.3 (n=2)
    """
    return mean_score(_log_prob(prediction, y), name="log_predictive_density")


@score(
    "nll",
    outcomes=(*NUMBERS, *CLASSES),
    better="less",
    title="NLL",
    shown="headline",
    place=20,
    words="negative log-likelihood: surprise at what was observed, in nats; lower is better",
)
def nll(prediction: Any, y: Any) -> Score:
    """Mean negative log predictive density: `log_predictive_density` with the sign that makes less better.

    Args:
        prediction: as in `log_predictive_density`.
        y: targets or labels.

    >>> round(float(nll((np.zeros(2), np.ones(2)), [0.0, 1.0])), 4)  # log(2 pi) / 2 + 1 / 4
    1.1689
    """
    return mean_score(-_log_prob(prediction, y), name="nll")


def _log_prob(prediction: Any, y: Any) -> Float[np.ndarray, " n"]:
    outcome = outcome_of(prediction)
    if outcome is not None:
        read = read_numbers if outcome.is_number else read_classes
        found = read(prediction, name="nll")
        return found.log_prob(found.check(y))
    try:
        return read_classes(prediction, name="nll").log_prob(y)
    except ValueError as error:
        if np.ndim(prediction) >= 2:
            error.add_note("An array is taken for class probabilities here: samples of numbers have no density.")
        raise
