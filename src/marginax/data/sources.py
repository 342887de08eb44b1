"""Where batches come from. A source says what the batch of a step is, as a pure function of step and key."""

import abc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, UInt32

from marginax._kernels.permutation import rows_of_step
from marginax.data.arrays import Arrays, DataSpec, Rows, as_arrays
from marginax.files import register


class Batch(eqx.Module):
    """Some examples of the data, their row numbers, and the size N of the whole.

    The model scales the batch's log likelihood by N / size; nothing else has to know about N.

    Args:
        data: any pytree of arrays with a leading axis of examples; inputs and targets as a pair, or with weights as
            three.
        index: row numbers.
        num_examples: N; an array if it may change without compiling again.
    """

    data: PyTree
    index: Int[Array, " b"]
    _number: int | None = eqx.field(static=True)
    _traced: Int[Array, ""] | UInt32[Array, ""] | None

    def __init__(self, data: PyTree, index: Int[Array, " b"], num_examples: int | Array):
        self.data, self.index = data, index
        known = isinstance(num_examples, int)
        self._number, self._traced = (num_examples, None) if known else (None, num_examples)

    @property
    def num_examples(self) -> Any:
        """N: an int, or an array for methods that support a dynamic size."""
        return self._number if self._traced is None else self._traced

    @property
    def size(self) -> int:
        """Examples in the batch."""
        return self.index.shape[0]

    @property
    def x(self) -> Array:
        """Inputs, where the data are pairs of inputs and targets."""
        return self.data[0]

    @property
    def y(self) -> Array:
        """Targets, where the data are pairs of inputs and targets."""
        return self.data[1]

    @property
    def row_weights(self) -> Float[Array, " b"] | None:
        """What the log likelihood of each row is multiplied by, in data of inputs and targets; None for ones."""
        return self.data[2] if len(self.data) > 2 else None

    def weigh(self, values: Float[Array, " b"]) -> Float[Array, " b"]:
        """Values of the rows times the weights of the rows."""
        return values if self.row_weights is None else self.row_weights * values

    @property
    def weight(self) -> Any:
        """N / B: how many examples of the data each one here stands for."""
        return self.num_examples / self.size

    def total(self, values: Float[Array, " b"]) -> Float[Array, ""]:
        """Unbiased estimate of the sum over all examples from the values of these."""
        return self.weight * jnp.sum(values)


class AbstractSource(eqx.Module):
    """A stream of batches. `on_host` sources are read by the driver between chunks instead of inside them."""

    on_host: ClassVar[bool]
    is_noisy: ClassVar[bool] = False  # whether an example is another one at every step
    mixes_targets: ClassVar[bool] = False  # whether targets are averages of those of several examples
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
    def examples(self, num: int) -> PyTree:
        """The first examples, for checks before anything is compiled."""


@register("data/full_batch")
class FullBatch(AbstractSource):
    """Every step sees all the data.

    >>> FullBatch((np.zeros((5, 2)), np.zeros(5))).batch_size
    5
    """

    on_host: ClassVar[bool] = False
    data: Arrays | Rows

    def __init__(self, data: Any):
        """Take a pair of arrays, `Arrays` or `Rows`."""
        self.data = data if isinstance(data, Rows) else as_arrays(data)

    @property
    def batch_size(self) -> int:
        """N: the batch is the data."""
        return self.data.num_examples

    @property
    def spec(self) -> DataSpec:
        return self.data.spec

    def batch(self, step: Int[Array, ""] | int, *, key: PRNGKeyArray) -> Batch:
        num = self.data.num_examples
        return Batch(jax.tree.map(jnp.asarray, self.data.tree), jnp.arange(num), num)

    def examples(self, num: int) -> PyTree:
        return first_rows(self.data.tree, num)


@register("data/minibatches")
class Minibatches(AbstractSource):
    """Shuffled epochs of full batches; an epoch that does not divide evenly runs on into the next.

    Every row appears exactly once per epoch and every batch has `batch_size` rows, so the estimate of the log
    likelihood is unbiased whatever the remainder.

    >>> source = Minibatches((np.zeros((10, 2)), np.zeros(10)), batch_size=5)
    >>> rows = [source.batch(step, key=jax.random.key(0)).index for step in range(2)]
    >>> sorted(np.concatenate(rows).tolist())
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """

    on_host: ClassVar[bool] = False
    data: Arrays | Rows
    batch_size: int = eqx.field(static=True)

    def __init__(self, data: Any, batch_size: int):
        """Take a pair of arrays, `Arrays` or `Rows`, and the number of rows per batch (at most N are used)."""
        self.data = data if isinstance(data, Rows) else as_arrays(data)
        if isinstance(batch_size, bool) or not isinstance(batch_size, int | np.integer) or batch_size < 1:
            raise ValueError(f"batch_size must be an int >= 1, got {batch_size!r}")
        self.batch_size = min(int(batch_size), self.data.num_examples)
        if self.data.num_examples * self.batch_size >= 2**32:
            raise ValueError("data times batch_size exceeds 2^32: use mx.data.MappedFiles for data of this size")

    @property
    def spec(self) -> DataSpec:
        return self.data.spec

    def rows(self, step: Int[Array, ""] | int, *, key: PRNGKeyArray) -> Int[Array, " b"]:
        """Row numbers of the batch of a step."""
        return rows_of_step(step, self.batch_size, self.data.num_examples, key=key)

    def batch(self, step: Int[Array, ""] | int, *, key: PRNGKeyArray) -> Batch:
        rows = self.rows(step, key=key)
        return Batch(gather(self.data.tree, rows), rows, self.data.num_examples)

    def examples(self, num: int) -> PyTree:
        return first_rows(self.data.tree, num)


def gather(tree: PyTree, rows: Int[Array, " b"]) -> PyTree:
    """Some rows of every leaf."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf).at[rows].get(mode="promise_in_bounds"), tree)


def first_rows(tree: PyTree, num: int) -> PyTree:
    """The first rows of every leaf, on the host."""
    return jax.tree.map(lambda leaf: np.asarray(leaf[:num]), tree)


def as_source(data: Any, batch_size: int | None, read: Callable[[Any], Arrays | Rows] = as_arrays) -> AbstractSource:
    """A source is taken as it is; data become minibatches of the method's `batch_size`, or one full batch.

    Args:
        data: what the user has.
        batch_size: of the method; None for all rows.
        read: checks the data, and says what the rows are.
    """
    if isinstance(data, AbstractSource):
        return data
    rows = read(data)
    if batch_size is None or batch_size >= rows.num_examples:
        return FullBatch(rows)
    return Minibatches(rows, batch_size)
