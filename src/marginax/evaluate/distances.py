"""How far two predictions at the same inputs are from each other: two posteriors, two methods, before and after.

Each is a mean over inputs, with the standard error of that mean. Identical predictions have agreement 1 and distance 0.
"""

from typing import Any

import numpy as np
from jaxtyping import Float

from marginax.evaluate.quadrature import centre_and_scale, count_range, integrate, sum_over_counts, to_line
from marginax.evaluate.score import Score, mean_score
from marginax.model.outcome import Outcome
from marginax.predict import AbstractClassPrediction, AbstractNumberPrediction
from marginax.predict.reading import outcome_of, read_classes, read_numbers

_MOST_MASS = 1 / 32  # of an interval that is not cut in any case
_LEAST_BEND = 1e-9  # of probability, that matters
_PARTS = 4
_MOST_CUTS = 24


def agreement(first: Any, second: Any) -> Score:
    """Fraction of inputs where the most probable classes are the same (of labels: fraction of same labels).

    Args:
        first: prediction of classes or labels, or probabilities (n, k), or (n,) for two classes.
        second: the same kind, at the same inputs.

    >>> agreement([0.2, 0.9, 0.6, 0.4], [0.3, 0.8, 0.4, 0.1])
    0.75 ± 0.25 (n=4)
    """
    one, other = _two_classes(first, second, name="agreement")
    return mean_score(one.labels == other.labels, name="agreement")


def total_variation(first: Any, second: Any) -> Score:
    r"""Mean total variation distance, in [0, 1]: the most that the probabilities of any event differ by.

    For classes $\frac12 \sum_k |p_k - q_k|$ (of labels: the mean over labels); for numbers $\frac12 \int |p - q|$ of
    each output, from the distribution functions on intervals that are cut where the densities may cross.

    Args:
        first: prediction of classes, labels or numbers, probabilities, or a pair (mean, std). Samples have no density.
        second: the same kind, at the same inputs.

    >>> round(float(total_variation([[0.5, 0.5], [0.9, 0.1]], [[0.5, 0.5], [0.6, 0.4]])), 4)
    0.15
    >>> shifted = (np.ones(1), np.ones(1))
    >>> round(float(total_variation((np.zeros(1), np.ones(1)), shifted)), 4)  # 2 Phi(1/2) - 1
    0.3829
    """
    outcome = outcome_of(first)
    if outcome is None or outcome.is_class:
        one, other = _two_classes(first, second, name="total_variation")
        gaps = np.abs(one.probs - other.probs)  # of a label and its opposite they are the same
        values = gaps if one.outcome is Outcome.LABELS else 0.5 * gaps.sum(axis=-1)
        return mean_score(values, name="total_variation")
    left, right = _two_numbers(first, second, name="total_variation")
    if not (left.has_density and right.has_density):
        raise TypeError("first and second must have densities for total_variation, got samples: use wasserstein")
    compare = _count_variation if left.outcome is Outcome.COUNT else _variation
    return mean_score(compare(left, right), name="total_variation")


def wasserstein(first: Any, second: Any) -> Score:
    r"""Mean 1-Wasserstein distance $\int |F - G|$ between predicted numbers, in their units.

    By adaptive integration to about 1e-8 of the predictions' width; exact for samples, a sum for counts. Of several
    outputs, the mean over outputs. Predictions without a mean (very heavy tails) have none.

    Args:
        first: prediction of numbers, samples (s, n), or a pair (mean, std).
        second: the same kind (two sets of samples may differ in number), at the same inputs.

    >>> round(float(wasserstein((np.zeros(1), np.ones(1)), (np.full(1, 3.0), np.ones(1)))), 6)
    3.0
    """
    left, right = _two_numbers(first, second, name="wasserstein")
    if (left.samples is None) != (right.samples is None):
        raise TypeError("first and second must both be samples, or neither, for wasserstein")
    if left.samples is not None and right.samples is not None:
        values = _between_samples(left.samples, right.samples)
    elif left.outcome is Outcome.COUNT:
        values = sum_over_counts(
            lambda rows, counts: np.abs(left.cdf_at(rows, counts) - right.cdf_at(rows, counts)),
            *count_range(left, right),
        )
    else:
        values = _area_between(left, right)
    return mean_score(values, name="wasserstein")


def _two_classes(first: Any, second: Any, *, name: str) -> tuple[AbstractClassPrediction, AbstractClassPrediction]:
    one, other = read_classes(first, name=name), read_classes(second, name=name)
    if one.outcome is not other.outcome:
        raise TypeError(f"first and second must be of one kind, got {type(one).__name__}, {type(other).__name__}")
    if one.probs.shape != other.probs.shape:
        shapes = [(len(part), part.probs.shape[1]) for part in (one, other)]
        raise ValueError(f"first and second must be of the same inputs and classes, got {shapes[0]} and {shapes[1]}")
    return one, other


def _two_numbers(first: Any, second: Any, *, name: str) -> tuple[AbstractNumberPrediction, AbstractNumberPrediction]:
    left, right = read_numbers(first, name=name), read_numbers(second, name=name)
    shapes = [(len(part), *part.y_shape) for part in (left, right)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"first and second must be of the same inputs and outputs, got {shapes[0]} and {shapes[1]}")
    if left.outcome is not right.outcome:
        raise TypeError("first and second must both be of counts, or both of real numbers")
    return left, right


def _common_place(left: AbstractNumberPrediction, right: AbstractNumberPrediction) -> tuple[np.ndarray, np.ndarray]:
    """A centre between the two, and a scale that reaches both."""
    (a, s), (b, t) = centre_and_scale(left), centre_and_scale(right)
    return 0.5 * (a + b), np.maximum(np.maximum(s, t), np.abs(a - b))


def _area_between(left: AbstractNumberPrediction, right: AbstractNumberPrediction) -> Float[np.ndarray, "n *d"]:
    """Integral of |F - G|; the tails of F and G are integrated, too, so that no step between points is missed."""
    centre, scale = _common_place(left, right)

    def gaps(rows: np.ndarray, u: np.ndarray) -> np.ndarray:
        t, slope = (part.reshape(*u.shape, *[1] * (centre.ndim - 1)) for part in to_line(u))
        points = centre[rows, None] + scale[rows, None] * t
        f, g = left.cdf_at(rows, points), right.cdf_at(rows, points)
        parts = [np.abs(f - g), np.where(t < 0, f, 1 - f), np.where(t < 0, g, 1 - g)]
        return np.concatenate([(slope * part).reshape(*u.shape, -1) for part in parts], axis=-1)

    integrals = integrate(gaps, np.array([-1.0, -0.5, 0.0, 0.5, 1.0]), len(centre))
    return scale * integrals[:, : integrals.shape[1] // 3].reshape(centre.shape)


def _variation(left: AbstractNumberPrediction, right: AbstractNumberPrediction) -> Float[np.ndarray, "n *d"]:
    r"""Half the sum of |F(b) - F(a) - G(b) + G(a)| over intervals.

    It grows as intervals are cut, up to the total variation. An interval misses at most the smaller of its two masses,
    and nothing if p - q keeps its sign in it. So those are cut on where the sign may change: where differences from one
    part to the next are as large as the parts.
    """
    centre, scale = _common_place(left, right)

    def masses(rows: np.ndarray, u: np.ndarray) -> np.ndarray:
        """F and G."""
        t = to_line(u)[0].reshape(*u.shape, *[1] * (centre.ndim - 1))
        points = centre[rows, None] + scale[rows, None] * t
        return np.stack([left.cdf_at(rows, points), right.cdf_at(rows, points)])

    rows, start, stop = np.arange(len(centre)), np.full(len(centre), -1.0), np.ones(len(centre))
    at_start, at_stop = np.zeros((2, *centre.shape)), np.ones((2, *centre.shape))
    total = np.zeros_like(centre)
    for _ in range(_MOST_CUTS):
        edges = start[:, None] + (stop - start)[:, None] * np.linspace(0, 1, _PARTS + 1)
        inner = masses(rows, edges[:, 1:-1])
        ladder = np.concatenate([at_start[:, :, None], inner, at_stop[:, :, None]], axis=2)
        parts = np.diff(ladder[0] - ladder[1], axis=1)
        bends = np.abs(np.diff(parts, axis=1))
        bends = np.maximum(
            np.concatenate([bends[:, :1], bends], axis=1), np.concatenate([bends, bends[:, -1:]], axis=1)
        )
        turning = np.any((np.abs(parts) <= bends) & (bends > _LEAST_BEND), axis=1)
        mass = at_stop - at_start
        rough = (mass.min(axis=0) > _LEAST_BEND) & (turning | (mass.max(axis=0) > _MOST_MASS))
        rough = rough.reshape(len(rows), -1).any(axis=1)
        finer = 0.5 * np.abs(parts).sum(axis=1)
        np.add.at(total, rows[~rough], finer[~rough])
        if not rough.any():
            return total
        rows, edges, ladder = np.repeat(rows[rough], _PARTS), edges[rough], ladder[:, rough]
        start, stop = edges[:, :-1].ravel(), edges[:, 1:].ravel()
        at_start = ladder[:, :, :-1].reshape(2, -1, *centre.shape[1:])
        at_stop = ladder[:, :, 1:].reshape(2, -1, *centre.shape[1:])
    np.add.at(total, rows, 0.5 * np.abs(np.subtract(*(at_stop - at_start))))
    return total


def _count_variation(left: AbstractNumberPrediction, right: AbstractNumberPrediction) -> Float[np.ndarray, "n *d"]:
    def gap(rows: np.ndarray, counts: np.ndarray) -> np.ndarray:
        chances = [part.cdf_at(rows, counts) - part.cdf_at(rows, counts - 1) for part in (left, right)]
        return 0.5 * np.abs(chances[0] - chances[1])

    return sum_over_counts(gap, *count_range(left, right))


def _between_samples(left: Float[np.ndarray, "s n *d"], right: Float[np.ndarray, "t n *d"]) -> np.ndarray:
    """Steps of both distribution functions in order, and the area between them."""
    both = np.concatenate([left, right])
    order = np.argsort(both, axis=0, kind="stable")
    step = np.concatenate([np.full(len(left), 1 / len(left)), np.full(len(right), -1 / len(right))])
    height = np.abs(np.cumsum(step[order], axis=0))[:-1]
    return np.sum(height * np.diff(np.take_along_axis(both, order, axis=0), axis=0), axis=0)
