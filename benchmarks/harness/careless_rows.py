"""Careless tables as a whole: too few rows, too many columns, odd classes, other columns at prediction."""

from typing import Any

import numpy as np
import pandas as pd

from benchmarks.harness.careless_case import EITHER, REFUSAL
from benchmarks.harness.careless_tables import table
from benchmarks.harness.careless_values import first, target, whole


def levels(x: Any, y: Any) -> tuple[Any, Any]:
    """The first column as one of three texts."""
    return first(lambda a: pd.cut(a, [-np.inf, -0.5, 0.5, np.inf], labels=["low", "mid", "high"]).astype(str))(x, y)


UNSEEN = [
    table("unseen", "a new category", levels, new=first(lambda a: a.where(a != "mid", "never")), at_least=0.1),
    table("unseen", "only new categories", levels, new=first(lambda a: ["never"] * len(a))),
    table(
        "unseen",
        "a number where texts were",
        levels,
        new=first(lambda a: np.arange(len(a))),
        expect=EITHER,
        mentions=("'a'",),
    ),
    table(
        "unseen",
        "texts where numbers were",
        new=first(lambda a: ["high"] * len(a)),
        expect=REFUSAL,
        mentions=("'a'", "number"),
    ),
    table(
        "unseen",
        "texts of numbers where numbers were",
        new=first(lambda a: a.astype(str)),
        linear=True,
        expect=EITHER,
        mentions=("'a'",),
    ),
    table(
        "unseen",
        "dates where numbers were",
        new=first(lambda a: pd.Timestamp("2020") + pd.to_timedelta(a, "D")),
        expect=REFUSAL,
        mentions=("'a'", "number"),
    ),
    table("unseen", "a column too many", new=whole(lambda x: x.assign(d=1.0)), expect=REFUSAL, mentions=("d", "fit")),
    table(
        "unseen",
        "a column missing",
        new=whole(lambda x: x.drop(columns="b")),
        expect=REFUSAL,
        mentions=("b", "missing"),
    ),
    table(
        "unseen",
        "columns in another order",
        new=whole(lambda x: x[["c", "a", "b"]]),
        expect=EITHER,
        linear=True,
        mentions=("order",),
    ),
    table(
        "unseen",
        "columns of other names",
        new=whole(lambda x: x.rename(columns={"a": "A"})),
        expect=REFUSAL,
        mentions=("A", "fit"),
    ),
    table("unseen", "an array where a table was", new=whole(lambda x: x.to_numpy()), linear=True),
    table(
        "unseen",
        "an array of fewer columns",
        new=whole(lambda x: x.to_numpy()[:, :2]),
        expect=REFUSAL,
        mentions=("2 features", "3 features"),
    ),
    table("unseen", "float32 where float64 was", new=whole(lambda x: x.astype(np.float32)), linear=True),
    table("unseen", "no rows to predict", new=lambda x, y: (x[:0], y[:0]), expect=REFUSAL, mentions=("0 sample",)),
    table("unseen", "one row to predict", new=lambda x, y: (x[:1], y[:1]), at_least=-np.inf),
    table(
        "unseen",
        "one row to predict, without its axis",
        new=lambda x, y: (x.to_numpy()[0], y[:1]),
        expect=REFUSAL,
        mentions=("reshape",),
    ),
    table("unseen", "classes, a new category", levels, new=first(lambda a: a.where(a != "mid", "never")), classes=True),
    table(
        "unseen",
        "classes, a new label",
        new=target(lambda y: np.where(np.arange(len(y)) < 2, "maybe", y)),
        classes=True,
        expect=REFUSAL,
        mentions=("y", "maybe", "training"),
    ),
]

WIDE = [
    table("wide", f"auto, {columns} columns, {rows} rows", rows=rows, columns=columns, auto=True)
    for columns, rows in ((50, 40), (50, 80), (200, 40), (200, 80), (500, 60))
] + [
    table("wide", "auto, classes, 200 columns, 60 rows", rows=60, columns=200, classes=True, auto=True),
    table("wide", "a linear network, 500 columns, 60 rows", rows=60, columns=500, at_least=-np.inf),
    table("wide", "a text of 100 values", first(lambda a: [f"t{int(v * 30) % 100}" for v in a]), at_least=-0.3),
    table(
        "wide",
        "a text that differs in every row",
        whole(lambda x: x.assign(a=[f"id {v}" for v in x["a"]])),
        at_least=0.05,
    ),
    table(
        "wide",
        "texts that differ in every row, alone",
        whole(lambda x: pd.DataFrame({"a": [f"id {v}" for v in x["a"]]})),
        expect=REFUSAL,
        mentions=("X", "every row"),
    ),
]

TINY = [
    table("tiny", "no row", rows=0, expect=REFUSAL, mentions=("0 sample",)),
    table("tiny", "1 row", rows=1, expect=REFUSAL, mentions=("1 sample",)),
    table("tiny", "2 rows", rows=2, at_least=-np.inf),
    *(table("tiny", f"auto, {rows} rows", rows=rows, auto=True) for rows in (2, 3, 5, 10, 25)),
    table("tiny", "auto, classes, 5 rows", rows=5, classes=True, auto=True, at_least=-0.3),
    table(
        "tiny", "auto, 4 rows of one class", rows=4, classes=True, auto=True, expect=REFUSAL, mentions=("2 classes",)
    ),
    table("tiny", "classes, 1 row", rows=1, classes=True, expect=REFUSAL, mentions=("1 sample",)),
]

CONSTANT = [
    table("constant", "y", target(lambda y: np.full(len(y), 3.0)), warns=("y is constant",)),
    table("constant", "y 0", target(lambda y: np.zeros(len(y))), warns=("y is constant",)),
    table("constant", "one column", first(lambda a: 5.0)),
    table("constant", "one column of texts", first(lambda a: "same")),
    table("constant", "all columns", whole(lambda x: x * 0.0), expect=EITHER, mentions=("X", "constant")),
    table("constant", "one column in training only", train=first(lambda a: 5.0), at_least=-np.inf),
    table(
        "constant", "columns that differ by rounding", whole(lambda x: 1e9 + x * 1e-8), expect=EITHER, mentions=("X",)
    ),
    table(
        "constant",
        "one class",
        target(lambda y: np.full(len(y), "yes", object)),
        classes=True,
        expect=REFUSAL,
        mentions=("y must", "2 classes", "'yes'"),
    ),
]

DUPLICATED = [
    table("duplicated", "a column twice", whole(lambda x: x.assign(d=x["a"])), linear=True),
    table(
        "duplicated",
        "a column ten times",
        whole(lambda x: x.assign(**{f"d{i}": x["a"] for i in range(10)})),
        linear=True,
    ),
    table("duplicated", "every row twice", train=lambda x, y: (pd.concat([x, x]), np.concatenate([y, y])), linear=True),
    table(
        "duplicated",
        "one row only, many times",
        train=lambda x, y: (x.iloc[[0] * 120], y[[0] * 120]),
        warns=("y is constant",),
    ),
    table(
        "duplicated",
        "names of columns",
        whole(lambda x: x.set_axis(["a", "a", "b"], axis=1)),
        expect=REFUSAL,
        mentions=("'a'",),
    ),
    table(
        "duplicated",
        "numbers as names",
        whole(lambda x: x.set_axis([7, 7, 8], axis=1)),
        expect=REFUSAL,
        mentions=("'7'", "name of its own"),
    ),
    table("duplicated", "index", lambda x, y: (x.set_index(np.zeros(len(x), int)), y), linear=True),
    table(
        "duplicated",
        "index of x and y in other orders",
        lambda x, y: (x, pd.Series(y, index=x.index[::-1])),
        linear=True,
    ),
    table(
        "duplicated",
        "a name 1 and a name '1'",
        whole(lambda x: x.set_axis([1, "1", "b"], axis=1)),
        expect=EITHER,
        mentions=("name",),
    ),
    table(
        "duplicated",
        "several levels of names",
        whole(lambda x: x.set_axis(pd.MultiIndex.from_tuples([("u", "a"), ("u", "b"), ("v", "c")]), axis=1)),
        expect=EITHER,
        mentions=("names",),
        linear=True,
    ),
]

CASES = [*UNSEEN, *WIDE, *TINY, *CONSTANT, *DUPLICATED]
