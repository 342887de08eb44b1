r"""Models with unobserved parts whose updates are in closed form.

The log density of an observation x and what is unobserved with it, z (a label, a path of states), is a product
$\langle \eta(\theta), t(x, z) \rangle$ of natural parameters and statistics. Everything follows from that:

- given $\eta$, or its expectation, the distribution of z and the expectation of $t$ are known (the E step);
- given the sum of $t$ over the data, so is the best $\theta$ (the M step of EM), and with a conjugate prior the whole
  posterior of $\theta$ (the step of coordinate ascent), whose parameters are those of the prior plus the statistics;
- $\sum_i \log \sum_z \exp \langle \bar\eta, t(x_i, z) \rangle - KL(q(\theta) \,\|\, p(\theta))$ bounds the evidence.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from marginax.data import Batch
from marginax.model.abstract import AbstractModel, Params

Natural = Any  # natural parameters of the complete data, or their expectation: one pytree of arrays
Statistics = Any  # what the complete data say about the parameters, summed over examples: one pytree of arrays
Belief = Any  # a conjugate distribution of the parameters, by its own parameters: one pytree of arrays


class Expected(eqx.Module):
    """What an E step finds, summed over examples.

    Args:
        statistics: expected statistics of the complete data.
        reconstruction: expected log density of the data given what is unobserved.
        complexity: divergence of what is unobserved from its prior. The difference is the log density of the data, or
            a bound of it.
    """

    statistics: Statistics
    reconstruction: Float[Array, ""]
    complexity: Float[Array, ""]


class AbstractConjugate(AbstractModel):
    """A model for `mx.infer.EM` and `mx.infer.CoordinateAscent`; through its density, also for every other method."""

    @abc.abstractmethod
    def natural(self, params: Params) -> Natural:
        """Natural parameters of the complete data at a point."""

    @abc.abstractmethod
    def expected_natural(self, belief: Belief) -> Natural:
        """The expectation of the natural parameters."""

    @abc.abstractmethod
    def expect(self, natural: Natural, batch: Batch) -> Expected:
        """The E step, summed over the examples of the batch."""

    @abc.abstractmethod
    def conjugate(self, statistics: Statistics) -> Belief:
        """The posterior of the parameters given the statistics of complete data."""

    @abc.abstractmethod
    def maximise(self, statistics: Statistics) -> Params:
        """The parameters at which complete data with these statistics are most likely."""

    @abc.abstractmethod
    def divergence(self, belief: Belief) -> Float[Array, ""]:
        """Kullback-Leibler divergence from the prior."""

    @abc.abstractmethod
    def draw(self, belief: Belief, *, key: PRNGKeyArray) -> Params:
        """Parameters drawn from the belief."""

    @abc.abstractmethod
    def centre(self, belief: Belief) -> Params:
        """Parameters in the middle of the belief."""

    @abc.abstractmethod
    def seed(self, batch: Batch, *, key: PRNGKeyArray) -> Statistics:
        """Statistics of the batch under a first guess at what is unobserved, another one for every key."""


def naturals(posterior: Any) -> Natural:
    """Natural parameters that stand for a posterior of a conjugate model, stacked along a leading axis.

    One expectation where the posterior is a belief in closed form, and else one for every draw.
    """
    model: AbstractConjugate = posterior.model
    if hasattr(posterior, "belief"):
        return jax.tree.map(lambda leaf: leaf[None], _expected_natural(model, posterior.belief))
    return _naturals(model, posterior_draws(posterior))


def posterior_draws(posterior: Any, num: int = 100) -> Params:
    """All draws of a posterior that is made of them, `num` of another, along one leading axis."""
    if hasattr(posterior, "flat"):
        return posterior.flat()
    return posterior.sample_params(num, key=posterior.prediction_key())


@eqx.filter_jit
def _expected_natural(model: AbstractConjugate, belief: PyTree) -> Natural:
    return model.expected_natural(jax.tree.map(jnp.asarray, belief))


@eqx.filter_jit
def _naturals(model: AbstractConjugate, params: PyTree) -> Natural:
    return jax.vmap(model.natural)(jax.tree.map(jnp.asarray, params))
