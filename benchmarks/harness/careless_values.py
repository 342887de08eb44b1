"""Careless values: units, types, gaps and outliers, through the estimators."""

import datetime
import decimal
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.harness.careless_case import EITHER, REFUSAL
from benchmarks.harness.careless_tables import Change, table


def scaled(x_unit: float = 1.0, y_unit: float = 1.0, x_offset: float = 0.0, y_offset: float = 0.0) -> Change:
    """Other units, another zero."""
    return lambda x, y: (x * x_unit + x_offset, y if y.dtype == object else y * y_unit + y_offset)


def first(convert: Any) -> Change:
    """The first column, which matters most, converted."""
    return lambda x, y: (x.assign(a=convert(x["a"])), y)


def target(convert: Any) -> Change:
    """The target converted."""
    return lambda x, y: (x, convert(y))


def whole(convert: Any) -> Change:
    """The table converted."""
    return lambda x, y: (convert(x), y)


def objects(values: Any) -> np.ndarray:
    """Anything in the cells of a column."""
    found = np.empty(len(values), object)
    found[:] = list(values)
    return found


def at(rows: Any, value: Any, column: str = "a") -> Change:
    """A value in some rows of a column."""

    def change(x: Any, y: Any) -> tuple[Any, Any]:
        places = x.index[rows]
        if isinstance(value, str) or value is None or value is pd.NA:
            x = x.assign(**{column: x[column].astype(object)})
        x.loc[places, column] = value
        return x, y

    return change


def target_at(rows: Any, value: Any) -> Change:
    """A value in some places of the target."""

    def change(x: Any, y: Any) -> tuple[Any, Any]:
        y = y.astype(object) if isinstance(value, str) or value is None or value is pd.NA else y.copy()
        y[rows] = value
        return x, y

    return change


def shown(text: str) -> Any:
    """Numbers as texts."""
    return lambda values: [text.format(value) for value in values]


def days(values: Any) -> Any:
    """Numbers as dates of years around 2020."""
    return pd.Timestamp("2020-01-01") + pd.to_timedelta((values * 100).round().to_numpy(), unit="D")


def whole_numbers(x: Any) -> Any:
    """A table of numbers from -128 to 127."""
    return (x * 30).round().clip(-128, 127)


UNITS = (1e-30, 1e-15, 1e-5, 1e5, 1e15, 1e30)
SCALE = [
    *(table("scale", f"y times {unit:g}", scaled(y_unit=unit), linear=True) for unit in UNITS),
    *(table("scale", f"x times {unit:g}", scaled(x_unit=unit), linear=True) for unit in UNITS),
    *(table("scale", f"x and y times {unit:g}", scaled(unit, unit), linear=True) for unit in (1e-30, 1e30)),
    *(table("scale", f"classes, x times {unit:g}", scaled(unit), classes=True, linear=True) for unit in (1e-30, 1e30)),
    *(table("scale", f"y plus {zero:g}", scaled(y_offset=zero), linear=True) for zero in (1e6, 1e12)),
    *(table("scale", f"x plus {zero:g}", scaled(x_offset=zero), linear=True) for zero in (1e6, 1e10)),
    table("scale", "x plus 1e16, only rounding left", scaled(x_offset=1e16), expect=EITHER, mentions=("X",)),
    table("scale", "columns of units 1e-20, 1, 1e20", whole(lambda x: x * [1e-20, 1.0, 1e20]), linear=True),
    table("scale", "y times 1e300", scaled(y_unit=1e300), expect=REFUSAL, mentions=("y reaches", "change its unit")),
    table("scale", "x times 1e300", scaled(1e300), expect=REFUSAL, mentions=("column 'a' of X", "change its unit")),
    table("scale", "y subnormal", scaled(y_unit=1e-310), expect=REFUSAL, mentions=("y reaches", "change its unit")),
    table("scale", "x subnormal", scaled(1e-310), expect=REFUSAL, mentions=("column 'a' of X", "change its unit")),
    table("scale", "x times 1e6 in new rows only", new=scaled(1e6), at_least=-np.inf, expect=EITHER),
]

TEXT_CELLS = ("column 'a' of X", "row")
TYPE = [
    table("type", "x int64", whole(lambda x: whole_numbers(x).astype(np.int64)), linear=True),
    table("type", "x int8", whole(lambda x: whole_numbers(x).astype(np.int8)), linear=True),
    table("type", "x uint8", whole(lambda x: (whole_numbers(x) + 128).astype(np.uint8)), linear=True),
    table("type", "x float16", whole(lambda x: x.astype(np.float16)), linear=True),
    table("type", "x longdouble", whole(lambda x: x.astype(np.longdouble)), linear=True),
    table("type", "x nullable Int64", whole(lambda x: whole_numbers(x).astype("Int64")), linear=True),
    table("type", "x nullable Float64", whole(lambda x: x.astype("Float64")), linear=True),
    table("type", "x sparse", whole(lambda x: x.astype(pd.SparseDtype("float64", 0.0))), linear=True),
    table("type", "x of objects that are floats", whole(lambda x: x.astype(object)), linear=True),
    table("type", "x bool", whole(lambda x: x > 0), at_least=0.2),
    table("type", "x nullable boolean", whole(lambda x: (x > 0).astype("boolean")), at_least=0.2),
    table("type", "x decimals", first(lambda a: objects([decimal.Decimal(f"{v:.6f}") for v in a])), linear=True),
    table("type", "texts that are numbers", first(shown("{:.3f}")), linear=True),
    table("type", "texts with dollars", first(shown("${:.3f}")), linear=True),
    table("type", "texts with a unit", first(shown("{:.3f} km")), linear=True),
    table("type", "a category of texts", first(lambda a: pd.Categorical(np.where(a > 0, "up", "down"))), at_least=0.2),
    table(
        "type",
        "an ordered category",
        first(lambda a: pd.cut(a, [-np.inf, -1, 0, 1, np.inf], labels=["w", "x", "y", "z"])),
        at_least=0.2,
    ),
    table("type", "a category of numbers", first(lambda a: pd.Categorical(a.round())), at_least=0.2),
    table("type", "intervals", first(lambda a: pd.cut(a, [-9, -1, 0, 1, 9])), expect=EITHER, mentions=("'a'",)),
    table("type", "dates", first(days), linear=True),
    table("type", "dates with a time zone", first(lambda a: days(a).tz_localize("Europe/Rome")), at_least=0.4),
    table("type", "date objects", first(lambda a: objects(list(days(a).date))), linear=True),
    table("type", "dates as texts", first(lambda a: days(a).strftime("%Y-%m-%d")), linear=True),
    table("type", "timedeltas", first(lambda a: pd.to_timedelta(a.to_numpy() * 100, unit="D")), linear=True),
    table("type", "timedelta objects", first(lambda a: objects([datetime.timedelta(days=v) for v in a])), linear=True),
    table("type", "periods", first(lambda a: days(a).to_period("M")), expect=EITHER, mentions=("'a'",), at_least=0.4),
    table("type", "bytes", first(lambda a: objects([b"up" if v > 0 else b"down" for v in a])), at_least=0.2),
    table(
        "type",
        "times of day",
        first(lambda a: objects([datetime.time(int(v * 5) % 24) for v in a])),
        expect=REFUSAL,
        mentions=TEXT_CELLS,
    ),
    table("type", "complex numbers", first(lambda a: a + 1j), expect=REFUSAL, mentions=("'a'", "real numbers")),
    table("type", "lists in cells", first(lambda a: objects([[v] for v in a])), expect=REFUSAL, mentions=TEXT_CELLS),
    table(
        "type", "dicts in cells", first(lambda a: objects([{"v": v} for v in a])), expect=REFUSAL, mentions=TEXT_CELLS
    ),
    table("type", "sets in cells", first(lambda a: objects([{v} for v in a])), expect=REFUSAL, mentions=TEXT_CELLS),
    table(
        "type",
        "arrays in cells",
        first(lambda a: objects([np.array([v, v]) for v in a])),
        expect=REFUSAL,
        mentions=TEXT_CELLS,
    ),
    table(
        "type",
        "texts and numbers mixed",
        first(lambda a: objects([v if v > 0 else "low" for v in a.round(1)])),
        expect=EITHER,
        mentions=("'a'",),
    ),
    table("type", "None among objects", first(lambda a: objects([None if v < -1 else v for v in a])), at_least=0.2),
    table("type", "all of it texts in an array", whole(lambda x: x.to_numpy().round(3).astype(str)), linear=True),
    table("type", "lists of lists", whole(lambda x: x.to_numpy().tolist()), linear=True),
    table("type", "an array of objects", whole(lambda x: x.to_numpy().astype(object)), linear=True),
    table("type", "a masked array", whole(lambda x: np.ma.masked_array(x, mask=np.zeros(x.shape, bool))), linear=True),
    table("type", "a masked array with a mask", whole(lambda x: np.ma.masked_less(x.to_numpy(), -1.0)), at_least=0.2),
    table("type", "a dict of columns", whole(lambda x: x.to_dict("list")), expect=EITHER, mentions=("array",)),
    table("type", "a text in place of a table", whole(lambda x: "table.csv"), expect=REFUSAL, mentions=("array",)),
    table("type", "None in place of a table", whole(lambda x: None), expect=REFUSAL, mentions=("array",)),
    table("type", "y int", target(lambda y: (y * 30).round().astype(int)), linear=True),
    table("type", "y bool in regression", target(lambda y: y > 0), expect=EITHER, mentions=("y",)),
    table("type", "y float16", target(lambda y: y.astype(np.float16)), linear=True),
    table("type", "y decimals", target(lambda y: objects([decimal.Decimal(f"{v:.6f}") for v in y])), linear=True),
    table("type", "y texts of numbers", target(lambda y: y.astype(str)), linear=True),
    table("type", "y nullable", target(lambda y: pd.Series(y, dtype="Float64")), linear=True),
    table("type", "y a list", target(list), linear=True),
    table(
        "type",
        "y texts",
        target(lambda y: np.where(y > 0, "hot", "cold")),
        expect=REFUSAL,
        mentions=("y must", "'cold'", "BayesianClassifier"),
    ),
    table("type", "y dates", target(lambda y: days(pd.Series(y))), expect=REFUSAL, mentions=("y",)),
    table("type", "y timedeltas", target(lambda y: pd.to_timedelta(y, unit="D")), expect=REFUSAL, mentions=("y",)),
    table("type", "y complex", target(lambda y: y + 1j), expect=REFUSAL, mentions=("y must", "real")),
    table("type", "y None", target(lambda y: None), expect=REFUSAL, mentions=("y",)),
]

GAPS = slice(0, None, 6)
MISSING = [
    table("missing", "NaN in training and in new rows", at(GAPS, np.nan), at_least=0.2),
    table("missing", "NaN in training only", train=at(GAPS, np.nan), at_least=0.5),
    table("missing", "NaN in new rows only", new=at(GAPS, np.nan), at_least=0.2),
    table("missing", "NaN in all of a column, new rows", new=at(slice(None), np.nan)),
    table("missing", "NaN in all of a column", train=at(slice(None), np.nan, "c"), at_least=0.4),
    table("missing", "NaN everywhere", train=whole(lambda x: x * np.nan), expect=REFUSAL, mentions=("X", "empty")),
    table("missing", "NaN everywhere in new rows", new=whole(lambda x: x * np.nan), at_least=-0.2),
    table("missing", "NaN in y", train=target_at(5, np.nan), expect=REFUSAL, mentions=("y", "place 5", "leave")),
    table("missing", "None in y", train=target_at(5, None), expect=REFUSAL, mentions=("y", "place 5", "leave")),
    table("missing", "inf in y", train=target_at(5, np.inf), expect=REFUSAL, mentions=("y", "infinity")),
    table("missing", "'NA' in y", train=target_at(5, "NA"), expect=REFUSAL, mentions=("y must", "'NA'")),
    table("missing", "inf in x", train=at(5, np.inf), expect=REFUSAL, mentions=("'a'", "infinity")),
    table("missing", "-inf in new rows", new=at(5, -np.inf), expect=REFUSAL, mentions=("'a'", "infinity")),
    table("missing", "pd.NA among objects", at(GAPS, pd.NA), at_least=0.2),
    table("missing", "None among objects", at(GAPS, None), at_least=0.2),
    table(
        "missing", "'NA' among numbers", at(slice(0, None, 30), "NA"), expect=EITHER, mentions=("'a'",), at_least=0.2
    ),
    table("missing", "-999 for missing", at(slice(0, None, 30), -999.0), at_least=-0.5),
    table("missing", "nullable numbers with gaps", first(lambda a: a.where(a > -1).astype("Float64")), at_least=0.2),
    table("missing", "dates with NaT", first(lambda a: pd.Series(days(a)).where(a > -1)), at_least=0.2),
    table("missing", "classes, NaN in training and new rows", at(GAPS, np.nan), classes=True, at_least=0.1),
    table(
        "missing",
        "classes, NaN label",
        train=target_at(5, np.nan),
        classes=True,
        expect=REFUSAL,
        mentions=("y", "place 5", "leave"),
    ),
]

OUTLIER = [
    table("outlier", "1e12 in x", train=at(7, 1e12), at_least=0.5),
    table("outlier", "1e6 in x", train=at(7, 1e6), at_least=0.5),
    table("outlier", "1e12 in new rows only", new=at(slice(3, 4), 1e12), expect=EITHER, at_least=-np.inf),
    table("outlier", "1e9 in y", train=target_at(7, 1e9), warns=("y has values far", "1e+09 in row 7")),
    table("outlier", "100 in y", train=target_at(7, 100.0)),
    table("outlier", "auto, 100 in y", train=target_at(7, 100.0), auto=True),
    table("outlier", "auto, 1e6 in x", train=at(7, 1e6), auto=True, at_least=0.5),
    table(
        "outlier",
        "auto, a tenth of y wrong by 30",
        train=lambda x, y: (x, y + 30.0 * (np.arange(len(y)) % 10 == 0)),
        auto=True,
    ),
]

CASES = [*SCALE, *TYPE, *MISSING, *OUTLIER]
