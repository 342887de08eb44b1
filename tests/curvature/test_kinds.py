"""Outer products of gradients: rows that have no label say nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax.data import FullBatch, as_arrays

L, C = mx.likelihoods, mx.curvature
KINDS = [C.EmpiricalFisher(), C.MonteCarloFisher(num_targets=3)]
TERMS = [
    L.EntropyRegularised(L.Categorical(), 2.0),
    L.ConsistencyRegularised(L.Categorical(), mx.data.GaussianNoise(0.1), 2.0),
]


def columns_of(kind, likelihood, y):
    """Columns of one row, at outputs that are not symmetric."""
    model = mx.Model(mx.nets.MLP(2, (), 3, key=0), likelihood)
    data = as_arrays((np.zeros((2, 2)), np.stack([y, np.zeros_like(y)])))
    params = model.init(FullBatch(data))
    return kind.columns(model, params)(jnp.array([0.3, -0.2, 0.9]), jnp.asarray(y), jax.random.key(0))


@pytest.mark.parametrize("likelihood", TERMS, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("kind", KINDS, ids=lambda each: type(each).__name__)
def test_rows_without_a_label_have_no_curvature(kind, likelihood):
    assert np.all(columns_of(kind, likelihood, np.array(-1)) == 0)
    np.testing.assert_allclose(
        columns_of(kind, likelihood, np.array(1)), columns_of(kind, L.Categorical(), np.array(1)), rtol=1e-6
    )


@pytest.mark.parametrize("kind", KINDS, ids=lambda each: type(each).__name__)
def test_annotators_who_were_not_asked_have_no_curvature(kind):
    likelihood = L.Annotators(3, 2)
    np.testing.assert_allclose(columns_of(kind, likelihood, np.array([-1, -1])), 0, atol=1e-6)
    one, both = (np.linalg.norm(columns_of(kind, likelihood, np.array(y))) for y in ([1, -1], [1, 1]))
    assert one > 0.01
    assert both != pytest.approx(one, rel=1e-3)
