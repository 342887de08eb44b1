"""Do cases get higher probabilities than the others? Areas under the ROC curve and the precision-recall curve.

Three classes or more are taken each against the rest, and averaged, as labels are. Standard errors come from the
influence of each row on the score, so that averages over classes of the same rows have theirs, too.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from marginax.evaluate.score import CLASSES, Score, score
from marginax.predict.reading import read_classes


@score(
    "auroc",
    outcomes=CLASSES,
    better="more",
    title="AUROC",
    place=50,
    words="how well the classes are told apart; 1 is best, 0.5 is chance",
)
def auroc(prediction: Any, y: Any) -> Score:
    """Area under the ROC curve: how often a case gets a higher probability than another row; ties count half.

    The standard error is DeLong's (1988).

    Args:
        prediction: of classes or labels, or probabilities (n, k), or (n,) for two classes.
        y: labels; every class has to appear.

    >>> auroc([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])
    0.75 ± 0.35 (n=4)
    """
    return _mean_over_events(area_under_roc, prediction, y, "auroc")


@score(
    "aupr",
    outcomes=CLASSES,
    better="more",
    title="AUPR",
    shown="never",
    words="precision at every recall, averaged; 1 is best",
)
def aupr(prediction: Any, y: Any) -> Score:
    """Area under the precision-recall curve, as average precision: a step function, not interpolated.

    The standard error is by the delta method, from the influence function of average precision.

    Args:
        prediction: of classes or labels, or probabilities (n, k), or (n,) for two classes.
        y: labels; every class has to appear.

    >>> round(float(aupr([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])), 4)
    0.8333
    """
    return _mean_over_events(average_precision, prediction, y, "aupr")


def _mean_over_events(function: Callable[..., tuple[float, np.ndarray]], prediction: Any, y: Any, name: str) -> Score:
    probs, happened = read_classes(prediction, name=name).events(y)
    often = happened.sum(axis=0)
    constant = np.flatnonzero((often == 0) | (often == len(happened)))
    if len(constant):
        what = f"class {constant[0] if happened.shape[1] > 1 else 1}"
        often = "never" if often[constant[0]] == 0 else "always"
        raise ValueError(f"y must hold rows with and without {what} for {name}: it is {often} there")
    parts = [function(each, truth) for each, truth in zip(probs.T, happened.T, strict=True)]
    value = float(np.mean([value for value, _ in parts]))
    influence = np.mean([influence for _, influence in parts], axis=0)
    # where all cases are told from all others, the rows cannot say how far from certain that is
    error = float(np.sqrt(np.sum(influence**2)) / len(influence)) if 0 < value < 1 else np.nan
    return Score(value, error, len(influence))


def area_under_roc(
    probs: Float[np.ndarray, " n"], happened: Bool[np.ndarray, " n"]
) -> tuple[float, Float[np.ndarray, " n"]]:
    """The area, and the influence of each row (DeLong's placements, with his divisors m - 1)."""
    from scipy import stats

    ranks = stats.rankdata(probs)
    num_cases, num = int(happened.sum()), len(probs)
    num_others = num - num_cases
    placement = np.empty(num)
    placement[happened] = (ranks[happened] - stats.rankdata(probs[happened])) / num_others
    placement[~happened] = 1 - (ranks[~happened] - stats.rankdata(probs[~happened])) / num_cases
    area = float(placement[happened].mean())
    sizes = np.where(happened, num_cases, num_others)
    with np.errstate(divide="ignore", invalid="ignore"):  # a single case has no variance: NaN
        return area, (placement - area) * num / np.sqrt(sizes * (sizes - 1.0))


def average_precision(
    probs: Float[np.ndarray, " n"], happened: Bool[np.ndarray, " n"]
) -> tuple[float, Float[np.ndarray, " n"]]:
    """The mean over cases of the precision at their probability, and the influence of each row on it.

    A row changes the precision at its own probability and at all lower ones, where it is among the selected.
    """
    num = len(probs)
    _, place, counts = np.unique(-probs, return_inverse=True, return_counts=True)  # highest first
    cases = np.bincount(place, happened)
    selected = np.cumsum(counts) / num
    precision = np.cumsum(cases) / num / selected
    rate = happened.mean()
    area = float(np.sum(cases * precision) / num / rate)
    per_case = cases / num / selected
    lower = np.cumsum(per_case[::-1])[::-1]  # sums over this probability and those below
    lower_precise = np.cumsum((per_case * precision)[::-1])[::-1]
    at = happened * (precision[place] - area)
    return area, (at + happened * lower[place] - lower_precise[place]) / rate
