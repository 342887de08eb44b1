"""Bugs planted where a posterior becomes a prior are caught by the checks of its tests."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.mutations.bug import Bug, assert_caught
from tests.posterior import test_from_posterior as checks

import marginax as mx
from marginax.curvature import DiagonalCovariance
from marginax.data import FullBatch, Minibatches
from marginax.model import distributions as dist
from marginax.model.abstract import AbstractModel
from marginax.model.prior import AbstractPrior
from marginax.posterior import DiagonalNormal, FromPosterior, mode


def batches():
    """Gradients from minibatches average to that from all rows: the prior counts once, whatever the batch."""
    first = checks.in_turn(checks.HALVES[:1])[0]
    model = checks.with_prior(checks.PROBLEM.model, FromPosterior(first))
    params = checks.PROBLEM.unflatten(np.linspace(-1, 1, 5))
    gradient = eqx.filter_jit(eqx.filter_grad(lambda p, batch: model.log_density(p, batch)))
    sources = FullBatch(checks.HALVES[1]), Minibatches(checks.HALVES[1], 4)
    key, num = jax.random.key(0), len(checks.HALVES[1][0])
    whole = checks.PROBLEM.flatten(gradient(params, sources[0].batch(0, key=key)))
    parts = [checks.PROBLEM.flatten(gradient(params, sources[1].batch(i, key=key))) for i in range(num)]
    np.testing.assert_allclose(np.mean(parts, axis=0), whole, rtol=1e-3, atol=1e-3)


CHECKS = {
    "in turn": lambda: checks.check_halves_equal_all(checks.in_turn(checks.HALVES)),
    "density": lambda: checks.test_density_is_that_of_the_posterior_for_any_covariance(checks.in_turn(checks.HALVES)),
    "projection": checks.test_diagonal_family_is_the_projection_in_closed_form,
    "batches": batches,
    "anchored": checks.test_anchored_ensembles_are_exact_under_it,
    "noise": checks.test_the_noise_level_is_carried_over_where_it_has_a_spread,
}


def precision_for_scale(self, moments):
    return DiagonalCovariance(jnp.asarray(1.0 / moments.variances(), jnp.float32))


def old_prior_again(self, leaves, values, hypers, unknowns, _original=FromPosterior.log_joint):
    again = sum(jnp.sum(dist.Normal(0.0, 1.0).log_prob(value)) for value in values)
    return _original(self, leaves, values, hypers, unknowns) + again


def prior_per_batch(self, params, batch, *, key=None):
    return batch.weight * self.log_prior(params) + self.scaled_log_likelihood(params, batch, key=key)


def leaves_by_name(self, path):
    """As a dict of leaves would have them after JAX has sorted its keys."""
    shapes = dict(zip(self.paths, self.shapes, strict=True))
    start = sum(int(np.prod(shapes[other])) for other in sorted(self.paths) if other < path)
    return slice(start, start + int(np.prod(shapes[path]))), shapes[path]


def width_without_its_jacobian(self, leaves, values, hypers, unknowns, _original=FromPosterior.log_joint):
    wide = jnp.log(self.scale) * sum(value.size for value in values)
    return _original(self, leaves, values, hypers, unknowns) + wide


def at_zero(self, leaf):
    return AbstractPrior.centre(self, leaf)


def unknowns_twice(self, params):
    return self.likelihood.log_prior(params.likelihood)


BUGS = [
    Bug("precision used as a scale", DiagonalNormal, "covariance", precision_for_scale, "projection"),
    Bug("the old prior counted again", FromPosterior, "log_joint", old_prior_again, "in turn"),
    Bug("the prior scaled by N / B", AbstractModel, "log_density", prior_per_batch, "batches"),
    Bug("leaves in the order of their names", FromPosterior, "_slice", leaves_by_name, "in turn"),
    Bug("a width without its Jacobian", FromPosterior, "log_joint", width_without_its_jacobian, "density"),
    Bug("anchors around zero", FromPosterior, "centre", at_zero, "anchored"),
    Bug("the noise under both priors", mx.Model, "_log_prior_of", unknowns_twice, "noise"),
]


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKS)
def test_without_a_bug_the_checks_pass(name):
    CHECKS[name]()


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_bugs_are_caught(bug):
    assert_caught(bug, CHECKS[bug.check])


@pytest.mark.slow
def test_row_sums_in_place_of_the_precision_are_caught(monkeypatch):
    """Minus the second derivative along ones is no diagonal where weights depend on each other."""
    monkeypatch.setattr(mx.Model, "prior_precision", AbstractModel.prior_precision)
    bug = Bug("row sums as precisions", mode, "couples_weights", lambda model: False, "in turn")
    assert_caught(bug, CHECKS["in turn"])
