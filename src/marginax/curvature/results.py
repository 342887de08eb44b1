"""The curvature of the log likelihood at a point, as it was kept: with a prior it gives a covariance.

The prior is not in it, so that the prior can be changed afterwards without another look at the data.
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from marginax.curvature.blocks import BlockCovariance, KroneckerCovariance
from marginax.curvature.covariances import (
    AbstractCovariance,
    DenseCovariance,
    DiagonalCovariance,
    ReducedCovariance,
)
from marginax.files import register


class AbstractCurvature(eqx.Module):
    """A positive matrix over some of the weights."""

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """Number of weights."""

    @abc.abstractmethod
    def covariance(self, precision: Float[Array, " size"]) -> AbstractCovariance:
        """Inverse of the matrix plus a diagonal one, the precision of the prior."""

    @abc.abstractmethod
    def scaled(self, factor: Float[Array, ""]) -> "AbstractCurvature":
        """The matrix times a number."""


@register("curvature/diagonal")
class DiagonalCurvature(AbstractCurvature):
    """The diagonal alone.

    Args:
        values: on the diagonal.
    """

    values: Float[Array, " size"]

    @property
    def size(self) -> int:
        """Number of weights."""
        return self.values.shape[0]

    def covariance(self, precision: Float[Array, " size"]) -> DiagonalCovariance:
        """One by one."""
        return DiagonalCovariance((self.values + precision) ** -0.5)

    def scaled(self, factor: Float[Array, ""]) -> "DiagonalCurvature":
        """Of the values."""
        return DiagonalCurvature(self.values * factor)


@register("curvature/kronecker")
class FactoredCurvature(AbstractCurvature):
    r"""Diagonal in the basis $Q_l \otimes Q_r$. The prior's precision is taken as its mean over the leaf.

    Args:
        left: $Q_l$, orthogonal, for the outputs of the layer.
        right: $Q_r$, orthogonal, for its inputs.
        values: on the diagonal in that basis.
    """

    left: Float[Array, "o o"]
    right: Float[Array, "i i"]
    values: Float[Array, "o i"]

    @property
    def size(self) -> int:
        """Number of weights."""
        return self.values.size

    def covariance(self, precision: Float[Array, " size"]) -> KroneckerCovariance:
        """One by one in that basis."""
        return KroneckerCovariance(self.left, self.right, (self.values + jnp.mean(precision)) ** -0.5)

    def scaled(self, factor: Float[Array, ""]) -> "FactoredCurvature":
        """Of the values."""
        return FactoredCurvature(self.left, self.right, self.values * factor)


@register("curvature/dense")
class DenseCurvature(AbstractCurvature):
    """The matrix itself.

    Args:
        matrix: symmetric.
    """

    matrix: Float[Array, "size size"]

    @property
    def size(self) -> int:
        """Number of weights."""
        return self.matrix.shape[0]

    def covariance(self, precision: Float[Array, " size"]) -> DenseCovariance:
        """By a Cholesky factor of the inverse, which is that of the matrix with its order reversed, inverted.

        Rows and columns are scaled to a diagonal of ones first, which costs nothing and keeps digits.
        """
        total = self.matrix + jnp.diag(precision)
        scale = jnp.diag(total) ** -0.5
        reverse = jnp.linalg.cholesky((scale[:, None] * total * scale)[::-1, ::-1])[::-1, ::-1]
        return DenseCovariance(scale[:, None] * inverse_of_triangle(reverse.T))

    def scaled(self, factor: Float[Array, ""]) -> "DenseCurvature":
        """Every entry."""
        return DenseCurvature(self.matrix * factor)


@register("curvature/low_rank")
class ReducedCurvature(AbstractCurvature):
    r"""$G G^\top$ with few columns in G: few directions of which the data say anything.

    Args:
        factor: G.
    """

    factor: Float[Array, "size rank"]

    @property
    def size(self) -> int:
        """Number of weights."""
        return self.factor.shape[0]

    def covariance(self, precision: Float[Array, " size"]) -> ReducedCovariance:
        """Of independent weights, known better in these directions."""
        scale = precision**-0.5
        basis, values, _ = jnp.linalg.svd(scale[:, None] * self.factor, full_matrices=False)
        return ReducedCovariance(scale, basis, values**2 / (1.0 + values**2))

    def scaled(self, factor: Float[Array, ""]) -> "ReducedCurvature":
        """By the root."""
        return ReducedCurvature(self.factor * jnp.sqrt(factor))


@register("curvature/block")
class BlockCurvature(AbstractCurvature):
    """Blocks one after the other.

    Args:
        blocks: of consecutive weights.
    """

    blocks: tuple[AbstractCurvature, ...]

    @property
    def size(self) -> int:
        """Number of weights."""
        return sum(block.size for block in self.blocks)

    def covariance(self, precision: Float[Array, " size"]) -> BlockCovariance:
        """Block by block."""
        parts = jnp.split(precision, np.cumsum([block.size for block in self.blocks])[:-1])
        return BlockCovariance(tuple(b.covariance(p) for b, p in zip(self.blocks, parts, strict=True)))

    def scaled(self, factor: Float[Array, ""]) -> "BlockCurvature":
        """Every block."""
        return BlockCurvature(tuple(block.scaled(factor) for block in self.blocks))


def inverse_of_triangle(matrix: Float[Array, "size size"]) -> Float[Array, "size size"]:
    """Of a lower triangular matrix, by halves: most of the work is products of matrices, which use all cores."""
    size = matrix.shape[0]
    if size <= 256:
        return jax.scipy.linalg.solve_triangular(matrix, jnp.eye(size, dtype=matrix.dtype), lower=True)
    half = size // 2
    first, last = inverse_of_triangle(matrix[:half, :half]), inverse_of_triangle(matrix[half:, half:])
    below = -last @ (matrix[half:, :half] @ first)
    return jnp.block([[first, jnp.zeros((half, size - half), matrix.dtype)], [below, last]])
