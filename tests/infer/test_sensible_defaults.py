"""Every method of the catalogue, with no arguments, gives a sensible posterior on small problems."""

import numpy as np
import pytest
from sklearn.datasets import make_moons

import marginax as mx
from marginax.infer.catalogue import catalogue

METHODS = {entry.name: entry.method for entry in catalogue()}
NOISE = 0.3


def _moons(num, seed):
    return make_moons(num, noise=0.2, random_state=seed)


def _sine(num, seed):
    generator = np.random.default_rng(seed)
    x = generator.uniform(-3, 3, (num, 1))
    return x, np.sin(2 * x[:, 0]) + NOISE * generator.normal(size=num)


def _ten_points(num, seed):
    """A line with as much noise as signal."""
    generator = np.random.default_rng(seed)
    x = generator.uniform(-1, 1, (num, 1))
    return x, x[:, 0] + 0.5 * generator.normal(size=num)


@pytest.fixture(params=METHODS, ids=str)
def method(request):
    return METHODS[request.param]


def _fit(method, data, likelihood, num_outputs):
    x = data.x if hasattr(data, "x") else data[0]
    network = mx.nets.MLP(x.shape[1], (50, 50), num_outputs, key=0)
    return mx.fit(mx.Model(network, likelihood), data, method, key=0, progress=False)


@pytest.mark.slow
def test_two_moons(method):
    x, y = _moons(1000, 2)
    prediction = _fit(method, _moons(200, 1), mx.likelihoods.Categorical(), 2).predict(x)
    assert np.mean(prediction.labels == y) > 0.92
    if not isinstance(method, mx.infer.MLE):  # the likelihood alone is sure of everything between the moons
        assert -np.mean(prediction.log_prob(y)) < 0.3  # a coin has 0.69


@pytest.mark.slow
def test_a_sine(method):
    x, y = _sine(1000, 2)
    train = _sine(100, 1)
    posterior = _fit(method, mx.data.standardise(train), mx.likelihoods.Gaussian(), 1)
    prediction = posterior.predict(x)
    assert np.sqrt(np.mean((prediction.mean - y) ** 2)) < 0.45  # the noise has 0.3, a constant 0.77
    constant = 0.5 * np.log(2 * np.pi * np.var(train[1])) + 0.5 * np.mean((y - train[1].mean()) ** 2) / np.var(train[1])
    assert -np.mean(prediction.log_prob(y)) < constant - 0.3


@pytest.mark.slow
def test_ten_noisy_points(method):
    x, y = _ten_points(1000, 2)
    train = _ten_points(10, 1)
    posterior = _fit(method, mx.data.standardise(train), mx.likelihoods.Gaussian(), 1)
    prediction = posterior.predict(x)
    inside = np.abs(x[:, 0]) < np.abs(train[0]).max()
    assert np.sqrt(np.mean((prediction.mean - y)[inside] ** 2)) < 1.0  # nobody knows better than 0.5
    lower, upper = prediction.interval(0.9)
    if not posterior.is_point:
        assert np.mean((y >= lower) & (y <= upper)) > 0.5
        far = posterior.predict(np.array([[-4.0], [4.0]])).epistemic.mean()
        assert far > prediction.epistemic.mean()
