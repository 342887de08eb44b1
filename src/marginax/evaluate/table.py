"""The usual scores of a prediction, at once."""

from typing import Any

from marginax.evaluate.score import ScoreTable, registered_scores
from marginax.predict.checks import check_level
from marginax.predict.reading import read_prediction


def scores(prediction: Any, y: Any, *, level: float = 0.9) -> ScoreTable:
    r"""The scores that suit the kind of prediction, by name; print it.

    Classes: accuracy, nll, brier, ece, auroc. Numbers: rmse, r2, mae, nll, crps, coverage, interval_score, sharpness,
    calibration_error. Both: whatever else was declared with `@score`. A score that the prediction cannot have is left
    out, and the table says why.

    Args:
        prediction: of numbers, classes or labels, or arrays that say the same. Of an array (n, k), rows that sum to one
            are probabilities; others are samples.
        y: targets or labels.
        level: probability of intervals.

    >>> table = scores(([0.0, 1.0, 2.0, 3.0], [1.0, 1.0, 1.0, 1.0]), [0.5, 0.0, 2.0, 4.0])
    >>> print(*str(table).splitlines()[:3], sep="\n")
    4 rows, intervals of 90%
    rmse                0.75 ± 0.17
    r2                  0.77 ± 0.26
    """
    level = check_level(level)
    found = read_prediction(prediction, y, name="scores")
    y = found.check(y)  # what is wrong with the input as a whole is said before single scores are left out
    values, left_out = {}, {}
    for name, entry in registered_scores("table", found.outcome).items():
        try:
            values[name] = entry(found, y, level=level)
        except (NotImplementedError, AttributeError, ValueError) as error:
            left_out[name] = str(error)
    intervals = f", intervals of {100 * level:g}%" if found.outcome.is_number else ""
    return ScoreTable(values, f"{len(found)} rows{intervals}", left_out)
