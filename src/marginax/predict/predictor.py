"""Predictions for services: everything that does not depend on the numbers in x is done once."""

from collections.abc import Callable
from typing import Any

import numpy as np

from marginax.data import DataSpec
from marginax.predict.functions import MAX_BYTES, AbstractFunctionSet
from marginax.predict.loop import pad


class Predictor:
    """Calls give what `posterior.predict` gives, by a program that is compiled and draws that are on the device.

    Made by `posterior.predictor(x_shape)`.

    Args:
        answer: from inputs to a prediction.
        x_shape: of the inputs: the most rows, then the shape of one input.
        spec: shapes and scaling of the training data.
    """

    def __init__(self, answer: Callable[[Any], Any], x_shape: tuple[int, ...], spec: DataSpec):
        self.x_shape = x_shape
        self._answer, self._spec = answer, spec

    def __call__(self, x: Any) -> Any:
        """The prediction at inputs, as many as `x_shape` says or fewer."""
        x = self._spec.check_x(x)
        most, num = self.x_shape[0], len(x)
        if not 0 < num <= most:
            raise ValueError(f"x must have 1 to {most} rows, as x_shape={self.x_shape} of this predictor, got {num}")
        found = self._answer(pad(x, most))
        return found if num == most else found[:num]

    def __repr__(self) -> str:
        return f"Predictor(x_shape={self.x_shape})"

    def then(self, function: Callable[[Any], Any]) -> "Predictor":
        """A predictor whose predictions go through a function, such as a calibrator."""
        return Predictor(lambda x: function(self._answer(x)), self.x_shape, self._spec)


def make_predictor(
    functions: AbstractFunctionSet, x_shape: tuple[int, ...], *, spec: DataSpec, max_bytes: int = MAX_BYTES
) -> Predictor:
    """Check the shape, bring the draws to the device and compile.

    Args:
        functions: the draws.
        x_shape: of the inputs.
        spec: shapes and scaling of the training data.
        max_bytes: memory for draws on the device, and for intermediate results.
    """
    shape = tuple(x_shape) if isinstance(x_shape, tuple | list) else ()
    if not shape or shape[1:] != spec.x_shape or not isinstance(shape[0], int) or shape[0] < 1:
        expected = ", ".join(["rows", *map(str, spec.x_shape)])
        raise ValueError(f"x_shape must be ({expected}), rows >= 1 and then one input of the data, got {x_shape!r}")
    example = spec.check_x(np.zeros(shape))
    answer = functions.averaging(example, spec=spec, max_bytes=max_bytes, keep_draws=True)
    answer(example)
    return Predictor(answer, shape, spec)
