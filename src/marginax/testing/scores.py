"""Comparing draws with known moments, in units of Monte Carlo error.

A difference means nothing without its standard error: that of an average of correlated draws is the standard deviation
over the square root of the effective sample size. Under a right method a score is about standard normal, and 4.9 is
exceeded once in a million.
"""

import warnings
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from marginax._extras import require

Z = 4.9


@dataclass(frozen=True, eq=False)
class MomentScores:
    """How far averages of draws are from the truth, in Monte Carlo standard errors.

    Args:
        mean: one score per quantity.
        second: scores of the centred second moments, all pairs; only the diagonal where the truth was variances.
        ess: the smallest effective sample size among these averages.
    """

    mean: Float[np.ndarray, " d"]
    second: Float[np.ndarray, "d d"]
    ess: float

    @property
    def worst(self) -> float:
        """The largest absolute score; infinite where draws do not vary at all."""
        return float(max(np.abs(self.mean).max(initial=0.0), np.abs(self.second).max(initial=0.0)))


def z_scores(
    draws: np.ndarray,
    mean: Float[np.ndarray, " d"],
    covariance: Float[np.ndarray, "d d"] | Float[np.ndarray, " d"],
    *,
    independent: bool | None = None,
) -> MomentScores:
    """Scores of the means, variances and covariances of draws.

    Args:
        draws: axes (chain, draw, quantity).
        mean: exact means.
        covariance: exact covariance matrix, or variances alone.
        independent: whether draws within a chain are independent. By default they are when there is one per chain;
            otherwise effective sample sizes are estimated.

    >>> draws = np.random.default_rng(0).normal(size=(4, 1000, 2))
    >>> (
    ...     z_scores(draws, np.zeros(2), np.eye(2)).worst < 4.9,
    ...     z_scores(draws, np.ones(2), np.eye(2)).worst < 4.9,
    ... )
    (True, False)
    """
    draws = np.asarray(draws, np.float64)
    if draws.ndim != 3 or draws.shape[2] != len(mean):
        raise ValueError(f"draws must have axes (chain, draw, quantity) with {len(mean)} quantities, got {draws.shape}")
    if not np.isfinite(draws).all():
        raise AssertionError(f"{int((~np.isfinite(draws)).sum())} of {draws.size} values of draws are not finite")
    size = len(mean)
    centred = draws - mean
    if np.ndim(covariance) == 2:
        left, right = np.triu_indices(size)
    else:
        covariance = np.diag(covariance)
        left = right = np.arange(size)
    products = centred[..., left] * centred[..., right]
    values = np.concatenate([centred, products], axis=-1)
    truth = np.concatenate([np.zeros(size), np.asarray(covariance)[left, right]])
    flat = values.reshape(-1, values.shape[-1])
    if draws.shape[1] == 1 if independent is None else independent:
        ess = np.full(len(truth), float(len(flat)))
    else:
        ess = _effective_sizes(values)
    error = flat.std(axis=0, ddof=1) / np.sqrt(ess)
    difference = flat.mean(axis=0) - truth
    tiny = 1e-12 * np.maximum(1.0, np.abs(truth))
    with np.errstate(divide="ignore", invalid="ignore"):
        scores = difference / error
    scores = np.where(np.isfinite(scores), scores, np.where(np.abs(difference) <= tiny, 0.0, np.inf))
    second = np.zeros((size, size))
    second[left, right] = second[right, left] = scores[size:]
    return MomentScores(scores[:size], second, float(np.nanmin(ess)) if np.isfinite(ess).any() else 0.0)


def assert_moments_match(
    draws: np.ndarray,
    mean: Float[np.ndarray, " d"],
    covariance: Float[np.ndarray, "d d"] | Float[np.ndarray, " d"],
    *,
    z: float = Z,
    min_ess: float = 0.0,
    independent: bool | None = None,
    name: str = "draws",
) -> MomentScores:
    """Raise an AssertionError that lists the worst scores unless all are within +-z; otherwise return them.

    Args:
        draws: as in `z_scores`.
        mean: as in `z_scores`.
        covariance: as in `z_scores`.
        z: the largest score that passes.
        min_ess: the smallest effective sample size that makes the comparison worth something.
        independent: as in `z_scores`.
        name: what the draws are, for the message.
    """
    scores = z_scores(draws, mean, covariance, independent=independent)
    flat = np.asarray(draws, np.float64).reshape(-1, len(mean))
    truth = np.diag(covariance) if np.ndim(covariance) == 1 else np.asarray(covariance)
    found = (flat - mean).T @ (flat - mean) / len(flat)
    wrong = [
        (abs(score), f"mean[{i}] is {flat[:, i].mean():.5g}, should be {mean[i]:.5g} (z = {score:.1f})")
        for i, score in enumerate(scores.mean)
    ]
    for i, j in zip(*np.triu_indices(len(mean)), strict=True):
        score = scores.second[i, j]
        text = f"covariance[{i}, {j}] is {found[i, j]:.5g}, should be {truth[i, j]:.5g} (z = {score:.1f})"
        wrong.append((abs(score), text))
    wrong = sorted((item for item in wrong if item[0] > z), reverse=True)
    if wrong:
        lines = [text for _, text in wrong[:5]]
        raise AssertionError(
            f"{name}: {len(wrong)} moments are more than {z} standard errors off "
            f"(smallest effective sample size {scores.ess:.0f}):\n  " + "\n  ".join(lines)
        )
    if scores.ess < min_ess:
        raise AssertionError(f"{name}: effective sample size {scores.ess:.0f} is below the {min_ess:.0f} asked for")
    return scores


def _effective_sizes(values: Float[np.ndarray, "c s k"]) -> Float[np.ndarray, " k"]:
    arviz = require("arviz")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = arviz.convert_to_dataset(values)
        return arviz.ess(data, method="mean")["x"].to_numpy().reshape(-1)
