"""How careless tables are made and put through the estimators."""

import dataclasses
import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.harness.careless_case import (
    ANSWER,
    MARGIN,
    REFUSAL,
    Answer,
    Case,
    constant_gain_of_classes,
    constant_gain_of_normal,
    student_law,
)

NUM_ROWS, NUM_COLUMNS, NUM_FRESH = 120, 3, 200
NAMES = ["a", "b", "c"]
Change = Callable[[Any, Any], tuple[Any, Any]]  # (x, y) -> (x, y)


@dataclasses.dataclass(frozen=True)
class Data:
    """Rows to learn from, and fresh rows of the same process."""

    x: Any
    y: Any
    x_new: Any
    y_new: Any


@functools.cache
def linear_data(rows: int = NUM_ROWS, columns: int = NUM_COLUMNS, classes: bool = False) -> Data:
    """A line in the first three columns with noise, or the sign of it, as a DataFrame and a vector."""
    import pandas as pd

    rng = np.random.default_rng([rows, columns, 7])
    slopes = np.zeros(columns)
    slopes[:3] = np.array([2.0, -1.0, 0.5])[: min(3, columns)]
    x = rng.normal(size=(rows + NUM_FRESH, columns))
    y = x @ slopes + 0.5 * rng.normal(size=len(x))
    if classes:
        y = np.where(y > 0, "yes", "no").astype(object)
    table = pd.DataFrame(x, columns=NAMES if columns == 3 else [f"v{i}" for i in range(columns)])
    fresh = table.iloc[rows:].reset_index(drop=True)
    return Data(table.iloc[:rows].copy(), y[:rows].copy(), fresh, y[rows:].copy())


def table(
    kind: str,
    name: str,
    both: Change | None = None,
    *,
    train: Change | None = None,
    new: Change | None = None,
    rows: int = NUM_ROWS,
    columns: int = NUM_COLUMNS,
    classes: bool = False,
    linear: bool = False,
    at_least: float = -MARGIN,
    expect: str = ANSWER,
    mentions: tuple[str, ...] = (),
    warns: tuple[str, ...] = (),
    auto: bool = False,
    **options: Any,
) -> Case:
    """A case of an estimator.

    Args:
        kind: of the case.
        name: of the case.
        both: changes rows to learn from and fresh ones alike.
        train: changes rows to learn from, after that.
        new: changes fresh rows, after that; a refusal is then asked of the prediction.
        rows: to learn from.
        columns: of which three matter.
        classes: whether targets are classes.
        linear: whether a linear model of the unchanged rows is a fair peer.
        at_least: the gain over a constant that is asked for; minus infinity where fresh rows are of another process, so
            that only their being finite counts.
        expect: what is expected.
        mentions: what a refusal must hold.
        warns: what a warning must hold, beside which an answer need only be finite.
        auto: with no arguments at all; else a linear network, so that what is judged is how tables are read.
        **options: of the estimator.
    """

    def changed() -> Data:
        data = linear_data(rows, columns, classes)
        x, y = data.x.copy(), data.y.copy()
        x_new, y_new = data.x_new.copy(), data.y_new.copy()
        if both is not None:
            (x, y), (x_new, y_new) = both(x, y), both(x_new, y_new)
        x, y = (x, y) if train is None else train(x, y)
        x_new, y_new = (x_new, y_new) if new is None else new(x_new, y_new)
        return Data(x, y, x_new, y_new)

    def estimator() -> Any:
        return _estimator(classes, auto, options)

    def fit(estimator: Any) -> Any:
        data = changed()
        return estimator.fit(data.x, data.y)

    def figures(fitted: Any) -> Answer:
        data = changed()
        judge = _classes if classes else _numbers
        answer = judge(fitted, data, at_least)
        peer = linear_gain(rows, columns, classes) if linear else None
        return dataclasses.replace(answer, linear_gain=peer)

    late = new is not None and expect != ANSWER
    run = figures if late else (lambda estimator: figures(fit(estimator)))
    if expect == REFUSAL and not late:  # the fit must refuse, not what judges it

        def run(estimator: Any) -> Answer:
            fit(estimator)
            return Answer(True)

    given = (lambda: fit(estimator())) if late else estimator
    return Case(kind, name, run, expect, mentions, warns, given, auto)


def _estimator(classes: bool, auto: bool, options: dict[str, Any]) -> Any:
    import marginax as mx

    kind = mx.estimators.BayesianClassifier if classes else mx.estimators.BayesianRegressor
    if auto:
        return kind(**options)
    cheap: dict[str, Any] = {"method": "map", "hidden": ()}
    if not classes:
        cheap["likelihood"] = mx.likelihoods.Gaussian()
    return kind(**cheap | options)


def _numbers(fitted: Any, data: Data, at_least: float) -> Answer:
    prediction = fitted.predict_distribution(data.x_new)
    y, y_new = (np.asarray(each).astype(np.float64) for each in (data.y, data.y_new))
    lower, upper = prediction.interval(0.9)
    log_probs = prediction.log_prob(y_new)
    shown = (prediction.mean, prediction.std, lower, upper, log_probs)
    finite = all(np.isfinite(each).all() for each in shown)
    if y.ndim == 2 and y.shape[1] == 1:
        y, y_new, lower, upper = (each[:, 0] for each in (y, y_new, lower, upper))
    if y.ndim == 2 or at_least == -np.inf:
        return Answer(finite)
    gain = constant_gain_of_normal(log_probs, y, y_new)
    coverage = float(np.mean((lower <= y_new) & (y_new <= upper)))
    unit = max(float(np.std(y_new)), 1e-300)
    width = float(np.median(upper - lower)) / unit
    lower, upper = student_law(y).interval(0.9)
    return Answer(finite, gain, None, coverage, width, at_least, float(upper - lower) / unit)


def _classes(fitted: Any, data: Data, at_least: float) -> Answer:
    probs = fitted.predict_proba(data.x_new)
    finite = bool(np.isfinite(probs).all() and np.allclose(probs.sum(axis=1), 1.0))
    labels = fitted.predict(data.x_new)
    assert len(labels) == len(data.y_new)
    places, places_new = fitted.encode_labels(data.y), fitted.encode_labels(data.y_new)
    log_probs = np.log(probs[np.arange(len(probs)), places_new])
    gain = constant_gain_of_classes(log_probs, places, places_new, len(fitted.classes_))
    return Answer(finite, gain, at_least=at_least)


@functools.cache
def linear_gain(rows: int, columns: int, classes: bool) -> float:
    """What a linear model of scikit-learn gains over the constant, on the unchanged rows."""
    from scipy import stats
    from sklearn.linear_model import BayesianRidge, LogisticRegression

    data = linear_data(rows, columns, classes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not classes:
            mean, std = BayesianRidge().fit(data.x, data.y).predict(data.x_new, return_std=True)
            return constant_gain_of_normal(stats.norm.logpdf(data.y_new, mean, std), data.y, data.y_new)
        model = LogisticRegression().fit(data.x, data.y.astype(str))
        places, places_new = (np.searchsorted(model.classes_, each.astype(str)) for each in (data.y, data.y_new))
        log_probs = model.predict_log_proba(data.x_new)[np.arange(NUM_FRESH), places_new]
        return constant_gain_of_classes(log_probs, places, places_new, len(model.classes_))
