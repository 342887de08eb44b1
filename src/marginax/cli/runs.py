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
from marginax.cli.fingerprints import fingerprints
from marginax.data.texts import Texts
from marginax.data.written import AbstractWritten
from marginax.files import RunDirectory, register
from marginax.files.disk import well_formed

Frame = Any  # of pandas
_FOLDER = "held_out"
FIT = "fit"  # the estimator that is judged, its checkpoints and its posterior
ALL_ROWS = "all_rows"  # the same for that of all rows


@register("table/column")
class Column(eqx.Module):
    """A column of a table as plain data: numbers, texts (None where missing), or dates as nanoseconds since 1970."""

    name: str
    kind: str
    values: "np.ndarray | list[Any] | Texts"


@register("table/columns")
class Columns(eqx.Module):
    """Labels by several annotators, a column for each, and what they are called together."""

    name: str
    columns: list[Column]


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
        seen: fingerprints of the other rows, those of training.
        train: those rows and their targets, if all rows are to be fitted in the end.
        fitted: the same, where there is something to say about every label.
        rows: of the file that are held out, from 0; None in runs that do not know.
        fitted_rows: of the file that were fitted.
    """

    x: Frame
    y: Frame
    target: str
    command: str
    source: str
    level: float
    written: Mapping[str, AbstractWritten] = dataclasses.field(default_factory=dict)
    seen: np.ndarray | None = None
    train: tuple[Frame, Frame] | None = None
    fitted: tuple[Frame, Frame] | None = None
    rows: np.ndarray | None = None
    fitted_rows: np.ndarray | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Of the target, or of the labels by annotators."""
        return (self.target,) if self.y.ndim == 1 else tuple(self.y.columns)

    def save(self, directory: Path) -> None:
        """Write to a new or empty directory."""
        parts = {
            "x": _to_columns(self.x),
            "y": _to_target(self.target, self.y),
            "about": {"command": self.command, "source": self.source, "level": self.level},
            "written": dict(self.written),
        }
        if self.seen is not None:
            parts["seen"] = self.seen
        for name in ("train", "fitted"):
            pair = getattr(self, name)
            if pair is not None:
                parts[name] = (_to_columns(pair[0]), _to_target(self.target, pair[1]))
        for name in ("rows", "fitted_rows"):
            if getattr(self, name) is not None:
                parts[name] = np.asarray(getattr(self, name), np.int64)
        run_directory(directory).create(parts)

    @staticmethod
    def remove(directory: Path) -> None:
        """Take back what `save` and a fit that did not begin have written."""
        for name in (_FOLDER, FIT, ALL_ROWS):
            shutil.rmtree(directory / name, ignore_errors=True)
        with contextlib.suppress(OSError):  # something else is in there
            directory.rmdir()

    @classmethod
    def load(cls, directory: Path) -> "HeldOut":
        """Read what `save` wrote."""
        with well_formed(directory):
            setup = run_directory(directory).read()
            target = setup.get("y", of=Column | Columns)
            x, y = _from_columns(setup.get("x", of=list[Column]), target)
            stored = {"written": dict[str, AbstractWritten]}
            stored |= dict.fromkeys(("seen", "rows", "fitted_rows"), np.ndarray)
            more = {name: setup.get(name, of=of) for name, of in stored.items() if name in setup}  # not in old ones
            for name in ("train", "fitted"):
                if name in setup:
                    more[name] = _from_columns(*setup.get(name, of=tuple[list[Column], Column | Columns]))
            return cls(x=x, y=y, target=target.name, **setup.get("about", of=dict[str, Any]), **more)

    def was_seen(self, x: Frame, y: Frame) -> np.ndarray:
        """Which rows the fit that predicts was trained on."""
        if self.seen is None:
            return np.zeros(len(x), bool)
        seen = self.seen if self.train is None else np.append(self.seen, fingerprints(self.x, self.y, self.x))
        return np.isin(fingerprints(x, y, self.x), seen)


def _to_columns(frame: Frame) -> list[Column]:
    return [to_column(name, frame[name]) for name in frame.columns]


def _to_target(name: str, y: Frame) -> "Column | Columns":
    return to_column(name, y) if y.ndim == 1 else Columns(name, _to_columns(y))


def _from_columns(columns: list[Column], target: "Column | Columns") -> tuple[Frame, Frame]:
    pd = require("pandas")

    x = pd.DataFrame({column.name: from_column(column) for column in columns})
    if isinstance(target, Column):
        return x, pd.Series(from_column(target), name=target.name)
    return x, pd.DataFrame({column.name: from_column(column) for column in target.columns})


def to_column(name: str, values: Frame) -> Column:
    """A column of pandas as plain data.

    >>> import pandas as pd
    >>> to_column("city", pd.Series(["Rome", None])).values.list()
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
    return Column(name, "text", Texts.of(texts))


def from_column(column: Column) -> Any:
    """The values again."""
    if column.kind == "date":
        return np.asarray(column.values).astype("datetime64[ns]")
    if column.kind != "text":
        return np.asarray(column.values)
    return np.array(column.values.list() if isinstance(column.values, Texts) else column.values, object)


def run_directory(path: Path) -> RunDirectory:
    """The files of a run: the rows that were held out, the fit, perhaps one of all rows, and the report."""
    made_by = f"`marginax fit data.csv --target y --out {path}`"
    begun = f"{FIT}/run/setup"
    return RunDirectory(path, "run", made_by, "choose another --out", folder=_FOLDER, kind="held out", begun_with=begun)


def fit_of(directory: Path, name: str = FIT) -> RunDirectory:
    """The fit of a run: whether it `exists` (there is something to go on with), and whether it has `finished`."""
    return RunDirectory(run_directory(directory).at(name, "run"))


def report_of(directory: Path) -> Path:
    """Where the report of a run is; never a link to somewhere else."""
    run_directory(directory).at("report.html")
    return directory / "report.html"


def labels_of(directory: Path) -> Path:
    """Where the table of labels of a run is; never a link to somewhere else."""
    run_directory(directory).at("labels.csv")
    return directory / "labels.csv"


def free_directory(data: Path, kind: str = "run") -> Path:
    """A name for a run that is not taken: data-run, data-run-2, ..."""
    number, stem = 1, data.name.partition(".")[0] or data.name
    while (path := Path(f"{stem}-{kind}{'' if number == 1 else f'-{number}'}")).exists():
        number += 1
    return path
