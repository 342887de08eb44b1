"""Comparison by evidence: right for linear models, and it prefers what held-out data prefer."""

import jax
import numpy as np
import pytest
from scipy import stats

import marginax as mx
from marginax.curvature import Dense
from marginax.evaluate import compare_evidence
from marginax.infer import LBFGS, MAP, VI, Laplace

METHOD = Laplace(structure=Dense(), training=MAP(num_epochs=100, batch_size=None, optimiser=LBFGS()))


@pytest.mark.slow
def test_evidence_of_priors_is_that_of_linear_regression():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2))
    y = x @ [1.0, -0.5] + 0.3 * rng.normal(size=40)
    net, noise = mx.nets.MLP(2, (), 1, key=0), mx.likelihoods.Gaussian(scale=0.3)
    scales = {"narrow": 0.05, "right": 1.0, "wide": 50.0}
    models = {name: mx.Model(net, noise, mx.priors.Normal(scale)) for name, scale in scales.items()}
    table = compare_evidence(models, (x, y), key=0, method=METHOD, held_out=(x[:10], y[:10]))
    design = np.c_[x, np.ones(40)]
    exact = {
        name: stats.multivariate_normal(np.zeros(40), 0.09 * np.eye(40) + s**2 * design @ design.T).logpdf(y)
        for name, s in scales.items()
    }
    for name, row in table.rows.items():
        assert abs(row.log_evidence / exact[name] - 1) < 1e-3
    assert list(table.rows) == sorted(exact, key=lambda name: -exact[name])
    assert table.best == "right"
    odds = np.exp(exact["wide"] - exact["right"])
    np.testing.assert_allclose(table.probs["wide"] / table.probs["right"], odds, rtol=0.02)
    assert "held-out log density" in repr(table)


@pytest.mark.slow
def test_evidence_and_held_out_data_prefer_a_network_that_can_bend():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(150, 1))
    y = np.sin(5 * x[:, 0]) + 0.1 * rng.normal(size=150)
    nets = {f"{width} units": mx.nets.MLP(1, (width,), 1, activation=jax.nn.tanh, key=0) for width in (1, 10)}
    nets["linear"] = mx.nets.MLP(1, (), 1, key=0)
    models = {name: mx.Model(net, mx.likelihoods.Gaussian(), mx.priors.Normal(3.0)) for name, net in nets.items()}
    table = compare_evidence(models, (x[:100], y[:100]), key=0, held_out=(x[100:], y[100:]))
    assert table.best == table.best_held_out == "10 units"
    assert {name: row.num_weights for name, row in table.rows.items()} == {"10 units": 31, "1 units": 4, "linear": 2}


@pytest.mark.slow
def test_what_is_wrong_is_said():
    model = mx.Model(mx.nets.MLP(1, (), 1, key=0), mx.likelihoods.Gaussian(scale=1.0))
    data = np.zeros((4, 1)), np.zeros(4)
    with pytest.raises(TypeError, match="models must be a dict"):
        compare_evidence({}, data, key=0)
    with pytest.raises(ValueError, match="held_out must be a pair"):
        compare_evidence({"a": model}, data, key=0, held_out=data[0])
    with pytest.raises(ValueError, match="held_out was not given"):
        _ = compare_evidence({"a": model}, data, key=0, method=METHOD).best_held_out
    with pytest.raises(TypeError):
        compare_evidence({"a": model}, data, key=0, method=VI())
