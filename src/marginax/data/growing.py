"""Data that grow between fits: a buffer with room for more, and one compiled program for every size."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from marginax._kernels.permutation import rows_of_step
from marginax.data.arrays import Arrays, DataSpec, as_arrays
from marginax.data.sources import AbstractSource, Batch, first_rows, gather
from marginax.files import register


@register("data/growing_minibatches")
class GrowingMinibatches(AbstractSource):
    """Minibatches whose number of rows N is an array, so that fits to more and more rows share one program.

    Batches are those of `Minibatches`, row by row. The rows beyond N only fill the buffer: no batch has them, and the
    log likelihood counts N rows.

    Args:
        data: a pair of arrays or `Arrays`.
        batch_size: rows per batch (at most N are used); another batch size is another program.
        capacity: rows that there is room for.

    >>> source = GrowingMinibatches((np.zeros((5, 2)), np.zeros(5)), batch_size=4, capacity=100)
    >>> source.spec.num_examples, source.data.x.shape
    (5, (100, 2))
    """

    on_host: ClassVar[bool] = False
    data: Arrays
    count: Int[np.ndarray, ""] | Int[Array, ""]
    batch_size: int = eqx.field(static=True)

    def __init__(self, data: Any, batch_size: int, capacity: int):
        data = as_arrays(data)
        num = data.num_examples
        for name, value, least in (("batch_size", batch_size, 1), ("capacity", capacity, num)):
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
                raise ValueError(f"{name} must be an int >= {least}, got {value!r}")
        self.batch_size = min(int(batch_size), num)
        if capacity * self.batch_size >= 2**32:
            raise ValueError(f"capacity times batch_size must be below 2^32, got {capacity} times {self.batch_size}")
        self.data = data.take(np.minimum(np.arange(capacity), num - 1))
        self.count = np.asarray(num, np.int32)

    @property
    def spec(self) -> DataSpec:
        """Shapes, size and scaling; the size is that of the rows so far."""
        spec = self.data.spec
        return DataSpec(spec.x_shape, spec.y_shape, int(self.count), spec.scaling)

    def batch(self, step: Int[Array, ""] | int, *, key: PRNGKeyArray) -> Batch:
        num = jnp.asarray(self.count, jnp.uint32)
        rows = rows_of_step(step, self.batch_size, num, key=key)
        return Batch(gather(self.data.tree, rows), rows, jnp.asarray(self.count, jnp.int32))

    def examples(self, num: int) -> PyTree:
        return first_rows(self.data.tree, min(num, int(self.count)))
