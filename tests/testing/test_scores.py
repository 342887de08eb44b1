"""Scores are standard normal when the method is right, and large when it is not."""

import numpy as np
import pytest

from marginax.testing import assert_moments_match, z_scores

COVARIANCE = np.array([[1.0, 0.6], [0.6, 2.0]])
ROOT = np.linalg.cholesky(COVARIANCE)
MEAN = np.array([3.0, -1.0])


def autoregressive(rng, coefficient, chains=4, draws=4000):
    """Draws with the moments above and this correlation in time."""
    noise = np.sqrt(1 - coefficient**2) * rng.normal(size=(chains, draws, 2))
    values = np.empty_like(noise)
    values[:, 0] = rng.normal(size=(chains, 2))
    for t in range(1, draws):
        values[:, t] = coefficient * values[:, t - 1] + noise[:, t]
    return MEAN + values @ ROOT.T


@pytest.mark.parametrize("coefficient", [0.0, 0.9, -0.5])
def test_scores_are_about_standard_normal(coefficient):
    rng = np.random.default_rng(0)
    all_scores = []
    for _ in range(30):
        scores = z_scores(autoregressive(rng, coefficient, draws=1000), MEAN, COVARIANCE)
        all_scores += [*scores.mean, *scores.second[np.triu_indices(2)]]
    assert np.abs(all_scores).max() < 4.9
    assert 0.8 < np.std(all_scores) < 1.25


def test_wrong_mean_is_found():
    draws = autoregressive(np.random.default_rng(1), 0.5)
    with pytest.raises(AssertionError, match=r"mean\[1\] is -1\.\d+, should be -0\.8"):
        assert_moments_match(draws, MEAN + np.array([0.0, 0.2]), COVARIANCE)


def test_wrong_correlation_alone_is_found():
    draws = autoregressive(np.random.default_rng(2), 0.5)
    wrong = COVARIANCE - np.array([[0.0, 0.15], [0.15, 0.0]])
    with pytest.raises(AssertionError, match=r"1 moments .*\n.*covariance\[0, 1\]"):
        assert_moments_match(draws, MEAN, wrong)
    assert_moments_match(draws, MEAN, np.diag(wrong))  # variances alone are right


def test_draws_that_never_move_are_found():
    still = np.broadcast_to(MEAN, (4, 100, 2))
    assert z_scores(still, MEAN, COVARIANCE).worst == np.inf
    with pytest.raises(AssertionError):
        assert_moments_match(still, MEAN, COVARIANCE)


def test_draws_that_are_not_finite_are_found():
    draws = autoregressive(np.random.default_rng(3), 0.0, draws=100)
    draws[2, 5, 0] = np.nan
    with pytest.raises(AssertionError, match="1 of 800 values of draws are not finite"):
        z_scores(draws, MEAN, COVARIANCE)


def test_too_few_effective_draws_are_found():
    draws = autoregressive(np.random.default_rng(4), 0.9, draws=500)
    with pytest.raises(AssertionError, match=r"effective sample size .* is below the 1500"):
        assert_moments_match(draws, MEAN, COVARIANCE, min_ess=1500.0)


def test_one_draw_per_chain_is_independent():
    draws = np.random.default_rng(5).normal(size=(500, 1, 2)) @ ROOT.T + MEAN
    assert z_scores(draws, MEAN, COVARIANCE).ess == 500


def test_shape_is_checked():
    with pytest.raises(ValueError, match="draws must have axes"):
        z_scores(np.zeros((10, 2)), MEAN, COVARIANCE)
