"""Laplace: exact where the posterior is normal, its structures as defined, its predictions linearised."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax.curvature import Diagonal, Kronecker, add_batch, start_sums
from marginax.data import Batch
from marginax.infer import LBFGS, MAP, Laplace

NOISE, PRIOR = 0.3, 0.7
TRAINING = MAP(num_epochs=60, batch_size=None, optimiser=LBFGS())


@pytest.fixture(scope="module")
def linear():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(103, 3))
    y = x @ np.array([1.0, -2.0, 0.5]) + 0.4 + NOISE * rng.normal(size=103)
    net = mx.nets.MLP(3, (), 1, key=0)
    model = mx.Model(net, likelihood=mx.likelihoods.Gaussian(scale=NOISE), prior=mx.priors.Normal(scale=PRIOR))
    return model, x, y


@pytest.mark.parametrize("batch_size", [None, 16])  # 103 is no multiple of 16: the last batch must not count twice
def test_kronecker_is_exact_for_the_weights_of_a_single_linear_layer(linear, batch_size):
    model, x, y = linear
    mode = mx.fit(model, (x, y), TRAINING, key=0)
    data = (x, y) if batch_size is None else mx.data.Minibatches((x, y), batch_size=batch_size)
    posterior = mx.fit(model, data, Laplace(structure=Kronecker()), init=mode, key=1)
    exact = np.linalg.inv(x.T @ x / NOISE**2 + np.eye(3) / PRIOR**2)
    dense = np.asarray(posterior.covariance.dense())
    np.testing.assert_allclose(dense[:3, :3], exact, rtol=1e-4, atol=1e-8)
    np.testing.assert_allclose(dense[3, 3], 1 / (103 / NOISE**2 + 1 / PRIOR**2), rtol=1e-4)


def test_diagonal_is_the_inverse_of_the_diagonal_of_the_precision(linear):
    model, x, y = linear
    posterior = mx.fit(model, (x, y), Laplace(structure=Diagonal(), training=TRAINING), key=0)
    exact = 1 / (np.sum(x**2, 0) / NOISE**2 + 1 / PRIOR**2)
    np.testing.assert_allclose(np.diag(np.asarray(posterior.covariance.dense()))[:3], exact, rtol=1e-4)


def test_linearised_predictions_of_a_linear_model_have_the_exact_spread(linear):
    model, x, y = linear
    posterior = mx.fit(model, (x, y), Laplace(training=TRAINING), key=0)
    weights = np.linalg.inv(x.T @ x / NOISE**2 + np.eye(3) / PRIOR**2)
    at = x[:6]
    exact = np.einsum("ni,ij,nj->n", at, weights, at) + 1 / (103 / NOISE**2 + 1 / PRIOR**2)
    epistemic = posterior.predict(at, num_samples=20_000, key=4).epistemic
    assert (np.abs(epistemic / exact - 1) < 4.9 * np.sqrt(2 / 20_000)).all()


LIKELIHOODS = {
    "gaussian": (mx.likelihoods.Gaussian(scale=0.5), 1),
    "scale from the network": (mx.likelihoods.Gaussian(scale=mx.likelihoods.FromNetwork()), 2),
    "student t": (mx.likelihoods.StudentT(5.0, 0.5), 1),
    "laplace": (mx.likelihoods.Laplace(mx.likelihoods.FromNetwork()), 2),
    "bernoulli": (mx.likelihoods.Bernoulli(), 1),
    "categorical": (mx.likelihoods.Categorical(), 3),
    "poisson": (mx.likelihoods.Poisson(), 1),
}


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_fisher_information_is_the_covariance_of_the_score(name):
    likelihood, size = LIKELIHOODS[name]
    output = jnp.linspace(-0.6, 0.9, size)[None]
    num = 40_000
    draws = likelihood.distribution(output, {}).sample(jax.random.key(0), (num,))
    draws = draws.reshape(num, -1) if name != "categorical" else draws.reshape(num)
    draws = draws[:, 0] if draws.ndim == 2 else draws
    score = jax.vmap(jax.grad(lambda f, y: likelihood.log_prob(f[None], y[None], {})[0]), (None, 0))(output[0], draws)
    score = np.asarray(score, np.float64)
    products = score[:, :, None] * score[:, None, :]
    error = products.std(0) / np.sqrt(num)
    assert (np.abs(products.mean(0) - np.asarray(likelihood.fisher(output, {})[0])) < 4.9 * error + 1e-4).all()


@pytest.mark.parametrize("name", ["scale from the network", "categorical"])
def test_sums_of_a_deep_network_equal_those_of_explicit_jacobians(name):
    likelihood, size = LIKELIHOODS[name]
    model = mx.Model(mx.nets.MLP(3, (4, 5), size, activation=jax.nn.tanh, key=0), likelihood=likelihood)
    params = model.initial(size)
    x = jax.random.normal(jax.random.key(1), (9, 3))
    batch = Batch(x, jnp.zeros(9), jnp.arange(9), 9)
    jacobian = jax.jacobian(lambda p: model.output(p, x))(params).network
    fisher = likelihood.fisher(model.output(params, x), {})
    diagonal = add_batch(Diagonal(), start_sums(Diagonal(), model), model, params, batch, jnp.ones(9))
    factors = add_batch(Kronecker(), start_sums(Kronecker(), model), model, params, batch, jnp.ones(9))
    for layer, diag, kron in zip(jacobian.layers, diagonal, factors, strict=True):
        exact = jnp.einsum("nkoi,nkl,nloi->oi", layer.weight, fisher, layer.weight)
        np.testing.assert_allclose(diag.weight, exact, rtol=1e-3, atol=1e-6)
        bias = jnp.einsum("nko,nkl,nlp->op", layer.bias, fisher, layer.bias)
        np.testing.assert_allclose(kron.outputs, bias, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(factors[0].inputs, x.T @ x, rtol=1e-4)


def test_several_chains_give_a_mixture_and_spread_grows_away_from_the_data():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(60, 1))
    y = np.sin(3 * x[:, 0]) + 0.1 * rng.normal(size=60)
    model = mx.Model(mx.nets.MLP(1, (20,), 1, activation=jax.nn.tanh, key=0), likelihood=mx.likelihoods.Gaussian())
    posterior = mx.fit(model, mx.data.standardise((x, y)), Laplace(), key=0, num_chains=2)
    assert len(posterior.components) == 2
    prediction = posterior.predict([[0.0], [3.0]])
    assert prediction.epistemic[1] > 2 * prediction.epistemic[0] > 0


def test_what_cannot_be_done_is_said():
    x = np.zeros((4, 1, 28, 28))
    model = mx.Model(mx.nets.LeNet(key=0), likelihood=mx.likelihoods.Categorical())
    with pytest.raises(ValueError, match="handles linear layers, but the weight"):
        mx.fit(model, (x, np.arange(4)), Laplace(), key=0)
    custom = mx.likelihoods.Custom(lambda f, y: -((f[0] - y) ** 2))
    model = mx.Model(mx.nets.MLP(1, (), 1, key=0), likelihood=custom)
    with pytest.raises(NotImplementedError, match="no Fisher information"):
        mx.fit(model, (np.zeros((4, 1)), np.zeros(4)), Laplace(training=MAP(num_epochs=1)), key=0)
