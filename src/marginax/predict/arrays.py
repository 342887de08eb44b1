"""Predictions of numbers that were given as arrays: a normal distribution per row, or draws of the targets."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int

from marginax._keys import Key, as_key
from marginax.model.outcome import Outcome
from marginax.predict.checks import check_count, rows_of
from marginax.predict.normal_crps import normal_crps
from marginax.predict.prediction import AbstractNumberPrediction

_LOG_2PI = 1.8378770664093453


@dataclass(frozen=True, eq=False, repr=False)
class NormalPrediction(AbstractNumberPrediction):
    """A normal distribution per row and output; it does not tell draws of a posterior apart.

    >>> prediction = NormalPrediction(np.zeros(1), np.ones(1))
    >>> [round(end.item(), 3) for end in prediction.interval(0.9)]
    [-1.645, 1.645]

    Attributes:
        loc: means.
        scale: standard deviations.
    """

    loc: Float[np.ndarray, "n *d"]
    scale: Float[np.ndarray, "n *d"]

    def __len__(self) -> int:
        return len(self.loc)

    def __repr__(self) -> str:
        return f"NormalPrediction(n={len(self)}, outputs={int(np.prod(self.y_shape))})"

    def __getitem__(self, index: Any) -> "NormalPrediction":
        rows = rows_of(index, len(self))
        return NormalPrediction(self.loc[rows], self.scale[rows])

    @property
    def outcome(self) -> Outcome:
        return Outcome.REAL

    @property
    def num_draws(self) -> int:
        return 1

    @property
    def y_shape(self) -> tuple[int, ...]:
        return self.loc.shape[1:]

    @property
    def mean(self) -> Float[np.ndarray, "n *d"]:
        return self.loc

    @property
    def variance(self) -> Float[np.ndarray, "n *d"]:
        return self.scale**2

    @property
    def std(self) -> Float[np.ndarray, "n *d"]:
        return self.scale

    @property
    def is_normal(self) -> bool:
        return True

    def _quantiles(self, levels: Float[np.ndarray, "*l"]) -> Float[np.ndarray, "..."]:
        from scipy import special

        z = special.ndtri(levels)
        return self.loc + self.scale * z.reshape(z.shape + (1,) * self.loc.ndim)

    def quantile_by_row(self, q: Float[np.ndarray, "n *d"]) -> Float[np.ndarray, "n *d"]:
        from scipy import special

        return self.loc + self.scale * special.ndtri(q)

    def cdf(self, y: Any) -> Float[np.ndarray, "n *d"]:
        from scipy import special

        return special.ndtr((y - self.loc) / self.scale)

    def cdf_at(self, rows: Int[np.ndarray, " m"], points: Float[np.ndarray, "m q *d"]) -> Float[np.ndarray, "m q *d"]:
        from scipy import special

        return special.ndtr((points - self.loc[rows, None]) / self.scale[rows, None])

    def log_prob(self, y: Any) -> Float[np.ndarray, " n"]:
        values = -0.5 * ((y - self.loc) / self.scale) ** 2 - np.log(self.scale) - 0.5 * _LOG_2PI
        return values.reshape(len(self), -1).sum(axis=1)

    def sample(self, num: int, *, key: Key) -> Float[np.ndarray, "num n *d"]:
        check_count(num, "num")
        with jax.enable_x64(True):
            noise = np.asarray(jax.random.normal(as_key(key), (num, *self.loc.shape)))
        return self.loc + self.scale * noise

    def scaled(self, factor: float) -> "NormalPrediction":
        return NormalPrediction(self.loc, factor * self.scale)

    def closed_form_crps(self, y: Float[np.ndarray, "n *d"]) -> Float[np.ndarray, "n *d"]:
        return normal_crps(self.loc, self.scale, y)


@dataclass(frozen=True, eq=False, repr=False)
class SampledPrediction(AbstractNumberPrediction):
    """Draws of the target of each row; distribution function and quantiles are those of the draws themselves.

    >>> SampledPrediction(np.array([[0.0], [1.0], [2.0]])).cdf(np.array([1.0])).round(3).tolist()
    [0.667]

    Attributes:
        values: draws, rows and outputs.
    """

    values: Float[np.ndarray, "s n *d"]

    def __len__(self) -> int:
        return self.values.shape[1]

    def __repr__(self) -> str:
        return f"SampledPrediction(n={len(self)}, samples={len(self.values)})"

    def __getitem__(self, index: Any) -> "SampledPrediction":
        return SampledPrediction(self.values[:, rows_of(index, len(self))])

    @property
    def outcome(self) -> Outcome:
        return Outcome.REAL

    @property
    def num_draws(self) -> int:
        return 1

    @property
    def y_shape(self) -> tuple[int, ...]:
        return self.values.shape[2:]

    @property
    def samples(self) -> Float[np.ndarray, "s n *d"]:
        return self.values

    @property
    def has_density(self) -> bool:
        return False

    @property
    def has_atoms(self) -> bool:
        return True

    @property
    def mean(self) -> Float[np.ndarray, "n *d"]:
        return self.values.mean(axis=0)

    @property
    def variance(self) -> Float[np.ndarray, "n *d"]:
        return np.square(self.std)

    @property
    def std(self) -> Float[np.ndarray, "n *d"]:
        """Over the draws; 0 if there is only one."""
        return self.values.std(axis=0, ddof=1) if len(self.values) > 1 else np.zeros(self.values.shape[1:])

    def _quantiles(self, levels: Float[np.ndarray, "*l"]) -> Float[np.ndarray, "..."]:
        return np.quantile(self.values, levels, axis=0)

    def cdf(self, y: Any) -> Float[np.ndarray, "n *d"]:
        return np.mean(self.values <= y, axis=0)

    def cdf_below(self, y: Float[np.ndarray, "n *d"]) -> Float[np.ndarray, "n *d"]:
        return np.mean(self.values < y, axis=0)

    def cdf_at(self, rows: Int[np.ndarray, " m"], points: Float[np.ndarray, "m q *d"]) -> Float[np.ndarray, "m q *d"]:
        return np.mean(self.values[:, rows, None] <= points, axis=0)

    def log_prob(self, y: Any) -> Float[np.ndarray, " n"]:
        raise NotImplementedError("samples have no density")

    def sample(self, num: int, *, key: Key) -> Float[np.ndarray, "num n *d"]:
        """Some of the draws, with replacement, each for all rows."""
        check_count(num, "num")
        return self.values[np.asarray(jax.random.randint(as_key(key), (num,), 0, len(self.values)))]

    def scaled(self, factor: float) -> "SampledPrediction":
        return SampledPrediction(self.mean + factor * (self.values - self.mean))
