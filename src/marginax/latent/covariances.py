r"""How the precisions of K normal distributions are tied: their conjugate laws, and their unconstrained coordinates.

A precision matrix has a Wishart law with density $\propto |\Lambda|^{(\nu - D - 1)/2} \exp(-\tfrac12 tr(V \Lambda))$, a
precision a gamma law with $\lambda \sim \text{Gamma}(\nu / 2, V / 2)$: $\nu$ counts observations, V is their
scatter. A root L has $L L^\top = \Lambda$, or is the square root of $\lambda$.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import digamma, gammaln, multigammaln
from jaxtyping import Array, Float, PRNGKeyArray

from marginax._kernels.gamma import log_gamma
from marginax.files import register


class AbstractStructure(eqx.Module):
    """Full, tied, diagonal or spherical."""

    @abc.abstractmethod
    def scatter(self, x: Float[Array, "n d"], weights: Float[Array, "k n"]) -> Array:
        """Weighted sum of squares about zero."""

    @abc.abstractmethod
    def num_squares(self, counts: Float[Array, " k"], size: int) -> Array:
        """How many squares a scatter sums, given weights that sum to these counts."""

    @abc.abstractmethod
    def reduced(self, covariance: Float[Array, "d d"]) -> Array:
        """One covariance of data in the shape of the scatter of a single component."""

    @abc.abstractmethod
    def square_distance(self, x: Float[Array, "n d"], means: Float[Array, "k d"], root: Array) -> Float[Array, "k n"]:
        """Of points from means, in units of the components."""

    @abc.abstractmethod
    def log_det(self, root: Array, size: int) -> Array:
        """Of the precisions."""

    @abc.abstractmethod
    def scaled(self, root: Array, points: Float[Array, "k d"], *, inverse: bool = False) -> Float[Array, "k d"]:
        r"""$L^\top$ times a point of every component, or $L^{-\top}$ times it."""

    @abc.abstractmethod
    def covariances(self, root: Array, num: int, size: int) -> Float[Array, "k d d"]:
        """Of every component, as matrices."""

    @abc.abstractmethod
    def pack(self, root: Array) -> Array:
        """Unconstrained coordinates of a root."""

    @abc.abstractmethod
    def unpack(self, packed: Array, size: int) -> Array:
        """The root back."""

    # ---- the law

    @abc.abstractmethod
    def from_covariance(self, covariance: Array) -> Array:
        """The root of its inverse."""

    @abc.abstractmethod
    def expected_root(self, dof: Array, scatter: Array) -> Array:
        """The root of the expected precision."""

    @abc.abstractmethod
    def expected_log_det(self, dof: Array, scatter: Array, size: int) -> Array:
        """Of the precision."""

    @abc.abstractmethod
    def law_divergence(self, dof: Array, scatter: Array, prior_dof: Array, prior_scatter: Array) -> Float[Array, ""]:
        """Of the law from another, summed over components."""

    @abc.abstractmethod
    def log_law(self, packed: Array, dof: Array, scatter: Array, size: int) -> Float[Array, ""]:
        """Log density of packed roots, with the Jacobian, summed over components."""

    @abc.abstractmethod
    def draw_root(self, dof: Array, scatter: Array, *, key: PRNGKeyArray) -> Array:
        """A root of a precision drawn from the law."""


class _Matrices(AbstractStructure):
    """Precision matrices, with Wishart laws."""

    def reduced(self, covariance: Float[Array, "d d"]) -> Array:
        return covariance

    def log_det(self, root: Array, size: int) -> Array:
        return 2.0 * jnp.sum(jnp.log(jnp.diagonal(root, axis1=-2, axis2=-1)), -1)

    def scaled(self, root: Array, points: Float[Array, "k d"], *, inverse: bool = False) -> Float[Array, "k d"]:
        if not inverse:
            return jnp.einsum("...de,...d->...e", root, points)
        root = jnp.broadcast_to(root, (*points.shape, points.shape[-1]))
        return jax.scipy.linalg.solve_triangular(root, points[..., None], lower=True, trans=1)[..., 0]

    def covariances(self, root: Array, num: int, size: int) -> Float[Array, "k d d"]:
        return jnp.broadcast_to(jnp.linalg.inv(root @ jnp.swapaxes(root, -1, -2)), (num, size, size))

    def pack(self, root: Array) -> Array:
        rows, columns = jnp.tril_indices(root.shape[-1])
        entries = root[..., rows, columns]
        return jnp.where(rows == columns, jnp.log(jnp.where(rows == columns, entries, 1.0)), entries)

    def unpack(self, packed: Array, size: int) -> Array:
        rows, columns = jnp.tril_indices(size)
        entries = jnp.where(rows == columns, jnp.exp(jnp.where(rows == columns, packed, 0.0)), packed)
        return jnp.zeros((*packed.shape[:-1], size, size), packed.dtype).at[..., rows, columns].set(entries)

    def from_covariance(self, covariance: Array) -> Array:
        return _lower_root(_inverse(covariance))

    def expected_root(self, dof: Array, scatter: Array) -> Array:
        return jnp.sqrt(dof)[..., None, None] * _lower_root(_inverse(scatter))

    def expected_log_det(self, dof: Array, scatter: Array, size: int) -> Array:
        halves = 0.5 * (dof[..., None] - jnp.arange(size, dtype=dof.dtype))
        return jnp.sum(digamma(halves), -1) + size * jnp.log(2.0) - jnp.linalg.slogdet(scatter)[1]

    def law_divergence(self, dof: Array, scatter: Array, prior_dof: Array, prior_scatter: Array) -> Float[Array, ""]:
        size = scatter.shape[-1]
        trace = jnp.trace(_inverse(scatter) @ prior_scatter, axis1=-2, axis2=-1)
        gained = 0.5 * (dof - prior_dof) * self.expected_log_det(dof, scatter, size) + 0.5 * dof * (trace - size)
        return jnp.sum(gained + _wishart_constant(dof, scatter) - _wishart_constant(prior_dof, prior_scatter))

    def log_law(self, packed: Array, dof: Array, scatter: Array, size: int) -> Float[Array, ""]:
        root = self.unpack(packed, size)
        logs = jnp.log(jnp.diagonal(root, axis1=-2, axis2=-1))
        trace = jnp.einsum("...ij,...ik,jk->...", jnp.swapaxes(root, -1, -2), jnp.swapaxes(root, -1, -2), scatter)
        jacobian = size * jnp.log(2.0) + jnp.sum((size + 1 - jnp.arange(size)) * logs, -1)
        density = (dof - size - 1) * jnp.sum(logs, -1) - 0.5 * trace + _wishart_constant(dof, scatter)
        return jnp.sum(density + jacobian)

    def draw_root(self, dof: Array, scatter: Array, *, key: PRNGKeyArray) -> Array:
        """By Bartlett's decomposition."""
        size = scatter.shape[-1]
        for_diagonal, for_rest = jax.random.split(key)
        halves = 0.5 * (dof[..., None] - jnp.arange(size, dtype=dof.dtype))
        diagonal = jnp.exp(0.5 * (jnp.log(2.0) + log_gamma(for_diagonal, halves)))
        below = jnp.tril(jax.random.normal(for_rest, scatter.shape, scatter.dtype), -1)
        return _lower_root(_inverse(scatter)) @ (below + diagonal[..., None] * jnp.eye(size, dtype=scatter.dtype))


@register("latent/full")
class Full(_Matrices):
    """A precision matrix for every component."""

    def scatter(self, x: Float[Array, "n d"], weights: Float[Array, "k n"]) -> Array:
        (num, size), parts = x.shape, len(weights)
        if size < 2 * parts:  # squares of all pairs of axes are fewer than weighted points
            rows, columns = jnp.tril_indices(size)
            pair = jnp.zeros((size, size), int).at[rows, columns].set(jnp.arange(len(rows)))
            return (weights @ (x.T[rows] * x.T[columns]).T)[:, jnp.maximum(pair, pair.T)]
        return ((weights[:, None, :] * x.T).reshape(parts * size, num) @ x).reshape(parts, size, size)

    def num_squares(self, counts: Float[Array, " k"], size: int) -> Array:
        return counts

    def square_distance(self, x: Float[Array, "n d"], means: Float[Array, "k d"], root: Array) -> Float[Array, "k n"]:
        points, centres = x.T, self.scaled(root, means)

        def add(so_far: Array, axis: tuple[Array, Array]) -> tuple[Array, None]:
            root, centre = axis
            return so_far + (root @ points - centre[:, None]) ** 2, None

        start = jnp.zeros((len(means), len(x)), jnp.result_type(x, means))
        return jax.lax.scan(add, start, (jnp.moveaxis(root, -1, 0), centres.T))[0]


@register("latent/tied")
class Tied(_Matrices):
    """One precision matrix for all components."""

    def scatter(self, x: Float[Array, "n d"], weights: Float[Array, "k n"]) -> Array:
        return (jnp.sum(weights, 0)[:, None] * x).T @ x

    def num_squares(self, counts: Float[Array, " k"], size: int) -> Array:
        return jnp.sum(counts)

    def square_distance(self, x: Float[Array, "n d"], means: Float[Array, "k d"], root: Array) -> Float[Array, "k n"]:
        return _square_distance(x @ root, means @ root)


class _Numbers(AbstractStructure):
    """Precisions along the axes, with gamma laws."""

    def covariances(self, root: Array, num: int, size: int) -> Float[Array, "k d d"]:
        variances = jnp.broadcast_to(self._by_axis(root) ** -2, (num, size))
        return variances[:, :, None] * jnp.eye(size, dtype=root.dtype)

    def scaled(self, root: Array, points: Float[Array, "k d"], *, inverse: bool = False) -> Float[Array, "k d"]:
        return points / self._by_axis(root) if inverse else points * self._by_axis(root)

    @abc.abstractmethod
    def _by_axis(self, root: Array) -> Array:
        """Roots that broadcast against points."""

    def pack(self, root: Array) -> Array:
        return 2.0 * jnp.log(root)

    def unpack(self, packed: Array, size: int) -> Array:
        return jnp.exp(0.5 * packed)

    def from_covariance(self, covariance: Array) -> Array:
        return jax.lax.rsqrt(covariance)

    def expected_root(self, dof: Array, scatter: Array) -> Array:
        return jnp.sqrt(self._aligned(dof, scatter) / scatter)

    def law_divergence(self, dof: Array, scatter: Array, prior_dof: Array, prior_scatter: Array) -> Float[Array, ""]:
        a, a0 = 0.5 * self._aligned(dof, scatter), 0.5 * prior_dof
        gained = (a - a0) * digamma(a) - gammaln(a) + gammaln(a0) + a0 * (jnp.log(scatter) - jnp.log(prior_scatter))
        return jnp.sum(gained + a * (prior_scatter - scatter) / scatter)

    def log_law(self, packed: Array, dof: Array, scatter: Array, size: int) -> Float[Array, ""]:
        a, b = 0.5 * dof, 0.5 * scatter
        return jnp.sum(a * jnp.log(b) - gammaln(a) + a * packed - b * jnp.exp(packed))

    def draw_root(self, dof: Array, scatter: Array, *, key: PRNGKeyArray) -> Array:
        a = jnp.broadcast_to(0.5 * self._aligned(dof, scatter), scatter.shape)
        return jnp.exp(0.5 * log_gamma(key, a)) * jnp.sqrt(2.0 / scatter)

    def _aligned(self, dof: Array, scatter: Array) -> Array:
        return dof[..., None] if scatter.ndim > dof.ndim else dof


@register("latent/diagonal")
class Diagonal(_Numbers):
    """A precision for every component and axis."""

    def reduced(self, covariance: Float[Array, "d d"]) -> Array:
        return jnp.diagonal(covariance)

    def scatter(self, x: Float[Array, "n d"], weights: Float[Array, "k n"]) -> Array:
        return weights @ x**2

    def num_squares(self, counts: Float[Array, " k"], size: int) -> Array:
        return counts

    def square_distance(self, x: Float[Array, "n d"], means: Float[Array, "k d"], root: Array) -> Float[Array, "k n"]:
        precision = root**2
        own = jnp.sum(precision * means**2, -1)
        return jnp.maximum(precision @ (x**2).T - 2.0 * (precision * means) @ x.T + own[:, None], 0.0)

    def _by_axis(self, root: Array) -> Array:
        return root

    def log_det(self, root: Array, size: int) -> Array:
        return 2.0 * jnp.sum(jnp.log(root), -1)

    def expected_log_det(self, dof: Array, scatter: Array, size: int) -> Array:
        return jnp.sum(digamma(0.5 * self._aligned(dof, scatter)) - jnp.log(0.5 * scatter), -1)


@register("latent/spherical")
class Spherical(_Numbers):
    """A precision for every component."""

    def reduced(self, covariance: Float[Array, "d d"]) -> Array:
        return jnp.mean(jnp.diagonal(covariance))

    def scatter(self, x: Float[Array, "n d"], weights: Float[Array, "k n"]) -> Array:
        return weights @ jnp.sum(x**2, 1)

    def num_squares(self, counts: Float[Array, " k"], size: int) -> Array:
        return size * counts

    def square_distance(self, x: Float[Array, "n d"], means: Float[Array, "k d"], root: Array) -> Float[Array, "k n"]:
        return root[:, None] ** 2 * _square_distance(x, means)

    def _by_axis(self, root: Array) -> Array:
        return root[:, None]

    def log_det(self, root: Array, size: int) -> Array:
        return 2.0 * size * jnp.log(root)

    def expected_log_det(self, dof: Array, scatter: Array, size: int) -> Array:
        return size * (digamma(0.5 * dof) - jnp.log(0.5 * scatter))


_BY_NAME = {"full": Full, "tied": Tied, "diagonal": Diagonal, "spherical": Spherical}


def as_structure(covariance: Any) -> AbstractStructure:
    """A structure, or the one of this name."""
    if isinstance(covariance, AbstractStructure):
        return covariance
    if covariance not in _BY_NAME:
        raise ValueError(f"covariance must be one of {', '.join(map(repr, _BY_NAME))}, got {covariance!r}")
    return _BY_NAME[covariance]()


def _inverse(matrix: Float[Array, "*b d d"]) -> Float[Array, "*b d d"]:
    size = matrix.shape[-1]
    half = jax.scipy.linalg.solve_triangular(
        jnp.linalg.cholesky(matrix), jnp.broadcast_to(jnp.eye(size, dtype=matrix.dtype), matrix.shape), lower=True
    )
    return jnp.swapaxes(half, -1, -2) @ half


def _lower_root(precision: Float[Array, "*b d d"]) -> Float[Array, "*b d d"]:
    return jnp.linalg.cholesky(precision)


def _wishart_constant(dof: Array, scatter: Array) -> Array:
    size = scatter.shape[-1]
    half = 0.5 * dof
    return half * (jnp.linalg.slogdet(scatter)[1] - size * jnp.log(2.0)) - multigammaln(half, size)


def _square_distance(x: Float[Array, "n d"], means: Float[Array, "k d"]) -> Float[Array, "k n"]:
    square = jnp.sum(x**2, 1) + jnp.sum(means**2, 1)[:, None] - 2.0 * means @ x.T
    return jnp.maximum(square, 0.0)
