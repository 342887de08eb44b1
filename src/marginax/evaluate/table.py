"""The usual scores of a prediction, at once."""

from collections.abc import Callable
from typing import Any

import numpy as np

from marginax.evaluate.calibration import ece, regression_calibration_error
from marginax.evaluate.classification import accuracy, brier
from marginax.evaluate.crps import crps
from marginax.evaluate.density import nll
from marginax.evaluate.inputs import Samples, as_classes, as_level, as_numbers, as_targets, is_classes
from marginax.evaluate.ranking import auroc
from marginax.evaluate.regression import coverage_of, interval_of, interval_score_of, mae, rmse, sharpness
from marginax.evaluate.score import Score, ScoreTable


def scores(prediction: Any, y: Any, *, level: float = 0.9) -> ScoreTable:
    """The scores that suit the kind of prediction, by name; print it.

    Classes: accuracy, nll, brier, ece, auroc. Numbers: rmse, mae, nll, crps, coverage, interval_score, sharpness,
    calibration_error. A score that the prediction cannot have is left out, and the table says why.

    Args:
        prediction: of numbers, classes or labels, or arrays that say the same. Of an array (n, k), rows that sum to one
            are probabilities; others are samples.
        y: targets or labels.
        level: probability of intervals.

    >>> scores(([0.0, 1.0, 2.0, 3.0], [1.0, 1.0, 1.0, 1.0]), [0.5, 0.0, 2.0, 4.0])
    4 rows, intervals of 90%
    rmse                0.75 ± 0.17
    mae                 0.62 ± 0.24
    nll                 1.20 ± 0.13
    crps                0.44 ± 0.09
    coverage           1.000 ± 0.000
    interval_score     3.290 ± 0.000
    sharpness          1.000 ± 0.000
    calibration_error   0.08 ± 0.07
    """
    if is_classes(prediction, y):
        classes = as_classes(prediction, name="scores")
        classes.check(y)
        return _table(
            f"{len(classes.probs)} rows",
            {score.__name__: lambda score=score: score(prediction, y) for score in (accuracy, nll, brier, ece, auroc)},
        )
    level = as_level(level, name="level")
    numbers = as_numbers(prediction, name="scores")
    y = as_targets(numbers, y)
    intervals: list[tuple[np.ndarray, np.ndarray]] = []

    def interval() -> tuple[np.ndarray, np.ndarray]:
        if not intervals:
            intervals.append(interval_of(numbers, level))
        return intervals[0]

    entries: dict[str, Callable[[], Score]] = {
        "rmse": lambda: rmse(prediction, y),
        "mae": lambda: mae(prediction, y),
        "nll": lambda: nll(prediction, y),
        "crps": lambda: crps(prediction, y),
        "coverage": lambda: coverage_of(y, *interval()),
        "interval_score": lambda: interval_score_of(y, *interval(), level),
        "sharpness": lambda: sharpness(prediction),
        "calibration_error": lambda: regression_calibration_error(prediction, y),
    }
    left_out = {}
    if isinstance(numbers, Samples):
        del entries["nll"]
        left_out = {"nll": "samples have no density"}
    return _table(f"{len(numbers)} rows, intervals of {100 * level:g}%", entries, left_out)


def _table(heading: str, entries: dict[str, Callable[[], Score]], left_out: dict[str, str] | None = None) -> ScoreTable:
    """Those that can be had. What is wrong with the input as a whole was said before."""
    found, missing = {}, dict(left_out or {})
    for name, score in entries.items():
        try:
            found[name] = score()
        except (NotImplementedError, AttributeError, ValueError) as error:
            missing[name] = str(error)
    return ScoreTable(found, heading, missing)
