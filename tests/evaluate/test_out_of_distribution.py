"""Separation against scikit-learn and counting; scores against their definitions."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special
from sklearn import metrics
from tests.evaluate.laws import predict_classes, predict_law, some_classes, some_params

import marginax as mx
from marginax.evaluate import (
    Energy,
    Entropy,
    Epistemic,
    Mahalanobis,
    MaxProbability,
    MutualInformation,
    Std,
    ood,
    separate,
)
from marginax.evaluate.ood_scores import class_distances, features, mean_logits
from marginax.model import distributions as dist


def some_scores(num_in, num_out, *, seed=0, decimals=2):
    rng = np.random.default_rng(seed)
    return rng.normal(size=num_in).round(decimals), (1.5 + rng.normal(size=num_out)).round(decimals)


@pytest.mark.parametrize("decimals", [0, 1, 8])
def test_areas_match_scikit_learn(decimals):
    near, far = some_scores(150, 90, decimals=decimals)
    result = separate(near, far)
    y, both = np.repeat([0, 1], [150, 90]), np.r_[near, far]
    np.testing.assert_allclose(float(result.auroc), metrics.roc_auc_score(y, both), rtol=1e-12)
    np.testing.assert_allclose(float(result.aupr), metrics.average_precision_score(y, both), rtol=1e-12)
    fpr, tpr, _ = metrics.roc_curve(1 - y, -both, drop_intermediate=False)
    np.testing.assert_allclose(float(result.fpr95), fpr[np.argmax(tpr >= 0.95 - 1e-12)], rtol=1e-12)


def test_fpr95_matches_counting():
    near, far = some_scores(97, 41)
    best = 1.0
    for threshold in np.r_[near, far]:
        if np.mean(near <= threshold) >= 0.95:
            best = min(best, np.mean(far <= threshold))
    assert float(separate(near, far).fpr95) == best


def test_standard_errors_match_the_spread_over_data_sets():
    found = [separate(*some_scores(400, 300, seed=seed, decimals=9)) for seed in range(300)]
    for name in ("auroc", "fpr95", "aupr"):
        spread = np.std([float(getattr(each, name)) for each in found], ddof=1)
        error = np.sqrt(np.mean([getattr(each, name).standard_error ** 2 for each in found]))
        assert abs(error / spread - 1) < 0.2, name


def test_scores_of_predictions_are_their_uncertainties():
    probs, _ = some_classes(20, 3)
    np.testing.assert_allclose(Entropy().of(predict_classes(probs)), -np.sum(probs * np.log(probs), axis=1))
    np.testing.assert_allclose(Entropy().of(probs), Entropy().of(predict_classes(probs)))
    np.testing.assert_allclose(MaxProbability().of(probs), -probs.max(axis=1))
    logits = np.random.default_rng(0).normal(size=(4, 6, 2)).astype(np.float32)
    classes = predict_law(dist.Categorical, logits)
    np.testing.assert_allclose(MutualInformation().of(classes), classes.mutual_information)
    np.testing.assert_allclose(Epistemic().of(classes), classes.mutual_information)
    numbers = predict_law(dist.Normal, *some_params(4, 6, num_outputs=2), several=True)
    np.testing.assert_allclose(Std().of(numbers), numbers.std.mean(axis=1))
    np.testing.assert_allclose(Epistemic().of(numbers), numbers.epistemic.mean(axis=1))


@pytest.fixture(scope="module")
def fitted():
    """Three classes around three places, a network for each of four starts."""
    rng = np.random.default_rng(0)
    y = np.arange(150) % 3
    x = 3 * np.array([[0.0, 1.0], [1.0, -1.0], [-1.0, -1.0]])[y] + 0.5 * rng.normal(size=(150, 2)) + 10
    model = mx.Model(mx.nets.MLP(2, (6,), 3, key=0), likelihood=mx.likelihoods.Categorical())
    data = mx.data.standardise((x, y))
    posterior = mx.fit(model, data, mx.infer.DeepEnsemble(4, mx.infer.MAP(num_epochs=200)), key=0)
    return posterior, x, y


def outputs_of(posterior, x):
    nets = jax.tree.map(lambda leaf: leaf, posterior.flat().network)
    scaled = posterior.spec.scaling.transform_x(x).astype(np.float32)
    whole = eqx.combine(nets, jax.tree.map(lambda leaf: leaf, posterior.model.network))
    return np.asarray(eqx.filter_vmap(lambda net: jax.vmap(net)(scaled))(whole), np.float64)


def test_energy_is_that_of_the_mean_logits(fitted):
    posterior, x, _ = fitted
    logits = outputs_of(posterior, x).mean(axis=0)
    np.testing.assert_allclose(mean_logits(posterior, x), logits, atol=1e-4)
    np.testing.assert_allclose(Energy(2.0).scores(posterior, x), -2 * special.logsumexp(logits / 2, axis=1), atol=1e-4)


@pytest.mark.parametrize("likelihood", [mx.likelihoods.Categorical(), mx.likelihoods.Bernoulli()], ids=str)
def test_scores_look_through_wrapped_likelihoods(likelihood):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(9, 2)).astype(np.float32), rng.integers(0, 2, 9)
    network = mx.nets.MLP(2, (4,), 2 if likelihood.outcome(2) is mx.model.Outcome.CLASS else 1, key=0)
    found = []
    for each in (likelihood, mx.likelihoods.Tempered(likelihood, 0.5)):
        model = mx.Model(network, likelihood=each)
        params = jax.tree.map(lambda leaf: leaf[None, None], model.initial(1))
        posterior = mx.posterior.Draws(model, params, spec=mx.data.DataSpec((2,), (), 9))
        found.append([score.scores(posterior, x) for score in (Energy(), Mahalanobis((x, y), shrinkage=0.1))])
    np.testing.assert_array_equal(*found)


def test_energy_of_a_linearised_posterior_is_that_of_its_mean():
    x = np.random.default_rng(0).normal(size=(9, 2)).astype(np.float32)
    model = mx.Model(mx.nets.MLP(2, (4,), 1, key=0), likelihood=mx.likelihoods.Bernoulli())
    posterior = mx.posterior.Gaussian(
        model,
        model.initial(1),
        mx.curvature.DiagonalCovariance(jnp.ones(17)),
        spec=mx.data.DataSpec((2,), (), 9),
        predictive=mx.predict.Linearised(),
    )
    z = np.asarray(jax.vmap(model.network)(x), np.float64)
    np.testing.assert_allclose(mean_logits(posterior, x), z, atol=1e-5)
    exact = -np.logaddexp(z[:, 0] / 2, -z[:, 0] / 2)
    np.testing.assert_allclose(Energy().scores(posterior, x), exact, atol=1e-5)


def test_mahalanobis_matches_numpy(fitted):
    posterior, x, y = fitted
    first = jax.tree.map(lambda leaf: leaf[0], posterior.flat().network)
    scaled = posterior.spec.scaling.transform_x(x).astype(np.float32)
    weight, bias = np.asarray(first.layers[0].weight), np.asarray(first.layers[0].bias)
    hidden = np.maximum(scaled @ weight.T + bias, 0).astype(float)
    np.testing.assert_allclose(features(posterior, x), hidden, atol=1e-5)
    means = np.stack([hidden[y == k].mean(axis=0) for k in range(3)])
    covariance = np.cov((hidden - means[y]).T, bias=True)
    covariance = 0.9 * covariance + 0.1 * np.trace(covariance) / 6 * np.eye(6)
    away = hidden[:, None] - means
    exact = np.einsum("nkf,fg,nkg->nk", away, np.linalg.inv(covariance), away).min(axis=1)
    np.testing.assert_allclose(Mahalanobis((x, y), shrinkage=0.1).scores(posterior, x), exact, rtol=1e-3, atol=1e-4)


def test_far_inputs_are_found(fitted):
    posterior, x, y = fitted
    rng = np.random.default_rng(1)
    far = 10 + 40 * rng.normal(size=(80, 2))
    result = ood(posterior, x, far, Mahalanobis((x, y)))
    assert result.auroc > 0.9
    assert "auroc" in repr(result)
    between = 10 + 0.2 * rng.normal(size=(80, 2))  # where three classes meet
    for score in (Entropy(), MaxProbability(), Energy()):
        assert ood(posterior, x, between, score).auroc > 0.9, score
    result = ood(posterior, x, between, MutualInformation())
    np.testing.assert_array_equal(result.scores_out, posterior.predict(between).mutual_information)


def test_numbers_have_one_mean():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    model = mx.Model(mx.nets.MLP(2, (4,), 1, key=0), likelihood=mx.likelihoods.Gaussian(scale=0.5))
    posterior = mx.fit(model, (x, x[:, 0]), mx.infer.DeepEnsemble(3, mx.infer.MAP(num_epochs=20)), key=0)
    hidden = features(posterior, x)
    exact = class_distances(hidden, np.zeros(60, int), hidden, shrinkage=1e-6)
    np.testing.assert_allclose(Mahalanobis((x, x[:, 0])).scores(posterior, x), exact)
    assert ood(posterior, x, 20 * x, Epistemic()).auroc > 0.8
    with pytest.raises(TypeError, match=r"posterior must be of classes for Energy\(\), got Gaussian targets"):
        ood(posterior, x, x, Energy())
    with pytest.raises(TypeError, match=r"prediction must be one of classes to have Entropy\(\)"):
        ood(posterior, x, x, Entropy())


def test_a_function_may_give_the_scores():
    near, far = some_scores(30, 20)
    result = ood(lambda x: np.abs(x), near, far)
    assert float(result.auroc) == float(separate(np.abs(near), np.abs(far)).auroc)
    with pytest.raises(TypeError, match="score must be left out where a function gives the scores"):
        ood(np.abs, near, far, Entropy())


def test_bad_input_is_refused(fitted, as_users_run):
    posterior, x, y = fitted
    with pytest.raises(TypeError, match=r"score must be one such as mx\.evaluate\.Entropy\(\)"):
        ood(posterior, x, x, "entropy")
    with pytest.raises(ValueError, match=r"scores_out must be numbers of shape \(n,\)"):
        separate(np.zeros(3), np.zeros((3, 1)))
    with pytest.raises(ValueError, match="scores_in must not be NaN, got 1 of 2"):
        separate([0.0, np.nan], [1.0])
    with pytest.raises(TypeError, match=r"to have Std\(\), got a ClassificationPrediction"):
        ood(posterior, x, x, Std())
    with pytest.raises(TypeError, match=r"data must be a pair \(x, y\), got int"):
        Mahalanobis(3)
    with pytest.raises(ValueError, match="data must have as many targets as inputs, 150, got 5"):
        ood(posterior, x, x, Mahalanobis((x, y[:5])))
    with pytest.raises(ValueError, match="temperature must be > 0, got 0"):
        Energy(0)
