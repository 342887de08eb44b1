"""Which rows are held out to judge by: at random, the latest, or whole groups."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from marginax._extras import require
from marginax.data import Table
from marginax.data.answer_columns import vote_of
from marginax.data.written import find_written

Frame = Any  # of pandas


@dataclass(frozen=True)
class Split:
    """Rows to judge by.

    Attributes:
        held_out: True where a row is held out.
        words: how they were chosen.
    """

    held_out: np.ndarray
    words: str

    def __str__(self) -> str:
        return f"{self.held_out.sum():,} of {len(self.held_out):,} rows, {self.words}, are held out."


def split(table: Table, by: str | None, *, fraction: float, seed: int) -> Split:
    """A fraction of the rows of a table, chosen as `--split-by` says."""
    if not 0 < fraction < 1:
        raise ValueError(f"--test-fraction must be strictly between 0 and 1, got {fraction:g}")
    y = table.y if table.y.ndim == 1 else require("pandas").Series(vote_of(table.y), name="label")
    if by is None:
        held_out = at_random(y, task=str(table.task), fraction=fraction, seed=seed)
        found = Split(held_out, f"chosen at random with seed {seed}")
    else:
        kind, _, name = by.partition(":")
        if kind not in ("time", "group") or not name:
            raise ValueError(f"--split-by must be time:COLUMN or group:COLUMN, got {by!r}")
        column = _column(table, name)
        found = latest(column, fraction) if kind == "time" else groups(column, fraction, seed)
    found = Split(found.held_out & y.notna().to_numpy(), found.words)
    if table.y.ndim == 2 and by is None:
        found = Split(found.held_out & ~_has_label_of_no_other(table.y, found.held_out), found.words)
    if not found.held_out.any():
        raise ValueError(
            f"--test-fraction {fraction:g} of {len(found.held_out)} rows leaves none to judge by: choose a larger one"
        )
    unseen = _labels(table.y[found.held_out]) - _labels(table.y[~found.held_out])
    unseen = unseen if table.task == "classification" else set()
    if unseen:
        few = ", ".join(sorted(map(repr, unseen))[:5])
        raise ValueError(f"--split-by {by} holds out all rows of class {few}: choose another --test-fraction or column")
    return found


def _labels(y: Frame) -> set[Any]:
    """All labels of a column, or of several."""
    return set(y.to_numpy()[y.notna().to_numpy()].tolist())


def _has_label_of_no_other(answers: Frame, held_out: np.ndarray) -> np.ndarray:
    """Rows to which somebody gave a label that no row outside those held out has."""
    return answers.isin(list(_labels(answers[held_out]) - _labels(answers[~held_out]))).any(axis=1).to_numpy()


def at_random(y: Frame, *, task: str, fraction: float, seed: int) -> np.ndarray:
    """A random fraction; of classes, of each class, and never all of its rows.

    >>> import pandas as pd
    >>> int(at_random(pd.Series(np.arange(10.0)), task="regression", fraction=0.2, seed=0).sum())
    2
    >>> chosen = at_random(pd.Series(list("aaaaabbbbbc")), task="classification", fraction=0.2, seed=0)
    >>> [int(chosen[:5].sum()), int(chosen[5:10].sum()), int(chosen[10:].sum())]
    [1, 1, 0]
    """
    values = y.to_numpy()
    alike = (
        [values == label for label in y.dropna().unique()] if task == "classification" else [np.ones(len(values), bool)]
    )
    rng = np.random.default_rng(seed)
    held_out = np.zeros(len(values), bool)
    for group in alike:
        rows = rng.permutation(np.flatnonzero(group))
        held_out[rows[: min(round(fraction * len(rows)), len(rows) - 1)]] = True
    return held_out


def latest(times: Frame, fraction: float) -> Split:
    """The rows from some time on, all of one time together; rows without a time are not held out.

    >>> import pandas as pd
    >>> latest(pd.Series([5, 1, 4, 4, 2], name="day"), 0.3).held_out.tolist()
    [True, False, True, True, False]
    """
    pd = require("pandas")

    if not pd.api.types.is_numeric_dtype(times.dtype) and not pd.api.types.is_datetime64_any_dtype(times.dtype):
        written = find_written(times)
        if written is None:
            raise ValueError(f"--split-by time: column {times.name!r} must hold dates or numbers, got texts")
        times = written.read(times)
    known = times.dropna().sort_values()
    if known.nunique() < 2:
        raise ValueError(f"--split-by time: column {times.name!r} has the same time in every row")
    start = known.iloc[-max(1, round(fraction * len(known)))]
    if start == known.iloc[0]:
        start = known[known > start].iloc[0]
    return Split((times >= start).to_numpy(), f"the latest by {times.name!r}, from {start} on")


def groups(column: Frame, fraction: float, seed: int) -> Split:
    """Whole groups, in random order until there are enough rows; what is missing is a group of its own.

    >>> import pandas as pd
    >>> found = groups(pd.Series(list("aabbccdd"), name="city"), 0.25, 0)
    >>> int(found.held_out.sum()), found.words
    (2, "those of 1 of 4 values of 'city'")
    """
    codes, values = require("pandas").factorize(column, use_na_sentinel=False)
    if len(values) < 2:
        raise ValueError(f"--split-by group: column {column.name!r} has the same value in every row")
    sizes = np.bincount(codes)
    order = np.random.default_rng(seed).permutation(len(values))
    before = np.concatenate([[0], np.cumsum(sizes[order])[:-1]])
    chosen = order[: min(len(values) - 1, max(1, int(np.sum(before < fraction * len(codes)))))]
    words = f"those of {len(chosen):,} of {len(values):,} values of {column.name!r}"
    return Split(np.isin(codes, chosen), words)


def _column(table: Table, name: str) -> Frame:
    if name in ([table.y.name] if table.y.ndim == 1 else table.y.columns):
        raise ValueError(f"--split-by must not be the target, got {name!r}")
    if table.others is not None and name in table.others.columns:
        return table.others[name]
    return table.select([name])[name]
