"""Temporal convolution: against XLA's convolutions, causal, padded, in batches; images and tables as sequences."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import marginax as mx
from marginax.files import decode, encode
from marginax.nets import CausalConvolution, Columns, Patches, TemporalConvolution

SMALL = {"channels": (4, 4, 6), "kernel_size": 2}


def small(**changes):
    return TemporalConvolution(2, 3, **{**SMALL, **changes}, key=0)


def moved(net):
    return jax.tree.map(lambda leaf: leaf + 0.1, net)  # no bias is at 0


@pytest.fixture
def sequences():
    return jax.random.normal(jax.random.key(1), (3, 9, 2))


def convolved(layer, h):
    back = (layer.weight.shape[2] - 1) * layer.dilation
    y = lax.conv_general_dilated(h[None], layer.weight, (1,), [(back, 0)], rhs_dilation=(layer.dilation,))[0]
    return y + layer.bias[:, None]


def plain(net, x):
    h = x.T
    for block in net.blocks:
        rest = h if block.shortcut is None else block.shortcut.weight @ h + block.shortcut.bias[:, None]
        for layer in block.convolutions:
            h = jax.nn.relu(convolved(layer, h))
        h = jax.nn.relu(rest + h)
    return (net.output.weight @ h + net.output.bias[:, None]).T


def test_outputs_equal_those_of_the_plain_network(sequences):
    net = moved(small())

    @eqx.filter_jit
    def all_ways(net, xs):
        return jax.vmap(lambda x: plain(net, x))(xs), jax.vmap(net)(xs), net.call_batch(xs)

    expected, one_by_one, batch = all_ways(net, sequences)
    assert expected.shape == (3, 9, 3)
    np.testing.assert_allclose(one_by_one, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(batch, expected, rtol=1e-4, atol=1e-5)


def test_an_output_depends_on_as_many_steps_as_it_says_and_on_none_that_come_later():
    net = moved(small())
    x = jax.random.normal(jax.random.key(0), (30, 2))
    slopes = jax.jit(jax.jacobian(lambda x: net(x)[20].sum()))(x)
    seen = np.flatnonzero(np.abs(np.asarray(slopes)).sum(1))
    assert net.reach == 15
    assert seen.max() == 20
    assert seen.min() == 20 - net.reach + 1


@pytest.mark.parametrize("every_step", [True, False])
def test_padding_on_either_side_changes_nothing(every_step, sequences):
    net = moved(small(padded=True, every_step=every_step))
    x = jnp.concatenate([sequences[0], jnp.ones((9, 1))], axis=1)
    nothing = jnp.full((4, 3), jnp.nan).at[:, 2].set(0.0)
    call = eqx.filter_jit(lambda net, x: net.call_batch(x))
    alone = call(net, x[None])[0]
    both = call(net, jnp.stack([jnp.concatenate([x, nothing]), jnp.concatenate([nothing, x])]))
    if every_step:
        np.testing.assert_array_equal(both[0, 9:], 0.0)
        np.testing.assert_array_equal(both[1, :4], 0.0)
        both = jnp.stack([both[0, :9], both[1, 4:]])
    np.testing.assert_allclose(both, jnp.stack([alone, alone]), rtol=1e-5, atol=1e-6)


def test_gradients_are_finite_beside_padding_and_reach_every_weight(sequences):
    net = moved(small(padded=True))
    x = jnp.concatenate([sequences, jnp.ones((3, 9, 1))], axis=2).at[:, 5:].set(jnp.nan).at[:, 5:, 2].set(0.0)
    gradients = eqx.filter_jit(eqx.filter_grad(lambda net: jnp.sum(jnp.sin(net.call_batch(x)))))(net)
    assert all(np.isfinite(leaf).all() and np.any(leaf != 0) for leaf in jax.tree.leaves(gradients))


def test_a_mask_may_come_with_the_call(sequences):
    net, mask = moved(small(every_step=False)), jnp.arange(9) < 4
    np.testing.assert_allclose(net(sequences[0], mask=mask), net(sequences[0, :4]), rtol=1e-5)


def test_dropout_needs_a_key_and_differs_by_example(sequences):
    net, off, same = small(dropout=0.5), small(), jnp.stack([sequences[0]] * 3)
    assert (net.stochastic, off.stochastic) == (True, False)
    np.testing.assert_array_equal(net.call_batch(same), off.call_batch(same))
    noisy = net.call_batch(same, key=jax.random.key(0))
    assert len({tuple(row.ravel().tolist()) for row in np.asarray(noisy)}) == 3


def test_reinitialise_changes_the_weights_and_storage_changes_nothing():
    net = small(num_tokens=5, padded=True, every_step=False, dropout=0.1)
    other, again = net.reinitialise(7), decode(*encode(net))
    assert jax.tree.structure(net) == jax.tree.structure(other) == jax.tree.structure(again)
    assert not np.allclose(net.blocks[0].convolutions[0].weight, other.blocks[0].convolutions[0].weight)
    for same in (again, net.reinitialise(0)):
        for a, b in zip(jax.tree.leaves(net), jax.tree.leaves(same), strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_fit_learns_what_lies_back():
    """The target is the value three steps before the last, which a network that reaches so far can know."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 8, 1))
    net = TemporalConvolution(1, 1, channels=(8, 8), kernel_size=2, every_step=False, key=0)
    method = mx.infer.MAP(num_epochs=200, batch_size=None, optimiser=mx.infer.Adam(1e-2))
    posterior = mx.fit(mx.Model(net, mx.likelihoods.Gaussian(0.1)), (x, x[:, -4, 0]), method, key=0)
    assert np.mean((posterior.predict(x).mean - x[:, -4, 0]) ** 2) < 0.05


# ---- images and tables as sequences


def test_patches_are_squares_of_the_image():
    x = np.arange(2 * 4 * 6).reshape(2, 4, 6).astype(np.float32)
    patches = np.asarray(Patches((2, 4, 6), 2)(jnp.asarray(x)))
    expected = [x[:, i : i + 2, j : j + 2].ravel() for i in (0, 2) for j in (0, 2, 4)]
    np.testing.assert_array_equal(patches, expected)
    np.testing.assert_array_equal(Patches((1, 4, 6), 2)(jnp.asarray(x[0])), [row[:4] for row in expected])


def test_a_column_has_its_own_vector_and_its_own_slope():
    net = mx.nets.Transformer(6, 1, size=4, depth=1, num_heads=1, every_step=False, key=0)
    x = jnp.array([0.3, -2.0, 5.0])
    steps = net.inputs(Columns(3)(x).T)
    weight = net.inputs.weight
    np.testing.assert_allclose(steps, weight[:, :3] * x + weight[:, 3:] + net.inputs.bias[:, None], rtol=1e-5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Patches((1, 4, 6), 4), r"size must divide height and width of in_shape \(1, 4, 6\), got 4"),
        (lambda: Patches((1, 4, 6), 2)(jnp.ones((6, 4))), r"x must be an image of shape \(1, 4, 6\), got \(6, 4\)"),
        (lambda: Columns(3)(jnp.ones(4)), r"x must be a row of 3 columns, got shape \(4,\)"),
        (lambda: CausalConvolution(1, 1, 2, dilation=0, key=0), "dilation must be positive ints, got 0"),
        (lambda: small(channels=()), r"channels must be one positive int or more, got \(\)"),
        (lambda: small(dropout=1.5), r"dropout must be in \[0, 1\), got 1.5"),
        (lambda: small()(jnp.ones((9, 3))), r"x must have shape \(steps, 2\), got \(9, 3\)"),
    ],
)
def test_bad_arguments_are_named(make, message, as_users_run):
    with pytest.raises(ValueError, match=message):
        make()
