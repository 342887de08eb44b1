"""Bugs that models of tasks can have, each planted alone and caught by a check of the suite."""

import jax.numpy as jnp
import pytest
from tests.meta import test_meta as meta
from tests.mutations.bug import Bug, assert_caught

import marginax as mx
from marginax.meta import Hierarchy


def fitted():
    model = Hierarchy(meta.LINEAR, noise=meta.NOISE, num_steps=1)
    return mx.fit(model, meta.planted(), meta.TRAINING, key=0, progress=False)


CHECKS = {
    "prior": lambda: meta.check_prior_is_that_of_empirical_bayes(fitted()),
    "tasks": lambda: meta.check_new_tasks_are_bayesian_linear_regression(fitted()),
}


def noise_not_squared(self, params):
    return jnp.sqrt(NOISE_OF(self, params))


def variance_of_the_prior(self, params, task, x):
    mean, _ = ADAPTED(self, params, task, x)
    return mean, ADAPTED(self, params, {**task, "mask": jnp.zeros_like(task["mask"])}, x)[1]


NOISE_OF, ADAPTED = Hierarchy.noise_of, Hierarchy.adapted

BUGS = [
    Bug("noise is taken for its square", Hierarchy, "noise_of", noise_not_squared, "prior"),
    Bug("points take no variance away", Hierarchy, "adapted", variance_of_the_prior, "tasks"),
]


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_bug_is_caught(bug):
    assert_caught(bug, CHECKS[bug.check])
