r"""What a Laplace approximation knows about the place it is at.

$\log p(D) \approx \log p(D, \hat\theta) + \tfrac d2 \log 2\pi - \tfrac12 \log\det(H + \Lambda)$, the log joint density
at the mode less the log density of the normal there (MacKay, 1992).
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PyTree

from marginax.curvature import (
    AbstractCovariance,
    AbstractCurvature,
    BlockCovariance,
    FixedCovariance,
    SubsetCovariance,
)
from marginax.files import register
from marginax.model import AbstractModel, Model
from marginax.model.abstract import Params


@register("posterior/laplace_mode")
class Mode(eqx.Module):
    """Curvature and likelihood at a mode, and which weights they are about.

    Args:
        curvature: of the negative log likelihood, without the prior.
        log_likelihood: of all data.
        num_examples: how many there were.
        moves: which of the model's random leaves the curvature is about.
        index: places of single weights among the raveled parameters, where it is not all of those leaves.
    """

    curvature: AbstractCurvature
    log_likelihood: Array
    num_examples: Array
    moves: tuple[bool, ...] = eqx.field(static=True)
    index: Int[Array, " random"] | None = None

    def places(self, weights: PyTree) -> Int[Array, " random"]:
        """Where the weights that the curvature is about are among all, and among the raveled parameters."""
        if self.index is not None:
            return self.index
        flags = [jnp.full(leaf.size, flag) for leaf, flag in zip(jax.tree.leaves(weights), self.moves, strict=True)]
        return jnp.flatnonzero(jnp.concatenate(flags), size=self.curvature.size)

    def precision(self, model: AbstractModel, params: Params) -> Float[Array, " random"]:
        """Of the prior, for these weights."""
        return ravel_pytree(model.prior_precision(params))[0][self.places(model.weights(params))]

    def covariance(self, model: AbstractModel, params: Params) -> AbstractCovariance:
        """Of all parameters, under the model's prior; the others stay."""
        if couples_weights(model):
            inner = self.curvature.covariance_with(model.prior_precision_matrix(params))  # pyright: ignore[reportAttributeAccessIssue]
        else:
            inner = self.curvature.covariance(self.precision(model, params))
        num = sum(leaf.size for leaf in jax.tree.leaves(params))
        if inner.size == num:
            return inner
        if all(self.moves) and self.index is None:
            blocks = inner.blocks if isinstance(inner, BlockCovariance) else (inner,)
            return BlockCovariance((*blocks, FixedCovariance(num - inner.size)))
        return SubsetCovariance(inner, self.places(model.weights(params)), num)

    def log_evidence(self, model: AbstractModel, params: Params, covariance: AbstractCovariance) -> Float[Array, ""]:
        """The log joint density less the log density of the normal."""
        if self.index is not None:
            raise ValueError("subset must be whole leaves for the evidence: use mx.All(), LastLayer() or Paths(...)")
        log_prior = _log_prior(model, params, self.moves)
        return self.log_likelihood + log_prior - covariance.log_prob(jnp.zeros(covariance.size))


def couples_weights(model: AbstractModel) -> bool:
    """Whether weights depend on each other before data, so that the precision of the prior is a whole matrix."""
    return isinstance(model, Model) and model.prior.couples_weights


class AbstractTuning(eqx.Module):
    """How prior precision and noise are chosen, after the fact."""

    @abc.abstractmethod
    def tune(self, posterior: Any) -> Any:
        """The Gaussian posterior, with a mode, under the prior that is preferred."""


def _log_prior(model: AbstractModel, params: Params, moves: tuple[bool, ...]) -> Float[Array, ""]:
    """Of the leaves that the curvature is about; of all unknowns where a model does not tell them apart."""
    if not isinstance(model, Model):
        return model.log_prior(params)
    if model.prior.couples_weights:
        if model.prior.covers_likelihood:
            raise ValueError(
                "the evidence needs a prior of the weights alone: use mx.priors.FromPosterior(..., likelihood=False)"
            )
        weights = jax.tree.leaves(params.network)
        hyper = sum((model.prior.log_hyperprior(leaf, params.prior.get(leaf.path, {})) for leaf in model.leaves), 0.0)
        return model.prior.log_joint(model.leaves, weights, params.prior, {}) - hyper
    total = jnp.zeros(())
    for leaf, value, flag in zip(model.leaves, jax.tree.leaves(params.network), moves, strict=True):
        if flag:
            total += model.prior.at(leaf.path).log_prob(value, leaf, params.prior.get(leaf.path, {}))
    return total
