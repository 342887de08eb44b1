"""Columns of a table as the numbers that a network sees, and what is needed to do it again."""

import datetime
import warnings
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from marginax._extras import require
from marginax.files import register

Frame = Any  # of pandas, whose own types say too little
Series = Any
MAX_CATEGORIES = 50
MISSING = "(missing)"
_DAY = np.timedelta64(1, "D")


@register("table/column_encoder")
class ColumnEncoder(eqx.Module):
    """How each column becomes numbers, by ordinary scikit-learn transformers.

    Numbers are standardised; missing ones become 0, the mean, and a column of 0 and 1 says where they were. Texts,
    booleans apart, are one-hot encoded, up to 50 values; values that are rare or were never seen are all zeros, and a
    missing text is a value of its own. Dates are numbers: days since 1970. Columns with nothing in them, and texts that
    differ in every one of more than 50 rows, are left out with a warning.

    Only names, numbers and texts are kept, so that it can be stored; the transformers are built from them.

    >>> import pandas as pd
    >>> table = pd.DataFrame({"age": [20.0, None, 40.0], "city": ["Rome", "Oslo", "Rome"]})
    >>> encoder = ColumnEncoder.fit(table)
    >>> encoder.encode(table)
    array([[-1., 0., 0., 1.],
           [ 0., 1., 1., 0.],
           [ 1., 0., 0., 1.]])
    >>> encoder.names_out
    ('age', 'age is missing', 'city=Oslo', 'city=Rome')

    Attributes:
        names: of the columns.
        kinds: of each column "number", "text", "date" or "left out".
        mean: of the columns of numbers and dates.
        scale: their standard deviations.
        has_missing: whether they had missing values.
        categories: the values of each column of texts that have a column of their own.
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    mean: Float[np.ndarray, " k"]
    scale: Float[np.ndarray, " k"]
    has_missing: tuple[bool, ...]
    categories: tuple[tuple[str, ...], ...]

    @classmethod
    def fit(cls, table: Frame) -> "ColumnEncoder":
        """Look at the training rows."""
        names = tuple(map(str, table.columns))
        kinds = [_kind(table.iloc[:, i]) for i in range(table.shape[1])]
        plain = _plain(table, names, tuple(kinds))
        for i, kind in enumerate(kinds):
            reason = None if kind == "left out" else _useless(plain[str(i)], kind)
            if reason is not None:
                warnings.warn(f"column {names[i]!r} is left out: {reason}", stacklevel=2)
                kinds[i] = "left out"
        if all(kind == "left out" for kind in kinds):
            raise ValueError("X has no column to learn from: all of them are empty, or differ in every row")
        numbers, texts = _places(tuple(kinds))
        categories = tuple(_categories(plain[str(i)]) for i in texts)
        fitted = _transformer(numbers, texts, categories).fit(plain)
        empty = np.zeros(0)
        if not numbers:
            return cls(names, tuple(kinds), empty, empty, (), categories)
        scaler, filler = fitted.named_transformers_["numbers"]
        missing = set(filler.indicator_.features_.tolist())
        has_missing = tuple(i in missing for i in range(len(numbers)))
        return cls(names, tuple(kinds), scaler.mean_, scaler.scale_, has_missing, categories)

    @property
    def names_out(self) -> tuple[str, ...]:
        """Names of the numbers that the network sees."""
        numbers, texts = _places(self.kinds)
        names = [self.names[i] for i in numbers]
        names += [
            f"{self.names[i]} is missing" for i, missing in zip(numbers, self.has_missing, strict=True) if missing
        ]
        for i, values in zip(texts, self.categories, strict=True):
            names += [f"{self.names[i]}={value}" for value in values]
        return tuple(names)

    def encode(self, table: Frame) -> Float[np.ndarray, "n d"]:
        """Rows as numbers."""
        return np.asarray(self._fitted().transform(_plain(table, self.names, self.kinds)), np.float64)

    def _fitted(self) -> ColumnTransformer:
        """The transformer, fitted to two rows from which it learns the same, then given the exact moments."""
        pd = require("pandas")

        numbers, texts = _places(self.kinds)
        gaps = zip(numbers, self.has_missing, strict=True)
        rows: dict[str, Any] = {f"{i}": [0.0, np.nan if missing else 0.0] for i, missing in gaps}
        rows |= {f"{i}": [values[0]] * 2 for i, values in zip(texts, self.categories, strict=True)}
        fitted = _transformer(numbers, texts, self.categories).fit(pd.DataFrame(rows))
        if numbers:
            scaler = fitted.named_transformers_["numbers"][0]
            scaler.mean_, scaler.scale_, scaler.var_ = self.mean, self.scale, self.scale**2
        return fitted


def _places(kinds: tuple[str, ...]) -> tuple[list[int], list[int]]:
    """Positions of the columns of numbers and of texts."""
    numbers = [i for i, kind in enumerate(kinds) if kind in ("number", "date")]
    return numbers, [i for i, kind in enumerate(kinds) if kind == "text"]


def _transformer(numbers: list[int], texts: list[int], categories: tuple[tuple[str, ...], ...]) -> ColumnTransformer:
    filler = SimpleImputer(strategy="constant", fill_value=0.0, add_indicator=True)
    values: Any = [np.array(each, object) for each in categories]
    encoder = OneHotEncoder(categories=values, handle_unknown="ignore", sparse_output=False)
    pipeline = Pipeline([("scale", StandardScaler()), ("fill", filler)])
    parts = [("numbers", pipeline, [str(i) for i in numbers]), ("texts", encoder, [str(i) for i in texts])]
    return ColumnTransformer([part for part in parts if part[2]])


def _kind(column: Series) -> str:
    types = require("pandas.api.types")

    dtype = column.dtype
    if types.is_datetime64_any_dtype(dtype) or types.is_timedelta64_dtype(dtype):
        return "date"
    if types.is_bool_dtype(dtype) or types.is_numeric_dtype(dtype):
        return "number"
    present = column.dropna()
    if not len(present):
        return "number"
    if types.is_object_dtype(dtype):
        if all(isinstance(value, datetime.date) for value in present):
            return "date"
        if not any(isinstance(value, str) for value in present):
            present.to_numpy().astype(np.float64)  # what is neither text nor number ends here
            return "number"
    return "text"


def _plain(table: Frame, names: tuple[str, ...], kinds: tuple[str, ...]) -> Frame:
    """Columns named by their positions, with numbers as float64 and texts as strings."""
    pd = require("pandas")

    columns: dict[str, Any] = {}
    for i, kind in enumerate(kinds):
        if kind != "left out":
            column = table.iloc[:, i]
            columns[str(i)] = _texts(column) if kind == "text" else _numbers(column, names[i], kind)
    return pd.DataFrame(columns)


def _numbers(column: Series, name: str, kind: str) -> Float[np.ndarray, " n"]:
    pd = require("pandas")

    try:
        if kind == "date":
            values = _days(column)
        elif column.dtype == object:
            values = np.where(column.isna(), np.nan, column.to_numpy(object)).astype(np.float64)
        else:
            values = column.to_numpy(np.float64, na_value=np.nan)
    except (ValueError, TypeError, pd.errors.OutOfBoundsDatetime) as error:
        if isinstance(error, TypeError) and "argument must be" in str(error):
            raise
        raise ValueError(f"column {name!r} of X must hold a {kind} in each row, as it did in fit: {error}") from None
    if np.isinf(values).any():
        raise ValueError(f"Input X contains infinity or a value too large for dtype('float64') (column {name!r})")
    return values


def _days(column: Series) -> Float[np.ndarray, " n"]:
    """Days since 1970, or days that a time takes."""
    pd = require("pandas")
    types = require("pandas.api.types")

    if types.is_numeric_dtype(column.dtype):
        raise ValueError(f"got {column.dtype}")
    if not types.is_timedelta64_dtype(column.dtype):
        column = pd.to_datetime(column, utc=True).dt.tz_localize(None)
        column = column - pd.Timestamp(0)
    return column.to_numpy() / _DAY


def _texts(column: Series) -> np.ndarray:
    values = column.to_numpy(object)
    return np.array([MISSING if m else _text(v) for v, m in zip(values, column.isna(), strict=True)], object)


def _text(value: Any) -> str:
    """1, 1.0 and np.int64(1) are one category."""
    whole = isinstance(value, int | float | np.number) and not isinstance(value, bool) and float(value).is_integer()
    return str(int(value)) if whole else str(value)


def _useless(values: Series, kind: str) -> str | None:
    if kind != "text":
        return "all of its values are missing" if values.isna().all() else None
    num = values.nunique()
    if num == len(values) > MAX_CATEGORIES:
        return f"its text is different in each of the {num} rows, so it says nothing about new rows"
    return None


def _categories(values: Series) -> tuple[str, ...]:
    """The most frequent values, in the order of the alphabet."""
    counts = values.value_counts(sort=False).sort_index().sort_values(ascending=False, kind="stable")
    return tuple(sorted(counts.index[:MAX_CATEGORIES]))
