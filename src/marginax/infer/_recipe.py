"""Thin names: a method that is another one with some choices made."""

import abc

from jaxtyping import PRNGKeyArray, PyTree

from marginax.data import Batch
from marginax.infer._method import AbstractMethod, Infos, Phase, State
from marginax.model import Model, Params
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
    def any_size(self) -> bool:
        """As the inner method."""
        return self.inner.any_size

    @property
    def in_step(self) -> bool:
        """As the inner method."""
        return self.inner.in_step

    def init(self, model: Model, params: Params, batch: Batch, *, key: PRNGKeyArray) -> State:
        """As the inner method."""
        return self.inner.init(model, params, batch, key=key)

    def phases(self, num_examples: int, batch_size: int) -> tuple[Phase, ...]:
        """As the inner method."""
        return self.inner.phases(num_examples, batch_size)

    def posterior(self, model: Model, state: State, draws: PyTree, infos: Infos) -> AbstractPosterior:
        """As the inner method."""
        return self.inner.posterior(model, state, draws, infos)
