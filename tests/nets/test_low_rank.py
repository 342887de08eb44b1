"""Low-rank adapters: the only weights of a trained network, and every method runs on them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.nets.torch.test_stored import stored

import marginax as mx
from marginax.nets import MLP, LeNet, LowRankAdapted, Transformer
from marginax.testing import check_method

MAP = mx.infer.MAP(num_epochs=200, batch_size=None)


def regression(num=50, width=4, outputs=2):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(num, width)).astype(np.float32)
    return x, (x @ rng.normal(size=(width, outputs)) + 0.2 * rng.normal(size=(num, outputs))).astype(np.float32)


def with_random_adapters(net, key=9):
    """Both A and B away from their start."""
    flags = mx.nets.is_weight(net)
    keys = iter(jax.random.split(jax.random.key(key), 50))
    return jax.tree.map(
        lambda leaf, flag: leaf + 0.5 * jax.random.normal(next(keys), leaf.shape) if flag else leaf, net, flags
    )


NETWORKS = {
    "MLP": (lambda: MLP(4, (8,), 2, key=0), (4,)),
    "Transformer": (
        lambda: Transformer(3, 2, size=8, num_heads=2, depth=1, hidden=16, every_step=False, key=0),
        (5, 3),
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_it_starts_as_the_network_and_has_no_other_weights(name):
    make, shape = NETWORKS[name]
    plain = make()
    net = LowRankAdapted(plain, rank=2, key=1)
    x = jnp.asarray(np.random.default_rng(0).normal(size=(6, *shape)), jnp.float32)
    np.testing.assert_array_equal(net.call_batch(x), mx.nets.call_batched(plain, x))
    model = mx.Model(net, mx.likelihoods.Categorical())
    assert {leaf.path.split("/")[-2] for leaf in model.leaves} == {"adapter_in", "adapter_out"}
    moved = with_random_adapters(net)
    outputs = jax.vmap(moved)(x)
    assert not np.allclose(outputs, jax.vmap(net)(x), atol=1e-2)
    np.testing.assert_allclose(moved.call_batch(x), outputs, rtol=2e-4, atol=2e-5)
    merged = moved.merged()
    assert jax.tree.structure(merged) == jax.tree.structure(plain)
    np.testing.assert_allclose(jax.vmap(merged)(x), outputs, rtol=2e-4, atol=2e-5)


def test_layers_and_other_weights_are_chosen_by_pattern():
    net = LowRankAdapted(MLP(4, (8, 8), 2, key=0), rank=1, layers=("layers/1",), also=("layers/2/*",), key=1)
    model = mx.Model(net, mx.likelihoods.Categorical())
    assert [leaf.path.removeprefix("network/layers/") for leaf in model.leaves] == [
        "1/adapter_in/weight",
        "1/adapter_out/weight",
        "2/weight",
        "2/bias",
    ]
    with pytest.raises(ValueError, match="matches no layer"):
        LowRankAdapted(MLP(4, (), 2, key=0), rank=1, layers=("nothing",), key=1)
    with pytest.raises(ValueError, match="matches no weight"):
        LowRankAdapted(MLP(4, (), 2, key=0), rank=1, also=("nothing",), key=1)
    with pytest.raises(ValueError, match="convolutions/0 is Conv2d"):
        LowRankAdapted(LeNet(out_size=2, key=0), rank=1, layers=("convolutions/0", "output"), key=1)
    with pytest.raises(TypeError, match="layers must be a sequence"):
        LowRankAdapted(MLP(4, (), 2, key=0), rank=1, layers="*", key=1)


def adapted_line(width=4, outputs=2, rank=2):
    return with_random_adapters(LowRankAdapted(MLP(width, (), outputs, key=0), rank=rank, scale=0.7, key=1))


def test_with_a_fixed_laplace_is_the_closed_form():
    """Regression of what the network leaves on A x: mean, covariance and log evidence."""
    x, y = regression()
    net, noise, tau = adapted_line(), 0.3, 1.4
    subset = mx.Paths("*adapter_out*")
    model = mx.Model(net, mx.likelihoods.Gaussian(noise), mx.priors.Normal(tau), subset)
    training = mx.infer.MAP(num_epochs=200, batch_size=None, optimiser=mx.infer.LBFGS())
    posterior = mx.fit(
        model, (x, y), mx.infer.Laplace(mx.curvature.Kronecker(), training=training), key=0, progress=False
    )
    layer = net.network.layers[0]
    phi = 0.7 * x.astype(np.float64) @ np.asarray(layer.adapter_in.weight, np.float64).T
    left = y - (x @ np.asarray(layer.layer.weight).T + np.asarray(layer.layer.bias))
    precision = phi.T @ phi / noise**2 + np.eye(2) / tau**2
    mean = np.linalg.solve(precision, phi.T @ left / noise**2).T
    np.testing.assert_allclose(posterior.mean.network.network.layers[0].adapter_out.weight, mean, atol=1e-4)
    covariance = np.kron(np.eye(2), np.linalg.inv(precision))
    np.testing.assert_allclose(posterior.covariance.dense(), covariance, atol=1e-4 * np.abs(covariance).max())
    kernel = tau**2 * phi @ phi.T + noise**2 * np.eye(len(x))
    quadratic = np.sum(left * np.linalg.solve(kernel, left))
    evidence = -0.5 * (quadratic + 2 * np.linalg.slogdet(2 * np.pi * kernel)[1])
    np.testing.assert_allclose(posterior.log_evidence(), evidence, rtol=1e-4)


def test_kronecker_factors_of_both_are_their_blocks_of_the_ggn():
    """Of a linear network with normal noise, where they are exact; the dense GGN is that of plain derivatives."""
    x, y = regression()
    model = mx.Model(adapted_line(), mx.likelihoods.Gaussian(0.3), mx.priors.Normal(1.4))
    fits = [
        mx.fit(model, (x, y), mx.infer.Laplace(structure), init=model.network, key=0, progress=False)
        for structure in (mx.curvature.Kronecker(), mx.curvature.Dense())
    ]
    sizes = [leaf.size for leaf in jax.tree.leaves(fits[0].mean.network)]
    first = np.linalg.inv(np.asarray(fits[0].covariance.dense(), np.float64))
    second = np.linalg.inv(np.asarray(fits[1].covariance.dense(), np.float64))
    weights = model.network_weights
    flat, unravel = jax.flatten_util.ravel_pytree(weights)
    jacobian = jax.jacobian(
        lambda w: jax.vmap(model.network_of(mx.model.Params(unravel(w), {}, {})))(jnp.asarray(x)).ravel()
    )(flat)
    ggn = np.asarray(jacobian.T @ jacobian, np.float64) / 0.3**2 + np.eye(len(flat)) / 1.4**2
    np.testing.assert_allclose(second, ggn, rtol=1e-3, atol=1e-3 * np.abs(ggn).max())
    for start, size in zip(np.cumsum([0, *sizes]), sizes, strict=False):
        block = slice(start, start + size)
        np.testing.assert_allclose(first[block, block], ggn[block, block], atol=1e-3 * np.abs(ggn).max())
    assert np.abs(second[: sizes[0], sizes[0] :]).max() > 0.01 * np.abs(ggn).max()  # which Kronecker leaves out


METHODS = {
    "Laplace": mx.infer.Laplace(training=MAP),
    "diagonal": mx.infer.Laplace(mx.curvature.Diagonal(), training=MAP),
    "IVON": mx.infer.IVON(num_epochs=50, batch_size=None),
    "VI": mx.infer.VI(num_epochs=50, batch_size=None),
    "DeepEnsemble": mx.infer.DeepEnsemble(2, mx.infer.MAP(num_epochs=50, batch_size=None)),
    "SGHMC": mx.infer.SGHMC(num_warmup=10, num_samples=4, thin=2, batch_size=None, training=MAP),
}
QUICK = ("Laplace", "VI")
PARAMS = [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in METHODS]


@pytest.mark.parametrize("name", PARAMS)
def test_methods_run_on_them(name, tmp_path):
    """Only the adapters differ between draws; saved and loaded, and merged into plain weights."""
    x, y = regression()
    net = LowRankAdapted(MLP(4, (8,), 2, key=0), rank=2, key=1)
    model = mx.Model(net, mx.likelihoods.Gaussian())
    posterior = mx.fit(model, (x, y), METHODS[name], key=0, progress=False)
    prediction = posterior.predict(x)
    assert (prediction.epistemic > 0).all()
    posterior.save(tmp_path / "run")
    np.testing.assert_array_equal(mx.load(tmp_path / "run").predict(x).mean, prediction.mean)
    params = posterior.sample_params(3, key=jax.random.key(1))
    draws = model.sampled(params)
    merged = draws.merged()
    assert np.ptp(np.asarray(merged.layers[0].weight), axis=0).max() > 0
    assert np.ptp(np.asarray(merged.layers[0].bias), axis=0).max() == 0
    plain = mx.Model(MLP(4, (8,), 2, key=0), mx.likelihoods.Gaussian())
    assert jax.tree.structure(jax.tree.map(lambda leaf: leaf[0], merged)) == jax.tree.structure(plain.network)
    theirs = eqx.filter_vmap(lambda net: jax.vmap(net)(jnp.asarray(x)))(draws)
    ours = eqx.filter_vmap(lambda net: jax.vmap(net)(jnp.asarray(x)))(merged)
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_methods_keep_their_promises_on_them():
    from tests.infer.test_conformance import Problem

    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 4))
    net = LowRankAdapted(MLP(4, (6,), 2, activation=jnp.tanh, key=0), rank=2, key=1)
    problem = Problem(mx.Model(net, mx.likelihoods.Categorical()), (x, (x[:, 0] > 0).astype(np.int32)))
    check_method(mx.infer.IVON(num_epochs=20, batch_size=None), problem, any_network=False)


@pytest.mark.slow
def test_a_transformer_is_adapted_by_kronecker_laplace():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 5, 3)).astype(np.float32)
    y = (x[:, :, 0].mean(axis=1) > 0).astype(np.int32)
    net = LowRankAdapted(NETWORKS["Transformer"][0](), rank=2, scale=1.0, key=1)
    model = mx.Model(net, mx.likelihoods.Categorical())
    laplace = mx.infer.Laplace(training=mx.infer.MAP(num_epochs=600, batch_size=None))
    posterior = mx.fit(model, (x, y), laplace, key=0, progress=False)
    prediction = posterior.predict(x)
    frozen = np.argmax(jax.vmap(NETWORKS["Transformer"][0]())(x), axis=1)
    assert (prediction.labels == y).mean() > (frozen == y).mean() + 0.2
    assert (prediction.mutual_information > 0).all()
    assert all(type(block).__name__ == "KroneckerCurvature" for block in posterior.mode.curvature.blocks)


def test_a_network_from_pytorch_is_adapted():
    """An encoder with attention, as it was stored: its linear maps at every step too."""
    tree = stored("encoder")
    plain, x = tree["network"], jnp.asarray(tree["x"])
    net = LowRankAdapted(plain, rank=2, key=1)
    np.testing.assert_allclose(jax.vmap(net)(x), tree["y"], atol=1e-4)
    model = mx.Model(net, mx.likelihoods.Categorical())
    labels = np.arange(len(x)) % tree["y"].shape[1]
    laplace = mx.infer.Laplace(training=mx.infer.MAP(num_epochs=5, batch_size=None))
    posterior = mx.fit(model, (np.asarray(x), labels), laplace, key=0, progress=False)
    assert (posterior.predict(x).mutual_information > 0).all()
    merged = model.network_of(posterior.mean).merged()
    np.testing.assert_allclose(jax.vmap(merged)(x), jax.vmap(model.network_of(posterior.mean))(x), atol=1e-4)
    before, after = mx.nets.state_dict(plain), mx.nets.state_dict(merged)
    assert before.keys() == after.keys()
    moved = {name for name in before if not np.array_equal(before[name], after[name])}
    assert moved
    assert all(name.endswith("weight") for name in moved)
