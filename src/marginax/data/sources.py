"""Where batches come from. A source says what the batch of a step is, as a pure function of step and key."""

import abc
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, UInt32

from marginax.data.arrays import Arrays, DataSpec, as_arrays
from marginax.data.shuffle import rows_of_step
from marginax.files import register


class Batch(eqx.Module):
    """Some rows of the data: inputs, targets, their row numbers, and the size N of the whole.

    The model scales the batch's log likelihood by N / len(batch); nothing else has to know about N.

    Args:
        x: inputs.
        y: targets.
        index: row numbers.
        num_examples: N; an array if it may change without compiling again.
    """

    x: Array
    y: Array
    index: Int[Array, " b"]
    _number: int | None = eqx.field(static=True)
    _traced: Int[Array, ""] | UInt32[Array, ""] | None

    def __init__(self, x: Array, y: Array, index: Int[Array, " b"], num_examples: int | Array):
        self.x, self.y, self.index = x, y, index
        known = isinstance(num_examples, int)
        self._number, self._traced = (num_examples, None) if known else (None, num_examples)

    @property
    def num_examples(self) -> Any:
        """N: an int, or an array for methods that allow `any_size`."""
        return self._number if self._traced is None else self._traced


class AbstractSource(eqx.Module):
    """A stream of batches. `on_host` sources are read by the driver between chunks instead of inside them."""

    on_host: ClassVar[bool]
    if TYPE_CHECKING:

        @property
        def batch_size(self) -> int: ...

    else:
        batch_size: eqx.AbstractVar[int]

    @property
    @abc.abstractmethod
    def spec(self) -> DataSpec:
        """Shapes, size and scaling."""

    @abc.abstractmethod
    def batch(self, step: Int[Array, ""] | int, *, key: PRNGKeyArray) -> Batch:
        """The batch of a step; calling it twice gives the same batch."""

    @abc.abstractmethod
    def examples(self, num: int) -> tuple[np.ndarray, np.ndarray]:
        """The first rows, for checks before anything is compiled."""


@register("data/full_batch")
class FullBatch(AbstractSource):
    """Every step sees all the data.

    >>> FullBatch((np.zeros((5, 2)), np.zeros(5))).batch_size
    5
    """

    on_host: ClassVar[bool] = False
    data: Arrays

    def __init__(self, data: Any):
        """Take a pair of arrays or `Arrays`."""
        self.data = as_arrays(data)

    @property
    def batch_size(self) -> int:
        """N: the batch is the data."""
        return self.data.num_examples

    @property
    def spec(self) -> DataSpec:
        """Shapes, size and scaling."""
        return self.data.spec

    def batch(self, step: Int[Array, ""] | int, *, key: PRNGKeyArray) -> Batch:
        """All rows, in their order."""
        del step, key
        num = self.data.num_examples
        return Batch(jnp.asarray(self.data.x), jnp.asarray(self.data.y), jnp.arange(num), num)

    def examples(self, num: int) -> tuple[np.ndarray, np.ndarray]:
        """The first rows."""
        return np.asarray(self.data.x[:num]), np.asarray(self.data.y[:num])


@register("data/minibatches")
class Minibatches(AbstractSource):
    """Shuffled epochs of full batches; an epoch that does not divide evenly runs on into the next.

    Every row appears exactly once per epoch and every batch has `batch_size` rows, so the estimate of the log
    likelihood is unbiased whatever the remainder.

    >>> import jax
    >>> source = Minibatches((np.zeros((10, 2)), np.zeros(10)), batch_size=5)
    >>> rows = [source.batch(step, key=jax.random.key(0)).index for step in range(2)]
    >>> sorted(np.concatenate(rows).tolist())
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """

    on_host: ClassVar[bool] = False
    data: Arrays
    batch_size: int = eqx.field(static=True)

    def __init__(self, data: Any, batch_size: int):
        """Take a pair of arrays or `Arrays`, and the number of rows per batch (at most N are used)."""
        self.data = as_arrays(data)
        if isinstance(batch_size, bool) or not isinstance(batch_size, int | np.integer) or batch_size < 1:
            raise ValueError(f"batch_size must be an int >= 1, got {batch_size!r}")
        self.batch_size = min(int(batch_size), self.data.num_examples)
        if self.data.num_examples * self.batch_size >= 2**32:
            raise ValueError("data times batch_size exceeds 2^32: use mx.data.MappedFiles for data of this size")

    @property
    def spec(self) -> DataSpec:
        """Shapes, size and scaling."""
        return self.data.spec

    def rows(self, step: Int[Array, ""] | int, *, key: PRNGKeyArray) -> Int[Array, " b"]:
        """Row numbers of the batch of a step."""
        return rows_of_step(step, self.batch_size, self.data.num_examples, key=key)

    def batch(self, step: Int[Array, ""] | int, *, key: PRNGKeyArray) -> Batch:
        """The rows of a step, gathered."""
        rows = self.rows(step, key=key)
        x, y = jnp.asarray(self.data.x), jnp.asarray(self.data.y)
        return Batch(
            x.at[rows].get(mode="promise_in_bounds"),
            y.at[rows].get(mode="promise_in_bounds"),
            rows,
            self.data.num_examples,
        )

    def examples(self, num: int) -> tuple[np.ndarray, np.ndarray]:
        """The first rows."""
        return np.asarray(self.data.x[:num]), np.asarray(self.data.y[:num])


def as_source(data: Any, batch_size: int | None) -> AbstractSource:
    """A source is taken as it is; arrays become minibatches of the method's `batch_size`, or one full batch."""
    if isinstance(data, AbstractSource):
        return data
    arrays = as_arrays(data)
    if batch_size is None or batch_size >= arrays.num_examples:
        return FullBatch(arrays)
    return Minibatches(arrays, batch_size)
