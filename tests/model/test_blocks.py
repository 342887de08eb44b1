"""Sums over rows in blocks: the same value, gradient and curvature as at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax._kernels import blocks
from marginax._kernels.blocks import sum_over_rows
from marginax.data import Batch


def density(params, batch, model):
    return model.log_density(params, batch)


SIZES = [101, *(pytest.param(num, marks=pytest.mark.slow) for num in (99, 100, 250))]


@pytest.mark.parametrize("num_rows", SIZES)
def test_blocks_change_nothing(monkeypatch, num_rows):
    """Value, gradient, and the gradient's derivative; rows that do not fill the last block too."""
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(num_rows, 3)), jnp.float32)
    model = mx.Model(mx.nets.MLP(3, (5,), 1, activation=jnp.tanh, key=0), mx.likelihoods.Gaussian())
    params = model.initial(1)
    batch = Batch((x, jnp.sin(x[:, 0])), jnp.arange(num_rows), 2 * num_rows)
    vector = jax.tree.map(jnp.ones_like, params)

    def all_of_it():
        value, gradient = jax.value_and_grad(density)(params, batch, model)
        curvature = jax.jvp(jax.grad(lambda p: density(p, batch, model)), (params,), (vector,))[1]
        stacked = jax.tree.map(lambda a: jnp.stack([a, 0.5 * a]), params)
        return value, gradient, curvature, jax.vmap(jax.grad(lambda p: density(p, batch, model)))(stacked)

    whole = jax.jit(lambda: all_of_it())()
    monkeypatch.setattr(blocks, "BLOCK", 40)
    for found, wanted in zip(jax.tree.leaves(jax.jit(lambda: all_of_it())()), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_few_rows_are_summed_at_once():
    assert "scan" not in str(jax.make_jaxpr(lambda w: sum_over_rows(lambda w, x: w * x, w, jnp.ones(100)))(1.0))
