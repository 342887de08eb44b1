"""Who knows the labels: any function of row numbers, known labels, or somebody who answers one question at a time."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Int, Num

from marginax.data.arrays import as_numeric
from marginax.files import register

Oracle = Callable[[np.ndarray], Any]


@register("active/known_labels")
class KnownLabels(eqx.Module):
    """An oracle for experiments: the labels are there, and given when asked for.

    >>> KnownLabels([3, 1, 4])(np.array([2, 0])).tolist()
    [4, 3]

    Attributes:
        y: the labels of all rows of the pool.
    """

    y: Num[np.ndarray, "n ..."]

    def __init__(self, y: Any):
        self.y = as_numeric(y, name="y")

    def __call__(self, rows: Int[np.ndarray, " m"]) -> Num[np.ndarray, "m ..."]:
        """Labels of these rows."""
        return self.y[rows]


class OneAtATime(eqx.Module):
    """An oracle that is asked about one row after the other; each answer is safe before the next question.

    Args:
        answer: gives the label of a row number. A KeyboardInterrupt (Ctrl-C) ends the session.

    >>> OneAtATime(lambda row: 10 * row)(np.array([2, 0])).tolist()
    [20, 0]
    """

    answer: Callable[[int], Any]

    def __call__(self, rows: Int[np.ndarray, " m"]) -> Num[np.ndarray, "m ..."]:
        """Labels of these rows."""
        return np.asarray([self.answer(int(row)) for row in rows])


def ask(oracle: Oracle, rows: Int[np.ndarray, " m"]) -> Num[np.ndarray, "m ..."]:
    """Labels of these rows, checked."""
    labels = as_numeric(oracle(rows.copy()), name="labels from the oracle")
    if len(labels) != len(rows):
        raise ValueError(f"oracle must give a label for each of {len(rows)} rows, got an array of {labels.shape}")
    return labels
