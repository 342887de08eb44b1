"""A body and a head: one after the other, with paths that tell them apart and noise of their own."""

import jax
import jax.numpy as jnp
import numpy as np

import marginax as mx

X = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
BODY, HEAD = mx.nets.MLP(3, (4,), 2, key=0), mx.nets.MLP(2, (), 3, key=1)
NET = mx.nets.WithHead(BODY, HEAD)


def test_it_is_the_head_of_the_body_one_by_one_and_all_at_once():
    right = [HEAD(BODY(x)) for x in jnp.asarray(X)]
    np.testing.assert_allclose([NET(x) for x in jnp.asarray(X)], right, rtol=1e-5)
    np.testing.assert_allclose(NET.call_batch(jnp.asarray(X)), right, rtol=1e-5)


def test_paths_tell_body_and_head_apart():
    model = mx.Model(NET, mx.likelihoods.Categorical())
    paths = [leaf.path for leaf in model.leaves]
    assert [path.partition("/")[0] for path in paths] == ["body"] * 4 + ["head"] * 2
    assert mx.LastLayer().select(paths) == [False] * 4 + [True] * 2


def test_a_key_reaches_the_part_that_has_noise_and_no_other():
    noisy = mx.nets.MLP(3, (50,), 2, dropout=0.5, key=0)
    for net, is_random in (
        (NET, False),
        (mx.nets.WithHead(noisy, HEAD), True),
        (mx.nets.WithHead(linear_body(), noisy_head()), True),
    ):
        assert net.stochastic == is_random
        values = [net(jnp.asarray(X[0]), key=jax.random.key(i)) for i in (0, 0, 1)]
        np.testing.assert_array_equal(values[0], values[1])
        assert np.array_equal(values[0], values[2]) != is_random
        many = [net.call_batch(jnp.asarray(X), key=jax.random.key(i)) for i in (0, 1)]
        assert np.array_equal(*many) != is_random


def linear_body():
    """A function that takes no key as body."""
    return mx.nets.Function(jnp.ones((3, 2)), lambda params, x: x @ params)


def noisy_head():
    return mx.nets.MLP(2, (50,), 3, dropout=0.5, key=3)


def test_fresh_weights_are_others_in_both_parts():
    fresh = NET.reinitialise(jax.random.key(5))
    for one, other in ((fresh.body, BODY), (fresh.head, HEAD)):
        assert not np.array_equal(one.layers[0].weight, other.layers[0].weight)
    assert jax.tree.structure(fresh) == jax.tree.structure(NET)
