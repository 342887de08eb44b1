"""A few rows of each task that are kept, out of the update, for the end (Nguyen et al., 2018)."""

import abc

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int

from marginax.files import register


class AbstractCoreset(eqx.Module):
    """Which rows of a task are kept."""

    num_rows: eqx.AbstractVar[int]

    @abc.abstractmethod
    def choose(self, x: Float[np.ndarray, "n ..."], rng: np.random.Generator) -> Int[np.ndarray, " kept"]:
        """Places of the rows."""


@register("coreset/random")
class RandomCoreset(AbstractCoreset):
    """Rows at random.

    Args:
        num_rows: of each task.
    """

    num_rows: int

    def __check_init__(self):
        _check(self.num_rows)

    def choose(self, x: Float[np.ndarray, "n ..."], rng: np.random.Generator) -> Int[np.ndarray, " kept"]:
        return np.sort(rng.permutation(len(x))[: self.num_rows])


@register("coreset/k_centre")
class KCentreCoreset(AbstractCoreset):
    """Rows that leave none far from all of them, by the greedy choice of the farthest (Gonzalez, 1985).

    Args:
        num_rows: of each task.

    >>> x = np.array([[0.0], [0.1], [5.0], [5.1], [9.0]])
    >>> KCentreCoreset(3).choose(x, np.random.default_rng(0)).tolist()
    [0, 2, 4]
    """

    num_rows: int

    def __check_init__(self):
        _check(self.num_rows)

    def choose(self, x: Float[np.ndarray, "n ..."], rng: np.random.Generator) -> Int[np.ndarray, " kept"]:
        rows = np.asarray(x, np.float64).reshape(len(x), -1)
        squares = np.sum(rows**2, axis=1)
        chosen = [int(rng.integers(len(rows)))]
        nearest = np.full(len(rows), np.inf)
        for _ in range(min(self.num_rows, len(rows)) - 1):
            last = chosen[-1]
            nearest = np.minimum(nearest, squares - 2 * rows @ rows[last] + squares[last])
            nearest[chosen] = -np.inf
            chosen.append(int(np.argmax(nearest)))
        return np.sort(np.asarray(chosen))


def _check(num_rows: int) -> None:
    if isinstance(num_rows, bool) or not isinstance(num_rows, int) or num_rows < 1:
        raise ValueError(f"num_rows must be an int >= 1, got {num_rows!r}")
