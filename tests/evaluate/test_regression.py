"""Scores of numbers against scikit-learn, SciPy and formulas, for predictions and plain arrays."""

import numpy as np
import pytest
import scipy.stats as st
from sklearn import metrics
from tests.evaluate.laws import predict_law, some_params, some_weights

from marginax.data.scaling import Scaling
from marginax.evaluate import (
    coverage,
    interval_score,
    log_predictive_density,
    mae,
    nll,
    pinball,
    rmse,
    sharpness,
)
from marginax.model import distributions as dist

N = 60


def _normal(seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=N), rng.uniform(0.5, 2, size=N), rng.normal(size=N) * 2


@pytest.mark.parametrize("seed", range(3))
def test_scores_of_a_normal_match_scikit_learn_and_scipy(seed):
    mean, std, y = _normal(seed)
    law, forecast = st.norm(mean, std), (mean, std)
    np.testing.assert_allclose(float(rmse(forecast, y)), metrics.root_mean_squared_error(y, mean), rtol=1e-12)
    np.testing.assert_allclose(float(mae(forecast, y)), metrics.mean_absolute_error(y, mean), rtol=1e-12)
    for q in (0.05, 0.5, 0.8):
        exact = metrics.mean_pinball_loss(y, law.ppf(q), alpha=q)
        np.testing.assert_allclose(float(pinball(forecast, y, q)), exact, rtol=1e-12)
    np.testing.assert_allclose(float(nll(forecast, y)), -law.logpdf(y).mean(), rtol=1e-12)
    np.testing.assert_allclose(float(log_predictive_density(forecast, y)), law.logpdf(y).mean(), rtol=1e-12)
    lower, upper = law.ppf(0.1), law.ppf(0.9)
    assert float(coverage(forecast, y, 0.8)) == np.mean((lower < y) & (y < upper))
    penalty = np.where(y < lower, lower - y, np.where(y > upper, y - upper, 0))
    exact = np.mean(upper - lower + 2 / 0.2 * penalty)
    np.testing.assert_allclose(float(interval_score(forecast, y, 0.8)), exact, rtol=1e-12)
    np.testing.assert_allclose(float(sharpness(forecast)), std.mean(), rtol=1e-12)
    np.testing.assert_allclose(float(sharpness(forecast, level=0.8)), (upper - lower).mean(), rtol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_scores_of_samples_are_those_of_their_mean_median_and_quantiles(seed):
    rng = np.random.default_rng(seed)
    samples, y = rng.normal(size=(41, N)), rng.normal(size=N)
    np.testing.assert_allclose(float(rmse(samples, y)), metrics.root_mean_squared_error(y, samples.mean(0)), rtol=1e-12)
    np.testing.assert_allclose(
        float(mae(samples, y)), metrics.mean_absolute_error(y, np.median(samples, 0)), rtol=1e-12
    )
    exact = metrics.mean_pinball_loss(y, np.quantile(samples, 0.9, axis=0), alpha=0.9)
    np.testing.assert_allclose(float(pinball(samples, y, 0.9)), exact, rtol=1e-12)
    np.testing.assert_allclose(float(sharpness(samples)), samples.std(axis=0, ddof=1).mean(), rtol=1e-12)
    low, high = np.quantile(samples, [0.25, 0.75], axis=0)
    assert float(coverage(samples, y, 0.5)) == np.mean((low <= y) & (y <= high))


def test_scores_of_a_prediction_are_those_of_its_mixture_in_the_units_of_the_data():
    loc, scale = some_params(20, N)
    log_weights, w = some_weights(20)
    scaling = Scaling(np.zeros(1), np.ones(1), np.array(3.0), np.array(2.0))
    prediction = predict_law(dist.Normal, loc, scale, log_weights=log_weights, scaling=scaling)
    loc, scale = 3 + 2 * loc[..., 0].astype(float), 2 * scale[..., 0].astype(float)
    y = 3 + 4 * np.random.default_rng(5).normal(size=N)
    np.testing.assert_allclose(float(nll(prediction, y)), -np.log(w @ st.norm.pdf(y, loc, scale)).mean(), rtol=1e-6)
    np.testing.assert_allclose(float(rmse(prediction, y)), metrics.root_mean_squared_error(y, w @ loc), rtol=1e-6)
    variance = w @ (scale**2 + loc**2) - (w @ loc) ** 2
    np.testing.assert_allclose(float(sharpness(prediction)), np.sqrt(variance).mean(), rtol=1e-6)
    below = w @ st.norm.cdf(y, loc, scale)
    assert float(coverage(prediction, y, 0.6)) == np.mean((below > 0.2) & (below < 0.8))
    lower, upper = prediction.interval(0.6)
    exact = np.mean(upper - lower + 5 * np.maximum(lower - y, 0) + 5 * np.maximum(y - upper, 0))
    np.testing.assert_allclose(float(interval_score(prediction, y, 0.6)), exact, rtol=1e-9)
    np.testing.assert_allclose(
        float(mae(prediction, y)), metrics.mean_absolute_error(y, prediction.quantile(0.5)), rtol=1e-9
    )


def test_outputs_of_a_row_are_averaged_and_joint_in_the_density():
    loc, scale = some_params(1, N, num_outputs=3)
    prediction = predict_law(dist.Normal, loc, scale, several=True)
    pair = tuple(part[0].astype(float) for part in (loc, scale))
    y = np.random.default_rng(2).normal(size=(N, 3))
    for score in (rmse, mae, nll, coverage, interval_score):
        ours, plain = score(prediction, y), score(pair, y)
        np.testing.assert_allclose(float(ours), float(plain), rtol=1e-6)
        np.testing.assert_allclose(ours.standard_error, plain.standard_error, rtol=1e-5)
        assert ours.num == N
    np.testing.assert_allclose(float(nll(pair, y)), -st.norm.logpdf(y, *pair).sum(axis=1).mean(), rtol=1e-12)
    by_row = ((y - pair[0]) ** 2).mean(axis=1)
    np.testing.assert_allclose(float(rmse(pair, y)), np.sqrt(by_row.mean()), rtol=1e-12)
    error = by_row.std(ddof=1) / np.sqrt(N) / (2 * np.sqrt(by_row.mean()))
    np.testing.assert_allclose(rmse(pair, y).standard_error, error, rtol=1e-12)


def test_counts_are_covered_with_the_ends_of_their_interval():
    rate = np.full((1, N, 1), 4.0, np.float32)
    prediction = predict_law(dist.Poisson, rate)
    y = np.random.default_rng(0).poisson(4.0, size=N)
    low, high = st.poisson.ppf([0.1, 0.9], 4.0)
    assert float(coverage(prediction, y, 0.8)) == np.mean((y >= low) & (y <= high))
    np.testing.assert_allclose(float(nll(prediction, y)), -st.poisson.logpmf(y, 4.0).mean(), rtol=1e-7)


@pytest.mark.parametrize(
    "score", [rmse, mae, nll, coverage, interval_score, lambda p, y: pinball(p, y, 0.8)], ids=lambda s: s.__name__
)
def test_standard_errors_match_the_spread_over_data_sets(score):
    """Over 400 data sets the spread of a score is known to 3.5%; the errors have to be right to four times that."""
    rng = np.random.default_rng(0)
    forecast = np.zeros(80), np.ones(80)
    found = [score(forecast, 1.3 * rng.standard_t(8, size=80)) for _ in range(400)]
    spread = np.std([float(each) for each in found], ddof=1)
    error = np.sqrt(np.mean([each.standard_error**2 for each in found]))
    assert abs(error / spread - 1) < 0.14


def test_a_perfect_prediction_has_no_error():
    y = np.arange(5.0)
    assert str(rmse((y, np.ones(5)), y)) == "0.000 ± 0.000 (n=5)"
