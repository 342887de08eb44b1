r"""Mean-field variational inference by coordinate ascent, every update in closed form (Ghahramani & Beal, 2001).

$q(\theta)\, q(z)$ with $q(\theta) \propto p(\theta) \exp \langle \eta(\theta), \sum_i E_{q(z)} t(x_i, z) \rangle$ and
$q(z) \propto \exp \langle E_{q(\theta)} \eta(\theta), t(x, z) \rangle$ in turn.

Each update maximises the lower bound of the log evidence over one factor, so the bound never falls; how far it is from
the evidence is what the two factors cannot say about each other. Bounds of models of different size can be compared.
"""

from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, PyTree

from marginax.infer.catalogue import register_method
from marginax.infer.closed_form import AbstractClosedForm, ClosedFormState, conjugate_model
from marginax.infer.method import Infos
from marginax.model import AbstractModel
from marginax.model.conjugate import AbstractConjugate, Natural, Statistics
from marginax.posterior import AbstractPosterior, Conjugate


class CoordinateAscentInfo(eqx.Module):
    """The bound, and its parts: expected log density of the data, less the divergence of beliefs from their prior."""

    elbo: Array
    reconstruction: Array
    complexity: Array


@register_method(
    "method/coordinate_ascent",
    gives="a conjugate distribution of the parameters, and a bound of the evidence",
    use_when="a mixture, a hidden Markov model, topics: uncertainty and the number of parts at the price of EM",
    cost="up to 500 passes over the data",
    order=14,
    only_for="mx.latent",
)
class CoordinateAscent(AbstractClosedForm):
    """Mean-field variational inference in closed form; with a `batch_size`, stochastic variational inference.

    Takes what every `AbstractClosedForm` takes.

    >>> import jax.numpy as jnp
    >>> import marginax as mx
    >>> x = jnp.concatenate([jnp.linspace(-5, -4, 20), jnp.linspace(4, 6, 40)])[:, None]
    >>> mix = mx.fit(mx.latent.GaussianMixture(5), x, mx.infer.CoordinateAscent(), key=0)
    >>> mix.responsibilities(x).shape, int((mix.weights() > 0.05).sum())
    ((60, 5), 2)
    """

    def update(self, model: AbstractConjugate, statistics: Statistics) -> PyTree:
        return model.conjugate(statistics)

    def natural(self, model: AbstractConjugate, params: PyTree) -> Natural:
        return model.expected_natural(params)

    def divergence(self, model: AbstractConjugate, params: PyTree) -> Float[Array, ""]:
        return model.divergence(params)

    def info(self, objective: Array, reconstruction: Array, complexity: Array) -> CoordinateAscentInfo:
        return CoordinateAscentInfo(objective, reconstruction, complexity)

    def posterior(self, model: AbstractModel, state: ClosedFormState, draws: Any, infos: Infos) -> AbstractPosterior:
        """The restart with the highest bound."""
        belief, elbos = self.last_update(model, state)
        return Conjugate(conjugate_model(model, self), belief, elbos.max(), elbos)
