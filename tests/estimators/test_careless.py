"""Careless tables: any unit, outliers, and what is unknown at prediction. Nothing may be silently wrong."""

import warnings

import numpy as np
import pandas as pd
import pytest

import marginax as mx
from marginax.data.scaling import far_values, scaling_of
from marginax.estimators import BayesianClassifier, BayesianRegressor, ColumnEncoder

# quick on purpose, and it says so
pytestmark = pytest.mark.filterwarnings("ignore:training (took only|was still improving):UserWarning")
QUICK = mx.infer.DeepEnsemble(2, mx.infer.MAP(num_epochs=600, batch_size=None))


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 3))
    return x, 2.0 * x[:, 0] - x[:, 1] + 0.1 * rng.normal(size=120)


@pytest.mark.parametrize("unit", [1e-13, *(pytest.param(each, marks=pytest.mark.slow) for each in (1e-30, 1e13, 1e30))])
def test_the_unit_of_the_target_does_not_matter(unit, table):
    x, y = table
    one = BayesianRegressor(method=QUICK, hidden=(8,)).fit(x[:100], y[:100])
    other = BayesianRegressor(method=QUICK, hidden=(8,)).fit(x[:100], unit * y[:100])
    for mine, theirs in zip(
        one.predict(x[100:], return_std=True), other.predict(x[100:], return_std=True), strict=True
    ):
        np.testing.assert_allclose(theirs / unit, mine, rtol=1e-3, atol=1e-3)
    lower, upper = other.predict_interval(x[100:])
    assert np.mean((lower <= unit * y[100:]) & (unit * y[100:] <= upper)) > 0.5
    assert np.corrcoef(other.predict(x[100:]), y[100:])[0, 1] > 0.9
    shifted = other.predict_distribution(x[100:]).log_prob(unit * y[100:]) + np.log(unit)
    np.testing.assert_allclose(shifted, one.predict_distribution(x[100:]).log_prob(y[100:]), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("unit", [1e-30, 1e-13, 1e13, 1e30])
def test_units_do_not_matter_to_standardise(unit, table):
    x, y = table
    one, other = scaling_of(x, y), scaling_of(unit * x, unit * y)
    np.testing.assert_allclose(other.transform_x(unit * x), one.transform_x(x), rtol=1e-9)
    np.testing.assert_allclose(other.transform_y(unit * y), one.transform_y(y), rtol=1e-9)
    encoder = ColumnEncoder.fit(pd.DataFrame(unit * x))
    np.testing.assert_allclose(encoder.encode(pd.DataFrame(unit * x)), one.transform_x(x), rtol=1e-9)


@pytest.mark.parametrize("unit", [1e300, 1e-300])
def test_what_cannot_be_represented_is_refused_by_name(unit, table):
    x, y = table
    with pytest.raises(ValueError, match=r"y reaches .* \(row \d+\), whose square cannot be represented"):
        BayesianRegressor(method=QUICK).fit(x, unit * y)
    with pytest.raises(ValueError, match=r"column 'a' of X reaches"):
        BayesianRegressor(method=QUICK).fit(pd.DataFrame(unit * x, columns=["a", "b", "c"]), y)
    with pytest.raises(ValueError, match=r"x reaches"):
        mx.data.standardise((unit * x, y))


def test_a_constant_target_is_one_whatever_its_size(table):
    x, _ = table
    for value in (0.0, 1e-20, 1e20):
        with pytest.raises(ValueError, match="y is constant"):
            mx.data.standardise((x, np.full(120, value)))


# ---- outliers


def test_one_outlier_in_a_column_does_not_ruin_the_fit(table):
    x, y = table
    bad = x.copy()
    bad[7, 0] = 1e12
    with pytest.warns(UserWarning, match=r"column '0' of X has values far from all others \(1e\+12 in row 7\)"):
        fitted = BayesianRegressor(method=QUICK, hidden=(8,)).fit(bad[:100], y[:100])
    assert np.corrcoef(fitted.predict(x[100:]), y[100:])[0, 1] > 0.9
    assert np.isfinite(fitted.predict(bad[5:9], return_std=True)).all()
    with pytest.warns(UserWarning, match=r"column 0 of x has values far from all others"):
        mx.data.standardise((bad, y))
    worse = y.copy()
    worse[3] = -1e9
    with pytest.warns(UserWarning, match=r"y has values far from all others \(-1e\+09 in row 3\)"):
        mx.data.standardise((x, worse))


@pytest.mark.parametrize("name", ["normal", "lognormal", "counts", "zeros", "cauchy", "binary"])
def test_ordinary_columns_have_no_outliers(name):
    rng = np.random.default_rng(0)
    columns = {
        "normal": rng.normal(size=1000),
        "lognormal": rng.lognormal(0.0, 2.0, size=1000),
        "counts": rng.poisson(0.3, size=1000).astype(float),
        "zeros": np.where(rng.random(1000) < 0.95, 0.0, 1e6),
        "cauchy": rng.standard_t(2, size=1000),
        "binary": (rng.random(1000) < 0.3).astype(float),
    }
    assert far_values(columns[name]).size == 0


# ---- unknown at prediction


@pytest.fixture(scope="module")
def mixed():
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"a": rng.normal(size=300), "b": rng.normal(size=300), "c": rng.choice(["x", "y", "z"], 300)})
    y = 3.0 * frame["a"] + 2.0 * (frame["c"] == "x") + 0.1 * rng.normal(size=300)
    return frame, y.to_numpy()


@pytest.mark.parametrize(("column", "value"), [("a", np.nan), ("c", "never seen"), ("c", None)])
def test_the_spread_grows_where_something_is_unknown(column, value, mixed):
    frame, y = mixed
    fitted = BayesianRegressor(method=QUICK, hidden=(16,)).fit(frame[:250], y[:250])
    rows = frame[250:].copy()
    _, sure = fitted.predict(rows, return_std=True)
    rows[column] = rows[column].astype(object)
    rows.loc[rows.index[::2], column] = value
    rows = rows.infer_objects() if column == "a" else rows
    mean, unsure = fitted.predict(rows, return_std=True)
    effect = np.std(3.0 * frame["a"]) if column == "a" else np.std(2.0 * (frame["c"] == "x"))
    assert np.median(unsure[::2]) > 0.7 * effect > 2 * np.median(sure)
    np.testing.assert_allclose(unsure[1::2], sure[1::2], rtol=1e-4)
    z = (mean - y[250:]) / unsure
    assert np.sqrt(np.mean(z**2)) < 1.5
    lower, upper = fitted.predict_interval(rows)
    assert np.mean((lower <= y[250:]) & (y[250:] <= upper)) > 0.8


@pytest.mark.slow
def test_classes_are_less_sure_where_something_is_unknown(mixed):
    frame, y = mixed
    fitted = BayesianClassifier(method=QUICK, hidden=(16,)).fit(frame[:250], y[:250] > 0.5)
    rows = frame[250:].copy()
    sure = fitted.predict_distribution(rows)
    rows["a"] = np.nan
    unsure = fitted.predict_distribution(rows)
    assert unsure.confidence.mean() < sure.confidence.mean() - 0.1
    np.testing.assert_allclose(unsure.probs.sum(axis=1), 1.0, rtol=1e-6)
    assert (unsure.mutual_information > -1e-6).all()


@pytest.mark.slow
def test_what_was_missing_in_training_is_known_to_be_missing(mixed):
    frame, y = mixed
    gaps = frame.copy()
    gaps.loc[::5, "a"] = np.nan
    encoder = ColumnEncoder.fit(gaps)
    assert encoder.encode_unknown(gaps) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "training was still improving")
        BayesianRegressor(method=QUICK, hidden=(8,)).fit(gaps[:250], y[:250]).predict(gaps[250:])
