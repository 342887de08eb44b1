"""U-Net: against one written with XLA's convolutions, in batches, with dropout, stored and refused."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import marginax as mx
from marginax.nets import UNet

SMALL = {"in_shape": (2, 8, 4), "channels": (4, 6, 8), "out_channels": 3, "groups": 2}


@pytest.fixture
def images():
    return jax.random.normal(jax.random.key(1), (3, 2, 8, 4))


def convolved(layer, h):
    padding = [(layer.weight.shape[2] // 2,) * 2] * 2
    return lax.conv_general_dilated(h[None], layer.weight, (1, 1), padding)[0] + layer.bias[:, None, None]


def plain_level(level, h):
    for i, layer in enumerate(level.convolutions):
        h = convolved(layer, h)
        h = jax.nn.relu(level.norms[i](h) if level.norms else h)  # Equinox's own group normalisation
    return h


def plain(net, x):
    """Enlarged first and mapped after, unlike the network."""
    skips = [plain_level(net.down[0], x)]
    for level in net.down[1:]:
        pooled = lax.reduce_window(skips[-1], -jnp.inf, lax.max, (1, 2, 2), (1, 2, 2), "VALID")
        skips.append(plain_level(level, pooled))
    h = skips.pop()
    for layer, level in zip(net.up_convolutions, net.up, strict=True):
        h = convolved(layer, jnp.repeat(jnp.repeat(h, 2, axis=1), 2, axis=2))
        h = plain_level(level, jnp.concatenate([skips.pop(), h]))
    return convolved(net.output, h)


@pytest.mark.parametrize("groups", [2, None])
def test_outputs_equal_those_of_the_plain_network(groups, images):
    net = UNet(**{**SMALL, "groups": groups}, key=0)
    net = jax.tree.map(lambda leaf: leaf + 0.1, net)  # no bias and no factor of a norm is at 0 or 1

    @eqx.filter_jit
    def all_ways(net, xs):
        return jax.vmap(lambda x: plain(net, x))(xs), jax.vmap(net)(xs), net.call_batch(xs)

    expected, one_by_one, batch = all_ways(net, images)
    assert expected.shape == (3, 3, 8, 4)
    np.testing.assert_allclose(one_by_one, expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(batch, expected, rtol=1e-3, atol=1e-4)


def test_gradients_are_finite_and_reach_every_weight(images):
    net = UNet(**{**SMALL, "channels": (4, 6)}, activation=jnp.tanh, key=0)
    gradients = eqx.filter_jit(eqx.filter_grad(lambda net: jnp.sum(jnp.sin(net.call_batch(images)))))(net)
    assert all(np.isfinite(leaf).all() and np.any(leaf != 0) for leaf in jax.tree.leaves(gradients))


def test_default_sizes_are_those_of_segmentation():
    net = jax.eval_shape(lambda: UNet((1, 128, 128), key=0))
    assert [level.convolutions[1].weight.shape[0] for level in net.down] == [32, 64, 128, 192]
    assert jax.eval_shape(lambda net, x: net.call_batch(x), net, jnp.ones((2, 128, 128))).shape == (2, 1, 128, 128)


def test_dropout_needs_a_key_and_differs_by_example(images):
    small = {**SMALL, "channels": (4,)}
    net, off = UNet(**small, dropout=0.5, key=0), UNet(**small, key=0)
    assert (net.stochastic, off.stochastic) == (True, False)
    same = jnp.stack([images[0]] * 3)
    call = eqx.filter_jit(lambda net, key: net.call_batch(same, key=key))
    np.testing.assert_array_equal(call(net, None), call(off, None))
    assert len({tuple(row.ravel().tolist()) for row in np.asarray(call(net, jax.random.key(0)))}) == 3


def test_reinitialise_changes_the_weights_and_nothing_else():
    net = UNet(**SMALL, activation=jnp.tanh, dropout=0.1, key=0)
    other = net.reinitialise(7)
    assert jax.tree.structure(net) == jax.tree.structure(other)
    assert not np.allclose(net.up[0].convolutions[0].weight, other.up[0].convolutions[0].weight)
    for a, b in zip(jax.tree.leaves(net), jax.tree.leaves(net.reinitialise(0)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_fitted_network_predicts_the_same_after_it_is_loaded(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(6, 1, 4, 4)), rng.normal(size=(6, 16))
    net = UNet((1, 4, 4), (2, 4), 1, groups=None, key=0)
    raveled = eqx.nn.Sequential([net, eqx.nn.Lambda(jnp.ravel)])
    posterior = mx.fit(mx.Model(raveled, mx.likelihoods.Gaussian(0.5)), (x, y), mx.infer.MAP(num_epochs=1), key=0)
    posterior.save(tmp_path / "run")
    np.testing.assert_array_equal(mx.load(tmp_path / "run").predict(x).mean, posterior.predict(x).mean)


def test_a_model_of_images_says_how_to_make_vectors_of_them(as_users_run):
    model = mx.Model(UNet((1, 4, 4), (2,), 1, groups=None, key=0), mx.likelihoods.Gaussian())
    with pytest.raises(ValueError, match=r"got \(1, 4, 4\): .* eqx.nn.Sequential\(\[network, eqx.nn.Lambda"):
        mx.fit(model, (np.ones((3, 1, 4, 4)), np.ones((3, 16))), mx.infer.MAP(num_epochs=1), key=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"in_shape": (2, 8, 6)}, r"multiples of 4 for 3 levels, got \(2, 8, 6\): pad the images"),
        ({"in_shape": (8, 8)}, r"in_shape must be \(channels, height, width\), got \(8, 8\)"),
        ({"channels": ()}, r"channels must be one positive int or more, got \(\)"),
        ({"groups": 4}, r"groups must divide all channels \(4, 6, 8\), or be None, got 4"),
        ({"groups": 0}, "groups must be positive ints, got 0"),
        ({"out_channels": 0}, "out_channels must be positive ints, got 0"),
        ({"dropout": -0.1}, r"dropout must be in \[0, 1\), got -0.1"),
    ],
)
def test_bad_arguments_are_named(changes, message, as_users_run):
    with pytest.raises(ValueError, match=message):
        UNet(**{**SMALL, **changes}, key=0)
