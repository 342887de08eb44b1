r"""What a Laplace approximation knows about the place it is at.

$\log p(D) \approx \log p(D, \hat\theta) + \tfrac d2 \log 2\pi - \tfrac12 \log\det(H + \Lambda)$, the log joint density
at the mode less the log density of the normal there (MacKay, 1992).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int

from marginax.curvature import (
    AbstractCovariance,
    AbstractCurvature,
    BlockCovariance,
    FixedCovariance,
    SubsetCovariance,
)
from marginax.files import register
from marginax.model import Model, Params


@register("posterior/laplace_mode")
class Mode(eqx.Module):
    """Curvature and likelihood at a mode, and which weights they are about.

    Args:
        curvature: of the negative log likelihood, without the prior.
        log_likelihood: of all data.
        num_examples: how many there were.
        moves: which of the model's random leaves the curvature is about.
        index: places of single weights among the raveled parameters, where not all of those leaves move.
    """

    curvature: AbstractCurvature
    log_likelihood: Array
    num_examples: Array
    moves: tuple[bool, ...] = eqx.field(static=True)
    index: Int[Array, " moving"] | None = None

    def places(self, params: Params) -> Int[Array, " moving"]:
        """Where the weights that move are among the raveled parameters."""
        if self.index is not None:
            return self.index
        flags = [
            jnp.full(leaf.size, moves) for leaf, moves in zip(jax.tree.leaves(params.network), self.moves, strict=True)
        ]
        return jnp.flatnonzero(jnp.concatenate(flags), size=self.curvature.size)

    def precision(self, model: Model, params: Params) -> Float[Array, " moving"]:
        """Of the prior, for the weights that move."""
        return ravel_pytree(model.prior_precision(params))[0][self.places(params)]

    def covariance(self, model: Model, params: Params) -> AbstractCovariance:
        """Of all parameters, under the model's prior; those that do not move stay."""
        inner = self.curvature.covariance(self.precision(model, params))
        num = sum(leaf.size for leaf in jax.tree.leaves(params))
        if inner.size == num:
            return inner
        if all(self.moves) and self.index is None:
            blocks = inner.blocks if isinstance(inner, BlockCovariance) else (inner,)
            return BlockCovariance((*blocks, FixedCovariance(num - inner.size)))
        return SubsetCovariance(inner, self.places(params), num)

    def log_evidence(self, model: Model, params: Params, covariance: AbstractCovariance) -> Float[Array, ""]:
        """The log joint density less the log density of the normal."""
        if self.index is not None:
            raise ValueError("subset must be whole leaves for the evidence: use mx.All(), LastLayer() or Paths(...)")
        log_prior = jnp.zeros(())
        for leaf, value, moves in zip(model.leaves, jax.tree.leaves(params.network), self.moves, strict=True):
            if moves:
                log_prior += model.prior.at(leaf.path).log_prob(value, leaf, params.prior.get(leaf.path, {}))
        return self.log_likelihood + log_prior - covariance.log_prob(jnp.zeros(covariance.size))
