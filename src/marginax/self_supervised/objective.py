"""What is asked of a network without labels."""

import abc
import math
from typing import Any, ClassVar

import equinox as eqx
import jax
from jax.core import Tracer
from jaxtyping import Array, Float
from jaxtyping import Key as KeyOf

from marginax.data.transforms import AbstractTransform
from marginax.data.views import views_of


class AbstractObjective(eqx.Module):
    """Inputs that are made of a row, and a number for each row that says how well the outputs for them go together."""

    compares_rows: ClassVar[bool] = True
    """Whether the number of a row depends on the other rows of its batch."""

    @abc.abstractmethod
    def inputs(self, x: Float[Array, "b ..."], keys: KeyOf[Array, " b"]) -> Float[Array, "b views ..."]:
        """What the network is called on, for each row."""

    @abc.abstractmethod
    def terms(
        self, outputs: Float[Array, "b views k"], x: Float[Array, "b ..."], keys: KeyOf[Array, " b"]
    ) -> Float[Array, " b"]:
        """The terms of the rows, given the outputs for these inputs; the same keys give what was drawn for them."""

    @abc.abstractmethod
    def check(self, shape: tuple[int, ...], output_size: int) -> None:
        """Raise a ValueError if rows of this shape, or so many outputs for one, cannot be meant."""


class AbstractTwoViews(AbstractObjective):
    """Two views of each row, transformed at random, whose outputs should be alike and unlike those of other rows."""

    transforms: eqx.AbstractVar[tuple[AbstractTransform, ...]]

    def inputs(self, x: Float[Array, "b ..."], keys: KeyOf[Array, " b"]) -> Float[Array, "b views ..."]:
        return jax.vmap(lambda row, key: views_of(self.transforms, row, 2, key=key))(x, keys)

    def check(self, shape: tuple[int, ...], output_size: int) -> None:
        for transform in self.transforms:
            transform.check(shape)


def check_number(name: str, value: Any, *, positive: bool = False) -> None:
    """Raise unless it is finite and >= 0, or > 0."""
    if isinstance(value, Tracer) or eqx.is_array(value):
        return
    if not 0 <= value < math.inf or (positive and value == 0):
        raise ValueError(f"{name} must be {'> 0' if positive else '>= 0'} and finite, got {value}")
