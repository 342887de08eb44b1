"""The names that users' code relies on, in the order in which users meet them."""

import jax
import numpy as np
import pytest

import marginax as mx


@pytest.mark.slow  # the README's block, which runs in every test run, has the same names with an ensemble
def test_the_code_that_users_rely_on_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    x, x_new = rng.normal(size=(40, 8)), rng.normal(size=(6, 8))
    y, y_new = np.sin(x[:, 0]), np.sin(x_new[:, 0])

    net = mx.nets.MLP(in_size=8, hidden=(50, 50), out_size=1, key=0)
    model = mx.Model(net, likelihood=mx.likelihoods.Gaussian(), prior=mx.priors.Normal(scale=1.0))
    posterior = mx.fit(model, (x, y), mx.infer.NUTS(num_warmup=500, num_samples=500), num_chains=4, key=0)

    prediction = posterior.predict(x_new)
    for value in (prediction.mean, prediction.std, prediction.epistemic, prediction.aleatoric):
        assert value.shape == (6,)
        assert np.isfinite(value).all()
    lower, upper = prediction.interval(0.9)
    assert (lower < prediction.quantile(0.5)).all()
    assert (prediction.quantile(0.5) < upper).all()
    assert prediction.log_prob(y_new).shape == (6,)
    assert prediction.sample(100, key=1).shape == (100, 6)

    assert posterior.sample(100, key=1).layers[0].weight.shape == (100, 50, 8)
    assert "NUTS" in str(posterior.summary())
    posterior.save("run/")
    assert np.array_equal(mx.load("run/").predict(x_new).mean, prediction.mean)
    assert posterior.to_arviz().posterior["layers/0/weight"].shape == (4, 500, 50, 8)
    better = mx.fit(
        model, (x, y), mx.infer.Laplace(structure=mx.curvature.Kronecker()), init=posterior, key=jax.random.key(2)
    )
    assert np.isfinite(better.predict(x_new).mean).all()


def test_classification_has_its_names():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    labels = (x[:, 0] > 0).astype(int) + (x[:, 1] > 0)
    model = mx.Model(mx.nets.MLP(2, (16,), 3, key=0), likelihood=mx.likelihoods.Categorical())
    prediction = mx.fit(model, (x, labels), mx.infer.DeepEnsemble(3, mx.infer.MAP(num_epochs=300)), key=0).predict(x)
    assert prediction.probs.shape == (60, 3)
    np.testing.assert_allclose(prediction.probs.sum(1), 1, rtol=1e-5)
    assert (prediction.labels == labels).mean() > 0.9
    np.testing.assert_allclose(
        prediction.entropy, prediction.expected_entropy + prediction.mutual_information, atol=1e-5
    )
    assert prediction.log_prob(labels).mean() > -0.6  # chance is -1.1; the mode itself, pulled in by the prior, -0.57


def test_modules_that_are_loaded_on_demand_are_there():
    assert mx.testing.check_method
    assert mx.plot.plot_band
    assert mx.evaluate.scores
    assert mx.estimators.BayesianRegressor
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = mx.nothing
