r"""VICReg (Bardes, Ponce & LeCun, 2022): views alike (invariance), outputs neither constant nor copies of each other.

With $Z, Z'$ the outputs of a batch for two views of its rows, minus the loss of a row is

$-\lambda \|z_i - z'_i\|^2 - \mu\,[v(Z) + v(Z')] - \nu\,[c(Z) + c(Z')]$,

$v(Z) = \frac1d \sum_j \max\big(0, 1 - \sqrt{\mathrm{Var}(z_j) + \epsilon}\big)$ and $c(Z) = \frac1d \sum_{i \neq j}
\mathrm{Cov}(z_i, z_j)^2$. Only the first part is about the row: the others are properties of the batch, and every row
of it has them in full, so that N rows weigh them N times. It is the log of no probability.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float
from jaxtyping import Key as KeyOf

from marginax.data.transforms import AbstractTransform, check_transforms
from marginax.files import register
from marginax.self_supervised.objective import AbstractTwoViews, check_number

_EPSILON = 1e-4  # theirs


@register("self_supervised/vicreg")
class VICReg(AbstractTwoViews):
    r"""Two views of a row have nearly the same outputs, which vary over the batch and are not correlated.

    Args:
        transforms: from `mx.data`, applied in turn, at random for each view.
        invariance: $\lambda$, of squared distances of two views.
        variance: $\mu$, of standard deviations that are below 1.
        covariance: $\nu$, of squared covariances.
    """

    transforms: tuple[AbstractTransform, ...] = eqx.field(converter=check_transforms)
    invariance: Any = 25.0
    variance: Any = 25.0
    covariance: Any = 1.0

    def __check_init__(self):
        for name in ("invariance", "variance", "covariance"):
            check_number(name, getattr(self, name))

    def terms(
        self, outputs: Float[Array, "b views k"], x: Float[Array, "b ..."], keys: KeyOf[Array, " b"]
    ) -> Float[Array, " b"]:
        apart = jnp.sum((outputs[:, 0] - outputs[:, 1]) ** 2, axis=1)
        parts = [_spread(outputs[:, view]) for view in (0, 1)]
        narrow, copied = (sum(part) for part in zip(*parts, strict=True))
        return -self.invariance * apart - self.variance * narrow - self.covariance * copied


def _spread(outputs: Float[Array, "b k"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """How much standard deviations are short of 1, and how much outputs depend on each other."""
    away, size = outputs - outputs.mean(0), outputs.shape[1]
    covariance = away.T @ away / (outputs.shape[0] - 1)
    narrow = jnp.mean(jnp.maximum(0.0, 1.0 - jnp.sqrt(jnp.diagonal(covariance) + _EPSILON)))
    others = covariance * (1.0 - jnp.eye(size, dtype=outputs.dtype))
    return narrow, jnp.sum(others**2) / size
