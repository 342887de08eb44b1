"""Inputs of which some have labels: what active learning starts from, and what it fills."""

from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, Int, Num

from marginax.data.arrays import as_numeric
from marginax.files import register


@register("active/pool")
class Pool(eqx.Module):
    """Many inputs, and the labels of a few; frozen, so that `label` gives a new one.

    Inputs are used as they are: standardise them first.

    Args:
        x: all inputs, (n, ...).
        rows: of those that have labels, none by default.
        y: their labels, in the same order: ints for classes, floats for numbers.

    >>> pool = Pool(np.zeros((5, 2))).label([3, 1], [0, 1])
    >>> pool
    Pool(n=5, labelled=2)
    >>> pool.unlabelled.tolist(), pool.labels.tolist()
    ([0, 2, 4], [0, 1])

    Attributes:
        x: all inputs.
        labelled: rows that have labels, in the order in which they got them.
        labels: of these rows; None if there are none yet.
    """

    x: Float[np.ndarray, "n ..."]
    labelled: Int[np.ndarray, " m"]
    labels: Num[np.ndarray, "m ..."] | None

    def __init__(self, x: Any, rows: Any = None, y: Any = None):
        real = jax.dtypes.canonicalize_dtype(np.float64)
        self.x = np.asarray(as_numeric(x, name="x"), real)
        self.labelled, self.labels = np.zeros(0, np.int64), None
        if (rows is None) != (y is None):
            raise ValueError("rows and y must be given together, got one of them")
        if rows is not None:
            self.labelled, self.labels = _added(self, rows, y)

    def __len__(self) -> int:
        return len(self.x)

    def __repr__(self) -> str:
        return f"Pool(n={len(self)}, labelled={self.num_labelled})"

    @property
    def num_labelled(self) -> int:
        """How many rows have labels."""
        return len(self.labelled)

    @property
    def unlabelled(self) -> Int[np.ndarray, " r"]:
        """Rows without labels, ascending."""
        return np.delete(np.arange(len(self)), self.labelled)

    @property
    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and targets of the labelled rows, for `mx.fit`."""
        if self.labels is None:
            raise ValueError("pool has no labels yet: give it some with pool.label(rows, y)")
        return self.x[self.labelled], self.labels

    def label(self, rows: Any, y: Any) -> "Pool":
        """The pool with labels for more rows.

        Args:
            rows: which rows; none of them has a label.
            y: a label for each.
        """
        labelled, labels = _added(self, rows, y)
        changed = (labelled, labels)
        return eqx.tree_at(lambda pool: (pool.labelled, pool.labels), self, changed, is_leaf=lambda node: node is None)


def _added(pool: Pool, rows: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    rows, y = np.asarray(rows), as_numeric(y, name="y")
    if rows.ndim != 1 or rows.dtype.kind not in "iu":
        raise ValueError(f"rows must be row numbers of shape (m,), got an array of {rows.dtype} of {rows.shape}")
    if len(rows) != len(y):
        raise ValueError(f"y must have a label for each of the {len(rows)} rows, got {len(y)}")
    if rows.min() < 0 or rows.max() >= len(pool):
        wrong = rows.min() if rows.min() < 0 else rows.max()
        raise ValueError(f"rows must be from 0 to {len(pool) - 1}, got {wrong}")
    together = np.concatenate([pool.labelled, rows.astype(np.int64)])
    values, counts = np.unique(together, return_counts=True)
    if (counts > 1).any():
        raise ValueError(f"rows must be new and different, got row {values[counts > 1][0]} again")
    if pool.labels is None:
        return together, y.astype(np.int32 if y.dtype.kind in "iub" else jax.dtypes.canonicalize_dtype(np.float64))
    if y.shape[1:] != pool.labels.shape[1:]:
        raise ValueError(f"y must have rows of shape {pool.labels.shape[1:]} as the labels so far, got {y.shape[1:]}")
    cast = y.astype(pool.labels.dtype)
    if pool.labels.dtype.kind == "i" and (cast != y).any():
        raise ValueError(f"y must hold integer labels as those so far, got {y[cast != y][0]}")
    return together, np.concatenate([pool.labels, cast])
