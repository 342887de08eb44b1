r"""How the distance of an approximation from the prior is estimated, and how it is shared out over minibatches.

$\mathrm{KL}(q \,\|\, p) = -H(q) - E_q[\log p(w)]$
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from marginax.files import register
from marginax.infer.vi.families import AbstractApproximation
from marginax.model import AbstractModel
from marginax.model.abstract import Params


class AbstractDivergence(eqx.Module):
    """Estimates entropy and expected log prior."""

    @property
    def needs_layers(self) -> bool:
        """Whether it treats the weights of layers apart."""
        return False

    @abc.abstractmethod
    def terms(
        self, model: AbstractModel, approximation: AbstractApproximation, draw: Params, log_prob: Array
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Entropy of the approximation and expected log prior, given a draw from it and its log density."""


@register("divergence/closed_form")
class ClosedForm(AbstractDivergence):
    """Formulas where they exist (the entropy of a normal; normal, Laplace and horseshoe priors), else the draw."""

    def terms(
        self, model: AbstractModel, approximation: AbstractApproximation, draw: Params, log_prob: Array
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        entropy, scales = approximation.entropy(), approximation.scales()
        log_prior = (
            model.log_prior(draw) if scales is None else model.expected_log_prior(approximation.mean, scales, draw)
        )
        return -log_prob if entropy is None else entropy, log_prior


@register("divergence/monte_carlo")
class MonteCarlo(AbstractDivergence):
    """Both log densities at the draw, as in Bayes by Backprop: any prior, and a noisier gradient."""

    def terms(
        self, model: AbstractModel, approximation: AbstractApproximation, draw: Params, log_prob: Array
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        return -log_prob, model.log_prior(draw)


@register("divergence/sticking_the_landing")
class StickingTheLanding(AbstractDivergence):
    """As `MonteCarlo`, without the part of the gradient whose mean is zero (Roeder, Wu & Duvenaud, 2017).

    Its variance vanishes when the approximation is exact, so it pays for rich families.
    """

    def terms(
        self, model: AbstractModel, approximation: AbstractApproximation, draw: Params, log_prob: Array
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        held = jax.tree.map(jax.lax.stop_gradient, approximation)
        return -held.log_prob(draw), model.log_prior(draw)


def divergence_from_normal(mean: Array, scale: Array, centre: float | Array, prior_scale: float | Array) -> Array:
    """KL divergence of independent normal unknowns from a prior that is the same for all.

    >>> divergence_from_normal(jnp.ones(3), jnp.full(3, 0.5), 1.0, 0.5).tolist()
    0.0
    """
    ratio, shift = scale / prior_scale, (mean - centre) / prior_scale
    return jnp.sum(0.5 * (ratio**2 + shift**2 - 1.0) - jnp.log(ratio))


class AbstractWeighting(eqx.Module):
    """How much of the divergence a minibatch bears."""

    @abc.abstractmethod
    def factor(self, step: Array, num_batches: int) -> Array | float:
        """What multiplies the divergence at a step; its mean over an epoch is 1."""


@register("kl_weighting/uniform")
class Uniform(AbstractWeighting):
    """Every batch the same."""

    def factor(self, step: Array, num_batches: int) -> Array | float:
        return 1.0


@register("kl_weighting/blundell")
class BlundellWeights(AbstractWeighting):
    r"""Batch i of M bears $\pi_i = 2^{M-i} / (2^M - 1)$ of it (Blundell et al., 2015, section 3.4).

    The prior speaks first in each epoch, the data later.
    """

    def factor(self, step: Array, num_batches: int) -> Array | float:
        number = (step % num_batches).astype(jnp.float32) + 1.0
        return num_batches * jnp.exp2(-number) / (1.0 - 2.0**-num_batches)
