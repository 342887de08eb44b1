"""Log density of what happened: the score that inference maximises."""

from typing import Any

import numpy as np
from jaxtyping import Float

from marginax.evaluate.inputs import Normals, as_classes, as_numbers, as_targets
from marginax.evaluate.score import Score, mean_score
from marginax.predict import ClassificationPrediction, MultiLabelPrediction, RegressionPrediction
from marginax.predict.recalibrated import RecalibratedPrediction


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
    if isinstance(prediction, RegressionPrediction | RecalibratedPrediction | tuple):
        numbers = as_numbers(prediction, name="nll")
        assert isinstance(numbers, RegressionPrediction | RecalibratedPrediction | Normals)
        return numbers.log_prob(as_targets(numbers, y))
    try:
        return as_classes(prediction, name="nll").log_prob(y)
    except ValueError as error:
        if not isinstance(prediction, ClassificationPrediction | MultiLabelPrediction) and np.ndim(prediction) >= 2:
            error.add_note("An array is taken for class probabilities here: samples of numbers have no density.")
        raise
