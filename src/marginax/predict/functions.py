"""Functions drawn from a posterior: a draw can be called at inputs, and is the same function at all of them."""

import abc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, PyTree

from marginax.data import DataSpec

MAX_BYTES = 256 * 2**20


class AbstractFunctionSet(eqx.Module):
    """Functions drawn from a posterior, of one kind or of several, with weights.

    Field: `log_weights` of the draws (None: all the same).
    """

    if TYPE_CHECKING:  # abstract fields: fields or properties in subclasses, and no arguments of their constructors

        @property
        def log_weights(self) -> np.ndarray | None: ...

    else:
        log_weights: eqx.AbstractVar[np.ndarray | None]

    @property
    @abc.abstractmethod
    def members(self) -> "tuple[AbstractFunctions, ...]":
        """Stacks of functions of one kind each."""

    @property
    @abc.abstractmethod
    def num_draws(self) -> int:
        """How many functions there are."""

    def centred(self) -> "AbstractFunctionSet":
        """Functions with the same mean output: fewer ones, where that is known without drawing."""
        return self

    def normalised_log_weights(self) -> Float[np.ndarray, " draws"]:
        """Of all draws; their exponentials sum to one."""
        num = self.num_draws
        if self.log_weights is None:
            return np.full(num, -np.log(num))
        weights = np.asarray(self.log_weights, np.float64)
        if weights.shape != (num,):
            raise ValueError(f"log_weights must have shape ({num},), one per draw, got {weights.shape}")
        if np.isnan(weights).any() or not np.isfinite(weights.max()):
            raise ValueError("log_weights must be finite (or -inf for a weight of zero, but not all of them)")
        return weights - np.logaddexp.reduce(weights)

    def averaging(
        self, x: Any, *, spec: DataSpec, max_bytes: int = MAX_BYTES, keep_draws: bool = False
    ) -> Callable[[Any], Any]:
        """The way from inputs to the average over all functions, for any number of inputs like these.

        Args:
            x: inputs in the user's units, for their shape and dtype.
            spec: shapes and scaling of the training data.
            max_bytes: memory for intermediate results.
            keep_draws: whether draws stay on the device, for a way that is gone again and again.
        """
        from marginax.predict.predictive import averaging

        return averaging(self, x, spec=spec, max_bytes=max_bytes, keep_draws=keep_draws)

    def predict(self, x: Any, *, spec: DataSpec, max_bytes: int = MAX_BYTES) -> Any:
        """The average over all functions, at inputs in the user's units."""
        return self.averaging(x, spec=spec, max_bytes=max_bytes)(x)


class AbstractFunctions(AbstractFunctionSet):
    """Draws, and how one of them gives the distribution of the targets at inputs (in the units of the model).

    Fields: `draws`, a pytree whose leaves have a leading axis, and `log_weights`.
    """

    if TYPE_CHECKING:

        @property
        def draws(self) -> PyTree: ...

    else:
        draws: eqx.AbstractVar[PyTree]

    @abc.abstractmethod
    def distribution(self, draw: PyTree, x: Array) -> Any:
        """The distribution of the targets at inputs under one draw."""

    def prepare(self, draws: PyTree) -> PyTree:
        """What does not depend on inputs, done once for a chunk of draws and not for each of its inputs."""
        return draws

    @property
    def is_prepared(self) -> bool:
        """Whether there is anything to prepare."""
        return False

    @property
    def members(self) -> "tuple[AbstractFunctions, ...]":
        """Only these."""
        return (self,)

    @property
    def num_draws(self) -> int:
        sizes = {leaf.shape[0] if leaf.ndim else None for leaf in jax.tree.leaves(self.draws)}
        if len(sizes) != 1 or None in sizes or 0 in sizes:
            raise ValueError(f"params must have one leading axis of draws in every leaf, got sizes {sizes}")
        return sizes.pop()  # pyright: ignore[reportReturnType]


class ParameterDraws(AbstractFunctions):
    """A model at several settings of its parameters.

    Args:
        model: gives `predictive(params, x, key=...)`.
        draws: the parameters; or pairs of parameters and a key, for networks that are random themselves.
        log_weights: of the draws.
        has_keys: whether there are keys.
        shared: parameters that are the same in all draws, which have None in their place: what comes of the inputs by
            these alone is computed once.
    """

    model: Any
    draws: PyTree
    log_weights: np.ndarray | None = None
    has_keys: bool = eqx.field(static=True, default=False)
    shared: PyTree = None

    def distribution(self, draw: PyTree, x: Array) -> Any:
        params, key = draw if self.has_keys else (draw, None)
        params = params if self.shared is None else eqx.combine(params, self.shared)
        return self.model.predictive(params, x, key=key)


class JoinedFunctions(AbstractFunctionSet):
    """Functions of several kinds, one after the other: those of a mixture.

    Args:
        parts: the kinds.
        part_weights: positive, one for each part.
    """

    parts: tuple[AbstractFunctionSet, ...]
    part_weights: np.ndarray

    def centred(self) -> "JoinedFunctions":
        return JoinedFunctions(tuple(part.centred() for part in self.parts), self.part_weights)

    @property
    def members(self) -> tuple[AbstractFunctions, ...]:
        return tuple(member for part in self.parts for member in part.members)

    @property
    def num_draws(self) -> int:
        return sum(part.num_draws for part in self.parts)

    @property
    def log_weights(self) -> np.ndarray:
        pairs = zip(self.parts, np.log(self.part_weights), strict=True)
        return np.concatenate([part.normalised_log_weights() + weight for part, weight in pairs])
