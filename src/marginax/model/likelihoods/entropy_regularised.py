r"""Rows without labels: classes should be told apart there, too (entropy minimisation; Grandvalet & Bengio, 2005)."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Num, PRNGKeyArray

from marginax.data.missing import MISSING
from marginax.files import register
from marginax.model.likelihoods.abstract import AbstractLikelihood, Unknowns
from marginax.model.outcome import Outcome


@register("likelihood/entropy_regularised")
class EntropyRegularised(AbstractLikelihood):
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

    is_density: ClassVar[bool] = False
    takes_missing: ClassVar[bool] = True

    def __check_init__(self):
        inner = self.likelihood
        if not isinstance(inner, AbstractLikelihood) or inner.bounds or inner.flattens or inner.may_be_wrong:
            raise TypeError(f"likelihood must be one of classes, such as mx.likelihoods.Categorical(), got {inner!r}")
        if not isinstance(self.weight, Tracer) and not 0 <= self.weight < float("inf"):
            raise ValueError(f"weight must be >= 0 and finite, got {self.weight}")

    @property
    def has_logits(self) -> bool:
        return self.likelihood.has_logits

    def num_targets(self, output_size: int) -> int:
        return self.likelihood.num_targets(output_size)

    def outcome(self, output_size: int) -> Outcome:
        return self.likelihood.outcome(output_size)

    def check(self, output_size: int, y: np.ndarray) -> None:
        """Labels, or -1."""
        if self.likelihood.outcome(output_size) is not Outcome.CLASS:
            raise ValueError(f"likelihood of EntropyRegularised must be one of classes, got {self.likelihood!r}")
        if y.ndim != 1:
            raise ValueError(f"y must be labels of shape (n,), {MISSING} where one is missing, got {y.shape}")
        labelled = y[y != MISSING]
        if len(labelled):
            self.likelihood.check(output_size, labelled)

    def check_training(self, y: np.ndarray) -> None:
        if (y == MISSING).all():
            raise ValueError("y must have a label in some row, got none: without any, nothing is known of the classes")

    def init(self, output_size: int) -> Unknowns:
        return self.likelihood.init(output_size)

    def log_prior(self, unknowns: Unknowns) -> Float[Array, ""]:
        return self.likelihood.log_prior(unknowns)

    def distribution(self, output: Float[Array, "*n k"], unknowns: Unknowns) -> Any:
        return self.likelihood.distribution(output, unknowns)

    def marginal(self, mean: Float[Array, "n k"], covariance: Float[Array, "n k k"], unknowns: Unknowns) -> Any:
        return self.likelihood.marginal(mean, covariance, unknowns)

    def log_prob(self, output: Float[Array, "n k"], y: Num[Array, " n"], unknowns: Unknowns) -> Float[Array, " n"]:
        """Of the label where there is one; minus the weighted entropy elsewhere."""
        log_probs = jax.nn.log_softmax(self.likelihood.distribution(output, unknowns).class_logits, axis=-1)
        entropy = -jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1)
        known = self.likelihood.log_prob(output, jnp.maximum(y, 0), unknowns)
        return jnp.where(y == MISSING, -self.weight * entropy, known)

    def fisher(self, output: Float[Array, "n k"], unknowns: Unknowns) -> Float[Array, "n k k"]:
        """Of a row with a label."""
        return self.likelihood.fisher(output, unknowns)

    def fisher_root_given(
        self, output: Float[Array, " k"], y: Num[Array, "*d"], unknowns: Unknowns, key: PRNGKeyArray
    ) -> Float[Array, "k m"]:
        """Zero for a row without a label."""
        root = self.likelihood.fisher_root_given(output, y, unknowns, key)
        return jnp.where(jnp.squeeze(y) == MISSING, 0.0, root)
