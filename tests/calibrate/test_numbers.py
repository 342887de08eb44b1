"""Calibrators of numbers: closed forms, simulated miscalibration, and what the results offer."""

import numpy as np
import pytest
import scipy.optimize as opt
import scipy.stats as st
from tests.evaluate.laws import predict_law, some_params, some_weights

import marginax as mx
from marginax.calibrate import Calibrated, QuantileRecalibration, VarianceScaling, recalibrate
from marginax.data.scaling import Scaling
from marginax.evaluate import coverage, crps, nll, pit, rmse, scores
from marginax.files import decode, encode
from marginax.model import distributions as dist


def normal_rows(num, *, seed=0, wrong=2.0):
    """Means and standard deviations, and targets whose spread is `wrong` times as large."""
    rng = np.random.default_rng(seed)
    mean, std = rng.normal(size=num), np.exp(0.3 * rng.normal(size=num))
    return mean, std, mean + wrong * std * rng.normal(size=num)


def as_law(mean, std, **options):
    return predict_law(dist.Normal, *(part.astype(np.float32)[None, :, None] for part in (mean, std)), **options)


def test_the_factor_of_a_normal_is_the_root_mean_square():
    mean, std, y = normal_rows(200)
    exact = np.sqrt(np.mean(((y - mean) / std) ** 2))
    np.testing.assert_allclose(recalibrate((mean, std), y, VarianceScaling()).factor, exact, rtol=1e-12)
    np.testing.assert_allclose(recalibrate(as_law(mean, std), y, VarianceScaling()).factor, exact, rtol=1e-5)
    samples = np.random.default_rng(1).normal(mean, std, size=(4000, 200))
    np.testing.assert_allclose(recalibrate(samples, y, VarianceScaling()).factor, exact, rtol=0.05)


@pytest.mark.parametrize("family", [dist.Normal, dist.Laplace])
def test_the_factor_of_a_mixture_maximises_the_likelihood(family):
    loc, scale = some_params(7, 60)
    prediction = predict_law(family, loc, scale, log_weights=some_weights(7)[0])
    y = 3 * np.random.default_rng(0).normal(size=60)
    calibrator = recalibrate(prediction, y, VarianceScaling())
    mean = prediction.mean

    def loss(t):
        return t - np.mean(prediction.log_prob(mean + (y - mean) / np.exp(t)))

    best = opt.minimize_scalar(loss, bracket=(np.log(calibrator.factor) - 0.5, np.log(calibrator.factor) + 0.5))
    np.testing.assert_allclose(np.log(calibrator.factor), best.x, atol=1e-4)
    np.testing.assert_allclose(float(nll(calibrator(prediction), y)), best.fun, rtol=1e-6)


@pytest.mark.parametrize("scaling", [None, Scaling(np.zeros(1), np.ones(1), np.array(3.0), np.array(2.0))])
def test_a_scaled_prediction_is_wider_around_its_mean(scaling):
    loc, scale = some_params(7, 30)
    prediction = predict_law(dist.Normal, loc, scale, scaling=scaling)
    new = mx.calibrate.VarianceScaling(1.7)(prediction)
    assert type(new) is type(prediction)
    np.testing.assert_allclose(new.mean, prediction.mean, atol=1e-5)
    np.testing.assert_allclose(new.std, 1.7 * prediction.std, rtol=1e-5)
    np.testing.assert_allclose(new.epistemic, 1.7**2 * prediction.epistemic, rtol=1e-4)
    np.testing.assert_allclose(new.aleatoric, 1.7**2 * prediction.aleatoric, rtol=1e-4)
    for q in (0.05, 0.5, 0.9):
        expected = prediction.mean + 1.7 * (prediction.quantile(q) - prediction.mean)
        np.testing.assert_allclose(new.quantile(q), expected, atol=1e-4)
    y = prediction.mean + 0.3
    np.testing.assert_allclose(new.log_prob(y), prediction.log_prob(y - 0.3 + 0.3 / 1.7) - np.log(1.7), atol=1e-4)
    np.testing.assert_allclose(new[3:6].mean, new.mean[3:6])
    assert new.sample(3, key=0).shape == (3, 30)


def test_scale_is_shared_by_rows_or_not():
    """Components whose scale has no axis of rows keep working."""
    loc, _ = some_params(4, 20)
    model = mx.Model(mx.nets.MLP(1, (), 1, key=0), likelihood=mx.likelihoods.Gaussian(scale=0.5))
    import jax

    params = jax.tree.map(lambda leaf: loc[0, 0, 0] + np.ones((1, 3, *leaf.shape), np.float32), model.initial(1))
    spec = mx.data.DataSpec(x_shape=(1,), y_shape=(), num_examples=20)
    posterior = mx.posterior.Draws(model, params, spec=spec)
    x = np.linspace(-1, 1, 20)[:, None]
    y = posterior.predict(x).mean + np.random.default_rng(0).normal(size=20)
    calibrator = recalibrate(posterior, (x, y), VarianceScaling())
    new = Calibrated(posterior, calibrator).predict(x)
    np.testing.assert_allclose(new.std, calibrator.factor * posterior.predict(x).std, rtol=1e-5)


def test_variance_scaling_restores_coverage():
    mean, std, y = normal_rows(4000, wrong=2.5)
    calibrator = recalibrate((mean, std), y, VarianceScaling())
    mean, std, y = normal_rows(4000, wrong=2.5, seed=1)
    assert float(coverage((mean, std), y)) < 0.6
    after = coverage(calibrator((mean, std)), y)
    assert abs(float(after) - 0.9) < 4.9 * np.sqrt(0.09 / 4000) + 0.01


def skewed(num, seed):
    """Normal predictions of targets that are skewed, and too wide."""
    rng = np.random.default_rng(seed)
    mean, std = rng.normal(size=num), np.exp(0.3 * rng.normal(size=num))
    return mean, std, mean + std * 0.6 * (rng.gamma(2.0, size=num) - 1.2)


@pytest.mark.slow
@pytest.mark.parametrize("as_prediction", [False, True])
def test_quantile_recalibration_makes_pit_uniform(as_prediction):
    mean, std, y = skewed(4000, seed=0)
    calibrator = recalibrate((mean, std), y, QuantileRecalibration())
    mean, std, y = skewed(2000, seed=1)
    prediction = as_law(mean, std) if as_prediction else (mean, std)
    assert st.kstest(pit(prediction, y), "uniform").pvalue < 1e-10
    after = calibrator(prediction)
    # the map has an error of its own, from 4000 rows: sup |R - R_hat| below 1.95 / sqrt(4000) with probability 0.999
    assert st.kstest(pit(after, y), "uniform").statistic < 1.95 * (1 / np.sqrt(2000) + 1 / np.sqrt(4000))
    assert nll(after, y) < nll(prediction, y)
    assert crps(after[:50], y[:50]) < crps((mean[:50], std[:50]), y[:50])


@pytest.fixture(scope="module")
def recalibrated():
    mean, std, y = skewed(2000, seed=0)
    return recalibrate((mean, std), y, QuantileRecalibration())(as_law(mean[:8], std[:8]))


def test_quantiles_invert_the_distribution_function(recalibrated):
    for q in (0.001, 0.03, 0.25, 0.5, 0.77, 0.99):
        np.testing.assert_allclose(recalibrated.cdf(recalibrated.quantile(q)), q, rtol=1e-5)
    lower, upper = recalibrated.interval(0.8)
    assert np.array_equal(np.stack([lower, upper]), recalibrated.quantile([0.1, 0.9]))
    levels = np.linspace(0.1, 0.8, 8)
    base = recalibrated.prediction
    np.testing.assert_allclose(base.cdf(base.quantile_by_row(levels)), levels, rtol=1e-6)


@pytest.mark.slow
def test_moments_density_and_samples_agree(recalibrated):
    grid = np.linspace(-12, 12, 40_001)
    one = recalibrated[2:3]
    mean, std = float(one.prediction.mean[0]), float(one.prediction.std[0])
    exact = recalibrated.recalibrate(st.norm.cdf(grid, mean, std))
    middle, mass = 0.5 * (grid[1:] + grid[:-1]), np.diff(exact)
    np.testing.assert_allclose(one.mean[0], middle @ mass, atol=1e-4)
    np.testing.assert_allclose(one.std[0], np.sqrt((middle - middle @ mass) ** 2 @ mass), rtol=1e-3)
    at = np.array([-1.0, 0.1, 1.3]) + mean
    step = 1e-4
    density = [(one.cdf(np.array([y + step])) - one.cdf(np.array([y - step])))[0] / (2 * step) for y in at]
    np.testing.assert_allclose([one.log_prob(np.array([y]))[0] for y in at], np.log(density), atol=1e-3)
    draws = recalibrated.sample(400, key=0)
    assert draws.shape == (400, 8)
    z = (draws.mean(axis=0) - recalibrated.mean) / (recalibrated.std / np.sqrt(400))
    assert np.abs(z).max() < 4.9
    assert st.kstest(recalibrated.recalibrate(st.norm.cdf(draws[:, 2], mean, std)), "uniform").pvalue > 1e-4


def test_recalibrated_predictions_are_scored_like_others(recalibrated):
    y = np.asarray(recalibrated.quantile(0.4))
    table = scores(recalibrated, y)
    assert not table.left_out
    levels = (np.arange(200) + 0.5) / 200
    quantiles = recalibrated.quantile(levels)
    exact = 2 * np.mean((levels[:, None] - (y < quantiles)) * (y - quantiles), axis=0)  # the mean pinball loss, twice
    np.testing.assert_allclose(float(table["crps"]), exact.mean(), rtol=2e-3)
    assert float(table["rmse"]) == float(rmse(recalibrated, y))


@pytest.mark.parametrize(
    "method", [VarianceScaling(), QuantileRecalibration(num_knots=7)], ids=lambda m: type(m).__name__
)
def test_calibrators_are_saved(method):
    mean, std, y = skewed(100, seed=0)
    calibrator = recalibrate((mean, std), y, method)
    again = decode(*encode(calibrator))
    assert np.array_equal(pit(again((mean, std)), y), pit(calibrator((mean, std)), y))


def test_bad_input_is_refused(as_users_run):
    mean, std, y = normal_rows(10)
    counts = predict_law(dist.Poisson, np.ones((1, 10, 1), np.float32))
    with pytest.raises(TypeError, match=r"prediction must be a distribution of real numbers for VarianceScaling\(\)"):
        recalibrate(counts, np.ones(10), VarianceScaling())
    with pytest.raises(TypeError, match="real numbers for QuantileRecalibration"):
        recalibrate(counts, np.ones(10), QuantileRecalibration())
    with pytest.raises(TypeError, match="got samples"):
        recalibrate(np.ones((5, 10)), y, QuantileRecalibration())
    with pytest.raises(ValueError, match="prediction must have one output for QuantileRecalibration"):
        recalibrate((np.zeros((10, 2)), np.ones((10, 2))), np.zeros((10, 2)), QuantileRecalibration())
    with pytest.raises(ValueError, match="num_knots must be an int >= 2, got 1"):
        QuantileRecalibration(num_knots=1)
    with pytest.raises(ValueError, match="y must differ from the mean of prediction somewhere"):
        recalibrate((mean, std), mean, VarianceScaling())
    with pytest.raises(TypeError, match="prediction must be one of numbers"):
        recalibrate(predict_law(dist.Bernoulli, np.zeros((1, 10, 1), np.float32)), y, VarianceScaling())
    after = recalibrate((mean, std), y, QuantileRecalibration())((mean, std))
    with pytest.raises(ValueError, match="q must be a number, or a list of numbers"):
        after.quantile(1.0)
    with pytest.raises(TypeError, match="must not be recalibrated already"):
        mx.calibrate.VarianceScaling(2.0)(after)


def test_a_wrong_width_is_put_right_in_the_tails_too():
    y = 1.8 * st.norm.ppf((np.arange(999) + 1) / 1000)
    after = recalibrate((np.zeros(999), np.ones(999)), y, QuantileRecalibration())((np.zeros(5), np.ones(5)))
    exact = st.norm(0, 1.8)
    levels = np.array([1e-4, 0.01, 0.3, 0.99, 0.9999])
    np.testing.assert_allclose(after.quantile(levels)[:, 0], exact.ppf(levels), rtol=1e-6)
    at = exact.ppf(levels)
    np.testing.assert_allclose(after.cdf(at), levels, rtol=1e-5)
    np.testing.assert_allclose(after.log_prob(at), exact.logpdf(at), atol=1e-5)
    np.testing.assert_allclose([after.mean[0], after.std[0]], [0, 1.8], atol=1e-4)


def test_targets_beyond_the_prediction_do_no_harm():
    y = np.r_[np.full(30, 100.0), np.linspace(-1, 1, 70)]
    calibrator = recalibrate((np.zeros(100), np.ones(100)), y, QuantileRecalibration())
    assert (np.diff(calibrator.knots) > 0).all()
    assert (np.diff(calibrator.levels) > 0).all()
    assert np.isfinite(calibrator((np.zeros(3), np.ones(3))).log_prob(np.array([-50.0, 0.0, 100.0]))).all()
    with pytest.raises(ValueError, match=r"y must be in reach of prediction .* use VarianceScaling\(\) first"):
        recalibrate((np.zeros(100), np.ones(100)), np.full(100, 100.0), QuantileRecalibration())


def test_intervals_of_recalibrated_predictions_can_be_conformal(recalibrated):
    y = np.asarray(recalibrated.quantile(0.4))
    for rule in (mx.decide.Normalised(), mx.decide.CQR()):
        lower, upper = mx.decide.conformalise(recalibrated, y, rule).interval(recalibrated, 0.5)
        assert np.mean((lower <= y) & (y <= upper)) >= 0.5
