"""LeNet: shapes, the batch path, dropout, initialisation and storage."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from marginax.files import decode, encode
from marginax.nets.lenet import LeNet

SMALL = {"in_shape": (1, 16, 16), "channels": (3, 4), "hidden": 8, "out_size": 5}


@pytest.fixture
def images():
    return jax.random.normal(jax.random.key(1), (6, 1, 16, 16))


def plain(net, x):
    """The network written with XLA's convolution and reduce_window, activation first."""
    h = x
    for layer in net.convolutions:
        h = lax.conv_general_dilated(h[None], layer.weight, (1, 1), "VALID")[0] + layer.bias[:, None, None]
        h = lax.reduce_window(net.activation(h), -jnp.inf, lax.max, (1, 2, 2), (1, 2, 2), "VALID")
    h = net.activation(net.hidden.weight @ h.ravel() + net.hidden.bias)
    return net.output.weight @ h + net.output.bias


@pytest.mark.parametrize("activation", [jax.nn.relu, jax.nn.gelu, jnp.tanh])
def test_outputs_equal_those_of_the_plain_network(activation, images):
    net = LeNet(**SMALL, activation=activation, key=0)
    expected = jax.jit(jax.vmap(lambda x: plain(net, x)))(images)
    np.testing.assert_allclose(jax.jit(lambda xs: jax.vmap(net)(xs))(images), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(jax.jit(lambda xs: net.call_batch(xs))(images), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["examples", "batch"])
def test_gradients_of_an_ensemble_equal_those_of_the_plain_network(path, images):
    nets = eqx.filter_vmap(lambda key: LeNet(**SMALL, key=key))(jax.random.split(jax.random.key(0), 3))

    def gradients(call):
        def loss(net):
            return (jnp.sin(call(net)) * jnp.arange(1.0, 6.0)).sum()

        return eqx.filter_jit(eqx.filter_vmap(eqx.filter_grad(loss)))(nets)

    ours = gradients(lambda net: net.call_batch(images) if path == "batch" else jax.vmap(net)(images))
    expected = gradients(lambda net: jax.vmap(lambda x: plain(net, x))(images))
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)


def test_default_is_the_network_of_mnist():
    net = jax.eval_shape(lambda: LeNet(key=0))
    assert sum(leaf.size for leaf in jax.tree.leaves(net)) == 431_080
    assert jax.eval_shape(lambda net, x: net(x), net, jnp.ones((28, 28))).shape == (10,)
    assert jax.eval_shape(lambda net, x: net.call_batch(x), net, jnp.ones((3, 28, 28))).shape == (3, 10)


def test_single_channel_axis_may_be_left_out(images):
    net = LeNet(**SMALL, key=0)
    np.testing.assert_array_equal(eqx.filter_jit(net)(images[0]), eqx.filter_jit(net)(images[0, 0]))
    call = eqx.filter_jit(net.call_batch)
    np.testing.assert_array_equal(call(images), call(images[:, 0]))


@pytest.mark.slow
def test_dropout_acts_only_with_a_key(images):
    net, off = LeNet(**SMALL, dropout=0.5, key=0), LeNet(**SMALL, key=0)
    assert net.stochastic
    assert not off.stochastic
    call = eqx.filter_jit(lambda net, x, key: net(x, key=key))
    keys = jax.random.split(jax.random.key(0))
    np.testing.assert_array_equal(call(net, images[0], None), call(off, images[0], None))
    np.testing.assert_array_equal(call(off, images[0], keys[0]), call(off, images[0], None))
    a, b = (call(net, images[0], key) for key in keys)
    assert not np.allclose(a, b)
    np.testing.assert_array_equal(a, call(net, images[0], keys[0]))
    same = eqx.filter_jit(net.call_batch)(jnp.stack([images[0]] * 4), key=keys[0])
    assert len({tuple(row) for row in np.asarray(same).tolist()}) == 4  # every example has its own mask


def test_dropout_keeps_the_mean_of_a_linear_output(images):
    net = LeNet(**SMALL, dropout=0.3, key=0)
    h = jnp.ones((4000,))
    assert abs(float(net._drop(h, 0, jax.random.key(0)).mean()) - 1) < 0.05


def test_reinitialise_changes_the_weights_and_nothing_else(images):
    net = LeNet(**SMALL, activation=jnp.tanh, dropout=0.1, key=0)
    other = net.reinitialise(7)
    assert jax.tree.structure(net) == jax.tree.structure(other)
    assert not np.allclose(net(images[0]), other(images[0]))
    np.testing.assert_array_equal(net.reinitialise(0)(images[0]), net(images[0]))


def test_seed_and_key_give_the_same_network(images):
    np.testing.assert_array_equal(LeNet(**SMALL, key=3)(images[0]), LeNet(**SMALL, key=jax.random.key(3))(images[0]))


def test_survives_storage(images):
    net = LeNet(**SMALL, dropout=0.2, key=0)
    again = decode(*encode(net))
    assert again.dropout == 0.2
    np.testing.assert_array_equal(again.call_batch(images), net.call_batch(images))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"in_shape": (1, 0, 16)}, "in_shape must be positive ints"),
        ({"in_shape": (1, 12, 12)}, r"in_shape \(1, 12, 12\) is too small"),
        ({"channels": (3, -4)}, r"channels must be positive ints, got \(3, -4\)"),
        ({"hidden": 0}, "hidden must be positive ints, got 0"),
        ({"out_size": 0}, "out_size must be positive ints, got 0"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\), got 1.0"),
    ],
)
def test_bad_arguments_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        LeNet(**{**SMALL, **changes}, key=0)


def test_images_of_another_shape_are_refused():
    net = LeNet(**SMALL, key=0)
    with pytest.raises(ValueError, match=r"x must be an image of shape \(1, 16, 16\), got \(1, 15, 16\)"):
        net(jnp.ones((1, 15, 16)))
    with pytest.raises(ValueError, match=r"shape \(1, 16, 16\), got \(2, 16, 16\)"):
        net.call_batch(jnp.ones((6, 2, 16, 16)))
