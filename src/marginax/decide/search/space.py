"""Where a function can be evaluated: a box, some of whose sides may be on a log scale."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float
from scipy.stats import qmc

from marginax.files import register
from marginax.predict.checks import check_array


@register("search/box")
class Box(eqx.Module):
    """A box of continuous inputs.

    Args:
        bounds: (lower, upper) for every input: a list of pairs, or a dict of pairs by name.
        log: inputs on a log scale, by name or number: equal steps are equal factors.

    >>> box = Box({"learning_rate": (1e-4, 1.0), "momentum": (0.0, 0.9)}, log=["learning_rate"])
    >>> box.from_unit([[0.5, 0.5]]).round(4).tolist()
    [[0.01, 0.45]]
    """

    names: tuple[str, ...] = eqx.field(static=True)
    lower: Float[np.ndarray, " d"]
    upper: Float[np.ndarray, " d"]
    log: tuple[bool, ...] = eqx.field(static=True)

    def __init__(self, bounds: Any, log: Any = ()):
        named = isinstance(bounds, Mapping)
        pairs = list(bounds.values()) if isinstance(bounds, Mapping) else list(bounds)
        sides = check_array(pairs, "bounds")
        if sides.ndim != 2 or sides.shape[1] != 2:
            raise ValueError(f"bounds must be pairs (lower, upper), got an array of shape {sides.shape}")
        self.names = tuple(map(str, bounds)) if named else tuple(f"x{i}" for i in range(len(sides)))
        self.lower, self.upper = sides.T.copy()
        if (self.lower >= self.upper).any():
            wrong = int(np.argmax(self.lower >= self.upper))
            raise ValueError(f"bounds of {self.names[wrong]!r} must rise, got {tuple(sides[wrong].tolist())}")
        chosen = {self.names[each] if isinstance(each, int) else each for each in log}
        if unknown := chosen - set(self.names):
            raise ValueError(f"log must name inputs of {', '.join(self.names)}, got {sorted(unknown)[0]!r}")
        self.log = tuple(name in chosen for name in self.names)
        for name, lower, is_log in zip(self.names, self.lower, self.log, strict=True):
            if is_log and lower <= 0:
                raise ValueError(f"bounds of {name!r} must be > 0 on a log scale, got {lower}")

    @property
    def size(self) -> int:
        """How many inputs there are."""
        return len(self.names)

    def to_unit(self, x: Any) -> Float[np.ndarray, "n d"]:
        """Points of the unit cube, from points of the box."""
        x = np.atleast_2d(check_array(x, "x"))
        if x.ndim != 2 or x.shape[1] != self.size:
            raise ValueError(f"x must have shape (n, {self.size}), got {x.shape}")
        slack = 1e-9 * (self.upper - self.lower)
        if (x < self.lower - slack).any() or (x > self.upper + slack).any():
            raise ValueError(f"x must lie in the box from {self.lower.tolist()} to {self.upper.tolist()}")
        low, high = self._sides()
        return np.clip((self._scaled(np.clip(x, self.lower, self.upper)) - low) / (high - low), 0.0, 1.0)

    def from_unit(self, u: Any) -> Float[np.ndarray, "n d"]:
        """Points of the box, from points of the unit cube."""
        low, high = self._sides()
        x = low + (high - low) * np.asarray(u, float)
        return np.clip(np.where(self.log, np.exp(np.where(self.log, x, 0.0)), x), self.lower, self.upper)

    def _sides(self) -> tuple[np.ndarray, np.ndarray]:
        return self._scaled(self.lower), self._scaled(self.upper)

    def _scaled(self, x: np.ndarray) -> np.ndarray:
        return np.where(self.log, np.log(np.where(self.log, x, 1.0)), x)


def spread_points(size: int, num: int, generator: np.random.Generator) -> Float[np.ndarray, "num size"]:
    """Quasi-random points of the unit cube: a scrambled Sobol sequence.

    >>> spread_points(2, 4, np.random.default_rng(0)).shape
    (4, 2)
    """
    sequence = qmc.Sobol(size, scramble=True, rng=generator)
    return sequence.random_base2(max(0, (num - 1).bit_length()))[:num]
