"""Predictions of classes and labels against direct float64 computations with NumPy."""

import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp

from marginax.data import DataSpec
from marginax.model import distributions as dist
from marginax.predict import ClassificationPrediction, MultiLabelPrediction, predict

S, N, K = 30, 6, 4
SPEC = DataSpec(x_shape=(1,), y_shape=(), num_examples=5)
X = np.arange(N, dtype=np.float32)[:, None]


class Softmax:
    def predictive(self, params, x, *, key=None):
        return dist.Categorical(params["slope"] * x + params["bias"])


class Logistic:
    def predictive(self, params, x, *, key=None):
        return dist.Bernoulli(params["slope"] * x + params["bias"])


SOFTMAX, LOGISTIC = Softmax(), Logistic()


def _params(k, seed=0, draws=S):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=(draws, k)).astype(np.float32) for name in ("slope", "bias")}


def _logits(params):
    return (params["slope"][:, None] * X + params["bias"][:, None]).astype(float)


def _weights():
    log_weights = np.random.default_rng(1).normal(size=S)
    return log_weights, np.exp(log_weights - logsumexp(log_weights))


def test_averages_match_direct_computation():
    params, (log_weights, w) = _params(K), _weights()
    prediction = predict(SOFTMAX, params, X, spec=SPEC, log_weights=log_weights)
    assert isinstance(prediction, ClassificationPrediction)
    log_p = log_softmax(_logits(params), axis=-1)
    p = np.exp(log_p)
    mean = np.einsum("s,snk->nk", w, p)
    np.testing.assert_allclose(prediction.probs, mean, rtol=2e-6)
    np.testing.assert_allclose(prediction.probs.sum(-1), 1, rtol=1e-12)
    assert prediction.labels.tolist() == mean.argmax(-1).tolist()
    np.testing.assert_allclose(prediction.confidence, mean.max(-1), rtol=2e-6)
    entropy, expected = -(mean * np.log(mean)).sum(-1), -np.einsum("s,snk,snk->n", w, p, log_p)
    np.testing.assert_allclose(prediction.entropy, entropy, rtol=1e-5)
    np.testing.assert_allclose(prediction.expected_entropy, expected, rtol=1e-5)
    np.testing.assert_allclose(prediction.mutual_information, entropy - expected, atol=2e-6)
    assert np.array_equal(prediction.epistemic, prediction.mutual_information)
    assert np.array_equal(prediction.aleatoric, prediction.expected_entropy)
    centred = p - mean
    covariance = np.einsum("s,snk,snj->nkj", w, centred, centred)
    np.testing.assert_allclose(prediction.covariance, covariance, atol=1e-7)
    np.testing.assert_allclose(prediction.epistemic_variance, np.einsum("nkk->nk", covariance), rtol=2e-4, atol=1e-12)
    np.testing.assert_allclose(prediction.std, np.sqrt(prediction.probs * (1 - prediction.probs)), rtol=1e-12)
    y = np.array([0, 3, 1, 2, 2, 0])
    np.testing.assert_allclose(prediction.log_prob(y), np.log(mean[np.arange(N), y]), rtol=1e-5, atol=1e-6)


def test_improbable_classes_keep_their_log_probability():
    params = {
        "slope": np.zeros((2, 3), np.float32),
        "bias": np.array([[0, -300, 5], [0, -200, 5]], np.float32),
    }
    prediction = predict(SOFTMAX, params, X, spec=SPEC)
    exact = logsumexp(log_softmax(params["bias"].astype(float), axis=-1), axis=0) - np.log(2)
    np.testing.assert_allclose(prediction.log_prob(np.ones(N, int)), exact[1], rtol=1e-6)
    assert np.all(np.isfinite(prediction.entropy))


def test_small_disagreement_is_not_lost_in_rounding():
    bias = np.array([[2.0, 0.0], [2.0 + 1e-3, 0.0]], np.float32)
    prediction = predict(SOFTMAX, {"slope": np.zeros((2, 2), np.float32), "bias": bias}, X, spec=SPEC)
    p = np.exp(log_softmax(bias.astype(float), axis=-1))
    np.testing.assert_allclose(np.sqrt(prediction.epistemic_variance), np.broadcast_to(p.std(0), (N, 2)), rtol=2e-3)
    single = predict(SOFTMAX, _params(K, draws=1), X, spec=SPEC)
    assert np.all(single.epistemic_variance == 0)
    assert np.all(single.std > 0)
    assert single.mutual_information.max() < 1e-6
    assert single.mutual_information.min() >= 0


def test_one_logit_is_two_classes():
    params = _params(1)
    prediction = predict(LOGISTIC, params, X, spec=SPEC)
    assert isinstance(prediction, ClassificationPrediction)
    p = 1 / (1 + np.exp(-_logits(params)[..., 0]))
    np.testing.assert_allclose(prediction.probs, np.stack([1 - p.mean(0), p.mean(0)], -1), rtol=2e-6)
    y = np.array([0, 1, 1, 0, 1, 1])
    np.testing.assert_allclose(prediction.log_prob(y), np.log(np.where(y, p, 1 - p).mean(0)), rtol=2e-5)
    np.testing.assert_allclose(prediction.covariance[:, 1, 1], p.var(0), rtol=1e-4, atol=1e-7)


def test_several_logits_are_several_labels():
    params, (log_weights, w) = _params(3), _weights()
    spec = DataSpec(x_shape=(1,), y_shape=(3,), num_examples=5)
    prediction = predict(LOGISTIC, params, X, spec=spec, log_weights=log_weights)
    assert isinstance(prediction, MultiLabelPrediction)
    assert repr(prediction) == "MultiLabelPrediction(n=6, labels=3, draws=30)"
    p = 1 / (1 + np.exp(-_logits(params)))
    mean = np.einsum("s,snd->nd", w, p)
    np.testing.assert_allclose(prediction.probs, mean, rtol=1e-6)
    assert np.array_equal(prediction.labels, mean > 0.5)
    np.testing.assert_allclose(prediction.confidence, np.maximum(mean, 1 - mean), rtol=1e-6)

    def entropy(p):
        return -(p * np.log(p) + (1 - p) * np.log1p(-p))

    np.testing.assert_allclose(prediction.entropy, entropy(mean), rtol=1e-5)
    np.testing.assert_allclose(prediction.expected_entropy, np.einsum("s,snd->nd", w, entropy(p)), rtol=1e-5)
    gap = entropy(mean) - np.einsum("s,snd->nd", w, entropy(p))
    np.testing.assert_allclose(prediction.mutual_information, gap, atol=1e-6)
    covariance = np.einsum("s,snd,sne->nde", w, p - mean, p - mean)
    np.testing.assert_allclose(prediction.covariance, covariance, atol=1e-7)
    np.testing.assert_allclose(prediction.epistemic_variance, np.einsum("ndd->nd", covariance), atol=1e-7)
    np.testing.assert_allclose(prediction.variance, prediction.probs * (1 - prediction.probs), rtol=1e-12)
    y = np.random.default_rng(2).integers(0, 2, (N, 3))
    joint = np.where(y, p, 1 - p).prod(-1)
    np.testing.assert_allclose(prediction.log_prob(y), np.log(w @ joint), rtol=1e-5)
    samples = prediction.sample(8000, key=0)
    assert samples.shape == (8000, N, 3)
    assert np.abs((samples.mean(0) - mean) / np.sqrt(mean * (1 - mean) / 8000)).max() < 4.9
    np.testing.assert_allclose(prediction[2:4].probs, prediction.probs[2:4])


def test_samples_have_the_frequencies_of_the_classes():
    prediction = predict(SOFTMAX, _params(K), X, spec=SPEC)
    samples = prediction.sample(20_000, key=3)
    assert samples.shape == (20_000, N)
    assert np.issubdtype(samples.dtype, np.integer)
    frequency = np.stack([(samples == k).mean(0) for k in range(K)], -1)
    error = np.sqrt(prediction.probs * (1 - prediction.probs) / 20_000)
    assert np.abs((frequency - prediction.probs) / error).max() < 4.9


def test_indexing_and_repr():
    prediction = predict(SOFTMAX, _params(K), X, spec=SPEC)
    assert repr(prediction) == "ClassificationPrediction(n=6, classes=4, draws=30)"
    part = prediction[1:3]
    assert len(part) == 2
    assert np.array_equal(part.covariance, prediction.covariance[1:3])
    assert np.array_equal(prediction[[5, 0]].entropy, prediction.entropy[[5, 0]])


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.zeros(5, int), r"y must have shape \(6,\)"),
        (np.full(N, 4), "y must hold labels from 0 to 3, got 4"),
        (np.full(N, -1), "y must hold labels from 0 to 3, got -1"),
        (np.full(N, 0.5), "y must hold integer labels, got 0.5"),
        (np.full(N, np.nan), "y must hold integer labels, got nan"),
        (np.array(["a"] * N), "y must hold integer labels"),
    ],
)
def test_bad_labels_are_named(y, message):
    prediction = predict(SOFTMAX, _params(K), X, spec=SPEC)
    with pytest.raises(ValueError, match=message):
        prediction.log_prob(y)


def test_a_covariance_that_is_too_large_says_so():
    params = {name: np.zeros((2, 50), np.float32) for name in ("slope", "bias")}
    prediction = predict(SOFTMAX, params, np.zeros((100, 1), np.float32), spec=SPEC, max_bytes=10**6)
    with pytest.raises(MemoryError, match=r"covariance would take 0\.00 GiB, more than max_bytes=1000000"):
        _ = prediction.covariance
    assert prediction.epistemic_variance.shape == (100, 50)
