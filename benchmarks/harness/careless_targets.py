"""Careless targets: odd classes, wrong shapes, and settings of the estimators that cannot be meant."""

from typing import Any

import numpy as np
import pandas as pd

from benchmarks.harness.careless_case import EITHER, REFUSAL
from benchmarks.harness.careless_tables import linear_data, table
from benchmarks.harness.careless_values import objects, target, whole


def told_apart(num: int) -> Any:
    """As many classes, by the place among equal parts of the first column."""
    edges = np.quantile(linear_data().x["a"], np.arange(1, num) / num)
    return lambda x, y: (x, np.searchsorted(edges, x["a"].to_numpy()))


CLASSES = [
    table(
        "classes",
        "separable",
        lambda x, y: (x, np.where(x["a"] > 0, "yes", "no").astype(object)),
        classes=True,
        at_least=0.3,
    ),
    table(
        "classes",
        "auto, separable",
        lambda x, y: (x, np.where(x["a"] > 0, "yes", "no").astype(object)),
        classes=True,
        auto=True,
        at_least=0.4,
    ),
    table(
        "classes",
        "2 of 120 are rare",
        train=target(lambda y: np.where(np.arange(len(y)) < 2, "yes", "no")),
        classes=True,
        at_least=-np.inf,
    ),
    table(
        "classes",
        "one member",
        lambda x, y: (x, np.where(np.arange(len(x)) == 5, "odd", y)),
        classes=True,
        at_least=0.1,
    ),
    table("classes", "20 classes", told_apart(20), classes=True, at_least=0.3),
    table(
        "classes",
        "60 classes for 120 rows",
        told_apart(60),
        classes=True,
        at_least=-0.3,
        expect=EITHER,
        mentions=("classes",),
    ),
    *(
        table(
            "classes",
            f"labels {name}",
            target(lambda y, low=low, high=high: np.where(y == "yes", high, low)),
            classes=True,
            linear=True,
        )
        for name, low, high in (
            ("0 and 1", 0, 1),
            ("-1 and 1", -1, 1),
            ("True and False", False, True),
            ("0.0 and 1.0", 0.0, 1.0),
            ("far apart", 0, 10**12),
        )
    ),
    table(
        "classes",
        "labels of bytes",
        target(lambda y: y.astype(bytes)),
        classes=True,
        expect=REFUSAL,
        mentions=("bytes", "Convert"),
    ),
    table(
        "classes", "labels of pandas texts", target(lambda y: pd.Series(y, dtype="string")), classes=True, linear=True
    ),
    table("classes", "labels of a category", target(lambda y: pd.Categorical(y)), classes=True, linear=True),
    table(
        "classes",
        "a category with levels that do not occur",
        target(lambda y: pd.Categorical(y, ["yes", "no", "x"])),
        classes=True,
        linear=True,
    ),
    table(
        "classes",
        "labels of nullable Int64",
        target(lambda y: pd.Series((y == "yes").astype(int), dtype="Int64")),
        classes=True,
        linear=True,
    ),
    table(
        "classes",
        "labels of odd letters",
        target(lambda y: np.where(y == "yes", 'ja, "gern" 🌹', "")),
        classes=True,
        linear=True,
    ),
    table("classes", "labels of one column", target(lambda y: y[:, None]), classes=True, linear=True),
    table(
        "classes",
        "numbers with decimals",
        target(lambda y: np.arange(len(y)) / 7),
        classes=True,
        expect=REFUSAL,
        mentions=("continuous",),
    ),
    table(
        "classes",
        "texts and numbers",
        target(lambda y: objects([1 if v == "yes" else v for v in y])),
        classes=True,
        expect=REFUSAL,
        mentions=("y must", "'no'", "texts"),
    ),
    table(
        "classes",
        "tuples",
        target(lambda y: objects([(v,) for v in y])),
        classes=True,
        expect=REFUSAL,
        mentions=("y must", "tuple"),
    ),
    table(
        "classes",
        "dates",
        target(lambda y: pd.to_datetime(np.where(y == "yes", "2020-01-01", "2021-01-01"))),
        classes=True,
        expect=EITHER,
        mentions=("y",),
        linear=True,
    ),
]

SHAPE = [
    table("shape", "x of one axis", whole(lambda x: x["a"].to_numpy()), expect=REFUSAL, mentions=("2D", "reshape")),
    table("shape", "x a column of pandas", whole(lambda x: x["a"]), expect=REFUSAL, mentions=("X", "to_frame")),
    table("shape", "x of three axes", whole(lambda x: x.to_numpy()[:, :, None]), expect=REFUSAL, mentions=("dim 3",)),
    table("shape", "x transposed", train=whole(lambda x: x.to_numpy().T), expect=REFUSAL, mentions=("samples",)),
    table("shape", "x without columns", whole(lambda x: x[[]]), expect=REFUSAL, mentions=("0 feature",)),
    table(
        "shape",
        "x of several lengths",
        whole(lambda x: [[1.0], *x.to_numpy().tolist()[1:]]),
        expect=REFUSAL,
        mentions=("array",),
    ),
    table("shape", "y of one column", target(lambda y: y[:, None]), linear=True),
    table("shape", "y a table of one column", target(lambda y: pd.DataFrame({"y": y})), linear=True),
    table("shape", "y of one row", target(lambda y: y[None]), expect=REFUSAL, mentions=("samples",)),
    table("shape", "y of two columns", target(lambda y: np.stack([y, -y], axis=1))),
    table("shape", "y of three axes", target(lambda y: y[:, None, None]), expect=REFUSAL, mentions=("y must", "shape")),
    table("shape", "y too short", train=target(lambda y: y[:-1]), expect=REFUSAL, mentions=("samples", "119", "120")),
    table("shape", "y empty", target(lambda y: y[:0]), expect=REFUSAL, mentions=("y",)),
    table("shape", "y a number", target(lambda y: 3.0), expect=REFUSAL, mentions=("y",)),
    table(
        "shape",
        "y of several lengths",
        target(lambda y: [[1.0, 2.0]] + [[1.0]] * (len(y) - 1)),
        expect=REFUSAL,
        mentions=("y must",),
    ),
]

OPTION = [
    table("option", f"{name}={value!r}", expect=REFUSAL, mentions=(name,), **{name: value})
    for name, value in (
        ("method", "magic"),
        ("method", 3),
        ("method", None),
        ("hidden", "wide"),
        ("hidden", (0,)),
        ("hidden", (-3,)),
        ("hidden", (2.5,)),
        ("activation", "sigmoidal"),
        ("likelihood", "gaussian"),
        ("prior", 1.0),
        ("num_chains", 0),
        ("num_chains", 1.5),
        ("time_limit", -1),
        ("time_limit", "long"),
        ("random_state", "seed"),
    )
]

CASES = [*CLASSES, *SHAPE, *OPTION]
