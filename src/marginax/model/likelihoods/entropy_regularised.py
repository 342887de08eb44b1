r"""Rows without labels: classes should be told apart there, too (entropy minimisation; Grandvalet & Bengio, 2005)."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from marginax.files import register
from marginax.model.likelihoods.abstract import AbstractLikelihood, Unknowns
from marginax.model.likelihoods.partly_labelled import AbstractPartlyLabelled


@register("likelihood/entropy_regularised")
class EntropyRegularised(AbstractPartlyLabelled):
    r"""Labels of which some are missing (-1): a row without one contributes $-w\, H[p(y \mid x)]$.

    That is a preference for boundaries that run where there are few rows, and **not a likelihood of data**:
    `is_density` is False, `posterior.summary()` says so, and `loo` refuses. Rows with labels count as in the likelihood
    inside. It runs under every method; the GGN has no part of rows without labels, whose term is not convex.

    Args:
        likelihood: of classes: `Categorical()`, `Bernoulli()` with one output, `Ordinal()`.
        weight: $w$, >= 0; choose it on rows with labels that were kept back.

    >>> import marginax as mx
    >>> likelihood = EntropyRegularised(mx.likelihoods.Categorical(), weight=1.0)
    >>> print(likelihood.log_prob(jnp.zeros((2, 2)), jnp.array([1, -1]), {}).round(3))  # log 1/2, minus log 2
    [-0.693 -0.693]
    """

    likelihood: AbstractLikelihood
    weight: float | Array = 1.0

    def without_label(self, output: Float[Array, "n k"], unknowns: Unknowns) -> Float[Array, " n"]:
        """Minus the weighted entropy."""
        log_probs = jax.nn.log_softmax(self.likelihood.distribution(output, unknowns).class_logits, axis=-1)
        return self.weight * jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1)
