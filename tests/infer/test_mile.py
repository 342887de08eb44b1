"""MILE and its sampler: the weights that are kept, the rows that choose them, and how a direction is forgotten."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax.data import Batch, FullBatch
from marginax.infer import MCLMC, MILE
from marginax.infer.flat import ravel, unravel


def test_the_weights_that_are_kept_are_those_of_the_best_score_of_held_out_rows():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 2)).astype(np.float32)
    model = mx.Model(mx.nets.MLP(2, (6,), 1, key=0), mx.likelihoods.Gaussian(0.5))
    source = FullBatch((x, np.sin(x[:, 0]) + 0.5 * rng.normal(size=30)))
    batch, method = source.batch(0, key=jax.random.key(0)), MILE(num_epochs=200)
    state = method.init(model, model.init(source), batch, key=jax.random.key(1))
    step = jax.jit(lambda state: method.train_step(model, state, batch, key=jax.random.key(2)))
    scores = []
    for _ in range(60):
        state, info = step(state)
        scores.append(float(info.held_out))
    training = state.training
    each = np.asarray(model.log_likelihood(unravel(training.best, state.params), batch))
    held_out = np.asarray(training.held_out)
    assert 0 < held_out.sum() < 30
    assert float(training.score) == pytest.approx(max(scores))
    assert each[held_out].mean() == pytest.approx(max(scores), abs=1e-5)
    assert np.abs(training.best - ravel(state.params)).max() > 0


@pytest.mark.parametrize("path_length", [0.5, 2.0])
def test_a_direction_is_forgotten_over_the_path_that_is_asked_for(path_length):
    """Where the density is flat nothing else turns it: of a direction, e^(-s / L) is left after a path of s."""
    size, num, share = 1000, 400, 0.5
    model, method = mx.Density(lambda w: 0.0 * jnp.sum(w), jnp.zeros(size)), MCLMC(path_length=path_length)
    batch = Batch(None, jnp.arange(1), 1)
    state = method.init(model, model.start, batch, key=jax.random.key(0))
    path = jnp.asarray(share * path_length * np.sqrt(size))
    state = eqx.tree_at(lambda s: (s.tuning.step_size, s.log_density), state, (path, jnp.zeros(())))
    turned = jax.vmap(lambda key: method.sample_step(model, state, batch, key=key)[0].direction)
    left = np.asarray(turned(jax.random.split(jax.random.key(1), num)) @ state.direction, np.float64)
    assert abs(left.mean() - np.exp(-share)) < 4.9 * left.std() / np.sqrt(num) + 2 / size  # and of the order of 1 / d
