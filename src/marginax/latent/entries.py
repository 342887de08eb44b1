r"""Entries of a table whose means follow a sum of factors $\eta$: numbers, binary entries, counts.

Each kind bounds its log density by a normal one, so that factors and loadings stay normal:

$\log p(x \mid \eta) \ge c + t\,\eta - \tfrac w2 \eta^2$

- normal: exact, $t = x$, $w = 1$, in units of the noise;
- binary, $\text{Bernoulli}(\sigma(\eta))$: with $\lambda(\xi) = \tanh(\xi/2) / 4\xi$ (Jaakkola & Jordan, 2000)
  $-\log(1 + e^\eta) \ge \log \sigma(\xi) - (\eta + \xi)/2 - \lambda(\xi)(\eta^2 - \xi^2)$, best at $\xi^2 = E \eta^2$;
- counts, $\text{Poisson}(\log(1 + e^\eta))$ (Seeger & Bouchard, 2012): the same for the rate, and for its logarithm,
  whose curvature is nowhere above $\kappa = 0.1671$, its parabola at $a = E \eta$. We differ: each entry
  has a curvature of its own, where they have one for all. The rate is not $e^\eta$, which no parabola bounds; below 1
  the two agree.
"""

import abc
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float, PRNGKeyArray

_CURVATURE = 0.1671  # the most of minus the second derivative of log log(1 + e^u), 0.167096 at u = 0.495
_SMALL = 1e-6
_LEFT = -10.0  # the rate is exp(eta) there, to the digits of float32


class Bound(NamedTuple):
    """The parabola c + t u - w u^2 / 2 below every entry's log density of u, its predictor."""

    constant: Float[Array, "n d"]
    target: Float[Array, "n d"]
    weight: Float[Array, "n d"]


class AbstractEntries(abc.ABC):
    """A kind of entries."""

    has_noise: ClassVar[bool] = False  # a scale of its own, in units of which the bound is

    @abc.abstractmethod
    def check(self, x: np.ndarray) -> None:
        """Raise if these cannot be the entries."""

    @abc.abstractmethod
    def guess(self, x: Float[Array, "n d"]) -> Float[Array, "n d"]:
        """Predictors that fit the entries alone, not too closely."""

    @abc.abstractmethod
    def bound(self, x: Float[Array, "n d"], first: Float[Array, "n d"], second: Float[Array, "n d"]) -> Bound:
        """The best bound where the predictor has these two moments."""

    @abc.abstractmethod
    def curvature(self, x: Float[Array, "n d"], eta: Float[Array, "n d"]) -> Float[Array, "n d"]:
        """Minus the second derivative of the log density; the bound has at least as much."""

    @abc.abstractmethod
    def mean(self, eta: Float[Array, "n d"]) -> Float[Array, "n d"]:
        """Of an entry."""

    @abc.abstractmethod
    def draw(self, eta: Float[Array, "n d"], noise: Any, *, key: PRNGKeyArray) -> Float[Array, "n d"]:
        """An entry, with noise of this scale where it has one."""


class NormalEntries(AbstractEntries):
    """Numbers."""

    has_noise: ClassVar[bool] = True

    def check(self, x: np.ndarray) -> None:
        pass

    def guess(self, x: Float[Array, "n d"]) -> Float[Array, "n d"]:
        return x

    def bound(self, x: Float[Array, "n d"], first: Float[Array, "n d"], second: Float[Array, "n d"]) -> Bound:
        return Bound(-0.5 * x**2, x, jnp.ones_like(x))

    def curvature(self, x: Float[Array, "n d"], eta: Float[Array, "n d"]) -> Float[Array, "n d"]:
        return jnp.ones_like(x)

    def mean(self, eta: Float[Array, "n d"]) -> Float[Array, "n d"]:
        return eta

    def draw(self, eta: Float[Array, "n d"], noise: Any, *, key: PRNGKeyArray) -> Float[Array, "n d"]:
        return eta + noise * jax.random.normal(key, eta.shape, eta.dtype)


class BinaryEntries(AbstractEntries):
    """0 or 1."""

    def check(self, x: np.ndarray) -> None:
        if not np.isin(x, (0, 1)).all():
            raise ValueError("data must hold 0 and 1 for outcome='binary'")

    def guess(self, x: Float[Array, "n d"]) -> Float[Array, "n d"]:
        return 2.0 * x - 1.0

    def bound(self, x: Float[Array, "n d"], first: Float[Array, "n d"], second: Float[Array, "n d"]) -> Bound:
        constant, weight = softplus_bound(second)
        return Bound(constant, x - 0.5, weight)

    def curvature(self, x: Float[Array, "n d"], eta: Float[Array, "n d"]) -> Float[Array, "n d"]:
        return jax.nn.sigmoid(eta) * jax.nn.sigmoid(-eta)

    def mean(self, eta: Float[Array, "n d"]) -> Float[Array, "n d"]:
        return jax.nn.sigmoid(eta)

    def draw(self, eta: Float[Array, "n d"], noise: Any, *, key: PRNGKeyArray) -> Float[Array, "n d"]:
        return jax.random.bernoulli(key, self.mean(eta)).astype(eta.dtype)


class CountEntries(AbstractEntries):
    """Whole numbers from 0."""

    def check(self, x: np.ndarray) -> None:
        if np.min(x) < 0 or np.any(x != np.round(x)):
            raise ValueError(
                f"data must hold counts, whole numbers >= 0, for outcome='poisson', got {np.min(x):g} at least"
            )

    def guess(self, x: Float[Array, "n d"]) -> Float[Array, "n d"]:
        return jnp.where(x > 1.0, x, jnp.log(jnp.expm1(x + 0.5)))

    def bound(self, x: Float[Array, "n d"], first: Float[Array, "n d"], second: Float[Array, "n d"]) -> Bound:
        constant, weight = softplus_bound(second)
        value, slope = log_rate(first), log_rate_slope(first)
        of_log = value - slope * first - 0.5 * _CURVATURE * first**2
        return Bound(
            constant + x * of_log - gammaln(x + 1.0),
            x * (slope + _CURVATURE * first) - 0.5,
            weight + _CURVATURE * x,
        )

    def curvature(self, x: Float[Array, "n d"], eta: Float[Array, "n d"]) -> Float[Array, "n d"]:
        bend = jax.nn.sigmoid(eta) * jax.nn.sigmoid(-eta)
        left = eta < _LEFT  # where the log of the rate is a line
        rate = jax.nn.softplus(jnp.where(left, 0.0, eta))
        return bend + x * jnp.where(left, 0.0, jnp.maximum(log_rate_slope(eta) ** 2 - bend / rate, 0.0))

    def mean(self, eta: Float[Array, "n d"]) -> Float[Array, "n d"]:
        return jax.nn.softplus(eta)

    def draw(self, eta: Float[Array, "n d"], noise: Any, *, key: PRNGKeyArray) -> Float[Array, "n d"]:
        return jax.random.poisson(key, self.mean(eta)).astype(eta.dtype)


ENTRIES: dict[str, AbstractEntries] = {
    "normal": NormalEntries(),
    "binary": BinaryEntries(),
    "poisson": CountEntries(),
}


def softplus_bound(second: Array) -> tuple[Array, Array]:
    r"""Constant and weight of the parabola below $-\log(1 + e^\eta)$, whose slope at 0 is -1/2; from $E \eta^2$.

    >>> constant, weight = softplus_bound(jnp.asarray(4.0))
    >>> bool(jnp.isclose(constant - 0.5 * 2.0 - 0.5 * weight * 4.0, -jnp.log1p(jnp.exp(2.0))))  # it touches there
    True
    """
    xi = jnp.sqrt(jnp.maximum(second, _SMALL**2))
    bend = jnp.tanh(0.5 * xi) / (4.0 * xi)
    return bend * xi**2 - 0.5 * xi + jax.nn.log_sigmoid(xi), 2.0 * bend


def log_rate(eta: Array) -> Array:
    r"""$\log \log(1 + e^\eta)$, which is $\eta$ far on the left.

    >>> [round(float(value), 2) for value in log_rate(jnp.array([-110.0, -16.0, 0.0, 50.0]))]
    [-110.0, -16.0, -0.37, 3.91]
    """
    left = eta < _LEFT
    return jnp.where(left, eta, jnp.log(jax.nn.softplus(jnp.where(left, 0.0, eta))))


def log_rate_slope(eta: Array) -> Array:
    r"""Of $\log \log(1 + e^\eta)$, which is 1 far on the left.

    >>> [round(float(slope), 2) for slope in log_rate_slope(jnp.array([-50.0, 0.0, 50.0]))]
    [1.0, 0.72, 0.02]
    """
    left = eta < _LEFT
    safe = jnp.where(left, 0.0, eta)
    return jnp.where(left, 1.0, jax.nn.sigmoid(safe) / jax.nn.softplus(safe))
