"""What a method is: a frozen configuration that says how to start, how to step, and what the posterior is.

It holds no loop, no jit, no chains, no printing and no files: the driver has those, once, for all.
"""

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from marginax.data import Batch
from marginax.model import AbstractModel
from marginax.model.abstract import Params
from marginax.posterior import AbstractPosterior, Mixture

State = Any  # one pytree of arrays with a field `params`: all that is needed to go on
Info = Any  # one pytree of numbers, for people
Infos = dict[str, dict[str, np.ndarray]]  # by phase and name, with axes (chain, step)


class NoPosteriorYet(KeyboardInterrupt):
    """A run that was interrupted, or is looked at, before there is anything to make a posterior of."""


def whole(state: State) -> State:
    """All of a state."""
    return state


def instead(state: State, part: State) -> State:
    """The new state in place of the old."""
    return part


def params_of(state: State) -> Params:
    """What most samplers keep."""
    return state.params


@dataclass(frozen=True)
class Phase:
    """A number of identical steps under one name.

    What is compiled depends on `step`, `keep` and the part of the state alone, so that methods that begin by the same
    training share one program: `step` is best a method of a module, `keep` a function with a name.

    Args:
        name: shown in the progress bar, and the key of its info: "train", "warmup", "sample".
        num_steps: how many.
        step: (model, state, batch, *, key) -> (state, info).
        keep: state -> what to keep as a draw, or None to keep nothing.
        thin: keep every thin-th state.
        cycle: steps after which the phase repeats itself, or None for one long cycle.
        skip: steps at the beginning of each cycle from which nothing is kept.
        can_end: whether a hook may end it before its last step. Training may; a pass over the data, or a warm-up after
            whose last step the method itself stops to adapt, may not. A phase that keeps draws can end after the first.
        as_next: whether the step is that of the next phase, so that one compiled program serves both. Nothing is kept.
        enter: the part of the method's state that the step works on.
        leave: (state, part) -> the state with its part put back.
    """

    name: str
    num_steps: int
    step: Callable[..., tuple[State, Info]]
    keep: Callable[[State], PyTree] | None = None
    thin: int = 1
    cycle: int | None = None
    skip: int = 0
    can_end: bool = False
    as_next: bool = False
    enter: Callable[[State], State] = whole
    leave: Callable[[State, State], State] = instead

    def kept(self, states: State) -> PyTree:
        """Shapes of what is kept of the states of all chains at a time."""
        assert self.keep is not None
        return jax.eval_shape(jax.vmap(self.keep), self.enter(states))

    def num_bytes(self, states: State) -> int:
        """Memory of what is kept of the states of all chains at a time."""
        return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(self.kept(states)))

    def may_end_at(self, step: int) -> bool:
        """Whether there is a posterior if the phase ends when this many steps are done."""
        return self.can_end if self.keep is None else self.num_kept(step) > 0

    def num_kept(self, step: Any) -> Any:
        """How many draws are complete when this many steps are done; an int, or an array while tracing.

        >>> phase = Phase("sample", 20, lambda *args: args, thin=2, cycle=10, skip=6)
        >>> [phase.num_kept(step) for step in (6, 7, 8, 10, 16, 18, 20)]
        [0, 0, 1, 2, 2, 3, 4]
        """
        if self.cycle is None:
            return (step - self.skip) * (step > self.skip) // self.thin
        past = step % self.cycle - self.skip
        return step // self.cycle * ((self.cycle - self.skip) // self.thin) + past * (past > 0) // self.thin


class AbstractMethod(eqx.Module):
    """A way to get from a model and data to a posterior.

    Four members make a method: `init`, `phases`, `posterior`, and the `step` that its phases name. The others have
    defaults that suit most.
    """

    if TYPE_CHECKING:  # an abstract field: a field or a property in subclasses, and no argument of their constructors

        @property
        def batch_size(self) -> int | None: ...

    else:
        batch_size: eqx.AbstractVar[int | None]

    @abc.abstractmethod
    def init(self, model: AbstractModel, params: Params, batch: Batch, *, key: PRNGKeyArray) -> State:
        """The state before the first step, for one chain that starts at `params`."""

    @abc.abstractmethod
    def phases(self, num_examples: int, batch_size: int) -> tuple[Phase, ...]:
        """What is run, in order, on this many examples in batches of this many."""

    @abc.abstractmethod
    def posterior(self, model: AbstractModel, state: State, draws: PyTree, infos: Infos) -> AbstractPosterior:
        """The result. Leaves of `state` have an axis (chain,), of `draws` (chain, draw), of `infos` (chain, step)."""

    # ---- optional

    @property
    def needs_full_batch(self) -> bool:
        """Whether the method is wrong on minibatches; a source that gives them is then refused."""
        return False

    @property
    def needs_layers(self) -> bool:
        """Whether it needs a network, with its layers, likelihood and prior; other models are then refused."""
        return False

    @property
    def needs_conjugate(self) -> bool:
        """Whether it needs updates in closed form; models without them are then refused."""
        return False

    @property
    def supports_dynamic_size(self) -> bool:
        """Whether the steps take a size N of the data that is an array, as `mx.data.GrowingMinibatches` gives it."""
        return False

    @property
    def num_chains(self) -> int:
        """How many chains to run when the user does not say."""
        return 1

    @property
    def lockstep(self) -> bool:
        """Whether all chains take the same time for a step; if not, they take turns instead of waiting for the last."""
        return True

    def prepare_model(self, model: AbstractModel) -> AbstractModel:
        """The model that is fitted: the user's, unless the method is a recipe that says otherwise."""
        return model

    def warm_started(self) -> "AbstractMethod":
        """The method to run when `init=` says where to start."""
        return self


def _of_inner(name: str) -> Any:
    return property(lambda self: getattr(self.inner, name))


class AbstractRecipe(AbstractMethod):
    """A method that is another one with choices made: what it does not say itself is said by `inner`."""

    if TYPE_CHECKING:
        init: ClassVar[Any]
        phases: ClassVar[Any]
        posterior: ClassVar[Any]
    else:
        init, phases, posterior = map(_of_inner, ("init", "phases", "posterior"))
        batch_size, needs_full_batch, needs_layers = map(_of_inner, ("batch_size", "needs_full_batch", "needs_layers"))
        supports_dynamic_size, lockstep = map(_of_inner, ("supports_dynamic_size", "lockstep"))
        needs_conjugate = _of_inner("needs_conjugate")
        num_chains, prepare_model = map(_of_inner, ("num_chains", "prepare_model"))

    @property
    @abc.abstractmethod
    def inner(self) -> AbstractMethod:
        """The method that does the work."""


def mixture_of_chains(build: Callable[[State], AbstractPosterior], state: State) -> AbstractPosterior:
    """The posterior of each chain, given its state, and of several their mixture."""
    num_chains = jax.tree.leaves(state)[0].shape[0]
    parts = [build(jax.tree.map(lambda leaf, at=chain: leaf[at], state)) for chain in range(num_chains)]
    return parts[0] if num_chains == 1 else Mixture(parts)


def check_count(name: str, value: int | None, *, least: int = 1, optional: bool = False) -> None:
    """Raise unless value is an int of at least `least` (or None, where that is allowed)."""
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be an int >= {least}{' or None' if optional else ''}, got {value!r}")


def num_steps_for(num_epochs: int | None, num_examples: Any, batch_size: int, least: int = 4000) -> Any:
    """Steps in a number of epochs; by default at least 10 epochs and at least 4,000 steps. An array if N is one.

    >>> num_steps_for(3, 100, 32), num_steps_for(None, 100, 100), num_steps_for(None, 60_000, 128)
    (10, 4000, 4688)
    """
    least = 1 if num_epochs is not None else least
    num_steps = -(-(num_epochs or 10) * num_examples // batch_size)
    return max(least, num_steps) if isinstance(num_examples, int) else jnp.maximum(least, num_steps)
