"""The MLP, its initialisers, and networks of the user."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx


@pytest.mark.parametrize("activation", [jax.nn.relu, jax.nn.gelu, jnp.tanh, jax.nn.sigmoid, jax.nn.silu])
@pytest.mark.parametrize("hidden", [(), (5,), (5, 4, 3)])
def test_mlp_has_the_layers_it_says(hidden, activation):
    net = mx.nets.MLP(3, hidden, 2, activation=activation, key=0)
    assert [layer.out_features for layer in net.layers] == [*hidden, 2]
    x = jnp.arange(3.0)
    expected = x
    for layer in net.layers[:-1]:
        expected = activation(layer.weight @ expected + layer.bias)
    expected = net.layers[-1].weight @ expected + net.layers[-1].bias
    np.testing.assert_allclose(net(x), expected, rtol=1e-5)


def test_dropout_is_on_with_a_key_and_off_without():
    net = mx.nets.MLP(3, (200,), 1, dropout=0.5, key=0)
    x = jnp.ones(3)
    assert net(x) == net(x)
    draws = jax.vmap(lambda k: net(x, key=k))(jax.random.split(jax.random.key(0), 4000))[:, 0]
    error = float(draws.std() / np.sqrt(4000))
    assert abs(float(draws.mean() - net(x)[0])) < 4.9 * error  # inverted dropout keeps the mean of a linear read-out
    assert error > 0


@pytest.mark.parametrize("norm", [None, eqx.nn.LayerNorm])
def test_call_batch_equals_vmap_of_the_call(norm):
    net = mx.nets.MLP(3, (8, 5), 2, norm=norm, activation=jax.nn.gelu, key=0)
    xs = jax.random.normal(jax.random.key(1), (17, 3))
    np.testing.assert_allclose(net.call_batch(xs), jax.vmap(net)(xs), rtol=1e-5, atol=1e-6)


def test_dropout_in_a_batch_drops_at_its_rate_independently_per_row():
    net = mx.nets.MLP(1, (400,), 1, dropout=0.25, activation=jnp.ones_like, key=0)
    net = eqx.tree_at(lambda n: n.layers[1].weight, net, jnp.ones((1, 400)))
    out = np.asarray(net.call_batch(jnp.zeros((3000, 1)), key=jax.random.key(0)))[:, 0] * 0.75
    error = np.sqrt(400 * 0.25 * 0.75)
    assert abs(out.mean() - 300) < 4.9 * error / np.sqrt(3000)
    assert abs(out.std() / error - 1) < 4.9 / np.sqrt(2 * 3000)


def test_norm_layers_are_applied():
    net = mx.nets.MLP(3, (4,), 1, norm=eqx.nn.LayerNorm, activation=lambda v: v, key=0)
    hidden = net.layers[0](jnp.arange(3.0))
    normal = (hidden - hidden.mean()) / jnp.sqrt(hidden.var() + 1e-5)
    np.testing.assert_allclose(net(jnp.arange(3.0)), net.layers[1](normal), rtol=1e-4)


def test_initialisers_have_their_variance():
    for initialiser, variance in (
        (mx.nets.he(), 2 / 300),
        (mx.nets.lecun(), 1 / 300),
        (mx.nets.glorot(), 2 / 700),
    ):
        weight = initialiser((400, 300), key=jax.random.key(0))
        assert abs(float(weight.var()) / variance - 1) < 0.03


def test_same_key_same_network_and_reinitialise_changes_it():
    a, b = mx.nets.MLP(3, (4,), 1, key=7), mx.nets.MLP(3, (4,), 1, key=7)
    assert eqx.tree_equal(a, b)
    fresh = a.reinitialise(jax.random.key(1))
    assert jax.tree.structure(fresh) == jax.tree.structure(a)
    assert not eqx.tree_equal(a, fresh)


@pytest.mark.parametrize(
    ("kwargs", "match"),
    [
        ({"in_size": 0}, "in_size must be an int >= 1, got 0"),
        ({"hidden": (4, -1)}, "hidden must be an int >= 1, got -1"),
        ({"out_size": 1.5}, "out_size must be an int"),
        ({"dropout": 1.0}, "dropout must be in"),
        ({"activation": "relu"}, "activation must be a function"),
    ],
)
@pytest.mark.usefixtures("as_users_run")
def test_bad_sizes_are_refused_by_name(kwargs, match):
    with pytest.raises((ValueError, TypeError), match=match):
        mx.nets.MLP(**({"in_size": 2, "hidden": (3,), "out_size": 1, "key": 0} | kwargs))


def _data():
    x = np.random.default_rng(0).normal(size=(64, 2))
    return x, x @ np.array([1.0, -1.0])


class TwoLayers(eqx.Module):
    first: eqx.nn.Linear
    second: eqx.nn.Linear

    def __call__(self, x):
        return self.second(jnp.tanh(self.first(x)))


def _flax():
    nnx = pytest.importorskip("flax.nnx")

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.first = nnx.Linear(2, 8, rngs=rngs)
            self.second = nnx.Linear(8, 1, rngs=rngs)

        def __call__(self, x):
            return self.second(nnx.tanh(self.first(x)))

    return Net(nnx.Rngs(0))


NETWORKS = {
    "equinox module": lambda: TwoLayers(*(eqx.nn.Linear(a, b, key=jax.random.key(a)) for a, b in ((2, 8), (8, 1)))),
    "equinox mlp": lambda: eqx.nn.MLP(2, 1, 8, 2, key=jax.random.key(0)),
    "flax nnx": _flax,
    "dict and function": lambda: (
        {"w": 0.5 * jax.random.normal(jax.random.key(0), (2, 8)), "v": jnp.ones((8, 1)) / 8},
        lambda p, x: jnp.tanh(x @ p["w"]) @ p["v"],
    ),
    "array and function": lambda: (jnp.zeros(2), lambda w, x: (w @ x)[None]),
    "batched function": lambda: mx.nets.Function(jnp.zeros((2, 1)), lambda w, x: x @ w, batched=True),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_of_every_form_are_trained_sampled_and_called(name):
    model = mx.Model(NETWORKS[name](), likelihood=mx.likelihoods.Gaussian(scale=0.1))
    posterior = mx.fit(model, _data(), mx.infer.MAP(num_epochs=2000, batch_size=None), key=0, num_chains=2)
    assert abs(float(posterior.predict([[0.5, 0.0]]).mean[0]) - 0.5) < 0.1
    nets = posterior.sample(3, key=1)
    assert all(leaf.shape[0] == 3 for leaf in jax.tree.leaves(eqx.filter(nets, eqx.is_inexact_array)))
    out = eqx.filter_vmap(lambda net: net(jnp.array([0.5, 0.0])))(nets)
    assert out.shape == (3, 1)


def test_a_flax_module_with_dropout_is_refused_loudly():
    nnx = pytest.importorskip("flax.nnx")
    net = nnx.Sequential(nnx.Linear(2, 2, rngs=nnx.Rngs(0)), nnx.Dropout(0.5, rngs=nnx.Rngs(0)))
    with pytest.raises(ValueError, match="Dropout"):
        mx.Model(net, likelihood=mx.likelihoods.Gaussian())


def test_something_that_is_no_network_is_refused():
    with pytest.raises(TypeError, match="network must be an Equinox module"):
        mx.Model("net", likelihood=mx.likelihoods.Gaussian())
