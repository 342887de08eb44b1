"""Posteriors around another one, of which they change one thing."""

from typing import Any

import equinox as eqx
from jaxtyping import PRNGKeyArray

from marginax.data import DataSpec
from marginax.model import AbstractModel
from marginax.model.abstract import Params
from marginax.posterior.posterior import AbstractPosterior
from marginax.posterior.record import FitRecord
from marginax.predict import AbstractFunctionSet


class AbstractWrapped(AbstractPosterior):
    """Everything that it does not say itself is that of the posterior inside."""

    posterior: eqx.AbstractVar[AbstractPosterior]

    @property
    def model(self) -> AbstractModel:
        return self.posterior.model

    @property
    def spec(self) -> DataSpec | None:
        return self.posterior.spec

    @property
    def record(self) -> FitRecord:
        return self.posterior.record

    @property
    def key(self) -> PRNGKeyArray | None:
        return self.posterior.key

    @property
    def is_point(self) -> bool:
        return self.posterior.is_point

    def sample_params(self, num: int, *, key: PRNGKeyArray) -> Params:
        return self.posterior.sample_params(num, key=key)

    def draw(self, num: int, *, key: PRNGKeyArray) -> Any:
        return self.posterior.draw(num, key=key)

    def functions(self, num: int | None = None, *, key: PRNGKeyArray) -> AbstractFunctionSet:
        return self.posterior.functions(num, key=key)

    def starting_points(self, num: int) -> Params:
        return self.posterior.starting_points(num)

    def to_arviz(self, data: Any = None) -> Any:
        return self.posterior.to_arviz(data)
