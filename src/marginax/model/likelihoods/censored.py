r"""Targets known only to lie between two bounds: waiting times that had not ended, readings beyond a scale."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr
from jaxtyping import Array, Float, Num

from marginax.files import register
from marginax.model import distributions as dist
from marginax.model.likelihoods.abstract import Unknowns
from marginax.model.likelihoods.real import AbstractLocationScale, Scale, default_scale
from marginax.model.numpyro_distribution import from_numpyro
from marginax.model.scale import check_scale

_NARROW = 1e-3  # widths, in standard deviations, below which a density times the width is as exact as a difference


@register("likelihood/censored_gaussian")
class CensoredGaussian(AbstractLocationScale):
    r"""$y \sim N(f(x), s^2)$, of which only $l \le y \le u$ may be known (Tobin, 1958).

    Targets are pairs (l, u), in an array of shape (n, 2): equal where y was seen, `np.inf` for u where y is only known
    to be larger than l, `-np.inf` for l where it is only known to be smaller than u. Scale them with
    `mx.data.standardise((x, y), bounds=True)`. Predictions are of y itself; the probability of an interval is a
    difference of `prediction.cdf`. For waiting times, take logarithms first.

    Args:
        scale: as in `Gaussian`.

    >>> y = jnp.array([[1.0, 1.0], [1.0, jnp.inf], [-1.0, 1.0]])  # seen; larger than 1; between -1 and 1
    >>> print(CensoredGaussian(scale=1.0).log_prob(jnp.zeros((3, 1)), y, {}).round(3))
    [-1.419 -1.841 -0.382]
    """

    bounds: ClassVar[bool] = True
    scale: Scale = eqx.field(default_factory=default_scale, converter=from_numpyro)

    def __check_init__(self):
        check_scale(self.scale)

    def check(self, output_size: int, y: np.ndarray) -> None:
        targets = self.num_targets(output_size)
        if targets != 1:
            raise ValueError(f"network must describe 1 target for CensoredGaussian(), got {targets}: change out_size")
        if y.ndim != 2 or y.shape[1] != 2:
            raise ValueError(f"y must be pairs (lower, upper) of shape (n, 2) for CensoredGaussian(), got {y.shape}")
        bad = (y[:, 0] > y[:, 1]) | ~np.isfinite(y).any(axis=1)
        if bad.any():
            row = int(np.argmax(bad))
            raise ValueError(f"y must have lower <= upper, one of them finite, got {y[row].tolist()} in row {row}")

    def distribution(self, output: Float[Array, "*n k"], unknowns: Unknowns) -> dist.Normal:
        return dist.Normal(*self.location_and_scale(output, unknowns))

    def log_prob(self, output: Float[Array, "n k"], y: Num[Array, "n 2"], unknowns: Unknowns) -> Float[Array, " n"]:
        """Log density where the target was seen, log probability of the interval elsewhere."""
        normal = self.distribution(output, unknowns)
        lower, upper = y[:, :1], y[:, 1:]
        has_lower, has_upper = jnp.isfinite(lower), jnp.isfinite(upper)
        low = (jnp.where(has_lower, lower, upper) - normal.loc) / normal.scale
        high = (jnp.where(has_upper, upper, lower) - normal.loc) / normal.scale
        within = log_interval(low, high)
        one_sided = jnp.where(has_lower, log_ndtr(-low), log_ndtr(high))
        censored = jnp.where(has_lower & has_upper, within, one_sided)
        seen = lower == upper
        return jnp.where(seen, normal.log_prob(jnp.where(seen, lower, 0)), censored)[:, 0]


def log_interval(low: Array, high: Array) -> Array:
    """Log probability that a standard normal number lies between two others.

    >>> [round(float(v), 2) for v in log_interval(jnp.array([-1.0, 8.0]), jnp.array([1.0, 9.0]))]
    [-0.38, -35.01]
    """
    flip = low > 0  # the lower tail, where logarithms of small probabilities are exact
    low, high = jnp.where(flip, -high, low), jnp.where(flip, -low, high)
    width = high - low
    narrow = width < _NARROW
    middle = 0.5 * (low + high)
    log_density = -0.5 * jnp.square(middle) - 0.5 * jnp.log(2 * jnp.pi) + jnp.log(jnp.where(width > 0, width, 1))
    far = jnp.where(narrow, low - 1, low)
    ratio = log_ndtr(far) - log_ndtr(high)
    return jnp.where(narrow, log_density, log_ndtr(high) + jnp.log(-jnp.expm1(ratio)))
