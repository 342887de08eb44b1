"""Densities in the plane whose truth is known: each function can be copied as it stands."""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

LogProb = Callable[[Array], Array]
Box = tuple[float | int, float | int, float | int, float | int]
_NUM_BINS, _NUM_FINE = 40, 801


def banana(at):
    """A normal that was bent."""
    x, y = at
    return -0.5 * (x / 1.5) ** 2 - 0.5 * ((y - 0.6 * (x**2 - 2.25)) / 0.5) ** 2


def funnel(at):
    """A normal whose scale depends on the other coordinate (Neal, 2003), here with a neck of a standard 1.5."""
    x, v = at
    return -0.5 * (v / 1.5) ** 2 - 0.5 * x**2 * jnp.exp(-v) - 0.5 * v


def ring(at):
    """All of the mass near a circle."""
    return -0.5 * ((jnp.sqrt(jnp.sum(at**2) + 1e-12) - 2.5) / 0.3) ** 2


def two_modes(at):
    """Two normals apart from each other, one with twice the weight."""
    left = -0.5 * jnp.sum((at + jnp.array([2.0, 1.0])) ** 2) / 0.36
    right = jnp.log(2.0) - 0.5 * jnp.sum((at - jnp.array([2.0, 1.0])) ** 2) / 0.36
    return jnp.logaddexp(left, right)


def network(at):
    """The posterior of y = w2 tanh(w1 x) given five measurements: swap both signs, and it is the same function."""
    w1, w2 = at
    x = jnp.array([-2.0, -1.0, 0.5, 1.0, 2.0])
    y = jnp.array([-1.3, -0.9, 0.6, 0.7, 1.2])
    misfit = jnp.sum((y - w2 * jnp.tanh(w1 * x)) ** 2) / 0.4**2
    return -0.5 * misfit - 0.5 * jnp.sum(at**2) / 2.0**2


@dataclass(frozen=True)
class Target:
    """A density in the plane.

    Attributes:
        label: what it is.
        log_prob: up to a constant.
        start: where the first chain starts.
        box: that the page shows, (least x, most x, least y, most y).
        wide: that holds all of the mass, to integrate over.
        exact_std: where integrals over the wide box are not good enough.
    """

    label: str
    log_prob: LogProb
    start: tuple[float, float]
    box: Box
    wide: Box
    exact_std: tuple[float, float] | None = None

    def map(self, num: int = 81) -> dict[str, np.ndarray]:
        """Log densities on a grid of the box, the largest zero."""
        x, y = np.linspace(*self.box[:2], num), np.linspace(*self.box[2:], num)
        values = self._on(x, y)
        return {"x": x, "y": y, "log_density": np.maximum(values - values.max(), -30.0)}

    def edges(self) -> tuple[np.ndarray, np.ndarray]:
        """Of the bins of histograms of the two coordinates."""
        return tuple(np.linspace(*self.box[2 * i : 2 * i + 2], _NUM_BINS + 1) for i in range(2))  # type: ignore[return-value]

    @functools.cached_property
    def truth(self) -> "Truth":
        """Moments and marginals, by the trapezoid rule on a fine grid."""
        x, y = np.linspace(*self.wide[:2], _NUM_FINE), np.linspace(*self.wide[2:], _NUM_FINE)
        logs = self._on(x, y)
        top = logs.max()
        mass = np.exp(logs - top)
        along_x, along_y = np.trapezoid(mass, y, axis=0), np.trapezoid(mass, x, axis=1)
        total = np.trapezoid(along_x, x)
        means = [np.trapezoid(c * m, c) / total for c, m in ((x, along_x), (y, along_y))]
        pairs = ((x, along_x, means[0]), (y, along_y, means[1]))
        variances = [np.trapezoid((c - mean) ** 2 * m, c) / total for c, m, mean in pairs]
        middles = [(edges[1:] + edges[:-1]) / 2 for edges in self.edges()]
        marginals = (np.exp(self._on(middles[0], y) - top), np.exp(self._on(x, middles[1]) - top))
        shares = (np.trapezoid(marginals[0], y, axis=0) / total, np.trapezoid(marginals[1], x, axis=1) / total)
        std = np.sqrt(variances) if self.exact_std is None else np.array(self.exact_std)
        return Truth(np.array(means), std, shares)

    def _on(self, x: np.ndarray, y: np.ndarray) -> Float[np.ndarray, "ny nx"]:
        return np.asarray(_values(self.log_prob, jnp.asarray(x), jnp.asarray(y)), np.float64)


@dataclass(frozen=True)
class Truth:
    """What chains should find: means, standard deviations, and marginal densities in the middles of bins."""

    mean: np.ndarray
    std: np.ndarray
    marginals: tuple[np.ndarray, np.ndarray]


def _values(log_prob: LogProb, x: Array, y: Array) -> Array:
    rows = jax.vmap(lambda b: jax.vmap(lambda a: log_prob(jnp.stack([a, b])))(x))
    return jax.jit(lambda y: jax.lax.map(lambda part: rows(part[None])[0], y))(y)


TARGETS = {
    "banana": Target("banana", banana, (0.0, -1.0), (-5, 5, -3.5, 8.5), (-9, 9, -6, 40)),
    "funnel": Target("funnel", funnel, (0.0, 0.0), (-6, 6, -5, 5), (-90, 90, -8, 8), (float(np.exp(2.25 / 4)), 1.5)),
    "ring": Target("ring", ring, (2.5, 0.0), (-4, 4, -4, 4), (-5, 5, -5, 5)),
    "two_modes": Target("two modes", two_modes, (-2.0, -1.0), (-5, 5, -4, 4), (-6, 6, -5, 5)),
    "network": Target("two weights of a network", network, (1.0, 1.0), (-5, 5, -5, 5), (-14, 14, -14, 14)),
}
"""By name."""
