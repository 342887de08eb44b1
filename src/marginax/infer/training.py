"""Methods that train: gradient ascent on an objective, one step at a time."""

import abc
from dataclasses import replace
from typing import Any, cast

import equinox as eqx
import jax
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from marginax.data import Batch
from marginax.infer.method import AbstractMethod, Infos, Phase, check_count, num_steps_for
from marginax.infer.optimisers import LBFGS, AbstractOptimiser
from marginax.model import AbstractModel
from marginax.model.abstract import Params
from marginax.posterior import AbstractPosterior, Draws


class TrainState(eqx.Module):
    """Weights, the optimiser's memory, and what else the objective needs."""

    params: Params
    optimiser: PyTree
    extra: PyTree = None


def training_memory(state: TrainState) -> PyTree:
    """What a method that trains first keeps of the training, besides the weights."""
    return state.optimiser, state.extra


def begin_by_training(training: "AbstractTraining", num_examples: int, batch_size: int) -> Phase:
    """Training as the first phase of a method whose state has `params` and `training`, its memory."""
    (train,) = training.phases(num_examples, batch_size)
    return replace(train, enter=_enter, leave=_leave)


def _enter(state: Any) -> TrainState:
    return TrainState(state.params, *state.training)


def _leave(state: Any, part: TrainState) -> Any:
    return eqx.tree_at(lambda s: (s.params, s.training), state, (part.params, training_memory(part)))


class TrainInfo(eqx.Module):
    """Numbers for people."""

    log_density: Float[Array, "*steps"]


class AbstractTraining(AbstractMethod):
    """A method that ends at the maximum of an objective; it says which, and gets one draw per chain."""

    num_epochs: eqx.AbstractVar[int | None]
    batch_size: eqx.AbstractVar[int | None]
    optimiser: eqx.AbstractVar[AbstractOptimiser]

    def __check_init__(self):
        check_count("num_epochs", self.num_epochs, optional=True)
        check_count("batch_size", self.batch_size, optional=True)
        if not isinstance(self.optimiser, AbstractOptimiser):
            raise TypeError(f"optimiser must be mx.infer.Adam(...), SGD(...) or LBFGS(...), got {self.optimiser!r}")
        if isinstance(self.optimiser, LBFGS) and self.batch_size is not None:
            raise ValueError(f"optimiser LBFGS() needs batch_size=None (all rows), got {self.batch_size}")

    @abc.abstractmethod
    def objective(
        self, model: AbstractModel, params: Params, batch: Batch, extra: PyTree, *, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        """A log density of the whole data, estimated from a batch."""

    def extra(self, model: AbstractModel, params: Params, *, key: PRNGKeyArray) -> PyTree:
        """What the objective of a chain needs besides the parameters."""
        del model, params, key

    def init(self, model: AbstractModel, params: Params, batch: Batch, *, key: PRNGKeyArray) -> TrainState:
        """Start where the chain starts."""
        del batch
        return TrainState(params, self.optimiser.build(1).init(cast(Any, params)), self.extra(model, params, key=key))

    def phases(self, num_examples: int, batch_size: int) -> tuple[Phase, ...]:
        """Train."""
        return (Phase("train", num_steps_for(self.num_epochs, num_examples, batch_size), self.step, can_end=True),)

    @property
    def supports_dynamic_size(self) -> bool:
        """The size only sets the scale and the length of the schedule."""
        return not self.needs_full_batch

    @property
    def needs_full_batch(self) -> bool:
        """A line search on noise leads nowhere."""
        return isinstance(self.optimiser, LBFGS)

    def step(
        self, model: AbstractModel, state: TrainState, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[TrainState, TrainInfo]:
        """Climb by one step of the optimiser, which sees the objective per example."""
        num_examples = batch.num_examples

        def loss(params: Params) -> Float[Array, ""]:
            return -self.objective(model, params, batch, state.extra, key=key) / num_examples

        transform: Any = self.optimiser.build(num_steps_for(self.num_epochs, num_examples, batch.size))
        value, gradient = jax.value_and_grad(loss)(state.params)
        more: dict[str, Any] = {}
        if isinstance(self.optimiser, LBFGS):
            more = {"value": value, "grad": gradient, "value_fn": loss}
        updates, memory = transform.update(gradient, state.optimiser, state.params, **more)
        params: Any = optax.apply_updates(cast(Any, state.params), updates)
        return TrainState(params, memory, state.extra), TrainInfo(-value * num_examples)

    def posterior(self, model: AbstractModel, state: TrainState, draws: PyTree, infos: Infos) -> AbstractPosterior:
        """One draw per chain: a point, or an ensemble."""
        del draws, infos
        return Draws(model=model, params=jax.tree.map(lambda leaf: np.asarray(leaf)[:, None], state.params))
