"""Predictions of numbers: real values and counts."""

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, Int, Num, PyTree

from marginax._keys import Key, as_key
from marginax.model.distributions import Normal
from marginax.model.normal_outputs import NormalOutputs
from marginax.model.outcome import Outcome
from marginax.predict.checks import check_count, check_size, rows_of
from marginax.predict.fresh import FreshFunctions
from marginax.predict.mixture import Mixture
from marginax.predict.normal_crps import normal_mixture_crps
from marginax.predict.prediction import AbstractNumberPrediction


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class RegressionPrediction(AbstractNumberPrediction):
    r"""What the posterior says about the targets at n inputs: a mixture of its draws' likelihoods.

    $p(y \mid x, D) = \sum_s w_s \, p(y \mid x, \theta_s)$, in the units of the user's data. Results are
    NumPy arrays of shape (n,), or (n, d) if the targets had shape (n, d). `prediction[3:7]` is the prediction
    at some of the inputs.

    >>> import jax.numpy as jnp
    >>> from marginax.model.distributions import Normal
    >>> two_draws = Mixture(
    ...     Normal(jnp.array([[[0.0]], [[2.0]]]), jnp.ones((2, 1, 1))),
    ...     (True, True),
    ...     np.log([0.5, 0.5]),
    ...     num_rows=1,
    ...     max_bytes=10**6,
    ... )
    >>> prediction = RegressionPrediction(two_draws, y_shape=())
    >>> prediction
    RegressionPrediction(n=1, outputs=1, draws=2)
    >>> (
    ...     prediction.mean.item(),
    ...     prediction.epistemic.item(),
    ...     prediction.aleatoric.item(),
    ...     prediction.variance.item(),
    ... )
    (1.0, 1.0, 1.0, 2.0)
    >>> [round(end.item(), 3) for end in prediction.interval(0.9)]
    [-1.284, 3.284]

    Attributes:
        mixture: the components, in the units of the model.
        y_shape: the shape of one target, () or (d,).
        y_shift: y = y_shift + y_factor * (y in the units of the model).
        y_factor: see `y_shift`.
        fresh: where a component stands for all functions of a posterior, in closed form: a way to draw some of them.
    """

    mixture: Mixture
    y_shape: tuple[int, ...]
    y_shift: Any = 0.0
    y_factor: Any = 1.0
    fresh: FreshFunctions | None = None

    def __len__(self) -> int:
        return self.mixture.num_rows

    def __repr__(self) -> str:
        return f"RegressionPrediction(n={len(self)}, outputs={self._num_outputs}, draws={self.num_draws})"

    def __getitem__(self, index: Any) -> "RegressionPrediction":
        rows = rows_of(index, len(self))
        fresh = None if self.fresh is None else self.fresh.rows(rows)
        return dataclasses.replace(self, mixture=self.mixture.rows(rows), fresh=fresh)

    @property
    def outcome(self) -> Outcome:
        return Outcome.COUNT if self.mixture.discrete else Outcome.REAL

    @property
    def num_draws(self) -> int:
        return self.mixture.num_draws

    @property
    def knows_draws(self) -> bool:
        return True

    @property
    def weights(self) -> Float[np.ndarray, " draws"]:
        return np.exp(self.mixture.log_weights)

    @property
    def components(self) -> PyTree:
        """The distribution under each draw, in the user's units: leaves have axes (draw, input, output)."""
        if np.all(self._shift == 0) and np.all(self._factor == 1):
            return self.mixture.components
        moved = eqx.filter_vmap(lambda c: c.affine(self._shift, self._factor))(self.mixture.components)
        return jax.tree.map(lambda leaf: np.asarray(leaf) if eqx.is_array(leaf) else leaf, moved)

    @property
    def mean(self) -> Float[np.ndarray, "n *d"]:
        return self._shape(self._shift + self._factor * self._moments[0])

    @property
    def means(self) -> Float[np.ndarray, "draws n *d"]:
        values = self._shift + self._factor * self.mixture.means()
        return values.reshape(self.num_draws, len(self), *self.y_shape)

    @property
    def variance(self) -> Float[np.ndarray, "n *d"]:
        """Total variance: `epistemic` + `aleatoric`; infinite where a component's is."""
        return self._shape(self._factor**2 * self._total_variance)

    @property
    def epistemic(self) -> Float[np.ndarray, "n *d"]:
        return self._shape(self._factor**2 * self._moments[1])

    @property
    def aleatoric(self) -> Float[np.ndarray, "n *d"]:
        return self._shape(self._factor**2 * self._mean_variance)

    @functools.cached_property
    def covariance(self) -> Float[np.ndarray, "n d d"]:
        """Covariance of the outputs of each input: across draws, plus the noise on the diagonal."""
        check_size(len(self) * self._num_outputs**2 * 8, "covariance", self.mixture.max_bytes)
        result = np.array(self.mixture.mean_covariance())
        diagonal = np.arange(self._num_outputs)
        result[:, diagonal, diagonal] = self._total_variance
        return result * self._factor[:, None] * self._factor

    @property
    def centres(self) -> Float[np.ndarray, "components n *d"]:
        means = np.asarray(eqx.filter_vmap(lambda component: component.mean)(self.mixture.components), np.float64)
        values = np.broadcast_to(means, (len(means), len(self), self._num_outputs))
        return (self._shift + self._factor * values).reshape(len(means), len(self), *self.y_shape)

    @property
    def is_normal(self) -> bool:
        components = self.mixture.components
        one = isinstance(components, NormalOutputs) and self._num_outputs == 1
        return self.num_draws == 1 and (one or isinstance(components, Normal))

    def _quantiles(self, levels: Float[np.ndarray, "*l"]) -> Float[np.ndarray, "..."]:
        found = self.mixture.quantiles(levels.ravel(), *self._where_to_look)
        return (self._shift + self._factor * found).reshape(*levels.shape, len(self), *self.y_shape)

    def quantile_by_row(self, q: Float[np.ndarray, "n *d"]) -> Float[np.ndarray, "n *d"]:
        levels = np.asarray(q, np.float64).reshape(len(self), 1, -1)
        found = self.mixture.quantile_by_row(levels, *self._where_to_look)[:, 0]
        return self._shape(self._shift + self._factor * found)

    def cdf(self, y: Any) -> Float[np.ndarray, "n *d"]:
        return self._shape(self.mixture.cdf(self._standard(y)))

    def cdf_at(self, rows: Int[np.ndarray, " m"], points: Float[np.ndarray, "m q *d"]) -> Float[np.ndarray, "m q *d"]:
        standard = ((points - self.y_shift) / self.y_factor).reshape(*points.shape[:2], -1)
        return self.mixture.cdf_at(rows, standard).reshape(points.shape)

    def averaged(self, num: int) -> "RegressionPrediction":
        return dataclasses.replace(self, mixture=self.mixture.averaged(num), fresh=None)

    def scaled(self, factor: float) -> "RegressionPrediction":
        """Every component moved and scaled; `epistemic` and `aleatoric` both grow by the factor squared."""
        if not self.can_scale:
            raise TypeError(f"prediction must be a distribution of real numbers to be scaled, got {self!r}")
        fresh = None if self.fresh is None else self.fresh.scaled(factor, self._moments[0])
        return dataclasses.replace(self, mixture=self.mixture.scaled(factor), fresh=fresh)

    def closed_form_crps(self, y: Float[np.ndarray, "n *d"]) -> Float[np.ndarray, "n *d"] | None:
        if not isinstance(self.mixture.components, Normal):
            return None
        standard = ((y - self.y_shift) / self.y_factor).reshape(len(y), -1)
        return np.abs(self.y_factor) * normal_mixture_crps(self.mixture, standard).reshape(y.shape)

    def log_prob(self, y: Any) -> Float[np.ndarray, " n"]:
        """Log density (for counts, log probability) of y at each input, joint over outputs."""
        jacobian = np.sum(np.log(np.broadcast_to(np.abs(self._factor), (self._num_outputs,))))
        return self.mixture.log_prob(self._standard(y)) - jacobian

    def sample(self, num: int, *, key: Key) -> Num[np.ndarray, "num n *d"]:
        """Draw targets: each sample takes one draw of the posterior for all inputs, then adds its noise.

        So targets at several inputs have their joint law. Predictions of a Gaussian process in closed form, and of rows
        that were averaged over missing values, know the law of each input alone, and draw each on its own.
        """
        check_count(num, "num")
        if self.fresh is None:
            values = self.mixture.sample(num, key=as_key(key))
        else:
            for_functions, for_noise = jax.random.split(as_key(key))
            values = self.fresh.draw(num, key=for_functions).sample_each(key=for_noise)
        return self._in_units(values.reshape(num, len(self), -1)).reshape(num, len(self), *self.y_shape)

    def sample_by_draw(self, num: int, *, key: Key) -> Float[np.ndarray, "draws num n *d"]:
        shape = (self.num_draws, num, len(self), self._num_outputs)
        values = np.broadcast_to(np.asarray(self.mixture.sample_by_draw(num, key=as_key(key)), np.float64), shape)
        return self._in_units(values).reshape(*shape[:3], *self.y_shape)

    def _in_units(self, values: np.ndarray) -> np.ndarray:
        return values if self.mixture.discrete else self._shift + self._factor * values

    @property
    def _num_outputs(self) -> int:
        return int(np.prod(self.y_shape))

    @property
    def _shift(self) -> np.ndarray:
        return np.broadcast_to(np.asarray(self.y_shift, np.float64), (self._num_outputs,))

    @property
    def _factor(self) -> np.ndarray:
        return np.broadcast_to(np.asarray(self.y_factor, np.float64), (self._num_outputs,))

    @functools.cached_property
    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        return self.mixture.mean()

    @functools.cached_property
    def _mean_variance(self) -> np.ndarray:
        return self.mixture.mean_variance()

    @property
    def _total_variance(self) -> np.ndarray:
        return np.where(np.isinf(self._mean_variance), np.inf, self._moments[1] + self._mean_variance)

    @property
    def _where_to_look(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation as a first guess of where quantiles are; NaN if there are none."""
        try:
            return self._moments[0], np.sqrt(self._total_variance)
        except (AttributeError, NotImplementedError):
            unknown = np.full((len(self), self._num_outputs), np.nan)
            return unknown, unknown

    def _shape(self, values: np.ndarray) -> np.ndarray:
        return values.reshape(len(self), *self.y_shape)

    def _standard(self, y: Any) -> np.ndarray:
        """Targets in the units of the model, shape (n, d)."""
        targets = np.asarray(y)
        if targets.dtype.kind not in "iufb":
            raise ValueError(f"y must hold numbers, got an array of {targets.dtype}")
        shape = (len(self), *self.y_shape)
        if targets.shape not in (shape, ()):
            raise ValueError(f"y must have shape {shape}, one target per input, got {targets.shape}")
        targets = np.broadcast_to(targets.astype(np.float64), shape)
        return (targets.reshape(len(self), -1) - self._shift) / self._factor
