r"""Normal distributions that stand for a posterior where it becomes a prior, fitted by moments.

Of all normals of a family, the one with the posterior's moments is nearest to it: it minimises
$\mathrm{KL}(p \,\|\, q)$. So `DiagonalNormal` keeps the marginal variances, and not the conditional ones to which
mean-field variational inference shrinks.
"""

import abc

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from marginax.curvature import AbstractCovariance, DenseCovariance, DiagonalCovariance, LowRankCovariance
from marginax.files import register

_MOST_DENSE = 8192  # parameters of which all pairs may be written down
_LEAST_OWN = 1e-3  # share of a variance that is left to a parameter alone: float32 loses the density below


class Moments(eqx.Module):
    """Mean and covariance of parameters: by draws of them, or by normals and their weights.

    Args:
        draws: rows of parameters, equally likely; None if it is normals.
        means: of the normals.
        covariances: of the normals.
        weights: of the normals.
    """

    draws: Float[np.ndarray, "num size"] | None = None
    means: Float[np.ndarray, "normals size"] | None = None
    covariances: tuple[AbstractCovariance, ...] = ()
    weights: tuple[float, ...] = ()

    @property
    def mean(self) -> Float[np.ndarray, " size"]:
        """Of all."""
        return self._rows.mean(0) if self.draws is not None else np.asarray(self.weights) @ self._rows

    def variances(self) -> Float[np.ndarray, " size"]:
        """Of each parameter."""
        away = (self._rows - self.mean) ** 2
        if self.draws is not None:
            return away.sum(0) / (len(away) - 1)
        own = np.stack([np.asarray(covariance.variances(), np.float64) for covariance in self.covariances])
        return np.asarray(self.weights) @ (own + away)

    def root(self) -> Float[np.ndarray, "size columns"]:
        """A matrix whose product with itself, transposed, is the covariance."""
        away = (self._rows - self.mean).T
        if self.draws is not None:
            return away / np.sqrt(away.shape[1] - 1)
        if away.shape[0] > _MOST_DENSE:
            raise ValueError(
                f"family must not look at pairs of {away.shape[0]} parameters (at most {_MOST_DENSE}): use "
                "mx.priors.DiagonalNormal()"
            )
        roots = [np.linalg.cholesky(np.asarray(covariance.dense(), np.float64)) for covariance in self.covariances]
        parts = [np.sqrt(weight) * root for weight, root in zip(self.weights, roots, strict=True)]
        return np.concatenate([*parts, away * np.sqrt(self.weights)], axis=1)

    @property
    def _rows(self) -> np.ndarray:
        return np.asarray(self.means if self.draws is None else self.draws, np.float64)


class AbstractNormalFamily(eqx.Module):
    """Which normal distributions."""

    @abc.abstractmethod
    def covariance(self, moments: Moments) -> AbstractCovariance:
        """That of the member with these moments."""

    @property
    def splits(self) -> bool:
        """Whether chains, or the parts of a mixture, get a normal each."""
        return False


@register("normal_family/diagonal")
class DiagonalNormal(AbstractNormalFamily):
    """Independent weights with the posterior's variances.

    >>> moments = Moments(np.array([[0.0, 1.0], [2.0, 1.5]]))
    >>> print(DiagonalNormal().covariance(moments).scale.round(3))
    [1.414 0.354]
    """

    def covariance(self, moments: Moments) -> DiagonalCovariance:
        return DiagonalCovariance(_single(np.sqrt(moments.variances())))


@register("normal_family/low_rank")
class LowRankNormal(AbstractNormalFamily):
    r"""$\mathrm{diag}(s^2) + U U^\top$: the posterior's variances, and its strongest correlations.

    Args:
        rank: columns of U: the largest principal components of the correlations.
    """

    rank: int = 10

    def __check_init__(self):
        if isinstance(self.rank, bool) or not isinstance(self.rank, int) or self.rank < 1:
            raise ValueError(f"rank must be an int >= 1, got {self.rank!r}")

    def covariance(self, moments: Moments) -> LowRankCovariance:
        scale = np.sqrt(moments.variances())
        basis, values, _ = np.linalg.svd(moments.root() / scale[:, None], full_matrices=False)
        factor = basis[:, : self.rank] * values[: self.rank]
        own = np.maximum(1.0 - np.sum(factor**2, axis=1), _LEAST_OWN)
        factor = factor * np.sqrt((1.0 - own) / np.maximum(np.sum(factor**2, axis=1), 1e-30))[:, None]
        return LowRankCovariance(_single(scale * np.sqrt(own)), _single(scale[:, None] * factor))


@register("normal_family/dense")
class DenseNormal(AbstractNormalFamily):
    """All of the covariance: from draws, it takes more of them than there are weights."""

    def covariance(self, moments: Moments) -> DenseCovariance:
        root = moments.root()
        if moments.draws is not None and root.shape[1] <= root.shape[0]:
            raise ValueError(
                f"family DenseNormal() needs more draws than parameters, got {root.shape[1]} of {root.shape[0]}: use "
                "mx.priors.LowRankNormal() or DiagonalNormal()"
            )
        triangle = np.linalg.qr(root.T)[1].T
        return DenseCovariance(_single(triangle * np.sign(np.diag(triangle))))


@register("normal_family/mixture")
class NormalMixture(AbstractNormalFamily):
    """A normal for each chain of draws or part of a mixture, with its weight: several modes stay several.

    Args:
        family: of each.
    """

    family: AbstractNormalFamily = eqx.field(default_factory=DiagonalNormal)

    def __check_init__(self):
        if not isinstance(self.family, AbstractNormalFamily) or self.family.splits:
            raise TypeError(f"family must be such as mx.priors.DiagonalNormal(), got {self.family!r}")

    @property
    def splits(self) -> bool:
        return True

    def covariance(self, moments: Moments) -> AbstractCovariance:
        return self.family.covariance(moments)


def _single(values: np.ndarray) -> Array:
    return jnp.asarray(values, jnp.result_type(float))
