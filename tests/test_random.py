"""The fast generator: moments, tails, independence, and that a number is a function of key, place and stream alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from marginax._kernels.random import _inside_unit_interval, bits, normal, normal_like, uniform

SIZE = 2_000_000


@pytest.fixture(scope="module")
def sample() -> np.ndarray:
    return np.asarray(jax.jit(lambda key: normal(key, (SIZE,)))(jax.random.key(0)), np.float64)


def test_blocks_are_threefry():
    """Known answers of Threefry-2x32-20 from its authors check all but the number of rounds."""
    from marginax._kernels import random as _random

    keys = jax.random.wrap_key_data(jnp.asarray([0x13198A2E, 0x03707344], jnp.uint32))
    rounds, _random._ROUNDS = _random._ROUNDS, 20
    try:
        index, stream = (jnp.asarray(word, jnp.uint32) for word in (0x243F6A88, 0x85A308D3))
        first, second = _random._rounds.__wrapped__(jax.random.key_data(keys), index, stream)
    finally:
        _random._ROUNDS = rounds
    assert (int(first), int(second)) == (0xC4923A9C, 0x483DF7A0)


def test_moments_are_those_of_the_normal(sample):
    for power, exact in ((1, 0.0), (2, 1.0), (3, 0.0), (4, 3.0), (6, 15.0)):
        values = sample**power
        z = (values.mean() - exact) / (values.std() / np.sqrt(SIZE))
        assert abs(z) < 4.9, (power, z)


def test_distribution_passes_kolmogorov_smirnov(sample):
    assert stats.kstest(sample, "norm").pvalue > 1e-4


@pytest.mark.parametrize("threshold", [2.0, 3.0, 4.0, 4.5])
def test_both_tails_have_their_weight(sample, threshold):
    expected = SIZE * stats.norm.sf(threshold)
    for count in ((sample > threshold).sum(), (sample < -threshold).sum()):
        assert abs(count - expected) < 4.9 * np.sqrt(expected)


def test_tails_reach_beyond_five():
    """The smallest uniform is 2^-32, so the largest normal is 6.66; float32's inverse error function ends at 5.4."""
    from marginax._kernels import random as _random

    largest = np.sqrt(-2 * np.log(0.5 * 2.0**-31))
    assert 6.6 < largest < 6.7
    assert abs(np.polyval(np.array(_random._SINE[::-1]), 1.0) - 1.0) < 1e-6


@pytest.mark.parametrize("lag", [1, 2, 31, 400, 784, 65536])
def test_numbers_are_uncorrelated_with_their_neighbours(sample, lag):
    for f in (lambda x: x, lambda x: x**2 - 1, np.abs):
        a, b = f(sample[:-lag]), f(sample[lag:])
        assert abs(np.corrcoef(a, b)[0, 1]) < 4.9 / np.sqrt(SIZE)


def test_streams_and_keys_are_independent(sample):
    others = [
        normal(jax.random.key(0), (SIZE,), stream=1),
        normal(jax.random.key(1), (SIZE,)),
        normal(jax.random.fold_in(jax.random.key(0), 7), (SIZE,)),
    ]
    for other in others:
        assert abs(np.corrcoef(sample, np.asarray(other))[0, 1]) < 4.9 / np.sqrt(SIZE)
        assert not np.any(sample[:1000] == np.asarray(other)[:1000])


def test_every_bit_is_fair():
    first, second = bits(jax.random.key(3), (200_000,))
    for word in (np.asarray(first), np.asarray(second)):
        share = ((word[:, None] >> np.arange(32)) & 1).mean(axis=0)
        assert np.abs(share - 0.5).max() < 4.9 * 0.5 / np.sqrt(200_000)


def test_a_number_does_not_depend_on_the_shape_around_it():
    key = jax.random.key(5)
    np.testing.assert_array_equal(normal(key, (6, 4)).reshape(-1), normal(key, (24,)))
    np.testing.assert_array_equal(normal(key, (10,)), normal(key, (24,))[:10])
    tree = normal_like(key, {"a": jnp.ones(3), "b": jnp.ones((2, 2), jnp.float32)})
    np.testing.assert_array_equal(tree["b"], normal(key, (2, 2), stream=1))


def test_uniform_numbers_are_never_zero_or_one():
    ends = np.asarray(_inside_unit_interval(jnp.array([0, 0xFF, 0xFFFFFE00, 0xFFFFFFFF], jnp.uint32)))
    assert ends.dtype == np.float32
    assert (np.diff(ends) >= 0).all()
    assert ends[0] > 0
    assert ends[-1] < 1


def test_uniform_numbers_are_uniform():
    values = np.asarray(uniform(jax.random.key(0), jnp.arange(200_000)))
    assert values.min() > 0
    assert values.max() < 1
    assert stats.kstest(values, "uniform").pvalue > 1e-4
