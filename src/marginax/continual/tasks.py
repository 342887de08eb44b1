"""Tasks that come one after the other, and the two that papers share."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class Task:
    """Rows to learn from, and rows to be judged on.

    Args:
        data: a pair (x, y) of inputs and labels.
        test: a pair (x, y).
    """

    data: tuple[Any, Any]
    test: tuple[Any, Any]

    def __post_init__(self):
        for name in ("data", "test"):
            pair = getattr(self, name)
            if not isinstance(pair, tuple | list) or len(pair) != 2 or len(pair[0]) != len(pair[1]):
                raise ValueError(f"{name} of a task must be a pair (x, y) of one length, got {type(pair).__name__}")
            object.__setattr__(self, name, (np.asarray(pair[0]), np.asarray(pair[1])))


def permuted_tasks(
    data: tuple[Any, Any], test: tuple[Any, Any], num_tasks: int, *, seed: int, first_as_is: bool = False
) -> list[Task]:
    """The same labels for inputs whose entries are in another order in each task (permuted MNIST).

    Args:
        data: a pair (x, y); x is raveled.
        test: a pair (x, y).
        num_tasks: how many.
        seed: of the orders.
        first_as_is: whether the first task keeps its order.

    >>> x, y = np.arange(6.0).reshape(2, 3), np.array([0, 1])
    >>> [task.data[0][0].tolist() for task in permuted_tasks((x, y), (x, y), 2, seed=0, first_as_is=True)]
    [[0.0, 1.0, 2.0], [2.0, 0.0, 1.0]]
    """
    if num_tasks < 1:
        raise ValueError(f"num_tasks must be >= 1, got {num_tasks}")
    rng = np.random.default_rng(seed)
    rows = [(np.asarray(x).reshape(len(x), -1), np.asarray(y)) for x, y in (data, test)]
    tasks = []
    for number in range(num_tasks):
        size = rows[0][0].shape[1]
        order = np.arange(size) if first_as_is and number == 0 else rng.permutation(size)
        tasks.append(Task(*((x[:, order], y) for x, y in rows)))
    return tasks


def split_tasks(data: tuple[Any, Any], test: tuple[Any, Any], groups: Sequence[Sequence[int]]) -> list[Task]:
    """A task for each group of classes, with a head of its own (split MNIST).

    Labels are places in the group, and inputs end with the number of the head, as `MultiHead` wants them.

    >>> x, y = np.full((4, 1), 0.5), np.array([0, 1, 2, 3])
    >>> tasks = split_tasks((x, y), (x, y), [(0, 1), (2, 3)])
    >>> tasks[1].data[1].tolist(), tasks[1].data[0].tolist()
    ([0, 1], [[0.5, 1.0], [0.5, 1.0]])
    """
    tasks = []
    for head, group in enumerate(groups):
        pairs = []
        for x, y in (data, test):
            chosen = np.isin(y, group)
            if not np.isin(group, y).all():
                raise ValueError(f"groups must hold classes of y, got {tuple(group)} of {np.unique(y).tolist()}")
            places = np.argmax(np.asarray(y)[chosen][:, None] == np.asarray(group), axis=1)
            rows = np.asarray(x)[chosen].reshape(int(chosen.sum()), -1)
            pairs.append((np.concatenate([rows, np.full((len(rows), 1), head, rows.dtype)], axis=1), places))
        tasks.append(Task(*pairs))
    return tasks
