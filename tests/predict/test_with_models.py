"""Predictions of real models: every likelihood gives the prediction that belongs to it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import marginax as mx
from marginax.data import DataSpec
from marginax.predict import ClassificationPrediction, MultiLabelPrediction, RegressionPrediction, predict

N, S = 5, 6
X = np.random.default_rng(0).normal(size=(N, 3)).astype(np.float32)


def _predict(likelihood, out_size, y_shape):
    model = mx.Model(mx.nets.MLP(in_size=3, hidden=(4,), out_size=out_size, key=0), likelihood=likelihood)
    rng = np.random.default_rng(1)
    params = model.initial(out_size)
    draws = jax.tree.map(lambda leaf: np.float32(leaf + 0.5 * rng.normal(size=(S, *leaf.shape))), params)
    spec = DataSpec(x_shape=(3,), y_shape=y_shape, num_examples=20)
    return model, draws, predict(model, draws, X, spec=spec)


@pytest.mark.parametrize(
    ("likelihood", "out_size", "y_shape"),
    [
        (mx.likelihoods.Gaussian(), 1, ()),
        (mx.likelihoods.Gaussian(scale=mx.likelihoods.FromNetwork()), 4, (2,)),
        (mx.likelihoods.StudentT(df=5.0), 2, (2,)),
        (mx.likelihoods.Laplace(scale=0.3), 1, (1,)),
        (mx.likelihoods.Poisson(), 1, ()),
    ],
)
def test_numbers(likelihood, out_size, y_shape):
    model, draws, prediction = _predict(likelihood, out_size, y_shape)
    assert isinstance(prediction, RegressionPrediction)
    mean_of = jax.jit(lambda p: model.predictive(p, jnp.asarray(X)).mean)
    means = np.stack([mean_of(jax.tree.map(lambda leaf, i=i: leaf[i], draws)) for i in range(S)])
    means = means.reshape(S, N, *y_shape)
    np.testing.assert_allclose(prediction.mean, means.mean(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(prediction.epistemic, means.var(0), rtol=1e-3, atol=1e-6)
    lower, upper = prediction.interval(0.8)
    assert lower.shape == upper.shape == (N, *y_shape)
    assert np.all(lower <= upper)


def test_classes_and_labels():
    assert isinstance(_predict(mx.likelihoods.Categorical(), 3, ())[2], ClassificationPrediction)
    assert isinstance(_predict(mx.likelihoods.Bernoulli(), 1, ())[2], ClassificationPrediction)
    assert isinstance(_predict(mx.likelihoods.Bernoulli(), 3, (3,))[2], MultiLabelPrediction)


@pytest.mark.slow
def test_custom_likelihood_predicts_what_it_can():
    cauchy = mx.likelihoods.Custom(lambda f, y: -jnp.log(jnp.pi * (1 + (y - f[0]) ** 2)))
    model, draws, prediction = _predict(cauchy, 1, ())
    f = np.asarray(jax.jit(jax.vmap(lambda p: model.output(p, jnp.asarray(X))))(draws), float)[..., 0]
    exact = np.log(np.mean(1 / (np.pi * (1 + (0.5 - f) ** 2)), axis=0))
    np.testing.assert_allclose(prediction.log_prob(np.full(N, 0.5)), exact, rtol=1e-5)
    lower, upper = prediction.interval(0.5)
    inside = np.mean(stats.cauchy(f).cdf(upper) - stats.cauchy(f).cdf(lower), axis=0)
    np.testing.assert_allclose(inside, 0.5, atol=2e-3)
    samples = prediction.sample(2000, key=0)
    assert np.all(np.abs(np.mean((samples > lower) & (samples < upper), axis=0) - 0.5) < 4.9 * 0.5 / np.sqrt(2000))
    with pytest.raises((NotImplementedError, AttributeError), match="has no mean"):
        _ = prediction.mean
