"""Data that grow: the batches and posteriors of fixed data, and one program for every size."""

import logging

import jax
import numpy as np
import pytest

import marginax as mx


def data(num):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 2)).astype(np.float32)
    return x[:num], (x @ [1.0, -2.0] + 0.1 * rng.normal(size=50)).astype(np.float32)[:num]


@pytest.mark.parametrize(("num", "size"), [(1, 1), (2, 2), (3, 2), (10, 3), (16, 4), (33, 33), (50, 7)])
def test_batches_are_those_of_fixed_data(num, size):
    fixed, growing = mx.data.Minibatches(data(num), size), mx.data.GrowingMinibatches(data(num), size, capacity=64)
    key = jax.random.key(3)
    for step in (0, 1, 5, 1000, 2**20):
        one, other = fixed.batch(step, key=key), growing.batch(step, key=key)
        assert np.array_equal(one.index, other.index)
        assert np.array_equal(one.x, other.x)
        assert np.array_equal(one.y, other.y)
        assert one.num_examples == int(other.num_examples) == num


def model():
    net = mx.nets.MLP(in_size=2, hidden=(), out_size=1, key=0)
    return mx.Model(net, likelihood=mx.likelihoods.Gaussian(scale=0.1))


@pytest.mark.parametrize(
    "method", [mx.infer.MAP(num_epochs=20, batch_size=8), mx.infer.MCDropout(num_epochs=20, batch_size=8)], ids=repr
)
def test_posteriors_are_those_of_fixed_data_and_nothing_is_compiled_for_more_rows(method, caplog):
    x_new = data(50)[0]

    def predict(source):
        return mx.fit(model(), source, method, key=1).predict(x_new).mean

    for num in (9, 20, 30):
        source = mx.data.GrowingMinibatches(data(num), 8, capacity=50)
        with jax.log_compiles(), caplog.at_level(logging.WARNING):
            caplog.clear()
            got = predict(source)
        compiled = [line for line in caplog.messages if "Finished XLA compilation of jit(_run_chunk)" in line]
        assert len(compiled) == (num == 9)
    np.testing.assert_allclose(got, predict(mx.data.Minibatches(data(30), 8)), rtol=2e-4, atol=2e-4)


def test_methods_that_need_to_know_the_size_say_so():
    with pytest.raises(ValueError, match="fixed size for NUTS"):
        mx.fit(model(), mx.data.GrowingMinibatches(data(8), 8, capacity=9), mx.infer.NUTS(), key=0)


def test_bad_sizes_are_refused():
    with pytest.raises(ValueError, match="capacity must be an int >= 8, got 7"):
        mx.data.GrowingMinibatches(data(8), 4, capacity=7)
    with pytest.raises(ValueError, match="batch_size must be an int >= 1, got 0"):
        mx.data.GrowingMinibatches(data(8), 0, capacity=8)
    with pytest.raises(ValueError, match="must be below 2\\^32"):
        mx.data.GrowingMinibatches(data(8), 8, capacity=2**30)
