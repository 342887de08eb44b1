r"""Jackknife+: intervals from models that each left some rows out, without a held-out set.

With $\hat\mu_{-i}$ fitted without row i and $R_i = |y_i - \hat\mu_{-i}(x_i)|$, the interval at x goes from the
$\lfloor (n+1)(1-\gamma) \rfloor$-th smallest $\hat\mu_{-i}(x) - R_i$ to the $\lceil (n+1)\gamma \rceil$-th smallest
$\hat\mu_{-i}(x) + R_i$ (Barber et al., 2021). It covers with at least $2\gamma - 1$, and in practice with about
$\gamma$. Members that each saw a subset of the rows serve as well: their mean over those that did not see row i stands
in for $\hat\mu_{-i}$ (jackknife+-after-bootstrap, Kim et al., 2020; with folds, CV+).
"""

import math
import warnings
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Bool, Float

from marginax.decide.conformal import conformal_quantile, rows_needed
from marginax.files import register
from marginax.predict.checks import check_array, check_level, check_targets
from marginax.predict.reading import outcome_of, read_numbers

_CHUNK = 2**22  # numbers of the table (training rows x new inputs) to have in memory at a time


@register("conformal/jackknife_plus")
class JackknifePlus(eqx.Module):
    """Intervals for numbers, from `jackknife_plus`.

    Attributes:
        residuals: of each training row, from the members that did not see it.
        unseen: which members those are.
    """

    residuals: Float[np.ndarray, " n"]
    unseen: Bool[np.ndarray, "n members"]

    def interval(self, predictions: Any, level: float = 0.9) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """Lower and upper ends; they are infinite, with a warning, if there are too few training rows for the level.

        Args:
            predictions: of each member at the new inputs, shape (members, m), or a `RegressionPrediction` whose draws
                are the members.
            level: the probability of covering the target is about this, and at least 2 level - 1.
        """
        check_level(level)
        members = _read_members(predictions)
        num_rows, num_members = self.unseen.shape
        if members.ndim != 2 or len(members) != num_members:
            raise ValueError(f"predictions must have shape ({num_members}, m), one row per member, got {members.shape}")
        if num_rows < (needed := rows_needed(level)):
            warnings.warn(
                f"level={level:g} needs {needed} training rows or more, got {num_rows}: the intervals are infinite",
                stacklevel=3,  # the caller of a method of an Equinox module
            )
        num_inputs = members.shape[1]
        lower, upper = np.empty(num_inputs), np.empty(num_inputs)
        size = max(1, _CHUNK // num_rows)
        for start in range(0, num_inputs, size):
            at = slice(start, start + size)
            left_out = _left_out(self.unseen, members[:, at])
            lower[at] = -conformal_quantile(np.sort(self.residuals[:, None] - left_out, axis=0), level)
            upper[at] = conformal_quantile(np.sort(self.residuals[:, None] + left_out, axis=0), level)
        return lower, upper


def jackknife_plus(predictions: Any, y: Any, seen: Any = None) -> JackknifePlus:
    """Calibrate on the training rows themselves, each judged by models that did not see it.

    Args:
        predictions: at the training rows. Either (n,), the prediction of each row by the model fitted without it; or
            (members, n), together with `seen`; or a `RegressionPrediction` whose draws are the members.
        y: the targets of the training rows.
        seen: boolean (members, n), which rows each member was fitted to. Every row must be new to some member.

    Returns:
        An object with `.interval(predictions, level)`.

    >>> y = np.array([1.0, 2.0, 3.0, 4.0])
    >>> without = (y.sum() - y) / 3  # the mean of the others
    >>> lower, upper = jackknife_plus(without, y).interval(without[:, None], level=0.6)
    >>> lower.round(2).tolist(), upper.round(2).tolist()
    ([1.0], [4.0])
    """
    members = _read_members(predictions)
    targets = check_targets(y, members.shape[-1:])
    if members.ndim == 1 and seen is None:
        residuals = np.abs(targets - members)
        return JackknifePlus(residuals, np.eye(len(residuals), dtype=bool))
    if members.ndim != 2 or seen is None:
        raise ValueError(
            "predictions must have shape (n,), one of each row left out, or (members, n) with seen=, "
            f"got {members.shape} and seen={'None' if seen is None else 'an array'}"
        )
    mask = np.asarray(seen)
    if mask.dtype != bool or mask.shape != members.shape:
        raise ValueError(
            f"seen must be boolean of shape {members.shape}, got an array of {mask.dtype} of shape {mask.shape}"
        )
    unseen = ~mask.T
    lost = np.flatnonzero(~unseen.any(axis=1))
    if lost.size:
        raise ValueError(
            f"seen must leave every row to some member, but all members saw row {lost[0]} and {lost.size - 1} others: "
            "use more members"
        )
    weights = unseen / unseen.sum(axis=1, keepdims=True)
    return JackknifePlus(np.abs(targets - np.einsum("nb,bn->n", weights, members)), unseen)


def _left_out(unseen: np.ndarray, members: np.ndarray) -> Float[np.ndarray, "n m"]:
    """Means over the members that did not see each training row."""
    if np.array_equal(unseen, np.eye(len(unseen), dtype=bool)):
        return members
    return unseen.astype(float) @ members / unseen.sum(axis=1, keepdims=True)


def _read_members(predictions: Any) -> Float[np.ndarray, "*members m"]:
    if outcome_of(predictions) is None:
        return check_array(predictions, "predictions")
    predictions = read_numbers(predictions, name="jackknife+", remedy="classes have conformal sets")
    if math.prod(predictions.y_shape) != 1:
        raise ValueError(f"predictions must have one output, got {predictions!r}")
    return check_array(predictions.centres.reshape(-1, len(predictions)), "predictions")
