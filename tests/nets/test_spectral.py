"""Layers of bounded norm keep distances; with random features and a Laplace approximation they are an SNGP."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax.nets import MLP, Conv2d, RandomFeatures, ResidualMLP, SpectralNormalised, WithHead
from marginax.nets.spectral import SpectralLayer, spectral_norm
from marginax.testing import check_method

SNGP = {"subset": mx.LastLayer(), "predictive": mx.predict.Linearised(link=mx.predict.Probit())}


def enlarged(network, factor):
    """With weights that stretch."""
    return jax.tree.map(lambda leaf: factor * leaf if leaf.ndim > 1 else leaf, network)


# ---- norms


@pytest.mark.parametrize("shape", [(3, 7), (7, 3), (5, 5)])
def test_the_norm_is_the_largest_singular_value_and_so_is_its_derivative(shape):
    matrix = np.random.default_rng(0).normal(size=shape)
    u, values, v = np.linalg.svd(matrix)
    norm, slope = jax.value_and_grad(spectral_norm)(jnp.asarray(matrix))
    np.testing.assert_allclose(norm, values[0], rtol=1e-5)
    np.testing.assert_allclose(slope, np.outer(u[:, 0], v[0]), atol=1e-4)


def test_the_norm_is_found_where_singular_values_nearly_tie():
    """A random matrix of many units, a product with a flat spectrum, and nothing at all."""
    rng = np.random.default_rng(0)
    large = rng.normal(size=(300, 200)).astype(np.float32)
    flat = np.linalg.qr(rng.normal(size=(200, 200)))[0] * np.linspace(1, 0.99, 200)
    for matrix in (large, flat.astype(np.float32)):
        np.testing.assert_allclose(spectral_norm(jnp.asarray(matrix)), np.linalg.norm(matrix, 2), rtol=0.01)
    assert spectral_norm(jnp.zeros((3, 4))) == 0
    assert np.isfinite(jax.grad(spectral_norm)(jnp.zeros((3, 4)))).all()


def test_small_weights_are_left_alone_and_large_ones_scaled_to_the_bound():
    layer = MLP(6, (), 4, key=0).layers[0]
    for factor in (1e-3, 100.0):
        new = SpectralLayer.of(enlarged(layer, factor), 0.9)
        weight = np.asarray(new.scaled)
        expected = factor * np.asarray(layer.weight)
        if factor > 1:
            expected = 0.9 * expected / np.linalg.norm(expected, 2)
        np.testing.assert_allclose(weight, expected, rtol=1e-5)


@pytest.mark.parametrize("stride", [1, 2])
def test_convolutions_are_contractions(stride):
    """By the norm of the whole linear map, written out."""
    layer = SpectralLayer.of(Conv2d(2, 3, 3, stride=stride, padding=1, key=0), 0.9)
    layer = SpectralLayer(50.0 * layer.weight, None, layer.bound, layer.window)
    matrix = jax.jacobian(lambda x: layer(x.reshape(2, 6, 6)).ravel())(jnp.zeros(72))
    norm = np.linalg.norm(np.asarray(matrix), 2)
    assert norm <= 0.9 * (1 + 1e-5)
    assert norm > 0.3


def test_residual_blocks_keep_distances():
    """Within the bounds of three blocks and of the linear map before them, however large the weights."""
    body = SpectralNormalised(enlarged(ResidualMLP(5, 8, 3, key=0), 30.0), bound=0.6)
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=(500, 5)) for _ in range(2))
    first = body.network.inputs
    start = np.linalg.norm((a - b) @ np.asarray(first.scaled).T, axis=1)
    moved = np.linalg.norm(np.asarray(jax.vmap(body)(a)) - np.asarray(jax.vmap(body)(b)), axis=1)
    assert (moved >= 0.4**3 * start * (1 - 1e-4)).all()
    assert (moved <= 1.6**3 * start * (1 + 1e-4)).all()
    wild = enlarged(ResidualMLP(5, 8, 3, key=0), 30.0)
    stretched = np.linalg.norm(np.asarray(jax.vmap(wild)(a)) - np.asarray(jax.vmap(wild)(b)), axis=1)
    assert (stretched > 1.6**3 * np.linalg.norm(a - b, axis=1)).mean() > 0.9


def test_batches_give_what_examples_give():
    net = WithHead(SpectralNormalised(ResidualMLP(3, 8, 2, key=0)), RandomFeatures(8, 20, 2, key=1))
    xs = np.random.default_rng(0).normal(size=(70, 3))
    np.testing.assert_allclose(net.call_batch(jnp.asarray(xs)), jax.vmap(net)(xs), rtol=1e-4, atol=1e-5)
    lenet = SpectralNormalised(mx.nets.LeNet(channels=(2, 3), hidden=4, out_size=3, key=0))
    images = np.random.default_rng(0).normal(size=(4, 28, 28))
    np.testing.assert_allclose(lenet.call_batch(jnp.asarray(images)), jax.vmap(lenet)(images), rtol=1e-4, atol=1e-5)


def test_methods_see_no_layer_where_weights_are_scaled():
    """A hook would take the product with the scaled weight for one with the weight itself."""
    net = WithHead(SpectralNormalised(ResidualMLP(3, 8, 2, key=0)), RandomFeatures(8, 20, 2, key=1))
    assert mx.nets.layer_paths(net) == ["head/output"]
    model = mx.Model(net, mx.likelihoods.Categorical())
    assert mx.LastLayer().select([leaf.path for leaf in model.leaves]) == [False] * 6 + [True]


def test_fresh_weights_keep_the_architecture():
    net = WithHead(SpectralNormalised(ResidualMLP(3, 8, 2, key=0)), RandomFeatures(8, 20, 2, key=1))
    fresh = mx.nets.reinitialise(net, key=jax.random.key(5))
    assert jax.tree.structure(fresh) == jax.tree.structure(net)
    assert not np.allclose(fresh.body.layers[0].weight, net.body.layers[0].weight)
    np.testing.assert_array_equal(fresh.head.fixed.tree["phases"], net.head.fixed.tree["phases"])


def test_layers_whose_norm_is_not_known_are_refused_by_name():
    import equinox as eqx

    with pytest.raises(ValueError, match="Conv1d at layers/0"):
        SpectralNormalised(eqx.nn.Sequential([eqx.nn.Conv1d(1, 1, 3, key=jax.random.key(0))]))
    with pytest.raises(ValueError, match="bound must be > 0"):
        SpectralNormalised(ResidualMLP(2, 4, 1, key=0), bound=0.0)
    with pytest.raises(ValueError, match="length_scale must be > 0"):
        RandomFeatures(2, 4, 1, length_scale=0.0, key=0)


# ---- a Gaussian process


def rows(num=30):
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.5, 1.5, size=(num, 2)).astype(np.float32)
    return x, (np.sin(2 * x[:, 0]) * x[:, 1] + 0.1 * rng.normal(size=num)).astype(np.float32)


def gaussian_process(head, gain, noise, x, y, x_new):
    """Mean and variance of the function, by kernels in float64."""
    of = lambda x: np.asarray(jax.vmap(head.features)(x), np.float64)  # noqa: E731
    scale = gain**2 / head.output.weight.shape[1]
    kernel = lambda a, b: scale * of(a) @ of(b).T  # noqa: E731
    solve = np.linalg.solve(kernel(x, x) + noise**2 * np.eye(len(x)), np.column_stack([y, kernel(x, x_new)]))
    cross = kernel(x_new, x)
    return cross @ solve[:, 0], np.diag(kernel(x_new, x_new) - cross @ solve[:, 1:])


@pytest.mark.parametrize("structure", [mx.curvature.Dense(), mx.curvature.Kronecker()], ids=["dense", "kronecker"])
def test_on_features_that_stay_it_is_gaussian_process_regression(structure):
    """Mean and variance to 1e-4."""
    x, y = rows()
    head, gain, noise = RandomFeatures(2, 50, 1, length_scale=1.0, key=0), 1.3, 0.2
    prior = mx.priors.Normal(mx.priors.FanIn(gain))
    model = mx.Model(head, mx.likelihoods.Gaussian(noise), prior)
    training = mx.infer.MAP(num_epochs=300, batch_size=None, optimiser=mx.infer.LBFGS())
    posterior = mx.fit(model, (x, y), mx.infer.Laplace(structure, training=training, **SNGP), key=0, progress=False)
    x_new = np.random.default_rng(1).normal(size=(20, 2)).astype(np.float32)
    mean, variance = gaussian_process(head, gain, noise, x, y, x_new)
    prediction = posterior.predict(x_new)
    np.testing.assert_allclose(prediction.mean, mean, atol=1e-4)
    np.testing.assert_allclose(prediction.epistemic, variance, atol=1e-4)


def test_the_kernel_is_the_squared_exponential():
    """Within five standard errors of the mean over features, whose products have a variance below 1."""
    head = RandomFeatures(3, 40_000, 1, length_scale=1.7, key=0)
    a, b = np.random.default_rng(0).normal(size=(2, 6, 3)).astype(np.float32)
    products = np.asarray(jax.vmap(head.features)(a) * jax.vmap(head.features)(b), np.float64)
    expected = np.exp(-0.5 * np.sum((a - b) ** 2, axis=1) / 1.7**2)
    error = products.std(axis=1) / np.sqrt(products.shape[1])
    assert (np.abs(products.mean(axis=1) - expected) < 4.9 * error).all()


@pytest.mark.slow
def test_variance_grows_away_from_the_data_and_saturates_at_that_of_the_prior():
    x, y = rows(60)
    net = WithHead(
        SpectralNormalised(ResidualMLP(2, 16, 3, key=0)), RandomFeatures(16, 500, 1, length_scale=2.0, key=1)
    )
    model = mx.Model(net, mx.likelihoods.Gaussian(0.1), mx.priors.Normal(mx.priors.FanIn(1.0)))
    method = mx.infer.Laplace(training=mx.infer.MAP(num_epochs=500, batch_size=None), **SNGP)
    posterior = mx.fit(model, (x, y), method, key=0, progress=False)
    angles = np.linspace(0, 2 * np.pi, 8, endpoint=False)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    there = np.concatenate([radius * circle for radius in (0.5, 3.0, 6.0, 12.0, 100.0)]).astype(np.float32)
    trained = model.network_of(posterior.mean)
    features = np.asarray(jax.vmap(lambda h: trained.head.features(trained.body(h)))(there))
    prior = np.mean(features**2, axis=1)
    variances = posterior.predict(there).epistemic
    assert (variances <= prior * (1 + 1e-3)).all()
    ratio = (variances / prior).reshape(5, 8).mean(axis=1)
    assert ratio[0] < 0.1
    assert ratio[0] < ratio[1] < ratio[2]
    np.testing.assert_allclose(ratio[3:], 1, atol=0.15)


@pytest.mark.slow
def test_it_is_saved_and_loaded_convolutions_too(tmp_path):
    x = np.random.default_rng(0).normal(size=(6, 1, 28, 28)).astype(np.float32)
    network = mx.nets.LeNet(channels=(2, 3), hidden=4, out_size=1, key=0)
    net = WithHead(SpectralNormalised(network), RandomFeatures(1, 5, 1, key=1))
    model = mx.Model(net, mx.likelihoods.Gaussian(0.1))
    method = mx.infer.Laplace(training=mx.infer.MAP(num_epochs=3, batch_size=None), **SNGP)
    posterior = mx.fit(model, (x, x[:, 0, 0, 0]), method, key=0, progress=False)
    posterior.save(tmp_path / "run")
    np.testing.assert_array_equal(mx.load(tmp_path / "run").predict(x).std, posterior.predict(x).std)


@pytest.mark.slow
def test_it_keeps_the_promises_of_methods():
    from tests.infer.test_conformance import Problem

    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 2))
    net = WithHead(SpectralNormalised(ResidualMLP(2, 4, 2, key=0)), RandomFeatures(4, 10, 2, key=1))
    problem = Problem(mx.Model(net, mx.likelihoods.Categorical()), (x, (x[:, 0] > 0).astype(np.int32)))
    method = mx.infer.Laplace(training=mx.infer.MAP(num_epochs=20, batch_size=None), **SNGP)
    check_method(method, problem, any_network=False)
