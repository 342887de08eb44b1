"""Convolutional encoder and decoder: against XLA's convolutions, in batches, with dropout, stored and refused."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import marginax as mx
from marginax.files import decode, encode
from marginax.nets import ConvDecoder, ConvEncoder
from marginax.nets.conv_coders import pixel_shuffle

ENCODER = {"in_shape": (1, 7, 6), "channels": (2, 3), "out_size": 4}
DECODER = {"in_size": 4, "channels": (3, 2), "out_shape": (1, 7, 6)}


def convolved(layer, h, stride):
    bias = layer.bias[:, None, None]
    return lax.conv_general_dilated(h[None], layer.weight, (stride, stride), [(1, 1), (1, 1)])[0] + bias


def plain_encoder(net, x):
    h = x
    for layer in net.convolutions:
        h = net.activation(convolved(layer, h, 2))
    return net.output.weight @ h.ravel() + net.output.bias


def shuffled(h):
    """Channels (a, b, c) of pixel (i, j) to channel c of pixel (2i + a, 2j + b), one by one."""
    num, height, width = h.shape[0] // 4, *h.shape[1:]
    image = np.zeros((num, 2 * height, 2 * width))
    for a in range(2):
        for b in range(2):
            for c in range(num):
                image[c, a::2, b::2] = h[(2 * a + b) * num + c]
    return image


def plain_decoder(net, z):
    h = np.maximum(net.inputs.weight @ z + net.inputs.bias, 0).reshape(3, 2, 2)
    h = shuffled(convolved(net.convolutions[0], h, 1))[:, :4, :3]
    return shuffled(convolved(net.convolutions[1], jnp.maximum(jnp.asarray(h, jnp.float32), 0), 1))[:, :7, :6]


def both_ways(net, xs):
    return eqx.filter_jit(lambda net, xs: (jax.vmap(net)(xs), net.call_batch(xs)))(net, xs)


def test_encoder_equals_the_plain_network():
    net, xs = ConvEncoder(**ENCODER, key=0), jax.random.normal(jax.random.key(1), (5, 1, 7, 6))
    expected = [plain_encoder(net, x) for x in xs]
    for outputs in both_ways(net, xs):
        np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-5)


def test_decoder_equals_the_plain_network():
    net, zs = ConvDecoder(**DECODER, key=0), jax.random.normal(jax.random.key(1), (3, 4))
    expected = [plain_decoder(net, z) for z in zs]
    for outputs in both_ways(net, zs):
        np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-5)


def test_pixel_shuffle_has_an_axis_of_examples_or_none():
    x = np.random.default_rng(0).normal(size=(8, 3, 2, 4))
    np.testing.assert_array_equal(pixel_shuffle(jnp.asarray(x))[..., 1], shuffled(x[..., 1].astype(np.float32)))


def test_images_may_be_raveled_or_have_no_axis_of_channels():
    net, x = ConvEncoder(**ENCODER, key=0), jax.random.normal(jax.random.key(1), (1, 7, 6))
    call = eqx.filter_jit(net)
    np.testing.assert_array_equal(call(x), call(x[0]))
    np.testing.assert_array_equal(call(x), call(x.ravel()))


@pytest.mark.parametrize(("make", "shape"), [(ConvEncoder, (1, 7, 6)), (ConvDecoder, (4,))])
def test_gradients_are_finite_and_reach_every_weight(make, shape):
    net, xs = make(**(ENCODER if make is ConvEncoder else DECODER), activation=jnp.tanh, key=0), jnp.ones((2, *shape))
    gradients = eqx.filter_jit(eqx.filter_grad(lambda net: jnp.sum(jnp.sin(net.call_batch(xs)))))(net)
    assert all(np.isfinite(leaf).all() and np.any(leaf != 0) for leaf in jax.tree.leaves(gradients))


@pytest.mark.parametrize(("make", "shape"), [(ConvEncoder, (1, 7, 6)), (ConvDecoder, (4,))])
def test_dropout_needs_a_key_and_differs_by_example(make, shape):
    settings = ENCODER if make is ConvEncoder else DECODER
    net, off, x = make(**settings, dropout=0.5, key=0), make(**settings, key=0), jnp.ones((4, *shape))
    assert (net.stochastic, off.stochastic) == (True, False)
    call = eqx.filter_jit(lambda net, key: net.call_batch(x, key=key))
    np.testing.assert_array_equal(call(net, None), call(off, None))
    rows = np.asarray(call(net, jax.random.key(0))).reshape(4, -1)
    assert len({tuple(row) for row in rows.tolist()}) == 4


def test_reinitialise_changes_the_weights_and_nothing_else():
    for net in (ConvEncoder(**ENCODER, activation=jnp.tanh, dropout=0.1, key=0), ConvDecoder(**DECODER, key=0)):
        other = net.reinitialise(7)
        assert jax.tree.structure(net) == jax.tree.structure(other)
        weights = [leaf for leaf in zip(jax.tree.leaves(net), jax.tree.leaves(other), strict=True) if leaf[0].ndim > 1]
        assert not any(np.allclose(a, b) for a, b in weights)
        for a, b in zip(jax.tree.leaves(net), jax.tree.leaves(net.reinitialise(0)), strict=True):
            np.testing.assert_array_equal(a, b)


def test_decoder_survives_storage():
    net, zs = ConvDecoder(**DECODER, key=0), jnp.ones((2, 4))
    np.testing.assert_array_equal(decode(*encode(net)).call_batch(zs), net.call_batch(zs))


def test_a_fitted_encoder_predicts_the_same_after_it_is_loaded(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(12, 1, 7, 6)), rng.normal(size=(12, 4))
    model = mx.Model(ConvEncoder(**ENCODER, key=0), mx.likelihoods.Gaussian(0.5))
    posterior = mx.fit(model, (x, y), mx.infer.MAP(num_epochs=2), key=0)
    posterior.save(tmp_path / "run")
    np.testing.assert_array_equal(mx.load(tmp_path / "run").predict(x).mean, posterior.predict(x).mean)


@pytest.mark.parametrize(
    ("make", "changes", "message"),
    [
        (ConvEncoder, {"in_shape": (7, 6)}, r"in_shape must be \(channels, height, width\), got \(7, 6\)"),
        (ConvEncoder, {"in_shape": (1, 0, 6)}, "in_shape must be positive ints"),
        (ConvEncoder, {"channels": ()}, r"channels must be one positive int or more, got \(\)"),
        (ConvEncoder, {"channels": (2, -1)}, r"channels must be positive ints, got \(2, -1\)"),
        (ConvEncoder, {"out_size": 0}, "out_size must be positive ints, got 0"),
        (ConvEncoder, {"dropout": 1.0}, r"dropout must be in \[0, 1\), got 1.0"),
        (ConvDecoder, {"in_size": 0}, "in_size must be positive ints, got 0"),
        (ConvDecoder, {"out_shape": (1, 7)}, r"out_shape must be \(channels, height, width\), got \(1, 7\)"),
    ],
)
def test_bad_arguments_are_named(make, changes, message, as_users_run):
    settings = ENCODER if make is ConvEncoder else DECODER
    with pytest.raises(ValueError, match=message):
        make(**{**settings, **changes}, key=0)


def test_images_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"x must be an image of shape \(1, 7, 6\), got \(6, 7\)"):
        ConvEncoder(**ENCODER, key=0)(jnp.ones((6, 7)))
