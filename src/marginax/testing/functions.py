"""Functions with known minima, on which searches are compared (Surjanovic & Bingham's collection)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from marginax.decide import Box


@dataclass(frozen=True)
class TestFunction:
    """A function, where it is defined, and its minimum.

    Attributes:
        function: of a point.
        space: a box.
        minimum: the lowest value in the box.
        minimisers: where it is.
    """

    __test__ = False  # no test of pytest

    function: Callable[[np.ndarray], float]
    space: Box
    minimum: float
    minimisers: tuple[tuple[float, ...], ...]

    def __call__(self, x: Any) -> float:
        """Its value at a point."""
        return self.function(np.asarray(x, float))


def forrester() -> TestFunction:
    """One input, one local minimum besides (Forrester, Sobester & Keane, 2008).

    >>> round(forrester()([0.757249]), 4)
    -6.0207
    """

    def function(x: np.ndarray) -> float:
        return float((6 * x[0] - 2) ** 2 * np.sin(12 * x[0] - 4))

    return TestFunction(function, Box([(0.0, 1.0)]), -6.020740, ((0.757249,),))


def branin() -> TestFunction:
    """Two inputs, three equal minima.

    >>> round(branin()([np.pi, 2.275]), 4)
    0.3979
    """

    def function(x: np.ndarray) -> float:
        bowl = x[1] - 5.1 / (4 * np.pi**2) * x[0] ** 2 + 5 / np.pi * x[0] - 6
        return float(bowl**2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(x[0]) + 10)

    places = ((-np.pi, 12.275), (np.pi, 2.275), (3 * np.pi, 2.475))
    return TestFunction(function, Box([(-5.0, 10.0), (0.0, 15.0)]), 10 / (8 * np.pi), places)


_WEIGHTS = np.array([1.0, 1.2, 3.0, 3.2])
_SCALES = np.array(
    [
        [10, 3, 17, 3.5, 1.7, 8],
        [0.05, 10, 17, 0.1, 8, 14],
        [3, 3.5, 1.7, 10, 17, 8],
        [17, 8, 0.05, 10, 0.1, 14],
    ]
)
_CENTRES = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def hartmann6() -> TestFunction:
    """Six inputs, six local minima.

    >>> round(hartmann6()([0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573]), 4)
    -3.3224
    """

    def function(x: np.ndarray) -> float:
        return float(-_WEIGHTS @ np.exp(-np.sum(_SCALES * (x - _CENTRES) ** 2, axis=1)))

    place = (0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573)
    return TestFunction(function, Box([(0.0, 1.0)] * 6), -3.322368, (place,))


def ackley(size: int = 2) -> TestFunction:
    """A funnel full of local minima (Ackley, 1987), in a box whose middle is not the minimum.

    >>> round(ackley(3)(np.zeros(3)), 6)
    0.0
    """

    def function(x: np.ndarray) -> float:
        slope = -20 * np.exp(-0.2 * np.sqrt(np.mean(x**2)))
        return float(slope - np.exp(np.mean(np.cos(2 * np.pi * x))) + 20 + np.e)

    return TestFunction(function, Box([(-5.0, 10.0)] * size), 0.0, ((0.0,) * size,))
