"""Functions drawn from a posterior: a draw can be called at inputs, and is the same function at all of them."""

import abc
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, PyTree

from marginax.data import DataSpec

MAX_BYTES = 256 * 2**20


class AbstractFunctions(eqx.Module):
    """Draws, and how one of them gives the distribution of the targets at inputs (in the units of the model).

    Fields: `draws`, a pytree whose leaves have a leading axis, and `log_weights` of the draws (None: all the same).
    """

    if TYPE_CHECKING:  # abstract fields: fields or properties in subclasses, and no arguments of their constructors

        @property
        def draws(self) -> PyTree: ...

        @property
        def log_weights(self) -> np.ndarray | None: ...

    else:
        draws: eqx.AbstractVar[PyTree]
        log_weights: eqx.AbstractVar[np.ndarray | None]

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

    def centred(self) -> "AbstractFunctions":
        """Functions with the same mean output: fewer ones, where that is known without drawing."""
        return self

    @property
    def members(self) -> "tuple[AbstractFunctions, ...]":
        """Stacks of functions of one kind each."""
        return (self,)

    @property
    def num_draws(self) -> int:
        """How many functions there are."""
        sizes = {leaf.shape[0] if leaf.ndim else None for leaf in jax.tree.leaves(self.draws)}
        if len(sizes) != 1 or None in sizes or 0 in sizes:
            raise ValueError(f"params must have one leading axis of draws in every leaf, got sizes {sizes}")
        return sizes.pop()  # pyright: ignore[reportReturnType]

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

    def predict(self, x: Any, *, spec: DataSpec, max_bytes: int = MAX_BYTES) -> Any:
        """The average over all functions, at inputs in the user's units."""
        from marginax.predict.predictive import average

        return average(self, x, spec=spec, max_bytes=max_bytes)


class ParameterDraws(AbstractFunctions):
    """A model at several settings of its parameters.

    Args:
        model: gives `predictive(params, x, key=...)`.
        draws: the parameters; or pairs of parameters and a key, for networks that are random themselves.
        log_weights: of the draws.
        has_keys: whether there are keys.
    """

    model: Any
    draws: PyTree
    log_weights: np.ndarray | None = None
    has_keys: bool = eqx.field(static=True, default=False)

    def distribution(self, draw: PyTree, x: Array) -> Any:
        params, key = draw if self.has_keys else (draw, None)
        return self.model.predictive(params, x, key=key)


class JoinedFunctions(AbstractFunctions):
    """Functions of several kinds, one after the other: those of a mixture.

    Args:
        parts: the kinds.
        part_weights: positive, one for each part.
    """

    parts: tuple[AbstractFunctions, ...]
    part_weights: np.ndarray
    draws: PyTree = None

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

    def distribution(self, draw: PyTree, x: Array) -> Any:
        raise NotImplementedError("functions of a mixture are asked part by part")
