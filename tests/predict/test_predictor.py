"""Predictors for services: the same predictions as `predict`, of every kind of posterior, without tracing anew."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax.curvature import DiagonalCovariance
from marginax.data import DataSpec
from marginax.data.scaling import Scaling
from marginax.model import Outcome
from marginax.nets.noise import Dropout
from marginax.posterior import Draws, Gaussian, Mixture, Stochastic

RNG = np.random.default_rng(0)
X = RNG.normal(5.0, 2.0, size=(5, 3))
L = mx.likelihoods
LIKELIHOODS = {
    "numbers": (L.Gaussian(), 1, ()),
    "counts": (L.Poisson(), 1, ()),
    "classes": (L.Categorical(), 3, ()),
    "labels": (L.Bernoulli(), 2, (2,)),
}


def _model(name, activation=jnp.tanh):
    likelihood, outputs, y_shape = LIKELIHOODS[name]
    model = mx.Model(mx.nets.MLP(3, (4,), outputs, activation=activation, key=0), likelihood=likelihood)
    scaled = name == "numbers"
    factors = (np.array(10.0), np.array(3.0)) if scaled else (None, None)
    scaling = Scaling(np.full(3, 5.0), np.full(3, 2.0), *factors)
    spec = DataSpec(x_shape=(3,), y_shape=y_shape, num_examples=20, scaling=scaling)
    return model, spec, model.initial(outputs)


def _normal(name, *, linearised, seed=0, activation=jnp.tanh):
    model, spec, mean = _model(name, activation)
    size = sum(leaf.size for leaf in jax.tree.leaves(mean))
    rng = np.random.default_rng(seed)
    mean = jax.tree.map(lambda leaf: leaf + jnp.asarray(0.1 * rng.normal(size=leaf.shape), leaf.dtype), mean)
    predictive = mx.predict.Linearised() if linearised else mx.predict.ThroughNetwork()
    covariance = DiagonalCovariance(jnp.full(size, 0.1, jnp.float32))
    return Gaussian(model, mean, covariance, spec, predictive=predictive, key=jax.random.key(seed))


def _draws(name, activation=jnp.tanh):
    model, spec, mean = _model(name, activation)
    return Draws(
        model, jax.tree.map(lambda leaf: np.float32(leaf + 0.3 * RNG.normal(size=(2, 3, *leaf.shape))), mean), spec
    )


def _noisy(name):
    model, spec, mean = _model(name)
    noise = (None, Dropout(0.3))
    return Stochastic(model, jax.tree.map(lambda leaf: leaf[None], mean), noise, spec)


def _mixture(name):
    return Mixture([_normal(name, linearised=True, seed=i) for i in range(2)], np.array([0.2, 0.8]))


POSTERIORS = {
    "draws": _draws,
    "normal": lambda name: _normal(name, linearised=False),
    "linearised": lambda name: _normal(name, linearised=True),
    "noise": _noisy,
    "mixture": _mixture,
}


def _numbers(prediction):
    if prediction.outcome in (Outcome.CLASS, Outcome.LABELS):
        return [prediction.probs, prediction.expected_entropy, prediction.epistemic_variance]
    return [prediction.mean, prediction.epistemic, prediction.aleatoric, prediction.quantile(0.3)]


FAST = {("draws", "numbers"), ("linearised", "classes"), ("noise", "labels")}
CASES = [
    pytest.param(kind, name, marks=() if (kind, name) in FAST else pytest.mark.slow, id=f"{kind}, {name}")
    for kind in POSTERIORS
    for name in LIKELIHOODS
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), CASES)
def test_a_predictor_gives_the_predictions_of_predict(kind, name):
    posterior = POSTERIORS[kind](name)
    predict = posterior.predictor((3, 3))
    for x in (X[:3], X[3:], X[:3]):
        found, expected = predict(x), posterior.predict(x)
        assert type(found) is type(expected)
        assert len(found) == len(x)
        for a, b in zip(_numbers(found), _numbers(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["draws", "linearised"])
def test_nothing_is_traced_after_the_first_call(kind):
    traces = []

    def activation(x):
        traces.append(x)
        return jnp.tanh(x)

    make = _draws if kind == "draws" else lambda *args: _normal(args[0], linearised=True, activation=args[1])
    posterior = make("numbers", activation)
    predict = posterior.predictor((2, 3))
    count = len(traces)
    assert count
    for x in (X[:2], X[2:4], X[4:]):
        predict(x)
    assert len(traces) == count
    posterior.predict(X[:2])
    count = len(traces)
    posterior.predict(X[2:4])
    assert len(traces) == count


def test_draws_that_do_not_fit_are_taken_in_chunks():
    posterior = _draws("numbers")
    found = posterior.predictor((2, 3), max_bytes=500)(X[:2])
    np.testing.assert_allclose(found.mean, posterior.predict(X[:2]).mean, rtol=1e-5)


def test_a_calibrated_posterior_has_a_calibrated_predictor():
    softer = mx.calibrate.Calibrated(_draws("classes"), mx.calibrate.Temperature(temperature=3.0, num_classes=3))
    np.testing.assert_allclose(softer.predictor((2, 3))(X[:2]).probs, softer.predict(X[:2]).probs, rtol=1e-5)


@pytest.mark.parametrize("x_shape", [(), (3,), (0, 3), (2, 4)])
def test_a_shape_that_cannot_be_is_refused(x_shape):
    with pytest.raises(ValueError, match="x_shape must be"):
        _draws("numbers").predictor(x_shape)


def test_inputs_of_another_shape_are_refused():
    predict = _draws("numbers").predictor((2, 3))
    with pytest.raises(ValueError, match="1 to 2 rows"):
        predict(X[:3])
    with pytest.raises(ValueError, match="x must have shape"):
        predict(X[:2, :2])
    with pytest.raises(ValueError, match="NaN"):
        predict(np.full((1, 3), np.nan))
    assert repr(predict) == "Predictor(x_shape=(2, 3))"
