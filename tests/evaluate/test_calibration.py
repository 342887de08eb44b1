"""Calibration errors against loops over bins and levels; PIT values against SciPy and the uniform distribution."""

import itertools

import numpy as np
import pytest
import scipy.stats as st
from tests.evaluate.laws import predict_classes, predict_law, some_classes, some_params, some_weights

from marginax.evaluate import (
    AbsoluteGap,
    EqualMass,
    EqualWidth,
    SquaredGap,
    classwise_ece,
    ece,
    pit,
    regression_calibration_error,
)
from marginax.model import distributions as dist


def loop_ece(probs, happened, edges):
    """The definition, bin by bin: (a, b]."""
    total = 0.0
    for low, high in itertools.pairwise(edges):
        inside = (probs > low) & (probs <= high)
        if inside.any():
            total += inside.mean() * abs(happened[inside].mean() - probs[inside].mean())
    return total


@pytest.mark.parametrize("num_classes", [2, 5])
@pytest.mark.parametrize("num_bins", [1, 10, 15])
def test_equal_widths_match_a_loop(num_classes, num_bins):
    probs, y = some_classes(300, num_classes, sharpness=2.0)
    edges = np.linspace(0, 1, num_bins + 1)
    edges[0] = -1
    exact = loop_ece(probs.max(axis=1), probs.argmax(axis=1) == y, edges)
    bins = EqualWidth(num_bins)
    np.testing.assert_allclose(float(ece(probs, y, bins=bins)), exact, rtol=1e-12)
    np.testing.assert_allclose(float(ece(predict_classes(probs), y, bins=bins)), exact, rtol=1e-10)
    classes = [1] if num_classes == 2 else range(num_classes)
    exact = np.mean([loop_ece(probs[:, k], y == k, edges) for k in classes])
    np.testing.assert_allclose(float(classwise_ece(probs, y, bins=bins)), exact, rtol=1e-12)


@pytest.mark.parametrize("num_bins", [1, 4, 5])
def test_a_forecast_on_an_edge_is_in_the_bin_below(num_bins):
    edges = np.arange(1, num_bins + 1) / num_bins
    assert EqualWidth(num_bins).assign(np.r_[0.0, edges]).tolist() == [0, *range(num_bins)]
    assert EqualWidth(num_bins).assign(np.nextafter(edges[:-1], 1)).tolist() == list(range(1, num_bins))
    probs, y = np.array([0.5, 0.5, 0.75, 0.75, 0.6, 0.9]), np.array([1, 0, 1, 0, 1, 1])
    exact = loop_ece(probs, y == 1, np.r_[-1, edges])
    assert abs(float(ece(np.c_[1 - probs, probs], y, bins=EqualWidth(num_bins))) - exact) < 1e-12


def test_quantiles_are_edges_of_bins_of_equal_mass_and_belong_to_the_bin_below():
    probs = np.array([0.1, 0.2, 0.3, 0.4, 0.5])  # quartiles are forecasts themselves
    assert EqualMass(4).assign(probs).tolist() == [0, 0, 1, 2, 3]


def test_equal_masses_match_a_loop_over_sorted_forecasts():
    probs, y = some_classes(300, 4, sharpness=2.0)
    top, correct = probs.max(axis=1), probs.argmax(axis=1) == y
    order = np.argsort(top)
    exact = np.mean([abs(correct[part].mean() - top[part].mean()) for part in np.split(order, 10)])
    np.testing.assert_allclose(float(ece(probs, y, bins=EqualMass(10))), exact, rtol=1e-12)


def test_equal_forecasts_share_a_bin_of_equal_mass():
    probs = np.repeat([0.6, 0.9], [90, 10])
    assert len(np.unique(EqualMass(10).assign(probs)[:90])) == 1


@pytest.mark.parametrize("score", [ece, classwise_ece])
def test_the_error_is_that_of_leaving_rows_out(score):
    probs, y = some_classes(40, 3, sharpness=2.0)
    without = np.array([float(score(np.delete(probs, i, 0), np.delete(y, i))) for i in range(40)])
    exact = np.sqrt(39 / 40 * np.sum((without - without.mean()) ** 2))
    np.testing.assert_allclose(score(probs, y).standard_error, exact, rtol=1e-10)


@pytest.mark.parametrize("score", [ece, classwise_ece, lambda p, y: ece(p, y, bins=EqualMass(10))])
def test_standard_errors_match_the_spread_over_data_sets(score):
    """Of overconfident predictions; over 400 data sets the spread is known to 3.5%, bins and kinks cost some more."""
    found = [score(*some_classes(600, 3, seed=seed, sharpness=3.0)) for seed in range(400)]
    spread = np.std([float(each) for each in found], ddof=1)
    error = np.sqrt(np.mean([each.standard_error**2 for each in found]))
    assert abs(error / spread - 1) < 0.2


def test_calibrated_probabilities_have_a_smaller_error_than_overconfident_ones():
    right, wrong = (ece(*some_classes(5000, 4, sharpness=s)) for s in (1.0, 2.0))
    assert right < 0.02
    assert wrong > 0.1


def test_pit_is_the_distribution_function_at_the_target():
    loc, scale = some_params(12, 50, num_outputs=2)
    log_weights, w = some_weights(12)
    prediction = predict_law(dist.Laplace, loc, scale, log_weights=log_weights, several=True)
    y = np.random.default_rng(3).normal(size=(50, 2))
    exact = np.einsum("s,snd->nd", w, st.laplace.cdf(y, loc.astype(float), scale.astype(float)))
    np.testing.assert_allclose(pit(prediction, y), exact, rtol=1e-6)
    mean, std = loc[0].astype(float), scale[0].astype(float)
    np.testing.assert_allclose(pit((mean, std), y), st.norm.cdf(y, mean, std), rtol=1e-12)


def test_pit_of_counts_is_uniform_with_a_key_and_the_middle_without():
    rng = np.random.default_rng(0)
    rate = rng.uniform(0.2, 1.5, size=(1, 2000, 1)).astype(np.float32)
    y = rng.poisson(rate[0, :, 0])
    prediction = predict_law(dist.Poisson, rate)
    upper, lower = (st.poisson.cdf(y - k, rate[0, :, 0].astype(float)) for k in (0, 1))
    np.testing.assert_allclose(pit(prediction, y), (lower + upper) / 2, rtol=1e-6)
    drawn = pit(prediction, y, key=0)
    assert ((lower <= drawn + 1e-7) & (drawn <= upper + 1e-7)).all()
    assert st.kstest(drawn, "uniform").pvalue > 1e-3
    assert st.kstest(pit(prediction, y), "uniform").pvalue < 1e-6


def test_pit_of_samples_counts_those_below_and_half_of_those_equal():
    samples = np.array([[0.0], [1.0], [1.0], [4.0]])
    assert pit(samples, [1.0]).tolist() == [0.5]
    assert pit(samples, [2.0]).tolist() == [0.75]


@pytest.mark.parametrize("gap", [AbsoluteGap(), SquaredGap()], ids=repr)
def test_regression_calibration_error_matches_a_loop_over_levels(gap):
    rng = np.random.default_rng(1)
    mean, std, y = rng.normal(size=70), rng.uniform(0.5, 2, 70), 2 * rng.normal(size=70)
    levels = [0.1, 0.25, 0.5, 0.9]
    gaps = [np.mean(y <= st.norm.ppf(level, mean, std)) - level for level in levels]
    exact = np.mean(np.abs(gaps) if gap == AbsoluteGap() else np.square(gaps))
    score = regression_calibration_error((mean, std), y, levels=levels, gap=gap)
    np.testing.assert_allclose(float(score), exact, rtol=1e-12)
    without = [
        float(
            regression_calibration_error(tuple(np.delete((mean, std), i, 1)), np.delete(y, i), levels=levels, gap=gap)
        )
        for i in range(70)
    ]
    exact = np.sqrt(69 / 70 * np.sum((without - np.mean(without)) ** 2))
    np.testing.assert_allclose(score.standard_error, exact, rtol=1e-10)


def test_error_of_regression_calibration_matches_the_spread_over_data_sets():
    rng = np.random.default_rng(0)
    forecast = np.zeros(200), np.ones(200)
    found = [regression_calibration_error(forecast, 0.4 + 1.5 * rng.normal(size=200)) for _ in range(400)]
    spread = np.std([float(each) for each in found], ddof=1)
    error = np.sqrt(np.mean([each.standard_error**2 for each in found]))
    assert abs(error / spread - 1) < 0.2


def test_regression_calibration_error_is_near_zero_for_the_true_distribution():
    y = np.random.default_rng(0).normal(size=10_000)
    assert regression_calibration_error((np.zeros(10_000), np.ones(10_000)), y) < 0.01
    assert regression_calibration_error((np.zeros(10_000), np.full(10_000, 2.0)), y) > 0.1


def test_outputs_of_a_row_are_left_out_together():
    rng = np.random.default_rng(2)
    mean, std, y = np.zeros((30, 2)), np.ones((30, 2)), rng.normal(size=(30, 2))
    score = regression_calibration_error((mean, std), y)
    flat = regression_calibration_error((mean.ravel(), std.ravel()), y.ravel())
    np.testing.assert_allclose(float(score), float(flat), rtol=1e-12)
    twice = regression_calibration_error((np.zeros((30, 2)), np.ones((30, 2))), np.repeat(y[:, :1], 2, axis=1))
    once = regression_calibration_error((np.zeros(30), np.ones(30)), y[:, 0])
    np.testing.assert_allclose(twice.standard_error, once.standard_error, rtol=1e-12)
    assert (score.num, flat.num) == (30, 60)
