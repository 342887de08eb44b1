"""Models of something else than targets, whose unknowns are those of an `mx.Model` all the same."""

import abc
from typing import Any

from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from marginax.model.abstract import AbstractModel, Params
from marginax.model.model import Model


class AbstractWithCore(AbstractModel):
    """A model that keeps weights, priors and which weights are random as `mx.Model` does: in one, its core.

    So the same priors hold, methods start in the same way, and its posterior can become the prior of an `mx.Model`.
    """

    @property
    @abc.abstractmethod
    def core(self) -> Model:
        """Weights, priors and unknowns of a likelihood, as those of any network."""

    def log_prior(self, params: Params) -> Float[Array, ""]:
        return self.core.log_prior(params)

    def expected_log_prior(self, mean: Params, scale: Params, draw: Params) -> Float[Array, ""]:
        return self.core.expected_log_prior(mean, scale, draw)

    def weights(self, params: Params) -> PyTree:
        return self.core.weights(params)

    @property
    def network_weights(self) -> PyTree:
        return self.core.network_weights

    def scales(self, params: Params) -> PyTree:
        return self.core.scales(params)

    def with_weights(self, params: Params, weights: PyTree) -> Params:
        return self.core.with_weights(params, weights)

    def reinitialise(self, params: Params, *, key: PRNGKeyArray) -> Params:
        return self.core.reinitialise(params, key=key)

    def start_at(self, init: Any, params: Params, num_chains: int) -> Params:
        return self.core.start_at(init, params, num_chains)

    def take_over(self, params: Params, stacked: Params) -> Params:
        return self.core.take_over(params, stacked)

    def sampled(self, params: Params) -> Any:
        """Networks: one module whose array leaves have the leading axis of the parameters."""
        return self.core.sampled(params)

    @property
    def draw_name(self) -> str:
        return "network"

    @property
    def structure(self) -> list[list[Any]]:
        return self.core.structure
