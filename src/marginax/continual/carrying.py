"""What one task leaves to the next: its posterior as prior, its weights as a start, or its data."""

import abc
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import numpy as np

from marginax.files import register
from marginax.infer.updating import network_at, updated_model
from marginax.model import Model
from marginax.posterior import AbstractNormalFamily, AbstractPosterior


class AbstractCarrying(eqx.Module):
    """From a posterior to the model and the rows of the next fit."""

    @abc.abstractmethod
    def model(self, model: Model, last: AbstractPosterior) -> Model:
        """The model of the next task, given the first one's and the last posterior."""

    def rows(self, data: Sequence[tuple[np.ndarray, np.ndarray]]) -> Any:
        """Of what came so far, what the next fit sees: the rows of the last task."""
        return data[-1]


@register("carrying/as_prior")
class AsPrior(AbstractCarrying):
    """The posterior becomes the prior, as Bayes has it.

    With `VI` this is variational continual learning (Nguyen et al., 2018), with `Laplace` the online Laplace
    approximation (Ritter, Botev & Barber, 2018), whose normal posteriors are multiplied.

    Args:
        scale: as in `mx.priors.FromPosterior`.
        family: as in `mx.priors.FromPosterior`.
    """

    scale: Any = 1.0
    family: AbstractNormalFamily | None = None

    def model(self, model: Model, last: AbstractPosterior) -> Model:
        return updated_model(last, scale=self.scale, family=self.family)


@register("carrying/as_start")
class AsStart(AbstractCarrying):
    """Training goes on from the last weights, and forgets: fine-tuning."""

    def model(self, model: Model, last: AbstractPosterior) -> Model:
        return Model(network_at(last), model.likelihood, model.prior, model.subset)


@register("carrying/all_data")
class AllData(AbstractCarrying):
    """All rows so far, from the beginning: what continual learning is measured against."""

    def model(self, model: Model, last: AbstractPosterior) -> Model:
        return model

    def rows(self, data: Sequence[tuple[np.ndarray, np.ndarray]]) -> Any:
        return tuple(np.concatenate(parts) for parts in zip(*data, strict=True))
