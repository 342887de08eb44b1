"""A run directory: the estimator with its posterior, the rows that were held out, and how it came about."""

import contextlib
import dataclasses
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np

from marginax._extras import require
from marginax.data.written import AbstractWritten
from marginax.files import RunDirectory, register

Frame = Any  # of pandas
_FOLDER = "held_out"
FIT = "fit"  # the estimator, its checkpoints and its posterior


@register("table/column")
class Column(eqx.Module):
    """A column of a table as plain data: numbers, texts (None where missing), or dates as nanoseconds since 1970."""

    name: str
    kind: str
    values: np.ndarray | list[Any]


@dataclasses.dataclass(frozen=True)
class HeldOut:
    """What `fit` keeps beside the estimator.

    Attributes:
        x: held-out rows.
        y: their targets.
        target: name of the target.
        command: what was typed.
        source: name of the file of data.
        level: probability of intervals.
        written: how the texts of the table were read as numbers and dates, by column.
    """

    x: Frame
    y: Frame
    target: str
    command: str
    source: str
    level: float
    written: Mapping[str, AbstractWritten] = dataclasses.field(default_factory=dict)

    def save(self, directory: Path) -> None:
        """Write to a new or empty directory."""
        _directory(directory).create(
            {
                "x": [to_column(name, self.x[name]) for name in self.x.columns],
                "y": to_column(self.target, self.y),
                "about": {"command": self.command, "source": self.source, "level": self.level},
                "written": dict(self.written),
            }
        )

    @staticmethod
    def remove(directory: Path) -> None:
        """Take back what `save` and a fit that did not begin have written."""
        for name in (_FOLDER, FIT):
            shutil.rmtree(directory / name, ignore_errors=True)
        with contextlib.suppress(OSError):  # something else is in there
            directory.rmdir()

    @classmethod
    def load(cls, directory: Path) -> "HeldOut":
        """Read what `save` wrote."""
        pd = require("pandas")

        setup = _directory(directory).read()
        target = setup.get("y")
        x = pd.DataFrame({column.name: from_column(column) for column in setup.get("x")})
        y = pd.Series(from_column(target), name=target.name)
        written = setup.get("written") if "written" in setup else {}  # runs of earlier versions have none
        return cls(x=x, y=y, target=target.name, written=written, **setup.get("about"))


def to_column(name: str, values: Frame) -> Column:
    """A column of pandas as plain data.

    >>> import pandas as pd
    >>> to_column("city", pd.Series(["Rome", None])).values
    ['Rome', None]
    """
    types = require("pandas.api.types")

    if types.is_datetime64_any_dtype(values.dtype):
        return Column(name, "date", values.to_numpy("datetime64[ns]").astype(np.int64))
    if types.is_bool_dtype(values.dtype) or types.is_numeric_dtype(values.dtype):
        whole = types.is_integer_dtype(values.dtype) or types.is_bool_dtype(values.dtype)
        return Column(
            name, "number", values.to_numpy() if whole and not values.isna().any() else values.to_numpy(np.float64)
        )
    texts = [None if missing else str(value) for value, missing in zip(values, values.isna(), strict=True)]
    return Column(name, "text", texts)


def from_column(column: Column) -> Any:
    """The values again."""
    if column.kind == "date":
        return np.asarray(column.values).astype("datetime64[ns]")
    return np.array(column.values, object) if column.kind == "text" else np.asarray(column.values)


def split(y: Frame, *, task: str, fraction: float, seed: int) -> np.ndarray:
    """Which rows are held out: a random fraction; of classes, of each class, and never all of its rows.

    >>> import pandas as pd
    >>> int(split(pd.Series(np.arange(10.0)), task="regression", fraction=0.2, seed=0).sum())
    2
    >>> chosen = split(pd.Series(list("aaaaabbbbbc")), task="classification", fraction=0.2, seed=0)
    >>> [int(chosen[:5].sum()), int(chosen[5:10].sum()), int(chosen[10:].sum())]
    [1, 1, 0]
    """
    if not 0 < fraction < 1:
        raise ValueError(f"--test-fraction must be strictly between 0 and 1, got {fraction:g}")
    values = y.to_numpy()
    groups = [values == label for label in y.unique()] if task == "classification" else [np.ones(len(values), bool)]
    rng = np.random.default_rng(seed)
    held_out = np.zeros(len(values), bool)
    for group in groups:
        rows = rng.permutation(np.flatnonzero(group))
        held_out[rows[: min(round(fraction * len(rows)), len(rows) - 1)]] = True
    if not held_out.any():
        raise ValueError(
            f"--test-fraction {fraction:g} of {len(values)} rows leaves none to judge by: choose a larger one"
        )
    return held_out


def _directory(path: Path) -> RunDirectory:
    made_by = f"`marginax fit data.csv --target y --out {path}`"
    return RunDirectory(path, "run", made_by, "choose another --out", folder=_FOLDER, kind="held out")


def fit_of(directory: Path) -> RunDirectory:
    """The fit of a run: whether it `exists` (there is something to go on with), and whether it has `finished`."""
    return RunDirectory(directory / FIT / "run")


def free_directory(data: Path, kind: str = "run") -> Path:
    """A name for a run that is not taken: data-run, data-run-2, ..."""
    number = 1
    while (path := Path(f"{data.stem}-{kind}{'' if number == 1 else f'-{number}'}")).exists():
        number += 1
    return path
