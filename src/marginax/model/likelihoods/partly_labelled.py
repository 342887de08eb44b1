"""Labels of which some are missing, and a term of rows that is no likelihood of data: what such likelihoods share."""

import abc
import math
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Num, PRNGKeyArray

from marginax.data.missing import MISSING
from marginax.model.likelihoods.abstract import AbstractLikelihood, Unknowns
from marginax.model.outcome import Outcome


class AbstractPartlyLabelled(AbstractLikelihood):
    """A likelihood of classes, and a weighted term that asks for no label.

    `is_density` is False: `posterior.summary()` says so, and `loo` refuses. The GGN has no part of the term, which is
    not convex; rows without labels count nothing in it.

    Fields: `likelihood`, of classes; `weight` of the term, >= 0.
    """

    if TYPE_CHECKING:

        @property
        def likelihood(self) -> AbstractLikelihood: ...
        @property
        def weight(self) -> float | Array: ...

    else:
        likelihood: eqx.AbstractVar[AbstractLikelihood]
        weight: eqx.AbstractVar[float | Array]

    is_density: ClassVar[bool] = False
    takes_missing: ClassVar[bool] = True

    def __check_init__(self):
        inner = self.likelihood
        if not isinstance(inner, AbstractLikelihood) or inner.bounds or inner.flattens or inner.may_be_wrong:
            raise TypeError(f"likelihood must be one of classes, such as mx.likelihoods.Categorical(), got {inner!r}")
        if not inner.is_density:
            raise TypeError(f"likelihood must be one of data, without a term of its own for missing labels: {inner!r}")
        if not isinstance(self.weight, Tracer) and not 0 <= self.weight < math.inf:
            raise ValueError(f"weight must be >= 0 and finite, got {self.weight}")

    def is_judged(self, y: Num[Array, " n"]) -> Bool[Array, " n"]:
        """Those with a label: the term of another row says how sure it is, or how alike its views."""
        return y != MISSING

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
            name = type(self).__name__
            raise ValueError(f"likelihood of {name} must be one of classes, got {self.likelihood!r}")
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
        """Of the label where there is one; what is said of a row without elsewhere."""
        known = self.likelihood.log_prob(output, jnp.maximum(y, 0), unknowns)
        return jnp.where(y == MISSING, self.without_label(output, unknowns), known)

    @abc.abstractmethod
    def without_label(self, output: Float[Array, "n k"], unknowns: Unknowns) -> Float[Array, " n"]:
        """What a row contributes by its own output where it has no label."""

    def fisher(self, output: Float[Array, "n k"], unknowns: Unknowns) -> Float[Array, "n k k"]:
        """Of a row with a label."""
        return self.likelihood.fisher(output, unknowns)

    def fisher_root_given(
        self, output: Float[Array, " k"], y: Num[Array, "*d"], unknowns: Unknowns, key: PRNGKeyArray
    ) -> Float[Array, "k m"]:
        """Zero for a row without a label."""
        root = self.likelihood.fisher_root_given(output, y, unknowns, key)
        return jnp.where(jnp.squeeze(y) == MISSING, 0.0, root)
