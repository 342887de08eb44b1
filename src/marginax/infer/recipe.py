"""Thin names: a method that is another one with some choices made."""

import abc

from jaxtyping import PRNGKeyArray, PyTree

from marginax.data import Batch
from marginax.infer.method import AbstractMethod, Infos, Phase, State
from marginax.model import AbstractModel
from marginax.model.abstract import Params
from marginax.posterior import AbstractPosterior


class AbstractRecipe(AbstractMethod):
    """A method that runs as `inner` does."""

    @property
    @abc.abstractmethod
    def inner(self) -> AbstractMethod:
        """The method that does the work."""

    @property
    def batch_size(self) -> int | None:
        """As the inner method."""
        return self.inner.batch_size

    @property
    def needs_full_batch(self) -> bool:
        """As the inner method."""
        return self.inner.needs_full_batch

    @property
    def supports_dynamic_size(self) -> bool:
        """As the inner method."""
        return self.inner.supports_dynamic_size

    @property
    def lockstep(self) -> bool:
        """As the inner method."""
        return self.inner.lockstep

    def init(self, model: AbstractModel, params: Params, batch: Batch, *, key: PRNGKeyArray) -> State:
        """As the inner method."""
        return self.inner.init(model, params, batch, key=key)

    def phases(self, num_examples: int, batch_size: int) -> tuple[Phase, ...]:
        """As the inner method."""
        return self.inner.phases(num_examples, batch_size)

    def posterior(self, model: AbstractModel, state: State, draws: PyTree, infos: Infos) -> AbstractPosterior:
        """As the inner method."""
        return self.inner.posterior(model, state, draws, infos)
