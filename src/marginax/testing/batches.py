"""Batches as textbooks assume them."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from marginax.data import AbstractSource, Arrays, Batch, DataSpec, as_arrays


class IndependentBatches(AbstractSource):
    """Rows drawn anew, with replacement, for every step: their noise is independent from step to step.

    Batches of a shuffled epoch add up to all the data, so their noise is anticorrelated; stationary laws of stochastic
    gradients are simplest without that.

    Args:
        data: a pair (x, y).
        batch_size: rows in a batch.
    """

    on_host: ClassVar[bool] = False
    data: Arrays
    batch_size: int = eqx.field(static=True)

    def __init__(self, data: Any, batch_size: int):
        """Take anything that `mx.fit` takes."""
        self.data, self.batch_size = as_arrays(data), batch_size

    @property
    def spec(self) -> DataSpec:
        return self.data.spec

    def batch(self, step: Array | int, *, key: PRNGKeyArray) -> Batch:
        """Rows that depend on step and key alone."""
        rows = jax.random.randint(jax.random.fold_in(key, step), (self.batch_size,), 0, self.data.num_examples)
        return Batch((jnp.asarray(self.data.x)[rows], jnp.asarray(self.data.y)[rows]), rows, self.data.num_examples)

    def examples(self, num: int) -> tuple[Any, Any]:
        return self.data.x[:num], self.data.y[:num]
