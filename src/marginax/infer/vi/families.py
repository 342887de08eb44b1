r"""Families of distributions over weights, from which variational inference picks the nearest to the posterior.

A family is configuration; what it starts is an approximation, a pytree that is trained. Scales are
$\mathrm{softplus}(\rho)$, as in Bayes by Backprop.
"""

import abc
import math
from functools import partial
from typing import Any, ClassVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray

from marginax._kernels.random import derive, normal, normal_like
from marginax.curvature import AbstractCovariance, DenseCovariance, DiagonalCovariance, LowRankCovariance
from marginax.files import register
from marginax.infer.method import check_count
from marginax.model import AbstractModel
from marginax.model.abstract import Params
from marginax.posterior import AbstractPosterior, AutoregressiveFlow, Gaussian, Transformed

_LOG_2PI_E = math.log(2.0 * math.pi * math.e)
_FAR = 20.0  # where softplus is the identity
_MOST_BYTES = 2**30  # of matrices between all weights


class AbstractApproximation(eqx.Module):
    """A distribution over parameters that can be trained."""

    mean: eqx.AbstractVar[Params]

    @abc.abstractmethod
    def sample(self, *, key: PRNGKeyArray) -> Params:
        """A draw that can be differentiated with respect to the approximation."""

    @abc.abstractmethod
    def log_prob(self, params: Params) -> Float[Array, ""]:
        """Log density."""

    def sample_with_log_prob(self, *, key: PRNGKeyArray) -> tuple[Params, Float[Array, ""]]:
        """A draw and its log density."""
        draw = self.sample(key=key)
        return draw, self.log_prob(draw)

    @abc.abstractmethod
    def posterior(self, model: AbstractModel) -> AbstractPosterior:
        """The approximation as a posterior."""

    def conditional(self, *, key: PRNGKeyArray) -> "IndependentNormal | None":
        """The law of independent weights that remains when what they share has been drawn; None if there is none."""

    @property
    def covariance(self) -> AbstractCovariance | None:
        """Of the raveled parameters; None if there is no formula."""

    def entropy(self) -> Float[Array, ""] | None:
        """Differential entropy; None if there is no formula."""

    def scales(self) -> Params | None:
        """Standard deviation of every parameter; None if there is no formula."""


class AbstractFamily(eqx.Module):
    """Where to begin: an approximation around given parameters."""

    @abc.abstractmethod
    def start(self, params: Params, *, key: PRNGKeyArray) -> AbstractApproximation:
        """The approximation before the first step."""

    @property
    def is_layerwise(self) -> bool:
        """Whether weights are independent, given what they share, so that they can be drawn layer by layer."""
        return False


# ---- independent weights


@register("family/mean_field")
class MeanField(AbstractFamily):
    r"""Independent normal weights, $w = \mu + \mathrm{softplus}(\rho)\,\epsilon$.

    Args:
        initial_scale: standard deviation of the weights at the start, times the root of their number of inputs.
    """

    initial_scale: float = 0.05

    def __check_init__(self):
        _check_initial(self.initial_scale)

    is_layerwise: ClassVar[bool] = True

    def start(self, params: Params, *, key: PRNGKeyArray) -> "IndependentNormal":
        return IndependentNormal(params, initial_rho(params, self.initial_scale))


class IndependentNormal(AbstractApproximation):
    """A normal distribution with a diagonal covariance."""

    mean: Params
    rho: Params

    def conditional(self, *, key: PRNGKeyArray) -> "IndependentNormal":
        """Itself: nothing is shared."""
        return self

    @property
    def covariance(self) -> DiagonalCovariance:
        return _diagonal(self.scales())

    def scales(self) -> Params:
        return jax.tree.map(softplus, self.rho)

    def sample(self, *, key: PRNGKeyArray) -> Params:
        return jax.tree.map(lambda m, s, e: m + s * e, self.mean, self.scales(), normal_like(key, self.mean))

    def log_prob(self, params: Params) -> Float[Array, ""]:
        return self.covariance.log_prob(_difference(params, self.mean))

    def entropy(self) -> Float[Array, ""]:
        return sum((jnp.sum(jnp.log(s) + 0.5 * _LOG_2PI_E) for s in jax.tree.leaves(self.scales())), jnp.zeros(()))

    def posterior(self, model: AbstractModel) -> AbstractPosterior:
        return Gaussian(model=model, mean=self.mean, covariance=self.covariance)


# ---- correlated weights


@register("family/low_rank")
class LowRank(AbstractFamily):
    r"""Normal with covariance $\mathrm{diag}(s^2) + U U^\top$: a few directions along which weights move together.

    Args:
        rank: columns of U.
        initial_scale: as in `MeanField`.
    """

    rank: int = 10
    initial_scale: float = 0.05

    def __check_init__(self):
        check_count("rank", self.rank)
        _check_initial(self.initial_scale)

    is_layerwise: ClassVar[bool] = True

    def start(self, params: Params, *, key: PRNGKeyArray) -> "LowRankNormal":
        size = sum(leaf.size for leaf in jax.tree.leaves(params))
        return LowRankNormal(params, initial_rho(params, self.initial_scale), 0.1 * normal(key, (size, self.rank)))


class LowRankNormal(AbstractApproximation):
    """A normal distribution with a diagonal and a low-rank part, the latter in units of the former's root."""

    mean: Params
    rho: Params
    directions: Float[Array, "size rank"]

    @property
    def covariance(self) -> LowRankCovariance:
        scale = _diagonal(jax.tree.map(softplus, self.rho)).scale
        return LowRankCovariance(scale, scale[:, None] * self.directions)

    def scales(self) -> Params:
        covariance = self.covariance
        return _unravel(self.mean, covariance.scale * jnp.sqrt(1.0 + jnp.sum(self.directions**2, axis=1)))

    def conditional(self, *, key: PRNGKeyArray) -> IndependentNormal:
        """Around a mean that has moved along the columns."""
        shift = self.covariance.factor @ normal(key, self.directions.shape[1:])
        return IndependentNormal(_shift(self.mean, shift), self.rho)

    def sample(self, *, key: PRNGKeyArray) -> Params:
        """Noise along the columns, and noise of its own for every parameter."""
        return self.conditional(key=derive(key, 0)).sample(key=derive(key, 1))

    def log_prob(self, params: Params) -> Float[Array, ""]:
        return self.covariance.log_prob(_difference(params, self.mean))

    def entropy(self) -> Float[Array, ""]:
        size = self.directions.shape[0]
        return 0.5 * size - self.covariance.log_prob(jnp.zeros(size))

    def posterior(self, model: AbstractModel) -> AbstractPosterior:
        return Gaussian(model=model, mean=self.mean, covariance=self.covariance)


@register("family/full_rank")
class FullRank(AbstractFamily):
    """Normal with any covariance, by its Cholesky factor: for up to some thousand weights.

    Args:
        initial_scale: as in `MeanField`.
    """

    initial_scale: float = 0.05

    def __check_init__(self):
        _check_initial(self.initial_scale)

    def start(self, params: Params, *, key: PRNGKeyArray) -> "DenseNormal":
        size = sum(leaf.size for leaf in jax.tree.leaves(params))
        _check_bytes("FullRank()", 4 * size**2, size)
        rho = ravel_pytree(initial_rho(params, self.initial_scale))[0]
        return DenseNormal(params, rho, jnp.zeros((size, size), rho.dtype))


class DenseNormal(AbstractApproximation):
    """A normal distribution by the diagonal of its Cholesky factor and what is below, in units of that diagonal."""

    mean: Params
    rho: Float[Array, " size"]
    lower: Float[Array, "size size"]

    @property
    def covariance(self) -> DenseCovariance:
        diagonal = softplus(self.rho)
        return DenseCovariance(diagonal[:, None] * (jnp.tril(self.lower, -1) + jnp.eye(self.rho.size)))

    def scales(self) -> Params:
        return _unravel(self.mean, jnp.sqrt(jnp.sum(self.covariance.cholesky**2, axis=1)))

    def sample(self, *, key: PRNGKeyArray) -> Params:
        return _shift(self.mean, self.covariance.cholesky @ normal(key, self.rho.shape, self.rho.dtype))

    def log_prob(self, params: Params) -> Float[Array, ""]:
        return self.covariance.log_prob(_difference(params, self.mean))

    def entropy(self) -> Float[Array, ""]:
        return jnp.sum(jnp.log(softplus(self.rho)) + 0.5 * _LOG_2PI_E)

    def posterior(self, model: AbstractModel) -> AbstractPosterior:
        return Gaussian(model=model, mean=self.mean, covariance=self.covariance)


# ---- a flow


@register("family/flow")
class Flow(AbstractFamily):
    """A normalising flow, by NumPyro's inverse autoregressive transformations: posteriors of any shape, few weights.

    Args:
        num_layers: transformations, one after the other.
        initial_scale: as in `MeanField`.
    """

    num_layers: int = 2
    initial_scale: float = 0.05

    def __check_init__(self):
        check_count("num_layers", self.num_layers)
        _check_initial(self.initial_scale)

    def start(self, params: Params, *, key: PRNGKeyArray) -> "FlowApproximation":
        size = sum(leaf.size for leaf in jax.tree.leaves(params))
        _check_bytes("Flow()", 12 * self.num_layers * size**2, size)
        flow = AutoregressiveFlow(size, self.num_layers, key=key)
        return FlowApproximation(params, initial_rho(params, self.initial_scale), flow)


class FlowApproximation(AbstractApproximation):
    """A flow around a mean."""

    mean: Params
    rho: Params
    flow: AutoregressiveFlow

    def sample(self, *, key: PRNGKeyArray) -> Params:
        return self.sample_with_log_prob(key=key)[0]

    def sample_with_log_prob(self, *, key: PRNGKeyArray) -> tuple[Params, Float[Array, ""]]:
        scale = ravel_pytree(jax.tree.map(softplus, self.rho))[0]
        x, log_prob = self.flow.sample(key=key)
        return _shift(self.mean, scale * x), log_prob - jnp.sum(jnp.log(scale))

    def log_prob(self, params: Params) -> Float[Array, ""]:
        """Refuse: the flow would have to be turned back, coordinate by coordinate."""
        raise ValueError("family Flow() knows the density of its own draws only: use divergence=ClosedForm()")

    def posterior(self, model: AbstractModel) -> AbstractPosterior:
        scale = jax.tree.map(softplus, self.rho)
        return Transformed(model=model, mean=self.mean, scale=scale, flow=self.flow)


# ---- private


@jax.custom_jvp
@partial(jax.jit, inline=True)
def softplus(rho: Array) -> Array:
    """log(1 + exp(rho)), in half the time that `jax.nn.softplus` takes for large arrays, and as precise.

    >>> [float(softplus(jnp.array(rho)).round(4)) for rho in (-3.0, 0.0, 50.0)]
    [0.0486, 0.6931, 50.0]
    """
    e = jnp.exp(jnp.minimum(rho, _FAR))
    small = e * (1.0 - e * (0.5 - e * (1.0 / 3.0 - 0.25 * e)))
    return jnp.where(rho < -4.0, small, jnp.where(rho > _FAR, rho, jnp.log(1.0 + e)))


@softplus.defjvp
def _softplus_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (rho,), (tangent,) = primals, tangents
    e = jnp.exp(jnp.minimum(rho, _FAR))
    return softplus(rho), e / (1.0 + e) * tangent


def initial_rho(params: Params, scale: float | Array) -> Params:
    """Rho of scales that shrink with the number of inputs of a layer, so that outputs are as noisy in all layers."""

    def at(leaf: Array) -> Array:
        fan_in = math.prod(leaf.shape[1:]) if leaf.ndim > 1 else 1
        small = jnp.asarray(scale, leaf.dtype) / math.sqrt(fan_in)
        return jnp.full(leaf.shape, jnp.log(jnp.expm1(small)), leaf.dtype)

    return jax.tree.map(at, params)


def _check_initial(scale: Any) -> None:
    if not scale > 0:
        raise ValueError(f"initial_scale must be > 0, got {scale}")


def _check_bytes(family: str, num_bytes: int, size: int) -> None:
    if num_bytes > _MOST_BYTES:
        raise ValueError(
            f"family {family} needs {num_bytes / 2**30:.1f} GiB for {size} weights (and as much again three times to "
            f"train it), more than {_MOST_BYTES / 2**30:.0f}: use LowRank(rank=...), or a subset of the weights"
        )


def _diagonal(scales: Params) -> DiagonalCovariance:
    return DiagonalCovariance(ravel_pytree(scales)[0])


def _difference(params: Params, mean: Params) -> Array:
    return ravel_pytree(jax.tree.map(jnp.subtract, params, mean))[0]


def _unravel(like: Params, flat: Array) -> Params:
    return ravel_pytree(like)[1](flat)


def _shift(mean: Params, flat: Array) -> Params:
    return cast(Params, jax.tree.map(jnp.add, mean, _unravel(mean, flat)))
