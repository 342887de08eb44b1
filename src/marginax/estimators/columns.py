"""Columns of a table as the numbers that a network sees, and what is needed to do it again."""

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
from marginax.data.scaling import far_values, moments_of, warn_of_far_values
from marginax.data.written import AbstractWritten, read_texts
from marginax.estimators.calendar import cycles_of, encode_cycles, names_of_cycles
from marginax.estimators.kinds import MAX_CATEGORIES, kind_of, written_as
from marginax.files import register

Frame = Any  # of pandas, whose own types say too little
Series = Any
MISSING = "(missing)"
NUM_TYPICAL = 16
_FARTHEST = 10.0  # standard deviations to which values are drawn in that lie far from all others
_DAY = np.timedelta64(1, "D")


@register("table/column_encoder")
class ColumnEncoder(eqx.Module):
    """How each column becomes numbers, by ordinary scikit-learn transformers.

    Numbers are standardised; missing ones become 0, the mean, and a column of 0 and 1 says where they were. Texts,
    booleans apart, are one-hot encoded, up to 50 values; values that are rare or were never seen are all zeros, and
    a missing text is a value of its own. Texts that are numbers with marks ("$1,234.50", "12 km") or dates are read
    as such, with a warning. Dates are days since 1970, and cycles: the hour of the day, the weekday and the season,
    as sine and cosine, where the rows cover them. Columns with nothing in them, and texts that differ in every one
    of more than 50 rows, are left out with a warning. A column in which a few values lie far from all others is
    scaled by its middle, and those values are drawn in, with a warning.

    What is missing in a new row and never was in training, or was never seen there, is unknown: `encode_unknown` puts
    several training values in its place, over which predictions are averaged.

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
        limits: how far from 0 the columns of numbers and dates may lie once they are scaled.
        typical: of each column of numbers and dates, values that divide those of training into equal parts.
        shares: of each column of texts, how often each of its categories occurs in training.
        written: of each column, how its texts are read as numbers or dates, if they are.
        cycles: of each column of numbers and dates, the cycles of the calendar that are learned from.
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    mean: Float[np.ndarray, " k"]
    scale: Float[np.ndarray, " k"]
    has_missing: tuple[bool, ...]
    categories: tuple[tuple[str, ...], ...]
    limits: Float[np.ndarray, " k"] | None = None
    typical: Float[np.ndarray, "k q"] | None = None
    shares: tuple[tuple[float, ...], ...] | None = None
    written: tuple[AbstractWritten | None, ...] | None = None
    cycles: tuple[tuple[str, ...], ...] | None = None

    def __check_init__(self) -> None:
        of_all, of_numbers, of_texts = ("names", "written"), ("mean", "scale", "has_missing"), ("categories", "shares")
        numbers, texts = _places(self.kinds)
        lengths = dict.fromkeys(of_all, len(self.kinds)) | dict.fromkeys(of_texts, len(texts))
        lengths |= dict.fromkeys((*of_numbers, "limits", "typical", "cycles"), len(numbers))
        for name, length in lengths.items():
            if getattr(self, name) is not None and len(getattr(self, name)) != length:
                raise ValueError(f"{name} must have {length} entries for these kinds of columns")
        if not lengths["mean"] + lengths["shares"] or not all(self.categories):
            raise ValueError("kinds and categories must have something to learn from")
        if self.shares is not None and list(map(len, self.shares)) != list(map(len, self.categories)):
            raise ValueError("shares must have one entry for each of the categories")

    @classmethod
    def fit(cls, table: Frame) -> "ColumnEncoder":
        """Look at the training rows."""
        check_names(table)
        names = tuple(map(str, table.columns))
        columns = [table.iloc[:, i] for i in range(table.shape[1])]
        written = tuple(written_as(column, name) for column, name in zip(columns, names, strict=True))
        kinds = [kind_of(*each) for each in zip(columns, names, written, strict=True)]
        plain = _plain(table, names, tuple(kinds), written)
        for i, kind in enumerate(kinds):
            reason = None if kind == "left out" else _useless(plain[str(i)], kind)
            if reason is not None:
                warnings.warn(f"column {names[i]!r} is left out: {reason}", stacklevel=2)
                kinds[i] = "left out"
        if all(kind == "left out" for kind in kinds):
            raise ValueError("X has no column to learn from: all of them are empty, or differ in every row")
        numbers, texts = _places(tuple(kinds))
        categories = tuple(_categories(plain[str(i)]) for i in texts)
        shares = tuple(_shares(plain[str(i)], values) for i, values in zip(texts, categories, strict=True))
        found = [_number_moments(plain[str(i)].to_numpy(), names[i]) for i in numbers]
        mean, scale, limits = (np.array([each[k] for each in found], np.float64) for k in range(3))
        typical = np.array([each[3] for each in found], np.float64).reshape(len(numbers), NUM_TYPICAL)
        has_missing = tuple(bool(plain[str(i)].isna().any()) for i in numbers)
        dates = [kinds[i] == "date" and not _is_duration(columns[i]) for i in numbers]
        cycles = tuple(
            cycles_of(plain[str(i)].to_numpy()) if is_date else () for i, is_date in zip(numbers, dates, strict=True)
        )
        return cls(names, tuple(kinds), mean, scale, has_missing, categories, limits, typical, shares, written, cycles)

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
        for i, cycles in zip(numbers, self.cycles or [()] * len(numbers), strict=True):
            names += names_of_cycles(self.names[i], cycles)
        return tuple(names)

    def encode(self, table: Frame) -> Float[np.ndarray, "n d"]:
        """Rows as numbers; the unknown are 0."""
        return self._encode(_plain(table, self.names, self.kinds, self.written))

    def encode_unknown(self, table: Frame) -> Float[np.ndarray, "n q d"] | None:
        """Every row several times, with other training values in place of what is unknown; None if nothing is."""
        if self.typical is None or self.shares is None:  # stored by an older version
            return None
        plain = _plain(table, self.names, self.kinds, self.written)
        numbers, texts = _places(self.kinds)
        rng = np.random.default_rng(0)
        draws: dict[str, tuple[np.ndarray, list[np.ndarray]]] = {}
        for i, values, had in zip(numbers, self.typical, self.has_missing, strict=True):
            gaps = plain[str(i)].isna().to_numpy() & (not had)
            draws[str(i)] = gaps, [rng.permutation(values) for _ in range(gaps.sum())]
        for i, values, shares in zip(texts, self.categories, self.shares, strict=True):
            gaps = ~plain[str(i)].isin(values).to_numpy() & (sum(shares) > 1 - 1e-9)  # else rare values were all alike
            draws[str(i)] = (
                gaps,
                [rng.choice(np.array(values, object), NUM_TYPICAL, p=shares) for _ in range(gaps.sum())],
            )
        if not any(found for _, found in draws.values()):
            return None
        filled = plain.loc[plain.index.repeat(NUM_TYPICAL)].reset_index(drop=True)
        for name, (gaps, found) in draws.items():
            if found:
                filled.loc[np.repeat(gaps, NUM_TYPICAL), name] = np.concatenate(found)
        return self._encode(filled).reshape(len(plain), NUM_TYPICAL, -1)

    def _encode(self, plain: Frame) -> Float[np.ndarray, "n d"]:
        encoded = np.array(self._fitted().transform(plain), np.float64)
        if self.limits is not None:
            first = encoded[:, : len(self.limits)]
            np.clip(first, -self.limits, self.limits, out=first)
        numbers, _ = _places(self.kinds)
        pairs = zip(numbers, self.cycles or [()] * len(numbers), strict=True)
        turns = [encode_cycles(plain[str(i)].to_numpy(), cycles) for i, cycles in pairs if cycles]
        return np.concatenate([encoded, *turns], axis=1)

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


def check_names(table: Frame) -> None:
    """Raise if two columns have one name."""
    names = [str(name) for name in table.columns]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"X has several columns named {', '.join(map(repr, twice))}: give each a name of its own")


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


def _plain(
    table: Frame, names: tuple[str, ...], kinds: tuple[str, ...], written: tuple[AbstractWritten | None, ...] | None
) -> Frame:
    """Columns named by their positions, with numbers as float64 and texts as strings."""
    pd = require("pandas")

    columns: dict[str, Any] = {}
    for i, kind in enumerate(kinds):
        if kind != "left out":
            column = table.iloc[:, i]
            if written is not None and (way := written[i]) is not None:
                column = read_texts(column, way, names[i])
            columns[str(i)] = _texts(column) if kind == "text" else _numbers(column, names[i], kind)
    return pd.DataFrame(columns)


def _numbers(column: Series, name: str, kind: str) -> Float[np.ndarray, " n"]:
    pd = require("pandas")

    try:
        if kind == "date":
            values = _days(column)
        elif column.dtype == object:
            values = np.where(column.isna(), np.nan, column.to_numpy(object)).astype(np.float64)
        elif column.dtype.kind in "mM":  # which pandas would count in nanoseconds
            raise ValueError(f"got {column.dtype}")
        else:
            values = column.to_numpy(np.float64, na_value=np.nan)
    except (ValueError, TypeError, pd.errors.OutOfBoundsDatetime) as error:
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


def _is_duration(column: Series) -> bool:
    return require("pandas.api.types").is_timedelta64_dtype(column.dtype)


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


def _number_moments(values: Float[np.ndarray, " n"], name: str) -> tuple[float, float, float, np.ndarray]:
    """Centre, scale and limit of a column, and typical values; by its middle where a few values are far from it."""
    known = values[~np.isnan(values)]
    typical = np.quantile(known, (np.arange(NUM_TYPICAL) + 0.5) / NUM_TYPICAL)
    if far_values(known).size:
        warn_of_far_values(values, f"column {name!r} of X", stacklevel=5)
        low, centre, high = np.quantile(known, [0.1, 0.5, 0.9])
        return centre, (high - low) / 2.56, _FARTHEST, typical
    shift, factor, _ = moments_of(known, name=f"column {name!r} of X")
    return float(shift), float(factor), np.inf, typical


def _shares(values: Series, categories: tuple[str, ...]) -> tuple[float, ...]:
    counts = values.value_counts(normalize=True)
    return tuple(float(counts[value]) for value in categories)


def _categories(values: Series) -> tuple[str, ...]:
    """The most frequent values, in the order of the alphabet."""
    counts = values.value_counts(sort=False).sort_index().sort_values(ascending=False, kind="stable")
    return tuple(sorted(counts.index[:MAX_CATEGORIES]))
