r"""Expectation-maximisation (Dempster, Laird & Rubin, 1977): the most likely parameters where parts are unobserved.

$\theta \leftarrow \arg\max_{\theta'} \sum_i E_{z \sim p(z \mid x_i, \theta)} [\log p(x_i, z \mid \theta')]$

The likelihood never falls. Like `mx.infer.MLE` it is blind to the prior, and its result is a point.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from marginax.infer.catalogue import register_method
from marginax.infer.closed_form import AbstractClosedForm, ClosedFormState
from marginax.infer.method import Infos
from marginax.model import AbstractModel
from marginax.model.conjugate import AbstractConjugate, Natural, Statistics
from marginax.posterior import AbstractPosterior, Draws


class EMInfo(eqx.Module):
    """Log likelihood, and its parts: the data given what is unobserved, less the divergence of that from its prior."""

    log_likelihood: Array
    reconstruction: Array
    complexity: Array


@register_method(
    "method/em",
    gives="a point",
    use_when="the classical fit of a mixture or hidden Markov model",
    cost="up to 500 passes over the data",
    order=12,
    only_for="mx.latent",
)
class EM(AbstractClosedForm):
    """Expectation-maximisation; with a `batch_size`, stochastic EM.

    Takes what every `AbstractClosedForm` takes.

    >>> import marginax as mx
    >>> x = jnp.concatenate([jnp.linspace(-5, -4, 20), jnp.linspace(4, 6, 40)])[:, None]
    >>> mix = mx.fit(mx.latent.GaussianMixture(2), x, mx.infer.EM(), key=0)
    >>> sorted(mix.weights().round(3).tolist())
    [0.333, 0.667]
    """

    def update(self, model: AbstractConjugate, statistics: Statistics) -> PyTree:
        return model.maximise(statistics)

    def natural(self, model: AbstractConjugate, params: PyTree) -> Natural:
        return model.natural(params)

    def divergence(self, model: AbstractConjugate, params: PyTree) -> Float[Array, ""]:
        """None: a point has no belief to compare with the prior."""
        return jnp.zeros(())

    def info(self, objective: Array, reconstruction: Array, complexity: Array) -> EMInfo:
        return EMInfo(objective, reconstruction, complexity)

    def posterior(self, model: AbstractModel, state: ClosedFormState, draws: Any, infos: Infos) -> AbstractPosterior:
        """The most likely of the restarts."""
        params, _ = self.last_update(model, state)
        return Draws(model=model, params=jax.tree.map(lambda leaf: leaf[None, None], params))
