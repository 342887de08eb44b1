"""Methods that train: gradient ascent on an objective, one step at a time."""

import abc
from dataclasses import replace
from typing import Any, ClassVar

import equinox as eqx
import jax
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from marginax.data import Batch
from marginax.infer.method import AbstractMethod, Infos, Phase, check_count, num_steps_for
from marginax.infer.optimisers import AbstractOptimiser, Adam, as_optimiser
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


class AbstractOptimised(AbstractMethod):
    """A method that takes steps of an optimiser.

    Args:
        num_epochs: passes over the data; by default at least 10 and enough for 4,000 steps.
        batch_size: rows per step, None for all.
        optimiser: `Adam`, `SGD`, `Optax(...)`, or an Optax transformation.
    """

    num_epochs: int | None = eqx.field(default=None, kw_only=True)
    batch_size: int | None = eqx.field(default=128, kw_only=True)
    optimiser: AbstractOptimiser = eqx.field(default_factory=Adam, converter=as_optimiser, kw_only=True)

    def __check_init__(self):
        check_count("num_epochs", self.num_epochs, optional=True)
        check_count("batch_size", self.batch_size, optional=True)
        if not isinstance(self.optimiser, AbstractOptimiser):
            raise TypeError(f"optimiser must be mx.infer.Adam(...), SGD(...) or Optax(...), got {self.optimiser!r}")
        if self.optimiser.has_line_search and not self.is_deterministic:
            raise ValueError("optimiser must be Adam(...), SGD(...) or such: a line search on noise leads nowhere")

    @property
    def is_deterministic(self) -> bool:
        """Whether the objective on all data is a function of what is trained, without noise."""
        return False

    def num_steps(self, num_examples: Any, batch_size: int) -> Any:
        """Of the whole run."""
        return num_steps_for(self.num_epochs, num_examples, batch_size)

    def phases(self, num_examples: int, batch_size: int) -> tuple[Phase, ...]:
        return (Phase("train", self.num_steps(num_examples, batch_size), self.step, can_end=True),)

    @abc.abstractmethod
    def step(self, model: AbstractModel, state: Any, batch: Batch, *, key: PRNGKeyArray) -> tuple[Any, Any]:
        """One step of the optimiser, which sees the objective per example."""

    def first_memory(self, trained: PyTree) -> PyTree:
        """Of the optimiser."""
        return self.optimiser.build(1).init(trained)

    def descend(
        self, gradient: PyTree, memory: PyTree, trained: PyTree, batch: Batch, **more: Any
    ) -> tuple[Any, PyTree]:
        """What is trained, and the optimiser's memory, after a step down this gradient."""
        transform = self.optimiser.build(self.num_steps(batch.num_examples, batch.size))
        updates, memory = transform.update(gradient, memory, trained, **more)
        return optax.apply_updates(trained, updates), memory


class AbstractTraining(AbstractOptimised):
    """A method that ends at the maximum of an objective; it says which, and gets one draw per chain.

    Args:
        num_epochs: passes over the data; by default at least 10 and enough for 4,000 steps.
        batch_size: rows per step, None for all.
        optimiser: `Adam`, `SGD`, `Optax(...)`, an Optax transformation, or (on full batches only) `LBFGS`.
    """

    def __check_init__(self):
        line_search = isinstance(self.optimiser, AbstractOptimiser) and self.optimiser.has_line_search
        if line_search and self.batch_size is not None:
            raise ValueError(f"optimiser LBFGS() needs batch_size=None (all rows), got {self.batch_size}")

    @abc.abstractmethod
    def objective(
        self, model: AbstractModel, params: Params, batch: Batch, extra: PyTree, *, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        """A log density of the whole data, estimated from a batch."""

    def extra(self, model: AbstractModel, params: Params, *, key: PRNGKeyArray) -> PyTree:
        """What the objective of a chain needs besides the parameters."""

    is_deterministic: ClassVar[bool] = True

    @property
    def supports_dynamic_size(self) -> bool:
        """The size only sets the scale and the length of the schedule."""
        return not self.needs_full_batch

    @property
    def needs_full_batch(self) -> bool:
        return self.optimiser.has_line_search

    def init(self, model: AbstractModel, params: Params, batch: Batch, *, key: PRNGKeyArray) -> TrainState:
        return TrainState(params, self.first_memory(params), self.extra(model, params, key=key))

    def step(
        self, model: AbstractModel, state: TrainState, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[TrainState, TrainInfo]:
        def loss(params: Params) -> Float[Array, ""]:
            return -self.objective(model, params, batch, state.extra, key=key) / batch.num_examples

        value, gradient = jax.value_and_grad(loss)(state.params)
        more = {"value": value, "grad": gradient, "value_fn": loss}
        params, memory = self.descend(gradient, state.optimiser, state.params, batch, **more)
        return TrainState(params, memory, state.extra), TrainInfo(-value * batch.num_examples)

    def posterior(self, model: AbstractModel, state: TrainState, draws: PyTree, infos: Infos) -> AbstractPosterior:
        """One draw per chain: a point, or an ensemble."""
        return Draws(model=model, params=jax.tree.map(lambda leaf: np.asarray(leaf)[:, None], state.params))
