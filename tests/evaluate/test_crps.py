"""CRPS: closed forms against integration, integration against closed forms, samples against their definition."""

import dataclasses

import numpy as np
import pytest
import scipy.stats as st
from scipy import integrate
from tests.evaluate.laws import predict_law, some_params, some_weights

from marginax.data.scaling import Scaling
from marginax.evaluate import Empirical, Fair, crps
from marginax.evaluate.crps import _by_integration
from marginax.model import distributions as dist

N = 6


def by_quad(cdf, y, low=-200.0, high=200.0):
    """The definition, by SciPy."""
    left = integrate.quad(lambda z: cdf(z) ** 2, low, y, limit=500, epsabs=1e-11)[0]
    return left + integrate.quad(lambda z: (1 - cdf(z)) ** 2, y, high, limit=500, epsabs=1e-11)[0]


def crps_of_normal(mean, std, y):
    """Gneiting & Raftery (2007), equation 20."""
    z = (y - mean) / std
    return std * (z * (2 * st.norm.cdf(z) - 1) + 2 * st.norm.pdf(z) - 1 / np.sqrt(np.pi))


@pytest.mark.parametrize("seed", range(3))
def test_a_pair_has_the_closed_form_of_a_normal(seed):
    rng = np.random.default_rng(seed)
    mean, std, y = rng.normal(size=50), rng.uniform(0.1, 3, 50), 5 * rng.normal(size=50)
    values = crps_of_normal(mean, std, y)
    score = crps((mean, std), y)
    np.testing.assert_allclose(float(score), values.mean(), rtol=1e-12)
    np.testing.assert_allclose(score.standard_error, values.std(ddof=1) / np.sqrt(50), rtol=1e-12)
    one = predict_law(dist.Normal, *(part.astype(np.float32)[None, :, None] for part in (mean, std)))
    np.testing.assert_allclose(float(crps(one, y)), values.mean(), rtol=1e-6)


@pytest.mark.parametrize("num_draws", [1, 2, 5, 40, 41])  # an even number has pairs half way round
def test_a_mixture_of_normals_matches_integration(num_draws):
    loc, scale = some_params(num_draws, N)
    scale = np.maximum(scale, 0.3)
    log_weights, w = some_weights(num_draws)
    prediction = predict_law(dist.Normal, loc, scale, log_weights=log_weights)
    loc, scale = loc[..., 0].astype(float), scale[..., 0].astype(float)
    y = np.array([-8.0, -1.0, 0.0, 0.3, 2.0, 30.0])
    for i in range(N):
        exact = by_quad(lambda z, i=i: w @ st.norm.cdf(z, loc[:, i], scale[:, i]), y[i])
        assert abs(float(crps(prediction[i], y[i : i + 1])) - exact) < 1e-6


def test_the_grid_of_many_draws_is_as_exact_as_the_sum_over_pairs():
    loc, scale = some_params(1000, N)
    loc, scale = 0.3 * loc, np.float32(0.5) + 0.05 * scale
    prediction = predict_law(dist.Normal, loc, scale)
    y = np.linspace(-3, 3, N)
    loc, scale = loc[..., 0].astype(float), scale[..., 0].astype(float)

    def size(mean, std):
        return mean * (2 * st.norm.cdf(mean / std) - 1) + 2 * std * st.norm.pdf(mean / std)

    for i in range(N):
        spread = np.sqrt(scale[:, None, i] ** 2 + scale[None, :, i] ** 2)
        pairs = size(loc[:, None, i] - loc[None, :, i], spread).mean()
        exact = size(y[i] - loc[:, i], scale[:, i]).mean() - 0.5 * pairs
        assert abs(float(crps(prediction[i], y[i : i + 1])) - exact) < 1e-11


@pytest.mark.parametrize("family", ["laplace", "student", pytest.param("cauchy", marks=pytest.mark.slow)])
def test_other_mixtures_match_integration(family):
    loc, scale = some_params(15, N)
    law, ours, more = {
        "laplace": (st.laplace, dist.Laplace, ()),
        "student": (lambda *a: st.t(3.5, *a), dist.StudentT, (np.full_like(loc, 3.5),)),
        "cauchy": (st.cauchy, dist.StudentT, (np.ones_like(loc),)),
    }[family]
    log_weights, w = some_weights(15)
    prediction = predict_law(ours, *more, loc, scale, log_weights=log_weights)
    y = np.array([-8.0, -1.0, 0.0, 0.3, 2.0, 30.0])
    for i in range(N):
        mixture = law(loc[:, i, 0].astype(float), scale[:, i, 0].astype(float))
        exact = by_quad(lambda z, mixture=mixture: w @ mixture.cdf(z), y[i], -np.inf, np.inf)
        assert abs(float(crps(prediction[i], y[i : i + 1])) - exact) < 1e-6


def test_integration_of_a_mixture_of_normals_has_its_closed_form():
    loc, scale = some_params(10, N, num_outputs=2)
    scale[0] = 1e-3  # a narrow component is a step to the others
    scaling = Scaling(np.zeros(1), np.ones(1), np.array([1.0, -5.0]), np.array([3.0, 0.1]))
    prediction = predict_law(dist.Normal, loc, scale, scaling=scaling, several=True)
    y = np.array([1.0, -5.0]) + np.array([3.0, 0.1]) * np.random.default_rng(1).normal(size=(N, 2))
    np.testing.assert_allclose(float(crps(prediction, y)), _by_integration(prediction, y).mean(), rtol=1e-7)


def test_counts_match_the_sum_of_squares():
    rate = (4 * some_params(15, N)[1]).astype(np.float32)
    rate[:, 0] = 200.0
    prediction = predict_law(dist.Poisson, rate)
    y = np.array([150, 0, 3, 7, 50, 4])
    counts = np.arange(1000)
    values = [
        np.sum((st.poisson.cdf(counts[:, None], rate[:, i, 0].astype(float)).mean(1) - (counts >= y[i])) ** 2)
        for i in range(N)
    ]
    np.testing.assert_allclose(float(crps(prediction, y)), np.mean(values), rtol=1e-6)
    with pytest.raises(ValueError, match=r"y must hold counts.* got 150.5"):
        crps(prediction, y + 0.5)


@pytest.mark.parametrize("seed", range(3))
def test_samples_match_the_definition_over_all_pairs(seed):
    rng = np.random.default_rng(seed)
    x, y = np.round(rng.normal(size=(9, 20)), 1), np.round(rng.normal(size=20), 1)  # with ties
    first = np.abs(x - y).mean(axis=0)
    pairs = np.abs(x[:, None] - x[None]).sum(axis=(0, 1))
    np.testing.assert_allclose(
        float(crps(x, y, estimator=Empirical())), np.mean(first - pairs / (2 * 9 * 9)), rtol=1e-12
    )
    np.testing.assert_allclose(float(crps(x, y, estimator=Fair())), np.mean(first - pairs / (2 * 9 * 8)), rtol=1e-12)
    ecdf = by_quad(lambda z: np.mean(x[:, 0] <= z), y[0], -5.0, 5.0)
    assert abs(float(crps(x[:, :1], y[:1], estimator=Empirical())) - ecdf) < 1e-3
    assert float(crps(x, y)) == float(crps(x, y, estimator=Fair()))


def test_fair_samples_have_the_score_of_their_distribution_on_average():
    x = np.random.default_rng(0).normal(size=(3, 40_000))
    exact = crps_of_normal(0.0, 1.0, 0.4)
    fair, plain = (crps(x, np.full(40_000, 0.4), estimator=e) for e in (Fair(), Empirical()))
    assert abs(float(fair) - exact) < 4.9 * fair.standard_error
    assert abs(float(plain) - exact - 2 / np.sqrt(np.pi) / 6) < 4.9 * plain.standard_error


def test_a_point_has_its_absolute_error():
    y = np.random.default_rng(0).normal(size=30)
    np.testing.assert_allclose(float(crps(np.zeros((1, 30)), y, estimator=Empirical())), np.abs(y).mean(), rtol=1e-12)
    with pytest.raises(ValueError, match="at least 2 samples for Fair"):
        crps(np.zeros((1, 30)), y)


def test_chunks_of_rows_do_not_matter():
    loc, scale = some_params(30, 50)
    prediction = predict_law(dist.Normal, loc, scale)
    y = np.random.default_rng(0).normal(size=50)
    small = dataclasses.replace(prediction, mixture=dataclasses.replace(prediction.mixture, max_bytes=40_000))
    np.testing.assert_allclose(float(crps(small, y)), float(crps(prediction, y)), rtol=1e-12)
