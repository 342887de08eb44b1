"""Every likelihood, as it is and wrapped, under every family of methods: one protocol, so nothing falls through.

At temperature 1 the wrapper changes nothing, so predictions are equal but for rounding (the programs are compiled
apart); at another temperature the kind of the prediction is still that of the likelihood inside.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import marginax as mx
from marginax.model import Outcome
from marginax.model.likelihoods import Custom, FromDistribution, FromNetwork, Output, Tempered

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 2))
REAL = np.sin(X[:, 0]) + 0.1 * RNG.normal(size=24)
COUNTS = RNG.poisson(np.exp(0.3 * X[:, 0] + 0.5))
YES = (X[:, 0] > 0).astype(np.int32)
L, I = mx.likelihoods, mx.infer


def normal_log_prob(f, y):
    return -0.5 * (y - f[0]) ** 2 - 0.5 * jnp.log(2 * jnp.pi)


LIKELIHOODS = {
    "gaussian": (L.Gaussian(), 1, REAL, Outcome.REAL),
    "gaussian, known": (L.Gaussian(scale=0.3), 1, REAL, Outcome.REAL),
    "gaussian, two outputs": (L.Gaussian(), 2, np.stack([REAL, -REAL], 1), Outcome.REAL),
    "gaussian, from network": (L.Gaussian(scale=FromNetwork()), 2, REAL, Outcome.REAL),
    "student t": (L.StudentT(), 1, REAL, Outcome.REAL),
    "student t, from network": (L.StudentT(scale=FromNetwork()), 2, REAL, Outcome.REAL),
    "laplace": (L.Laplace(), 1, REAL, Outcome.REAL),
    "bernoulli": (L.Bernoulli(), 1, YES, Outcome.CLASS),
    "bernoulli, labels": (L.Bernoulli(), 2, np.stack([YES, 1 - YES], 1), Outcome.LABELS),
    "stochastic segmentation": (L.StochasticSegmentation(1, 5), 6, np.stack([YES, 1 - YES], 1), Outcome.LABELS),
    "categorical": (L.Categorical(), 3, YES + (X[:, 1] > 0), Outcome.CLASS),
    "ordinal": (L.Ordinal(num_classes=3), 1, YES + (X[:, 1] > 0), Outcome.CLASS),
    "noisy labels": (L.NoisyLabels(L.Categorical()), 3, YES + (X[:, 1] > 0), Outcome.CLASS),
    "noisy yes or no": (L.NoisyLabels(L.Bernoulli(), [[0.9, 0.1], [0.2, 0.8]]), 1, YES, Outcome.CLASS),
    "entropy regularised": (L.EntropyRegularised(L.Categorical(), 0.5), 3, YES + (X[:, 1] > 0), Outcome.CLASS),
    "consistency regularised": (
        L.ConsistencyRegularised(L.Categorical(), mx.data.Flip(), 0.5, None),
        3,
        YES + (X[:, 1] > 0),
        Outcome.CLASS,
    ),
    "outliers": (L.Outliers(), 1, REAL, Outcome.REAL),
    "mixture density": (L.MixtureDensity(num_components=2), 6, REAL, Outcome.REAL),
    "poisson": (L.Poisson(), 1, COUNTS, Outcome.COUNT),
    "custom": (Custom(normal_log_prob, lambda f: f[:1], lambda f: jnp.ones(1)), 1, REAL, Outcome.REAL),
    "gumbel of numpyro": (FromDistribution(dist.Gumbel, loc=Output(), scale=0.5), 1, REAL, Outcome.REAL),
    "counts of numpyro": (
        FromDistribution(dist.NegativeBinomial2, mean=Output(jnp.exp), concentration=dist.Gamma(2.0, 0.5)),
        1,
        COUNTS,
        Outcome.COUNT,
    ),
}
TRAINING = I.MAP(num_epochs=60, batch_size=None)
KIND = mx.curvature.EmpiricalFisher()
METHODS = {
    "draws": I.DeepEnsemble(2, TRAINING),
    "gaussian": I.VI(num_epochs=30, batch_size=None),
    "linearised": I.Laplace(training=TRAINING),
    "noise": I.MCDropout(0.1, num_epochs=30, batch_size=None),
    "chains": I.NUTS(num_warmup=15, num_samples=5),
}
FAST = {("linearised", "categorical"), ("noise", "bernoulli, labels")}
CASES = [
    pytest.param(method, name, marks=() if (method, name) in FAST else pytest.mark.slow, id=f"{method}, {name}")
    for method in METHODS
    for name in LIKELIHOODS
]


def predict(method, name, likelihood):
    _, outputs, y, _ = LIKELIHOODS[name]
    chosen = METHODS[method]
    if method == "linearised" and name in ("custom", "stochastic segmentation"):  # they have no Fisher information
        chosen = I.Laplace(training=TRAINING, kind=KIND)
    network = mx.nets.MLP(2, (4,), outputs, activation=jnp.tanh, key=0)
    posterior = mx.fit(mx.Model(network, likelihood), (X, y), chosen, key=1, progress=False)
    return posterior, posterior.predict(X[:6])


def numbers(prediction):
    if prediction.outcome is Outcome.CLASS:
        return {"log_probs": prediction.log_probs, "expected_entropy": prediction.expected_entropy}
    if prediction.outcome is Outcome.LABELS:
        return {"probs": prediction.probs, "expected_entropy": prediction.expected_entropy}
    return {"mean": prediction.mean, "epistemic": prediction.epistemic, "aleatoric": prediction.aleatoric}


@pytest.mark.parametrize(("method", "name"), CASES)
def test_a_wrapper_changes_nothing_but_the_temperature(method, name):
    likelihood, outputs, y, outcome = LIKELIHOODS[name]
    assert likelihood.outcome(outputs) is outcome
    plain, prediction = predict(method, name, likelihood)
    posterior, wrapped = predict(method, name, Tempered(likelihood, 1.0))
    if method == "chains":  # rounding grows along a chain, so the draws of one serve both
        wrapped = eqx.tree_at(lambda p: p.params, posterior, plain.params).predict(X[:6])
    assert prediction.outcome is outcome
    assert wrapped.outcome is outcome
    for key, value in numbers(prediction).items():
        np.testing.assert_allclose(numbers(wrapped)[key], value, rtol=1e-5, atol=1e-7, err_msg=key)
        assert np.isfinite(value).all()
    assert np.isfinite(prediction.log_prob(y[:6])).all()
    cold, colder = predict(method, name, Tempered(likelihood, 0.5))
    assert colder.outcome is outcome
    assert type(colder) is type(prediction)
    assert any(not np.array_equal(numbers(colder)[key], value) for key, value in numbers(prediction).items())
    if outcome.is_class:
        for score in (mx.evaluate.Energy(), mx.evaluate.Mahalanobis((X, y))):
            assert np.isfinite(score.scores(cold, X[:6])).all()
    assert len(mx.evaluate.scores(colder, y[:6])) >= 4
    networks = plain.sample(3, key=0)
    assert networks is not None
