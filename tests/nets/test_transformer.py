"""The transformer: against attention in NumPy, with padding and causality, stored and refused."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax.nets import Transformer
from marginax.nets.transformer import sinusoids

SMALL = {"in_size": 3, "out_size": 2, "size": 6, "depth": 2, "num_heads": 2, "hidden": 5}
STEPS = 5


def network(**changes):
    """With no bias at 0 and no factor of a norm at 1."""
    leaves, treedef = jax.tree.flatten(Transformer(**{**SMALL, **changes}, key=0))
    rng = np.random.default_rng(0)
    return jax.tree.unflatten(treedef, [leaf + 0.2 * rng.normal(size=leaf.shape).astype("f") for leaf in leaves])


@pytest.fixture
def x():
    return jnp.asarray(np.random.default_rng(1).normal(size=(STEPS, 3)), jnp.float32)


def normalised(norm, h):
    mean, variance = h.mean(-1, keepdims=True), h.var(-1, keepdims=True)
    return (h - mean) / np.sqrt(variance + 1e-5) * np.asarray(norm.weight) + np.asarray(norm.bias)


def mapped(layer, h):
    return h @ np.asarray(layer.weight, float).T + np.asarray(layer.bias, float)


def gelu(a):
    return 0.5 * a * (1 + np.tanh(math.sqrt(2 / math.pi) * (a + 0.044715 * a**3)))


def plain(net, x, *, causal=False):
    """Head by head and query by query, with the steps first."""
    h = mapped(net.inputs, np.asarray(x, float))
    steps, size = h.shape
    for t in range(steps):
        for i in range(size // 2):
            angle = t / 10_000 ** (2 * i / size)
            h[t, i] += math.sin(angle)
            h[t, size // 2 + i] += math.cos(angle)
    for block in net.blocks:
        a = normalised(block.attention_norm, h)
        queries, keys, values = np.split(mapped(block.projections, a), 3, axis=1)
        found, width = np.zeros_like(h), size // block.num_heads
        for head in range(block.num_heads):
            part = slice(head * width, (head + 1) * width)
            for t in range(steps):
                end = t + 1 if causal else steps
                scores = np.array([queries[t, part] @ keys[s, part] / math.sqrt(width) for s in range(end)])
                weights = np.exp(scores - scores.max())
                found[t, part] = weights / weights.sum() @ values[:end, part]
        h = h + mapped(block.attention_output, found)
        h = h + mapped(block.output, gelu(mapped(block.hidden, normalised(block.norm, h))))
    return normalised(net.norm, h)


@pytest.mark.parametrize("causal", [False, True])
def test_outputs_equal_those_of_loops(causal, x):
    net = network(causal=causal)
    call = eqx.filter_jit(lambda net, xs: (net(xs[0]), net.call_batch(xs)))
    one, batch = call(net, jnp.stack([x, -x]))
    np.testing.assert_allclose(one, mapped(net.output, plain(net, x, causal=causal)), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(batch[0], one, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(batch[1], mapped(net.output, plain(net, -x, causal=causal)), rtol=1e-3, atol=1e-4)


def test_the_mean_over_steps_is_read_out(x):
    net = network(every_step=False)
    np.testing.assert_allclose(net(x), mapped(net.output, plain(net, x).mean(0)), rtol=1e-3, atol=1e-4)


def test_an_odd_number_of_features_has_positions():
    assert sinusoids(5, 3).shape == (5, 3)


def test_the_future_changes_nothing_if_causal(x):
    changed = x.at[3:].add(1.0)
    call = eqx.filter_jit(lambda net, x: net(x))
    causal, plain = network(causal=True), network()
    np.testing.assert_allclose(call(causal, changed)[:3], call(causal, x)[:3], rtol=1e-6, atol=1e-6)
    assert np.all(np.abs(call(causal, changed)[3:] - call(causal, x)[3:]).max(1) > 1e-3)
    assert np.abs(call(plain, changed)[:3] - call(plain, x)[:3]).max() > 1e-3


@pytest.mark.parametrize("every_step", [True, False])
def test_padding_changes_nothing_whatever_is_there(every_step, x):
    net = network(every_step=every_step)
    filled, mask = x.at[3:].set(jnp.nan), jnp.arange(STEPS) < 3
    call = eqx.filter_jit(lambda net, x, mask: net(x, mask=mask))
    short, padded = net(x[:3]), call(net, filled, mask)
    expected = jnp.concatenate([short, jnp.zeros((2, 2))]) if every_step else short
    np.testing.assert_allclose(padded, expected, rtol=1e-4, atol=1e-5)
    gradients = eqx.filter_jit(eqx.filter_grad(lambda net: jnp.sum(net(filled, mask=mask) ** 2)))(net)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients))
    assert np.isfinite(call(net, filled, jnp.zeros(STEPS, bool))).all()  # nothing there at all


def test_tokens_below_zero_are_padding():
    net = network(num_tokens=5, padded=True, every_step=False)
    embedded = np.asarray(net.reader.embedding.weight)[[3, 1, 4]]
    expected = mapped(net.output, plain(net, embedded).mean(0))
    np.testing.assert_allclose(net(jnp.array([3, 1, 4, -1, -1])), expected, rtol=1e-3, atol=1e-4)


def test_dropout_needs_a_key_and_differs_by_sequence(x):
    net, off = network(dropout=0.5, depth=1), network(depth=1)
    assert (net.stochastic, off.stochastic) == (True, False)
    call = eqx.filter_jit(lambda net, key: net.call_batch(jnp.stack([x] * 3), key=key))
    np.testing.assert_array_equal(call(net, None), call(off, None))
    assert len({tuple(row.ravel().tolist()) for row in np.asarray(call(net, jax.random.key(0)))}) == 3


def test_reinitialise_changes_the_weights_and_nothing_else():
    net = Transformer(**SMALL, causal=True, num_tokens=4, padded=True, every_step=False, dropout=0.1, key=0)
    other = net.reinitialise(7)
    assert jax.tree.structure(net) == jax.tree.structure(other)
    assert not np.allclose(net.blocks[0].hidden.weight, other.blocks[0].hidden.weight)
    for a, b in zip(jax.tree.leaves(net), jax.tree.leaves(net.reinitialise(0)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_fitted_network_predicts_the_same_after_it_is_loaded(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.integers(-1, 4, (8, 5)), rng.normal(size=8)
    net = Transformer(2, 1, size=4, depth=1, num_heads=2, num_tokens=4, padded=True, every_step=False, key=0)
    posterior = mx.fit(mx.Model(net, mx.likelihoods.Gaussian(0.5)), (x, y), mx.infer.MAP(num_epochs=2), key=0)
    posterior.save(tmp_path / "run")
    np.testing.assert_array_equal(mx.load(tmp_path / "run").predict(x).mean, posterior.predict(x).mean)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": 5}, "size must be a multiple of num_heads = 2, got 5"),
        ({"depth": 0}, "depth must be positive ints, got 0"),
        ({"hidden": 0}, "hidden must be positive ints, got 0"),
        ({"out_size": True}, "out_size must be positive ints, got True"),
        ({"num_tokens": -1}, "num_tokens must be positive ints, got -1"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\), got 1.0"),
    ],
)
def test_bad_arguments_are_named(changes, message, as_users_run):
    with pytest.raises(ValueError, match=message):
        Transformer(**{**SMALL, **changes}, key=0)
