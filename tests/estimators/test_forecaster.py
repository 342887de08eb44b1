"""Forecasts: paths have the law that follows from the posterior and the noise, in closed form where there is one."""

import jax
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import marginax as mx
from marginax.estimators import BayesianForecaster, split_series
from marginax.estimators.backtest import naive
from marginax.estimators.series import Units, Windows
from marginax.files import FileError

NOISE, HORIZON, PATHS = 0.8, 4, 20_000
EXACT = mx.infer.Laplace(
    structure=mx.curvature.Dense(), training=mx.infer.MAP(num_epochs=300, batch_size=None, optimiser=mx.infer.LBFGS())
)


def autoregression(num, weight=0.6, offset=0.3, seed=0):
    rng, y = np.random.default_rng(seed), np.zeros(num)
    for t in range(1, num):
        y[t] = offset + weight * y[t - 1] + NOISE * rng.normal()
    return y


def linear_forecaster(**options):
    """Bayesian linear regression on the lag, with known noise and a standard normal prior."""
    given = {"lags": 1, "standardise": False, "num_paths": PATHS, "method": EXACT} | options
    likelihood = mx.likelihoods.Gaussian(scale=NOISE)
    return BayesianForecaster(hidden=(), likelihood=likelihood, prior=mx.priors.Normal(1.0), **given)


def moments(mean, covariance, start, scale=NOISE, horizon=HORIZON):
    """Mean and covariance of the next steps of y' = w y + b + noise, over (w, b) by Gauss-Hermite quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    weights = weights / weights.sum()
    root = np.linalg.cholesky(covariance)
    means, covariances, probs = [], [], []
    for i, first in enumerate(nodes):
        for j, second in enumerate(nodes):
            w, b = mean + root @ [first, second]
            loc, variance, each = start, 0.0, []
            for _ in range(horizon):
                loc, variance = w * loc + b, w**2 * variance + scale**2
                each.append((loc, variance))
            means.append([m for m, _ in each])
            covariances.append([[w ** abs(a - c) * each[min(a, c)][1] for c in range(horizon)] for a in range(horizon)])
            probs.append(weights[i] * weights[j])
    means, probs = np.array(means), np.array(probs)
    centre = probs @ means
    away = means - centre
    return centre, np.einsum("s,sij->ij", probs, covariances) + (probs[:, None] * away).T @ away


def posterior_of(y, scale=NOISE):
    """Mean and covariance of weight and offset, in closed form."""
    design = np.stack([y[:-1], np.ones(len(y) - 1)], axis=1)
    covariance = np.linalg.inv(np.eye(2) + design.T @ design / scale**2)
    return covariance @ design.T @ y[1:] / scale**2, covariance


def check_moments(paths, mean, covariance):
    """Means and all second moments of steps, in Monte Carlo standard errors."""
    num = len(paths)
    z = (paths.mean(axis=0) - mean) / (paths.std(axis=0) / np.sqrt(num))
    assert np.abs(z).max() < 4.9, f"means are off: {z.round(1)}"
    away = paths - mean
    products = away[:, :, None] * away[:, None, :]
    z = (products.mean(axis=0) - covariance) / (products.std(axis=0) / np.sqrt(num))
    assert np.abs(z).max() < 4.9, f"covariances are off: {z.round(1)}"


def check_the_joint_law_of_steps_with_unknown_weights():
    """Few observations: what is not known about the weights makes all steps err together."""
    y = autoregression(14)
    paths = linear_forecaster().fit(y).predict(HORIZON).paths
    check_moments(paths, *moments(*posterior_of(y), y[-1]))


def test_the_joint_law_of_steps_with_unknown_weights_is_that_of_quadrature():
    check_the_joint_law_of_steps_with_unknown_weights()


def test_without_doubt_about_weights_the_law_is_that_of_the_process():
    """k steps ahead: mean b (1 + ... + w^(k-1)) + w^k y, variance s^2 (1 + ... + w^(2k-2))."""
    y = autoregression(200)
    method = mx.infer.MAP(num_epochs=300, batch_size=None, optimiser=mx.infer.LBFGS())
    forecaster = linear_forecaster(method=method).fit(y)
    layer = jax.tree.leaves(forecaster.posterior_.sample(1, key=0))
    w, b = (float(np.ravel(leaf)[0]) for leaf in layer if np.size(leaf) == 1)
    np.testing.assert_allclose([w, b], posterior_of(y)[0], atol=1e-3)
    check_moments(forecaster.predict(HORIZON).paths, *moments(np.array([w, b]), 1e-14 * np.eye(2), y[-1]))


def test_log_densities_are_those_of_the_mixture_over_weights():
    """One step ahead it is normal; the density of several is compared with that of many paths."""
    y = autoregression(14)
    forecast = linear_forecaster().fit(y).predict(HORIZON)
    mean, covariance = moments(*posterior_of(y), y[-1])
    at = mean + np.sqrt(np.diag(covariance))
    found = forecast.log_prob(at)
    exact = -0.5 - 0.5 * np.log(2 * np.pi * covariance[0, 0])
    assert abs(found[0] - exact) < 0.02
    near = np.abs(forecast.paths - at) < 0.1
    rough = near.mean(axis=0) / 0.2
    np.testing.assert_allclose(np.exp(found), rough, atol=4.9 * np.sqrt(rough.max() / 0.2 / PATHS) + 2e-3)
    assert np.isnan(forecast.log_prob([0, np.nan, 0, 0])).tolist() == [False, True, False, False]


def test_crps_is_that_of_a_normal_and_unbiased_for_few_paths():
    rng = np.random.default_rng(0)
    found = [naive(np.arange(3.0) ** 2, 1, 1, rng, 5).crps([4.0])[0] for _ in range(4000)]
    scale = np.sqrt((1 + 9) / 2)
    exact = scale * (np.sqrt(2 / np.pi) - 1 / np.sqrt(np.pi))  # at the mean
    assert abs(np.mean(found) - exact) < 4.9 * np.std(found) / np.sqrt(len(found))


def test_differences_and_units_are_undone():
    """A random walk with drift: k steps ahead the drift k times, and variances that add up."""
    rng = np.random.default_rng(3)
    y = 1000 + np.cumsum(5 + 2 * rng.normal(size=400))
    forecaster = BayesianForecaster(method=EXACT, hidden=(), lags=1, difference=1, num_paths=PATHS).fit(y)
    forecast = forecaster.predict(9)
    assert abs(forecast.mean[8] - (y[-1] + 9 * np.diff(y).mean())) < 3
    assert 0.8 < forecast.std[8] / (np.diff(y).std() * 3) < 1.25
    units = Units.of(y, 3, True)
    paths, _ = units.offsets(y[:-5], units.to_model(y)[None, -5:])
    np.testing.assert_allclose(paths[0], y[-5:])


def test_missing_values_are_no_targets_and_are_told_apart():
    z = np.arange(8.0)
    z[3] = np.nan
    inputs, targets = Windows((1, 2), False, True).rows(z, np.zeros((8, 0)))
    assert targets[:, 0].tolist() == [2, 4, 5, 6, 7]
    assert inputs.tolist()[1] == [0, 2, 1, 0]  # lag 1 is missing, lag 2 is 2
    assert inputs.tolist()[3] == [5, 4, 0, 0]
    same = Windows((1, 2), False, True).inputs(jax.numpy.array(z[2:4]), jax.numpy.zeros((1, 0)))
    assert same.tolist() == inputs.tolist()[1]


def test_a_series_with_gaps_is_forecast_and_its_gaps_are_not_zero():
    rng = np.random.default_rng(0)
    y = 50 + 10 * np.sin(2 * np.pi * np.arange(240) / 12) + rng.normal(size=240)
    gaps = y.copy()
    gaps[rng.choice(230, 40, replace=False)] = np.nan
    gaps[-2] = np.nan
    forecaster = BayesianForecaster(method=EXACT, hidden=(), lags=12, season=12).fit(gaps)
    forecast = forecaster.predict(12)
    expected = 50 + 10 * np.sin(2 * np.pi * np.arange(240, 252) / 12)
    assert np.abs(forecast.mean - expected).max() < 4
    whole = BayesianForecaster(method=EXACT, hidden=(), lags=12).fit(y)
    with pytest.raises(ValueError, match="y has missing values among the last ones, and had none in fit"):
        whole.predict(3, y=gaps)


@pytest.mark.parametrize(
    ("options", "horizon"),
    [
        ({"network": "gru", "hidden": 6, "lags": 5}, 3),
        ({"network": "lstm", "hidden": 6, "lags": 5, "season": 4}, 3),
        ({"direct": 4, "lags": (1, 2, 4), "hidden": (8,), "season": 4}, 3),
        ({"likelihood": mx.likelihoods.StudentT(), "hidden": (8,)}, 3),
        ({"likelihood": mx.likelihoods.Gaussian(scale=mx.likelihoods.FromNetwork()), "hidden": (8,), "direct": 3}, 3),
        ({"method": mx.infer.MCDropout(num_epochs=20), "hidden": (8,)}, 3),
        ({"method": mx.infer.DeepEnsemble(3, member=mx.infer.MAP(num_epochs=20)), "hidden": (8,)}, 3),
    ],
    ids=["gru", "lstm", "direct", "student", "direct-noise", "dropout", "ensemble"],
)
def test_networks_likelihoods_and_methods_give_paths(options, horizon):
    y = np.sin(np.pi * np.arange(80) / 2) + 0.1 * np.random.default_rng(0).normal(size=80)
    given = {"method": mx.infer.MAP(num_epochs=20), "lags": 4, "num_paths": 50} | options
    forecast = BayesianForecaster(**given).fit(y).predict(horizon)
    assert forecast.paths.shape == (50, horizon)
    assert np.isfinite(forecast.paths).all()
    assert np.isfinite(forecast.log_prob(np.zeros(horizon))).all()
    assert len(np.unique(forecast.paths[:, -1])) == 50


def test_columns_known_in_advance_are_used():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(150, 1))
    y = 3 * x[:, 0] + 0.1 * rng.normal(size=150)
    forecaster = BayesianForecaster(method=EXACT, hidden=(), lags=1).fit(y[:140], x[:140])
    ahead = forecaster.predict(10, x[140:])
    assert np.abs(ahead.mean - y[140:]).max() < 0.5
    rolled = forecaster.predict(5, x[:145], y=y[:140])
    np.testing.assert_allclose(rolled.mean, ahead.mean[:5], atol=0.05)
    for bad in (None, x[140:145]):
        with pytest.raises(ValueError, match="x must have"):
            forecaster.predict(10, bad)


def test_several_series_share_a_network_in_units_of_their_own():
    table = pd.DataFrame(
        {
            "shop": np.repeat(["a", "b"], 60),
            "day": np.tile(pd.date_range("2024-01-01", periods=60), 2),
            "sales": np.concatenate([autoregression(60), 1000 + 100 * autoregression(60, seed=1)]),
        }
    )
    ys, xs = split_series(table.sample(frac=1, random_state=0), target="sales", series="shop", time="day")
    assert xs is None
    forecaster = BayesianForecaster(method=EXACT, hidden=(), lags=2).fit(ys)
    assert forecaster.known_.cycles == ("weekday",)
    small, large = forecaster.predict(3)
    assert str(large.index[0].date()) == "2024-03-01"
    assert abs(small.mean).max() < 5
    assert 500 < large.mean.min() < large.mean.max() < 1500
    assert 30 < (large.std / small.std).mean() < 300


def test_a_backtest_sees_nothing_after_its_origins():
    y = autoregression(80)
    forecaster = BayesianForecaster(method=EXACT, hidden=(), lags=2, num_paths=100)
    found = forecaster.backtest(y, horizon=5, num_origins=2, step=10)
    assert found.origins == (65, 75)
    other = y.copy()
    other[75:] += 100
    again = forecaster.backtest(other, horizon=5, num_origins=2, step=10)
    for (mine,), (theirs,) in zip(found.forecasts, again.forecasts, strict=True):
        np.testing.assert_array_equal(mine.paths, theirs.paths)
    assert again.mean("rmse") > 50
    by_hand = clone(forecaster).fit(y[:65]).predict(5)
    np.testing.assert_allclose(found.forecasts[0][0].mean, by_hand.mean, atol=1)


def test_a_backtest_compares_with_simple_ways_in_the_same_scores():
    """A linear forecaster is as good as least squares, and better than the last value."""
    found = linear_forecaster(num_paths=400, standardise=True).backtest(
        autoregression(260), horizon=3, num_origins=20, step=6, refit=False
    )
    ways = list(found.scores["crps"])
    assert ways == ["forecaster", "naive", "linear autoregression"]
    assert found.scores["crps"]["naive"].shape == (20, 3)
    gap = found.scores["crps"]["forecaster"] - found.scores["crps"]["linear autoregression"]
    assert abs(gap.mean()) < 0.1
    assert found.mean("crps") < found.mean("crps", "naive")
    assert 0.7 < found.mean("coverage") <= 1
    assert "linear autoregression" in str(found)


@pytest.mark.parametrize(
    ("options", "y", "says"),
    [
        ({"lags": 0}, np.ones(9), "lags must be a number >= 1 or several of them, got 0"),
        ({"network": "tcn"}, np.ones(9), "network must be one of mlp, gru, lstm, got 'tcn'"),
        ({"network": "gru", "direct": 2}, np.ones(9), "direct must be None for network='gru'"),
        ({"difference": -1}, np.ones(9), "difference must be an int >= 0, got -1"),
        ({"lags": 20}, np.arange(9.0), "y must have more than 21 steps"),
        ({}, np.array([1.0, np.inf]), "y has infinite values, the first in step 1"),
        ({}, np.ones((3, 2)), r"y must be one series \(n,\), or a list of them, got shape \(3, 2\)"),
        ({"likelihood": mx.likelihoods.Poisson()}, np.ones(9), "likelihood must be one of real numbers"),
    ],
    ids=["lags", "network", "direct", "difference", "short", "infinite", "two-axes", "counts"],
)
def test_what_cannot_be_meant_is_refused(options, y, says):
    with pytest.raises((ValueError, TypeError), match=says):
        BayesianForecaster(**options).fit(y)


def test_a_backtest_of_dated_series_keeps_their_dates():
    dates = pd.date_range("2023-01-01", periods=60)
    ys = [pd.Series(autoregression(60, seed=seed), dates) for seed in (0, 1)]
    forecaster = BayesianForecaster(method=EXACT, hidden=(), lags=2, num_paths=20)
    found = forecaster.backtest(ys, horizon=4, num_origins=1)
    assert found.scores["nll"]["forecaster"].shape == (2, 4)
    assert [str(each.index[0].date()) for each in found.forecasts[0]] == ["2023-02-26"] * 2


def test_a_gap_at_the_end_is_no_break_of_the_trend():
    y = np.arange(80) + 0.1 * np.random.default_rng(0).normal(size=80)
    whole = linear_forecaster(difference=1, num_paths=200, standardise=True).fit(y).predict(1).mean
    y[-4:] = np.nan
    gap = linear_forecaster(difference=1, num_paths=200, standardise=True).fit(y).predict(1).mean
    np.testing.assert_allclose(gap, whole, atol=0.6)


def test_a_constant_column_has_no_unit():
    y, x = autoregression(80), np.full((80, 1), 0.7)
    forecaster = linear_forecaster(num_paths=200).fit(y, x)
    assert np.abs(forecaster.predict(2, np.full((2, 1), 0.8)).mean).max() < 10
    assert Units.of(np.full(50, 0.1), 0, True).factor == 1.0


def test_noise_may_have_several_parts():
    likelihood = mx.likelihoods.MixtureDensity()
    for direct in (None, 2):
        forecaster = BayesianForecaster(
            method=mx.infer.MAP(num_epochs=20), hidden=(4,), lags=2, likelihood=likelihood, direct=direct, num_paths=20
        ).fit(autoregression(60))
        forecast = forecaster.predict(2)
        assert np.isfinite(forecast.log_prob(np.zeros(2))).all()
        assert np.isfinite(forecast.paths).all()


def test_one_column_may_be_a_vector_beside_another_history():
    y, x = autoregression(60), np.arange(62.0) % 7
    forecaster = linear_forecaster(num_paths=20).fit(y, x[:60])
    np.testing.assert_array_equal(forecaster.predict(2, x[60:]).paths, forecaster.predict(2, x, y=y).paths)


def test_days_of_work_with_holidays_of_ones_own():
    days = pd.date_range("2024-01-01", periods=60, freq=pd.offsets.CustomBusinessDay(holidays=["2024-02-05"]))
    forecast = linear_forecaster(num_paths=20).fit(pd.Series(autoregression(60), index=days)).predict(2)
    assert forecast.index[0] > days[-1]


# ---- files


@pytest.mark.parametrize("dated", [None, "MS", "zone"])
def test_a_forecaster_that_is_read_again_says_the_same(tmp_path, dated):
    y = autoregression(60)
    x = np.arange(60.0)[:, None] % 7
    if dated is not None:
        when = pd.date_range("2001-01-01", periods=60, freq="MS" if dated == "MS" else "D")
        y = pd.Series(y, index=when if dated == "MS" else when.tz_localize("Europe/Berlin"))
    ahead = np.arange(60.0, 63)[:, None] % 7
    forecaster = linear_forecaster(lags=(1, 3), season=12, num_paths=50).fit(y, x)
    forecaster.save(tmp_path / "saved")
    again = BayesianForecaster.load(tmp_path / "saved")
    first, second = (each.predict(3, ahead) for each in (forecaster, again))
    np.testing.assert_array_equal(first.paths, second.paths)
    assert (first.index is None) == (dated is None)
    if dated is not None:
        pd.testing.assert_index_equal(first.index, second.index)
    assert again.get_params()["lags"] == (1, 3)


def test_several_series_with_gaps_are_read_again(tmp_path):
    ys = [np.where(np.arange(50) == 20, np.nan, autoregression(50, seed=seed)) for seed in (0, 1)]
    forecaster = linear_forecaster(num_paths=20, difference=1).fit(ys)
    forecaster.save(tmp_path / "saved")
    for first, second in zip(
        forecaster.predict(2), BayesianForecaster.load(tmp_path / "saved").predict(2), strict=True
    ):
        np.testing.assert_array_equal(first.paths, second.paths)


def test_forged_files_of_forecasters_are_refused(tmp_path):
    forecaster = linear_forecaster(num_paths=20).fit(autoregression(50))
    forecaster.units_ = forecaster.units_ * 2
    forecaster.save(tmp_path / "other lengths")
    with pytest.raises(FileError, match="other numbers of columns_"):
        BayesianForecaster.load(tmp_path / "other lengths")
    forecaster.units_ = "units"
    forecaster.save(tmp_path / "other types")
    with pytest.raises(FileError, match="units_"):
        BayesianForecaster.load(tmp_path / "other types")
