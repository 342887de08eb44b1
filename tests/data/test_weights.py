"""A row with weight 2 is the row twice, in every density and every curvature."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax.curvature import GGN, Dense, EmpiricalFisher, Hessian, Kronecker
from marginax.data import Arrays, FullBatch, Minibatches

RNG = np.random.default_rng(0)
X, NOISE = RNG.normal(size=(12, 2)), RNG.normal(size=12)
TARGETS = {"numbers": X[:, 0] - 0.5 * X[:, 1] + 0.3 * NOISE, "classes": (X[:, 0] + 0.5 * NOISE > 0).astype(int)}
COUNTS = np.array([1, 2, 3, 0, 1, 1, 2, 0, 1, 1, 4, 1])


def _data(kind):
    """Weighted rows, and the same rows repeated."""
    y = TARGETS[kind]
    return Arrays(X, y, weight=COUNTS), Arrays(np.repeat(X, COUNTS, axis=0), np.repeat(y, COUNTS))


def _model(kind, hidden=(3,), likelihood=None):
    out_size = 1 if kind == "numbers" else 2
    default = mx.likelihoods.Gaussian() if kind == "numbers" else mx.likelihoods.Categorical()
    network = mx.nets.MLP(2, hidden, out_size, activation=jax.nn.tanh, key=0)
    return mx.Model(network, likelihood or default, mx.priors.Normal(1.0))


@pytest.mark.parametrize("kind", TARGETS)
def test_the_log_density_is_that_of_repeated_rows(kind):
    model = _model(kind)
    densities = []
    for data in _data(kind):
        source = FullBatch(data)
        params = model.init(source)
        density = jax.value_and_grad(lambda p, s=source: model.log_density(p, s.batch(0, key=jax.random.key(0))))
        densities.append(density(params))
    for one, other in zip(jax.tree.leaves(densities[0]), jax.tree.leaves(densities[1]), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-5)


def test_minibatches_of_weighted_rows_are_unbiased():
    model, (data, _) = _model("numbers"), _data("numbers")
    params = model.init(FullBatch(data))
    key = jax.random.key(1)
    parts = [model.scaled_log_likelihood(params, Minibatches(data, 4).batch(step, key=key)) for step in range(3)]
    whole = model.scaled_log_likelihood(params, FullBatch(data).batch(0, key=key))
    np.testing.assert_allclose(np.mean(parts), whole, rtol=1e-5)


CURVATURES = [(GGN(), Dense()), (GGN(), Kronecker()), (EmpiricalFisher(), Dense()), (Hessian(), Dense())]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "structure"), CURVATURES, ids=lambda each: type(each).__name__)
def test_the_curvature_is_that_of_repeated_rows(kind, structure):
    task = "classes" if isinstance(structure, Kronecker) else "numbers"
    model, found = _model(task, hidden=() if isinstance(kind, Hessian) else (3,)), []  # positive only there
    for data in _data(task):
        method = mx.infer.Laplace(structure=structure, kind=kind, training=None)
        posterior = mx.fit(model, Minibatches(data, 5), method, init=model.network, key=0, progress=False)
        found.append(posterior.mode)
    assert found[0].num_examples == COUNTS.sum()
    for one, other in zip(jax.tree.leaves(found[0]), jax.tree.leaves(found[1]), strict=True):
        np.testing.assert_allclose(np.asarray(one, float), np.asarray(other, float), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("structure", [Dense(), Kronecker()], ids=lambda each: type(each).__name__)
def test_a_laplace_approximation_counts_weights_and_the_rows_of_one_epoch(structure):
    """In batches of 5, of which the last is not full: curvature, likelihood and the number of rows behind them."""
    model, found = _model("numbers", hidden=()), []
    for data in _data("numbers"):
        method = mx.infer.Laplace(structure=structure, training=None)
        found.append(mx.fit(model, Minibatches(data, 5), method, init=model.network, key=0, progress=False).mode)
    assert found[0].num_examples == found[1].num_examples == COUNTS.sum()
    for one, other in zip(jax.tree.leaves(found[0]), jax.tree.leaves(found[1]), strict=True):
        np.testing.assert_allclose(np.asarray(one, float), np.asarray(other, float), rtol=2e-4, atol=2e-4)


@pytest.mark.slow
def test_the_posterior_of_a_linear_model_is_that_of_repeated_rows():
    """By Laplace, which is exact there, with the noise learned and the prior chosen by evidence."""
    model, found = _model("numbers", hidden=()), []
    for data in _data("numbers"):
        method = mx.infer.Laplace(structure=Dense(), tuning=mx.infer.Evidence())
        posterior = mx.fit(model, data, method, key=0, progress=False)
        prediction = posterior.predict(X)
        found.append((prediction.mean, prediction.std, np.sqrt(prediction.epistemic)))
    np.testing.assert_allclose(found[0], found[1], rtol=0.01, atol=0.005)


METHODS = [
    mx.infer.DropConnect(num_epochs=3, batch_size=6),
    mx.infer.AnchoredEnsemble(num_epochs=3, batch_size=6),
    mx.infer.VI(num_epochs=3, batch_size=6),
]


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS, ids=lambda each: type(each).__name__)
def test_weights_matter_to_methods_that_have_a_likelihood_of_their_own(method):
    model = _model("numbers", hidden=(), likelihood=mx.likelihoods.Gaussian(scale=0.5))
    y, weight = TARGETS["numbers"], np.where(np.arange(12) == 4, 5.0, 1.0)
    alike, ones, other = (
        mx.fit(model, data, method, num_chains=1, key=0, progress=False).predict(X).mean
        for data in (Arrays(X, y), Arrays(X, y, weight=np.ones(12)), Arrays(X, y, weight=weight))
    )
    np.testing.assert_allclose(alike, ones, rtol=1e-4, atol=1e-5)
    assert not np.allclose(alike, other, atol=1e-3)


def test_noise_of_targets_has_the_spread_of_repeated_rows():
    model, (data, repeated) = _model("numbers"), _data("numbers")
    params = model.init(FullBatch(data))
    spreads = []
    for each in (data, repeated):
        batch = FullBatch(each).batch(0, key=jax.random.key(0))
        noise = jax.random.normal(jax.random.key(1), (4000, batch.size, 1))
        spreads.append(jnp.std(jax.vmap(lambda n, b=batch: model.scaled_perturbation(params, b, n))(noise)))
    np.testing.assert_allclose(spreads[0], spreads[1], rtol=0.06)  # five standard errors


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.ones(5), r"one number for each of the 12 rows, got shape \(5,\)"),
        (-np.ones(12), "weight must be >= 0"),
        (np.zeros(12), "> 0 in some row"),
        (np.full(12, np.nan), "weight has 12 values that are NaN"),
    ],
)
def test_weights_that_cannot_be_meant_are_refused(weight, message):
    with pytest.raises(ValueError, match=message):
        Arrays(X, TARGETS["numbers"], weight=weight)


def test_weights_follow_their_rows():
    data = mx.data.standardise(Arrays(X, TARGETS["numbers"], weight=COUNTS))
    assert data.take(np.array([2, 10])).weight.tolist() == [3, 4]
