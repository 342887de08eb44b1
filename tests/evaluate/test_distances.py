"""Distances between predictions: closed forms, SciPy, and zero for the same prediction."""

import numpy as np
import pytest
import scipy.stats as st
from tests.evaluate.laws import predict_classes, predict_law, some_classes, some_params, some_weights

from marginax.data.scaling import Scaling
from marginax.evaluate import agreement, total_variation, wasserstein
from marginax.model import distributions as dist

N = 5


def test_classes_match_their_definitions():
    (p, _), (q, _) = some_classes(80, 4, seed=0), some_classes(80, 4, seed=1)
    same = p.argmax(1) == q.argmax(1)
    for first, second in ((p, q), (predict_classes(p), predict_classes(q)), (p, predict_classes(q))):
        assert float(agreement(first, second)) == same.mean()
        distance = 0.5 * np.abs(p - q).sum(axis=1)
        score = total_variation(first, second)
        np.testing.assert_allclose(float(score), distance.mean(), rtol=1e-10)
        np.testing.assert_allclose(score.standard_error, distance.std(ddof=1) / np.sqrt(80), rtol=1e-8)


def test_labels_are_compared_one_by_one():
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=(1, 40, 3)).astype(np.float32) for _ in range(2))
    first, second = (predict_law(dist.Bernoulli, logits, several=True) for logits in (a, b))
    np.testing.assert_allclose(float(agreement(first, second)), np.mean((a > 0) == (b > 0)), rtol=1e-12)
    exact = np.abs(first.probs - second.probs).mean()
    np.testing.assert_allclose(float(total_variation(first, second)), exact, rtol=1e-10)


def test_normals_have_their_closed_forms():
    shift = np.array([0.0, 1e-3, 0.5, 2.0, 40.0])
    first, second = (np.zeros(N), np.full(N, 1.5)), (shift, np.full(N, 1.5))
    for i in range(N):
        one, other = (tuple(part[i : i + 1] for part in pair) for pair in (first, second))
        assert abs(float(total_variation(one, other)) - (2 * st.norm.cdf(shift[i] / 3) - 1)) < 1e-8
        assert abs(float(wasserstein(one, other)) - shift[i]) < 1e-7
    wide = wasserstein((np.zeros(1), np.ones(1)), (np.zeros(1), np.full(1, 3.0)))
    assert abs(float(wide) - 2 * np.sqrt(2 / np.pi)) < 1e-7  # |3 - 1| E|Z|


FAMILIES = {
    "normal": (dist.Normal, lambda loc, scale: (loc, scale), st.norm),
    "laplace": (dist.Laplace, lambda loc, scale: (loc, scale), st.laplace),
    "student": (dist.StudentT, lambda loc, scale: (np.full_like(loc, 8.0), loc, scale), lambda *a: st.t(8.0, *a)),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_mixtures_match_integration(name):
    family, make, law = FAMILIES[name]
    log_weights, w = some_weights(8)
    params = [some_params(8, N, seed=seed) for seed in (0, 1)]
    scaling = Scaling(np.zeros(1), np.ones(1), np.array(1.0), np.array(2.0))
    first, second = (predict_law(family, *make(*p), log_weights=log_weights, scaling=scaling) for p in params)
    grid = np.arange(-150, 150, 0.002)[:, None]
    for i in range(3):
        one, other = (law(*(1 + 2 * p[0][:, i, 0].astype(float), 2 * p[1][:, i, 0].astype(float))) for p in params)
        area = np.trapezoid(np.abs((one.cdf(grid) - other.cdf(grid)) @ w), dx=0.002)
        assert abs(float(wasserstein(first[i], second[i])) - area) < 1e-5
        gap = 0.5 * np.trapezoid(np.abs((one.pdf(grid) - other.pdf(grid)) @ w), dx=0.002)
        assert abs(float(total_variation(first[i], second[i])) - gap) < 1e-6


def test_narrow_components_are_not_missed():
    scale = np.full((2, 1, 1), 1e-5, np.float32)
    first = predict_law(dist.Normal, np.array([0.0, 1.0], np.float32)[:, None, None], scale)
    second = predict_law(dist.Normal, np.array([0.0, 1.0625], np.float32)[:, None, None], scale)
    assert abs(float(total_variation(first, second)) - 0.5) < 1e-8
    assert abs(float(wasserstein(first, second)) - 0.03125) < 1e-7


@pytest.mark.slow
def test_tails_without_a_mean_have_a_variation_and_no_wasserstein_distance():
    params = [np.full((1, 2, 1), value, np.float32) for value in (1.0, 0.0, 1.0)]
    first, second = predict_law(dist.StudentT, *params), predict_law(dist.StudentT, *params[:2], 2 * params[2])
    crossing = np.sqrt(2.0)  # of Cauchy densities with scales 1 and 2
    exact = 2 * (st.cauchy.cdf(crossing) - st.cauchy.cdf(crossing, scale=2))
    assert abs(float(total_variation(first, second)) - exact) < 1e-7
    with pytest.raises(ValueError, match="prediction gives no wasserstein in 2 of 2 rows"):
        wasserstein(first, second)


def test_counts_match_sums():
    rates = [(5 * some_params(6, N, seed=seed)[1]).astype(np.float32) for seed in (0, 1)]
    rates[0][:, 0] = 300.0
    first, second = (predict_law(dist.Poisson, rate) for rate in rates)
    counts = np.arange(1000)[:, None]
    for i in range(N):
        cdf = [st.poisson.cdf(counts, rate[:, i, 0].astype(float)).mean(1) for rate in rates]
        pmf = [st.poisson.pmf(counts, rate[:, i, 0].astype(float)).mean(1) for rate in rates]
        assert abs(float(wasserstein(first[i], second[i])) - np.abs(cdf[0] - cdf[1]).sum()) < 1e-5
        assert abs(float(total_variation(first[i], second[i])) - 0.5 * np.abs(pmf[0] - pmf[1]).sum()) < 1e-7


@pytest.mark.parametrize("sizes", [(20, 20), (7, 30)])
def test_samples_match_scipy(sizes):
    rng = np.random.default_rng(0)
    first, second = (np.round(rng.normal(size=(size, N, 2)), 1) for size in sizes)
    exact = [st.wasserstein_distance(first[:, i, j], second[:, i, j]) for i in range(N) for j in range(2)]
    np.testing.assert_allclose(float(wasserstein(first, second)), np.mean(exact), rtol=1e-12)


@pytest.mark.parametrize("name", [*FAMILIES, "poisson"])
def test_a_prediction_has_no_distance_from_itself(name):
    loc, scale = some_params(8, N)
    family, make, _ = FAMILIES.get(name, (dist.Poisson, lambda loc, scale: (scale,), None))
    first, second = (predict_law(family, *make(loc, scale)) for _ in range(2))
    assert float(total_variation(first, second)) == 0
    assert float(wasserstein(first, second)) == 0
    probs, _ = some_classes(20, 3)
    assert float(agreement(probs, probs.copy())) == 1
    assert float(total_variation(probs, probs.copy())) == 0
    samples = np.random.default_rng(0).normal(size=(9, 4))
    assert float(wasserstein(samples, samples[::-1])) < 1e-12


def test_what_cannot_be_compared_is_named():
    probs, _ = some_classes(20, 3)
    pair = np.zeros(20), np.ones(20)
    counts = predict_law(dist.Poisson, np.ones((1, 20, 1), np.float32))
    samples = np.zeros((4, 20))
    with pytest.raises(ValueError, match=r"same inputs and classes, got \(20, 3\) and \(19, 3\)"):
        agreement(probs, probs[1:])
    with pytest.raises(ValueError, match=r"same inputs and outputs, got \(20,\) and \(19,\)"):
        wasserstein(pair, tuple(part[1:] for part in pair))
    with pytest.raises(TypeError, match="must be one of classes to have agreement, got a pair"):
        agreement(pair, pair)
    with pytest.raises(TypeError, match="both be of counts, or both of real numbers"):
        wasserstein(pair, counts)
    with pytest.raises(TypeError, match="both be samples, or neither"):
        wasserstein(pair, samples)
    with pytest.raises(TypeError, match=r"must have densities for total_variation.* use wasserstein"):
        total_variation(pair, samples)
    labels = predict_law(dist.Bernoulli, np.zeros((1, 20, 3), np.float32), several=True)
    with pytest.raises(TypeError, match="got ClassificationPrediction, MultiLabelPrediction"):
        agreement(predict_classes(probs), labels)
