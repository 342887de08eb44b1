"""GRU and LSTM: against loops in NumPy, with padding, step by step, stored and refused."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax.nets import GRU, LSTM, Embedding

BOTH = pytest.mark.parametrize("make", [GRU, LSTM])
IN, HIDDEN, STEPS = 3, 4, 6


def disturbed(net):
    """With no bias at 0."""
    leaves, treedef = jax.tree.flatten(net)
    rng = np.random.default_rng(0)
    return jax.tree.unflatten(treedef, [leaf + 0.3 * rng.normal(size=leaf.shape).astype("f") for leaf in leaves])


def sequences(num=5, seed=1):
    return np.random.default_rng(seed).normal(size=(num, STEPS, IN)).astype(np.float32)


def logistic(a):
    return 1 / (1 + np.exp(-a))


def plain_gru(net, x, h=None):
    """The equations, gate by gate and step by step, in float64."""
    w, b, u, c = (np.asarray(a, float) for a in (*_of(net.inputs), net.recurrent_weight, net.recurrent_bias))
    (wr, wu, wn), (br, bu, bn), (ur, uu, un) = (np.split(a, 3) for a in (w, b, u))
    h, states = np.zeros(HIDDEN) if h is None else h, []
    for step in x:
        reset, update = logistic(wr @ step + br + ur @ h), logistic(wu @ step + bu + uu @ h)
        new = np.tanh(wn @ step + bn + reset * (un @ h + c))
        h = (1 - update) * new + update * h
        states.append(h)
    return np.array(states)


def plain_lstm(net, x, state=None):
    w, b, u = (np.asarray(a, float) for a in (*_of(net.inputs), net.recurrent_weight))
    (wi, wf, wg, wo), (bi, bf, bg, bo), (ui, uf, ug, uo) = (np.split(a, 4) for a in (w, b, u))
    (h, c), states = (np.zeros(HIDDEN), np.zeros(HIDDEN)) if state is None else state, []
    for step in x:
        admit, keep = logistic(wi @ step + bi + ui @ h), logistic(wf @ step + bf + uf @ h)
        new, show = np.tanh(wg @ step + bg + ug @ h), logistic(wo @ step + bo + uo @ h)
        c = keep * c + admit * new
        h = show * np.tanh(c)
        states.append(h)
    return np.array(states)


def _of(layer):
    return layer.weight, layer.bias


PLAIN = {GRU: plain_gru, LSTM: plain_lstm}


@BOTH
@pytest.mark.parametrize("every_step", [True, False])
def test_states_equal_those_of_a_loop(make, every_step):
    net, xs = disturbed(make(IN, HIDDEN, every_step=every_step, key=0)), sequences()
    expected = np.stack([PLAIN[make](net, x) for x in xs])
    expected = expected if every_step else expected[:, -1]
    one_by_one, batch = eqx.filter_jit(lambda net, xs: (jax.vmap(net)(xs), net.call_batch(xs)))(net, xs)
    np.testing.assert_allclose(one_by_one, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(batch, expected, rtol=1e-4, atol=1e-5)


@BOTH
def test_outputs_are_linear_in_the_states(make):
    net, x = disturbed(make(IN, HIDDEN, out_size=2, key=0)), sequences(1)[0]
    expected = PLAIN[make](net, x) @ np.asarray(net.output.weight).T + np.asarray(net.output.bias)
    np.testing.assert_allclose(net(jnp.asarray(x)), expected, rtol=1e-4, atol=1e-5)


@BOTH
def test_a_state_to_begin_with_goes_on_where_another_sequence_ended(make):
    net, x = disturbed(make(IN, HIDDEN, key=0)), jnp.asarray(sequences(1)[0])
    state = net.start()
    for step in x[:2]:
        state, output = net.step(state, step)
    whole = net(x)
    np.testing.assert_allclose(output, whole[1], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(net(x[2:], state=state), whole[2:], rtol=1e-5, atol=1e-6)
    two = jax.tree.map(lambda leaf: jnp.stack([leaf, 0 * leaf]), state)
    batch = net.call_batch(jnp.stack([x[2:], x[2:]]), state=two)
    np.testing.assert_allclose(batch[0], whole[2:], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(batch[1], net(x[2:]), rtol=1e-5, atol=1e-6)


@BOTH
@pytest.mark.parametrize("every_step", [True, False])
def test_padding_changes_nothing_whatever_is_there(make, every_step):
    net, x = disturbed(make(IN, HIDDEN, out_size=2, every_step=every_step, key=0)), jnp.asarray(sequences(1)[0])
    short = net(x[:4])
    filled = jnp.concatenate([x[:4], jnp.full((2, IN), jnp.nan)])
    mask = jnp.arange(STEPS) < 4
    call = eqx.filter_jit(lambda net, x: net(x, mask=mask))
    padded, batch = call(net, filled), net.call_batch(filled[None], mask=mask[None])[0]
    expected = jnp.concatenate([short, jnp.zeros((2, 2))]) if every_step else short
    np.testing.assert_allclose(padded, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(batch, expected, rtol=1e-5, atol=1e-6)
    gradients = eqx.filter_grad(lambda net: jnp.sum(call(net, filled) ** 2))(net)
    assert all(np.isfinite(leaf).all() and np.any(leaf != 0) for leaf in jax.tree.leaves(gradients))


def test_padding_may_be_said_in_the_data():
    net = disturbed(GRU(IN, HIDDEN, every_step=False, padded=True, key=0))
    x = jnp.asarray(sequences(1)[0])
    flags = jnp.arange(STEPS) < 4
    marked = jnp.concatenate([x, flags[:, None]], axis=1)
    np.testing.assert_allclose(net(marked), plain_gru(net, x[:4])[-1], rtol=1e-4, atol=1e-5)

    tokens = disturbed(GRU(IN, HIDDEN, every_step=False, padded=True, num_tokens=5, key=0))
    embedded = np.asarray(tokens.reader.embedding.weight)[[3, 1, 4]]
    for dtype in (int, float):
        found = tokens(jnp.array([3, 1, 4, -1, -1], dtype))
        np.testing.assert_allclose(found, plain_gru(tokens, embedded)[-1], rtol=1e-4, atol=1e-5)


def test_what_is_no_token_has_no_vector():
    embedding = Embedding(3, 2, key=0)
    found = np.asarray(embedding(jnp.array([2.0, 3.0, -1.0, 0.5])))
    np.testing.assert_array_equal(found[0], embedding.weight[2])
    assert np.isnan(found[1:]).all()


def test_dropout_needs_a_key_and_differs_by_sequence():
    net, off = (GRU(IN, HIDDEN, every_step=False, dropout=rate, key=0) for rate in (0.5, 0.0))
    assert (net.stochastic, off.stochastic) == (True, False)
    same = jnp.ones((4, STEPS, IN))
    np.testing.assert_array_equal(net.call_batch(same), off.call_batch(same))
    assert len({tuple(row) for row in np.asarray(net.call_batch(same, key=jax.random.key(0))).tolist()}) == 4


@BOTH
def test_reinitialise_changes_the_weights_and_nothing_else(make):
    net = make(IN, HIDDEN, out_size=2, num_tokens=5, padded=True, every_step=False, dropout=0.1, key=0)
    other = net.reinitialise(7)
    assert jax.tree.structure(net) == jax.tree.structure(other)
    assert not np.allclose(net.recurrent_weight, other.recurrent_weight)
    for a, b in zip(jax.tree.leaves(net), jax.tree.leaves(net.reinitialise(0)), strict=True):
        np.testing.assert_array_equal(a, b)


@BOTH
def test_a_fitted_network_predicts_the_same_after_it_is_loaded(make, tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.integers(-1, 4, (12, 5)), rng.normal(size=12)
    net = make(2, 3, out_size=1, num_tokens=4, padded=True, every_step=False, key=0)
    posterior = mx.fit(mx.Model(net, mx.likelihoods.Gaussian(0.5)), (x, y), mx.infer.MAP(num_epochs=2), key=0)
    posterior.save(tmp_path / "run")
    np.testing.assert_array_equal(mx.load(tmp_path / "run").predict(x).mean, posterior.predict(x).mean)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"in_size": 0}, "in_size must be positive ints, got 0"),
        ({"hidden_size": 1.5}, "hidden_size must be positive ints, got 1.5"),
        ({"out_size": 0}, "out_size must be positive ints, got 0"),
        ({"num_tokens": 0}, "num_tokens must be positive ints, got 0"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\), got 1.0"),
    ],
)
@BOTH
def test_bad_arguments_are_named(make, changes, message, as_users_run):
    with pytest.raises(ValueError, match=message):
        make(**{"in_size": 2, "hidden_size": 3, **changes}, key=0)


def test_sequences_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"x must have shape \(steps, 3\), got \(6, 2\)"):
        GRU(IN, HIDDEN, key=0)(jnp.ones((6, 2)))
    with pytest.raises(ValueError, match=r"x must have shape \(steps, 4\), the last of them 1 or 0"):
        GRU(IN, HIDDEN, padded=True, key=0)(jnp.ones((6, 3)))
    with pytest.raises(ValueError, match=r"mask must have shape \(2, 6\), one flag for each step, got \(2, 5\)"):
        GRU(IN, HIDDEN, key=0).reader(jnp.ones((2, 6, 3)), jnp.ones((2, 5), bool))
