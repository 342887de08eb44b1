"""New data in parts: the same method, with the posterior so far as prior, in the units of the first data."""

import dataclasses

import equinox as eqx
import numpy as np
import pytest
from tests.posterior.test_from_posterior import HALVES, LAPLACE, PROBLEM

import marginax as mx
from marginax.posterior import FromPosterior


@pytest.fixture(scope="module")
def first():
    return mx.fit(PROBLEM.model, HALVES[0], LAPLACE, key=0)


def test_an_update_is_the_posterior_of_all_data(first, tmp_path):
    """By the method that is stored with the posterior."""
    first.save(tmp_path / "first")
    both = mx.load(tmp_path / "first").update(HALVES[1], key=1)
    np.testing.assert_allclose(PROBLEM.flatten(both.mean), PROBLEM.mean, atol=1e-4)
    np.testing.assert_allclose(both.covariance.dense(), PROBLEM.covariance, atol=1e-4)
    assert both.record.method == first.record.method
    assert isinstance(both.model.prior, FromPosterior)


@pytest.mark.slow
def test_three_parts_stream(first):
    parts = np.array_split(np.arange(16, len(PROBLEM.x)), 3)
    posterior = first
    for rows in parts[:2]:
        posterior = posterior.update((PROBLEM.x[rows], PROBLEM.y[rows]), key=0)
    last = posterior.update((PROBLEM.x[parts[2]], PROBLEM.y[parts[2]]), key=0)
    np.testing.assert_allclose(PROBLEM.flatten(last.mean), PROBLEM.mean, atol=1e-4)


def test_scaling_stays_that_of_the_first_data():
    """Predictions are those of a fit to all rows in the first rows' units; the second rows alone have other moments."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(10, 2, size=30), rng.normal(14, 1, size=30)])[:, None]
    y = 3 * x[:, 0] - 20 + rng.normal(size=60)
    start = mx.data.standardise((x[:30], y[:30]))
    model = mx.Model(mx.nets.MLP(1, (), 1, key=0), mx.likelihoods.Gaussian(0.3), mx.priors.Normal(1.0))
    posterior = mx.fit(model, start, LAPLACE, key=0)
    both = posterior.update((x[30:], y[30:]), key=0)
    scaling = start.scaling
    whole = mx.data.Arrays(scaling.transform_x(x), scaling.transform_y(y), scaling=scaling)
    right = mx.fit(model, whole, LAPLACE, key=0).predict([[5.0], [20.0]])
    found = both.predict([[5.0], [20.0]])
    np.testing.assert_allclose(found.mean, right.mean, rtol=1e-4)
    np.testing.assert_allclose(found.std, right.std, rtol=1e-3)
    with pytest.raises(ValueError, match="pass \\(x, y\\) as they are"):
        posterior.update(mx.data.standardise((x[30:], y[30:])), key=0)
    with pytest.raises(ValueError, match="x must have shape"):
        posterior.update((np.zeros((3, 2)), np.zeros(3)), key=0)


def test_what_cannot_be_updated_is_refused(first, as_users_run):
    unknown = dataclasses.replace(first, record=mx.posterior.FitRecord())
    with pytest.raises(ValueError, match="does not know the method"):
        unknown.update(HALVES[1], key=0)
    with pytest.raises(ValueError, match="brings a prior of its own"):
        first.update(HALVES[1], method=mx.infer.BayesByBackprop(), key=0)
    network = mx.Model(mx.nets.MLP(4, (3,), 1, key=0), PROBLEM.model.likelihood)
    dropout = mx.fit(network, HALVES[0], mx.infer.MCDropout(num_epochs=1), key=0)
    with pytest.raises(TypeError, match="must be a distribution over weights, got Stochastic"):
        dropout.update(HALVES[1], key=0)
    normal = mx.Density(lambda z: -0.5 * (z**2).sum(), np.zeros(2, np.float32))
    density = mx.fit(normal, None, mx.infer.MAP(num_epochs=1), key=0)
    with pytest.raises(TypeError, match=r"only posteriors of an mx\.Model can be updated, got one of Density"):
        density.update(None, key=0)


def test_a_method_that_cannot_be_stored_is_left_out(first, tmp_path):
    class Mine(type(LAPLACE)):
        pass

    mine = eqx.tree_at(lambda p: p.record.configuration, first, Mine(LAPLACE.structure))
    mine.save(tmp_path / "mine")
    with pytest.raises(ValueError, match="does not know the method"):
        mx.load(tmp_path / "mine").update(HALVES[1], key=0)
