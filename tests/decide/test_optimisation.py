"""Expected improvement against quadrature, Monte Carlo, and its limits."""

import numpy as np
import pytest
from scipy import integrate, stats

from marginax.decide import expected_improvement


@pytest.mark.parametrize("best", [-1.3, 0.0, 2.0])
@pytest.mark.parametrize(("mean", "std"), [(0.4, 0.7), (-2.0, 1.5), (3.0, 0.2)])
def test_it_is_the_mean_of_what_exceeds_the_best(mean, std, best):
    law = stats.norm(mean, std)
    truth, _ = integrate.quad(lambda y: (y - best) * law.pdf(y), best, max(best, mean) + 12 * std, epsabs=1e-13)
    found = expected_improvement(np.array([mean]), np.array([std]), best)
    np.testing.assert_allclose(found, truth, rtol=1e-7, atol=1e-12)


def test_it_agrees_with_draws():
    rng = np.random.default_rng(0)
    mean, std = rng.normal(size=6), rng.uniform(0.2, 2, size=6)
    gains = np.maximum(mean + std * rng.normal(size=(200_000, 6)) - 0.5, 0)
    z = (gains.mean(0) - expected_improvement(mean, std, 0.5)) / (gains.std(0) / np.sqrt(len(gains)))
    assert np.abs(z).max() < 4.9


@pytest.mark.parametrize("u", [-6.0, -15.0, -30.0])
def test_far_below_the_best_it_keeps_its_digits(u):
    """There both terms of the formula nearly cancel; their difference is the integral of the tail."""
    weights, nodes = np.polynomial.laguerre.laggauss(60)[::-1]
    # t exp(-(|u| + t)^2 / 2) with t = s / |u|
    t = nodes / -u
    truth = np.sum(weights * t * np.exp(-(t**2) / 2)) / -u * stats.norm.pdf(u)
    np.testing.assert_allclose(expected_improvement(np.array([u]), np.array([1.0]), 0.0), truth, rtol=1e-10)


def test_what_is_known_improves_by_its_gain_or_not_at_all():
    found = expected_improvement(np.array([3.0, 1.0, -1e300]), np.array([0.0, 0.0, 1e-300]), 2.0)
    np.testing.assert_array_equal(found, [1.0, 0.0, 0.0])
    near = expected_improvement(np.array([3.0, 1.0]), np.array([1e-9, 1e-9]), 2.0)
    np.testing.assert_allclose(near, [1.0, 0.0], atol=1e-12)


@pytest.mark.parametrize(
    ("mean", "std", "best", "words"),
    [
        ([0.0, 1.0], [1.0], 0.0, r"std must have the shape of mean, \(2,\), got \(1,\)"),
        ([0.0], [-1.0], 0.0, "std must be >= 0, got -1.0"),
        ([0.0], [1.0], np.inf, "best must be finite, got inf"),
        ([np.nan], [1.0], 0.0, "mean has 1 values that are NaN"),
    ],
    ids=["shape", "negative", "best", "nan"],
)
@pytest.mark.usefixtures("as_users_run")
def test_arguments_that_cannot_be_meant_are_refused(mean, std, best, words):
    with pytest.raises(ValueError, match=words):
        expected_improvement(np.array(mean), np.array(std), best)
