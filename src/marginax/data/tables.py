"""Tables in text files: what people have, turned into inputs and a target, or refused with a reason."""

import dataclasses
import difflib
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from marginax._extras import require
from marginax.data.answer_columns import MANY_CLASSES, as_answer_columns
from marginax.data.dialect import SEPARATORS, Dialect, find_dialect
from marginax.data.stored import read_stored
from marginax.data.written import AbstractWritten, WrittenDate, example_of, find_written, read_texts
from marginax.files import FileError

__all__ = ["Table", "read_table"]

Frame = Any  # of pandas, whose own types say too little
Series = Any
TASKS = ("regression", "classification")
_FEW_VALUES = 10  # whole numbers with at most so many different values are taken for classes
_MANY_ROWS = 50  # fewer texts may all be different by chance
_ROW_NUMBER = re.compile(r"(?i)id|index|row|unnamed: 0|column 1")


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """Columns of a file.

    Attributes:
        x: the inputs, a DataFrame.
        y: the target, a Series, or None if none was asked for; labels by annotators are a DataFrame.
        task: "regression" or "classification", or None without a target.
        notes: what was found and decided, in sentences.
        written: how texts that are numbers or dates are written, by column; for `read_table(new, written=...)`.
        others: columns that were left out, as they are.
        rows: of the file, from 0, that are here.
    """

    x: Frame
    y: Series
    task: str | None
    notes: tuple[str, ...]
    written: Mapping[str, AbstractWritten] = dataclasses.field(default_factory=dict)
    others: Frame = None
    rows: Any = None

    def select(self, names: Any) -> Frame:
        """The inputs with these names, in this order, as a fitted estimator wants them (`feature_names_in_`)."""
        for name in names:
            if name not in self.x.columns:
                raise ValueError(f"the table has no column {name!r}{_nearest(name, list(self.x.columns))}")
        return self.x[list(names)]


def read_table(
    path: str | os.PathLike[str],
    target: str | Sequence[str] | None = None,
    *,
    task: str | None = None,
    keep_missing: bool = False,
    ignore: Sequence[str] = (),
    separator: str | None = None,
    encoding: str | None = None,
    decimal: str | None = None,
    written: Mapping[str, AbstractWritten] | None = None,
) -> Table:
    r"""Read a table from a text file, which may be compressed (.csv.gz), or from Parquet or Excel (.xlsx).

    Of text files, separator (comma, semicolon, tab, bar, spaces), encoding (UTF-8, UTF-16, Windows), decimal commas and
    a missing header are found by looking. Columns of texts that are dates become dates, and those that are numbers with
    marks ("$1,234.50", "12%", "12 km", the same marks in all rows) become numbers; "?", "NA" and the like are missing.

    With a target, what cannot be learned from is left out with a warning: rows without a target, columns that are
    constant, and texts that differ in every row. A target of texts, or of few different whole numbers, is a class,
    unless `task` says otherwise.

    Args:
        path: the file.
        target: name of the column to predict; without one all columns are returned as they are. A list of names are
            labels of one thing by several annotators, who need not have labelled every row.
        task: "regression" or "classification"; by default, what the target looks like.
        keep_missing: keep rows without a target.
        ignore: names of columns to leave out.
        separator: in place of the one found.
        encoding: in place of the one found.
        decimal: decimal mark in place of the one found.
        written: `written` of a table that was read before, so that texts are read in the same way.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
    ...     _ = file.write("size;price\n1,5;10,0\n2,5;20,5\n3,0;21,0\n")
    ...     file.flush()
    ...     table = read_table(file.name, "price")
    >>> table.task, table.x["size"].tolist()
    ('regression', [1.5, 2.5, 3.0])
    """
    path = Path(path)
    for name, value, right in (("separator", separator, "a character such as ';'"), ("decimal", decimal, "'.' or ','")):
        if value is not None and not (value == r"\s+" or len(value) == 1):
            raise ValueError(f"{name} must be {right}, got {value!r}")
    if task is not None and task not in TASKS:
        raise ValueError(f"task must be 'regression' or 'classification', got {task!r}")
    stored = read_stored(path)
    if stored is None:
        dialect = find_dialect(path, encoding, separator, decimal)
        frame = _read(path, dialect)
        notes, decimal = _notes(frame, dialect), dialect.decimal
    else:
        frame, notes = stored
    targets = [] if target is None else [target] if isinstance(target, str) else list(target)
    what = "target" if isinstance(target, str) else "annotator"
    for what, name in (*((what, name) for name in targets), *(("ignore", name) for name in ignore)):
        if name not in frame.columns:
            shown = ", ".join(map(repr, frame.columns[:20])) + (", ..." if len(frame.columns) > 20 else "")
            near = _nearest(name, list(frame.columns))
            raise ValueError(f"{what} {name!r} is no column of {path}{near}; it has {shown}")
    if both := set(targets) & set(ignore):
        raise ValueError(f"ignore must not hold the target, got {sorted(both)[0]!r}")
    if task == "regression" and not isinstance(target, str | None):
        raise ValueError("task must be 'classification' for labels by annotators, got 'regression'")
    others = frame[list(ignore)]
    frame, found = _convert(frame.drop(columns=list(ignore)), decimal or ".", written or {}, notes)
    frame[list(ignore)] = others
    if target is None:
        return Table(frame.drop(columns=list(ignore)), None, None, tuple(notes), found, others)
    if isinstance(target, str):
        frame = _with_target(frame, target, keep_missing)
        rows, frame = frame.index.to_numpy(), frame.reset_index(drop=True)
        y, task = _target(frame[target], task, notes)
    else:
        frame, y = as_answer_columns(frame, targets, notes)
        rows, frame, task = frame.index.to_numpy(), frame.reset_index(drop=True), "classification"
    x = _informative(frame.drop(columns=[*targets, *ignore]), notes)
    return Table(x, y, task, tuple(notes), found, frame.drop(columns=[*targets, *x.columns]), rows)


def _notes(frame: Frame, dialect: Dialect) -> list[str]:
    """How the text file is written."""
    notes = [f"{len(frame):,} rows, separated by {SEPARATORS.get(dialect.separator, repr(dialect.separator))}."]
    if dialect.encoding not in ("utf-8", "utf-8-sig"):
        notes.append(f"The encoding is {dialect.encoding}.")
    if dialect.decimal == ",":
        notes.append("Numbers have decimal commas.")
    if dialect.header is None:
        notes.append(f"There is no header: columns are named {frame.columns[0]!r} to {frame.columns[-1]!r}.")
    return notes


def _read(path: Path, dialect: Dialect) -> Frame:
    pd = require("pandas")

    names = _names(path, dialect)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = pd.read_csv(
                path,
                sep=dialect.separator,
                encoding=dialect.encoding,
                decimal=dialect.decimal,
                thousands=dialect.thousands,
                header=None if dialect.header is None else 0,
                names=names,
                index_col=False,
                na_values=["?"],
                skipinitialspace=True,
                low_memory=False,
                compression="gzip" if dialect.compressed else None,
            )
    except (pd.errors.ParserError, pd.errors.ParserWarning, UnicodeError, ValueError) as error:
        reason = str(error).removeprefix("Error tokenizing data. C error: ").strip()
        raise FileError(f"{path}: not a table of {len(names)} columns ({reason})") from None
    if not len(frame):
        raise FileError(f"{path}: has names of columns but no rows")
    return frame


def _names(path: Path, dialect: Dialect) -> list[str]:
    if dialect.header is None:
        return [f"column {i + 1}" for i in range(dialect.num_columns)]
    names = [name or f"column {i + 1}" for i, name in enumerate(dialect.header)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise FileError(f"{path}: has several columns named {', '.join(map(repr, twice))}: give each a name of its own")
    return names


def _convert(frame: Frame, decimal: str, known: Mapping[str, AbstractWritten], notes: list[str]) -> tuple[Frame, Any]:
    """Texts that are dates or, but for a few, numbers; and how they are written."""
    pd = require("pandas")

    columns: dict[Any, Any] = {}
    found: dict[str, AbstractWritten] = {}
    for name in frame.columns:
        column = columns[name] = frame[name]
        if pd.api.types.is_numeric_dtype(column.dtype) or pd.api.types.is_bool_dtype(column.dtype):
            continue
        if pd.api.types.is_datetime64_any_dtype(column.dtype) or pd.api.types.is_timedelta64_dtype(column.dtype):
            continue  # as the file says
        written = known.get(name)
        if written is None or not written.read(column).notna().any():
            written = find_written(column, decimal)
        if written is None:
            continue
        columns[name], found[name] = read_texts(column, written, name, stacklevel=4), written
        if isinstance(written, WrittenDate):
            notes.append(f"Column {name!r} holds dates ({written.order}).")
        elif example := example_of(column, written):
            notes.append(f"Column {name!r} holds numbers: {example}.")
    return pd.DataFrame(columns), found


def _with_target(frame: Frame, target: str, keep_missing: bool) -> Frame:
    missing = frame[target].isna()
    if missing.all():
        raise ValueError(f"target {target!r} is missing in all {len(frame)} rows")
    if missing.any() and not keep_missing:
        warnings.warn(f"{missing.sum():,} of {len(frame):,} rows have no {target!r} and are left out", stacklevel=3)
        return frame[~missing]
    return frame


def _target(column: Series, task: str | None, notes: list[str]) -> tuple[Series, str]:
    """The target, and what is to be done with it; gaps stay where they are."""
    known, task = _known_target(column.dropna(), task, notes)
    return known.reindex(column.index), task


def _known_target(y: Series, task: str | None, notes: list[str]) -> tuple[Series, str]:
    types = require("pandas.api.types")

    name, num = y.name, y.nunique()
    if num < 2:
        raise ValueError(f"target {name!r} is {y.tolist()[0]!r} in every row: there is nothing to learn")
    if types.is_datetime64_any_dtype(y.dtype):
        raise ValueError(f"target {name!r} holds dates: turn them into numbers, such as days from a first one")
    text = not types.is_numeric_dtype(y.dtype) or types.is_bool_dtype(y.dtype)
    if text and task == "regression" and not types.is_bool_dtype(y.dtype):
        raise ValueError(f"target {name!r} holds texts such as {str(y.iloc[0])!r:.40}: task must be 'classification'")
    if not text and np.isinf(y.to_numpy(np.float64)).any():
        raise ValueError(f"target {name!r} is infinite in {np.isinf(y.to_numpy(np.float64)).sum()} rows: remove them")
    whole = not text and bool(np.all(y == np.round(y)))
    found = "classification" if text or (whole and num <= min(_FEW_VALUES, len(y) / 2)) else "regression"
    if task is None and not text and found == "classification":
        notes.append(f"{name!r} has {num} values, taken for classes: pass task='regression' if they are numbers.")
    task = task or found
    if task == "classification":
        if num > MANY_CLASSES or (text and num > len(y) / 2):
            remedy = "merge rare ones" if text else "pass task='regression'"
            raise ValueError(f"target {name!r} has {num} different values in {len(y)} rows, too many classes: {remedy}")
        fits = whole and bool(y.abs().max() < 2**63)
        return (y.astype(np.int64) if fits else y), task
    return y.astype(np.float64), task


def _informative(x: Frame, notes: list[str]) -> Frame:
    types = require("pandas.api.types")

    out = {}
    for name in x.columns:
        column = x[name]
        number = types.is_numeric_dtype(column.dtype) or types.is_datetime64_any_dtype(column.dtype)
        first = column.iloc[0]
        if column.isna().all() or (column == first).all():
            out[name] = "it is the same in every row"
        elif not number and len(x) > _MANY_ROWS and column.nunique(dropna=False) == len(x):
            out[name] = "its text is different in every row"
        elif _ROW_NUMBER.fullmatch(str(name)) and number and np.all(np.diff(column.to_numpy(np.float64)) == 1):
            out[name] = "it counts the rows"
    for name, reason in out.items():
        warnings.warn(f"column {name!r} is left out: {reason}", stacklevel=3)
    x = x.drop(columns=list(out))
    if not x.shape[1]:
        raise ValueError("no column is left to learn from: pass another separator= if the columns were not told apart")
    notes.append(f"{x.shape[1]} columns to learn from.")
    return x


def _nearest(name: str, names: list[str]) -> str:
    lower = {str(each).lower(): each for each in reversed(names)}
    near = difflib.get_close_matches(name.lower(), list(lower), n=1)
    return f" (did you mean {lower[near[0]]!r}?)" if near else ""
