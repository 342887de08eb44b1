"""A model as data see it: where targets may be wrong, the distribution of what is seen in place of what is true."""

from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from marginax.model.likelihoods import AbstractLikelihood
from marginax.model.likelihoods.abstract import Unknowns
from marginax.model.outcome import Outcome


class AsObserved(AbstractLikelihood):
    """A likelihood whose predictions are of targets as data have them.

    Args:
        likelihood: of targets that may be wrong.
    """

    likelihood: AbstractLikelihood

    @property
    def flattens(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.likelihood.flattens

    def num_targets(self, output_size: int) -> int:
        return self.likelihood.num_targets(output_size)

    def outcome(self, output_size: int) -> Outcome:
        return self.likelihood.outcome(output_size)

    def check(self, output_size: int, y: np.ndarray) -> None:
        self.likelihood.check(output_size, y)

    def distribution(self, output: Float[Array, "*n k"], unknowns: Unknowns) -> Any:
        return self.likelihood.observed(output, unknowns)


def as_observed(model: Any) -> Any:
    """The model with such a likelihood; any other model as it is."""
    likelihood = getattr(model, "likelihood", None)
    if likelihood is None or not likelihood.may_be_wrong:
        return model
    return eqx.tree_at(lambda m: m.likelihood, model, AsObserved(likelihood))
