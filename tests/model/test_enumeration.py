"""Discrete sites summed out, against sums over every assignment written out."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from marginax.model.program.enumeration import Factor, sum_out

OUTER, INNER = (-1, 3), (-2, 2)


@pytest.mark.parametrize("same", [False, True], ids=["elements differ", "elements are alike"])
def test_nested_plates_are_the_sum_over_all_assignments(same):
    """A site of three elements, in each of them one of two; a factor that all elements share counts for each."""
    rng = np.random.default_rng(0)
    outer = rng.normal(size=(2, 1 if same else 3))  # (outer site, element)
    inner = rng.normal(size=(2, 2, 1 if same else 2, 1 if same else 3))  # (inner site, outer site, of two, element)
    factors = [
        Factor(jnp.asarray(outer)[:, None, :], frozenset({OUTER})),
        Factor(jnp.asarray(inner), frozenset({OUTER, INNER})),
    ]
    found = sum_out(factors, {-3: frozenset({OUTER}), -4: frozenset({OUTER, INNER})})
    outer, inner = np.broadcast_to(outer, (2, 3)), np.broadcast_to(inner, (2, 2, 2, 3))
    total = 0.0
    for states in itertools.product(range(2), repeat=3):
        for below in itertools.product(range(2), repeat=6):
            pairs = zip(itertools.product(range(3), range(2)), below, strict=True)
            log = sum(outer[states[i], i] for i in range(3))
            total += np.exp(log + sum(inner[z, states[i], j, i] for (i, j), z in pairs))
    np.testing.assert_allclose(found, np.log(total), rtol=1e-5)
    kept = sum_out(factors, {-3: frozenset({OUTER}), -4: frozenset({OUTER, INNER})}, keep=frozenset({OUTER}))
    assert kept.shape == (3,)
    np.testing.assert_allclose(kept.sum(), found, rtol=1e-5)
