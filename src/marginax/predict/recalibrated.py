"""A prediction of numbers whose distribution function went through a map of [0, 1] onto itself."""

import functools
import itertools
import math
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int
from scipy import special

from marginax._keys import Key, as_key
from marginax.model.outcome import Outcome
from marginax.predict.checks import check_count, rows_of
from marginax.predict.prediction import AbstractNumberPrediction

_REACH = 6.0  # moments leave out 1e-9 of the probability at either end
_LEAST = 1e-15  # predicted probabilities closer to 0 or 1 cannot be told apart
_FAR = 40.0
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(3)


@dataclass(frozen=True, eq=False, repr=False)
class RecalibratedPrediction(AbstractNumberPrediction):
    r"""What `QuantileRecalibration` makes of a prediction: $G(y) = R(F(y))$.

    $\Phi^{-1}(R(\Phi(z)))$ is linear in z between knots, and beyond them. The density is $R'(F(y)) f(y)$, a quantile
    $F^{-1}(R^{-1}(q))$. Draws of the posterior are no longer told apart, so there is no `epistemic` and no `aleatoric`
    part. Moments are integrals of the quantiles, computed when asked for.

    >>> from marginax.predict import NormalPrediction
    >>> normal = NormalPrediction(np.zeros(1), np.ones(1))
    >>> wider = RecalibratedPrediction(normal, np.array([0.1, 0.9]), np.array([0.25, 0.75]))
    >>> [round(end.item(), 3) for end in wider.interval(0.5)], round(wider.std.item(), 2)
    ([-1.282, 1.282], 1.9)

    Attributes:
        prediction: as it was.
        knots: probabilities that were predicted, ascending.
        levels: of the knots, ascending: how often it happened.
    """

    prediction: AbstractNumberPrediction
    knots: Float[np.ndarray, " k"]
    levels: Float[np.ndarray, " k"]

    def __len__(self) -> int:
        return len(self.prediction)

    def __repr__(self) -> str:
        return f"RecalibratedPrediction(n={len(self)}, knots={len(self.knots)})"

    def __getitem__(self, index: Any) -> "RecalibratedPrediction":
        return RecalibratedPrediction(self.prediction[rows_of(index, len(self))], self.knots, self.levels)

    @property
    def outcome(self) -> Outcome:
        return self.prediction.outcome

    @property
    def num_draws(self) -> int:
        return self.prediction.num_draws

    @property
    def y_shape(self) -> tuple[int, ...]:
        return self.prediction.y_shape

    @property
    def can_scale(self) -> bool:
        return False

    def scaled(self, factor: float) -> AbstractNumberPrediction:
        raise TypeError(f"prediction must not be recalibrated already to be scaled by {factor:g}, got {self!r}")

    def recalibrate(self, probs: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """R."""
        found = special.ndtr(np.interp(special.ndtri(probs), *self._line))
        return np.where((probs <= 0) | (probs >= 1), probs, found)

    @property
    def mean(self) -> Float[np.ndarray, "n *d"]:
        return self._moments[0]

    @property
    def variance(self) -> Float[np.ndarray, "n *d"]:
        return self._moments[1]

    def cdf(self, y: Any) -> Float[np.ndarray, "n *d"]:
        return self.recalibrate(self.prediction.cdf(y))

    def cdf_at(self, rows: Int[np.ndarray, " m"], points: Float[np.ndarray, "m q *d"]) -> Float[np.ndarray, "m q *d"]:
        return self.recalibrate(self.prediction.cdf_at(rows, points))

    def _quantiles(self, levels: Float[np.ndarray, "*l"]) -> Float[np.ndarray, "..."]:
        return self.prediction.quantile(self._inverse(levels))

    def quantile_by_row(self, q: Float[np.ndarray, "n *d"]) -> Float[np.ndarray, "n *d"]:
        return self.prediction.quantile_by_row(self._inverse(q))

    def log_prob(self, y: Any) -> Float[np.ndarray, " n"]:
        before, after = self._line
        z = special.ndtri(np.clip(np.reshape(self.prediction.cdf(y), len(self)), _LEAST, 1 - _LEAST))
        place = np.clip(np.searchsorted(before, z, side="right") - 1, 0, len(before) - 2)
        slope = (np.diff(after) / np.diff(before))[place]
        return self.prediction.log_prob(y) + np.log(slope) + 0.5 * (z**2 - np.interp(z, before, after) ** 2)

    def sample(self, num: int, *, key: Key) -> Float[np.ndarray, "num n *d"]:
        check_count(num, "num")
        with jax.enable_x64(True):
            uniform = np.asarray(jax.random.uniform(as_key(key), (num, len(self), *self.y_shape)))
        return np.stack([self.quantile_by_row(row) for row in uniform])

    def _inverse(self, levels: np.ndarray) -> np.ndarray:
        before, after = self._line
        return np.asarray(np.clip(special.ndtr(np.interp(special.ndtri(levels), after, before)), _LEAST, 1 - _LEAST))

    @functools.cached_property
    def _line(self) -> tuple[np.ndarray, np.ndarray]:
        """Normal quantiles of knots and levels, and a far point at either end, in line with the outer four knots."""
        before, after = special.ndtri(self.knots), special.ndtri(self.levels)
        num = min(3, len(before) - 1)
        first = (after[num] - after[0]) / (before[num] - before[0]) if num else 1.0
        last = (after[-1] - after[-1 - num]) / (before[-1] - before[-1 - num]) if num else 1.0
        return (
            np.r_[before[0] - _FAR, before, before[-1] + _FAR],
            np.r_[after[0] - _FAR * first, after, after[-1] + _FAR * last],
        )

    @functools.cached_property
    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Gauss-Legendre between the knots, in a coordinate where quantiles of a normal are a straight line."""
        before, after = self._line
        breaks = np.unique(np.clip(after, -_REACH, _REACH))
        points, weights = [], []
        for start, stop in itertools.pairwise(breaks):
            ends = np.linspace(start, stop, math.ceil(stop - start) + 1)
            half = 0.5 * np.diff(ends)[:, None]
            points.append((0.5 * (ends[:-1] + ends[1:])[:, None] + half * _NODES).ravel())
            weights.append((half * _WEIGHTS).ravel())
        w = np.concatenate(points)
        mass = np.concatenate(weights) * np.exp(-0.5 * w * w)
        mass = mass / mass.sum()
        levels = np.clip(special.ndtr(np.interp(w, after, before)), _LEAST, 1 - _LEAST)
        values = self.prediction.quantile(levels)
        mean = np.tensordot(mass, values, axes=1)
        return mean, np.tensordot(mass, (values - mean) ** 2, axes=1)
