"""Bugs that curvature and the evidence can have, each planted alone and caught by a check of the suite."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.curvature import test_structures as structures
from tests.infer import test_laplace as laplace
from tests.mutations.bug import Bug, assert_caught
from tests.posterior import test_tuning as tuning

import marginax as mx
from marginax.curvature import kinds, kronecker
from marginax.curvature.jacobians import Outer
from marginax.infer import WholeNetwork
from marginax.posterior.mode import Mode
from marginax.predict.links import Probit


def dense() -> None:
    with jax.enable_x64(True):
        structures.test_dense_and_its_factored_forms_are_the_whole_matrix("shared", structures.Dense())


def factors() -> None:
    with jax.enable_x64(True):
        structures.test_kronecker_factors_of_convolutions_are_second_moments_over_all_places()


def diagonal() -> None:
    with jax.enable_x64(True):
        structures.test_diagonal_and_blocks_are_parts_of_the_whole_matrix("convolutional")


def _linear() -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(103, 3))
    y = x @ np.array([1.0, -2.0, 0.5]) + 0.4 + laplace.NOISE * rng.normal(size=103)
    noise, prior = mx.likelihoods.Gaussian(scale=laplace.NOISE), mx.priors.Normal(scale=laplace.PRIOR)
    return mx.Model(mx.nets.MLP(3, (), 1, key=0), likelihood=noise, prior=prior), x, y


def exact() -> None:
    model, x, y = _linear()
    mode = mx.fit(model, (x, y), laplace.TRAINING, key=0)
    laplace.test_linear_regression_is_exact_with_its_evidence((model, x, y), mode, structures.Dense())


def maximum() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(80, 1))
    y = np.sin(3 * x[:, 0]) + 0.2 * rng.normal(size=80)
    net = mx.nets.MLP(1, (8,), 1, activation=jax.nn.tanh, key=0)
    model = mx.Model(net, likelihood=mx.likelihoods.Gaussian(), prior=mx.priors.Normal(scale=1.0))
    posterior = mx.fit(model, (x, y), mx.infer.Laplace(training=tuning.TRAINING), key=0)
    tuning.test_the_fixed_point_is_a_maximum_of_the_evidence((model, x, y, posterior), WholeNetwork(), True)


def links() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 2))
    y = (x[:, 0] + 0.5 * rng.normal(size=80) > 0).astype(int)
    model = mx.Model(mx.nets.MLP(2, (), 1, key=0), mx.likelihoods.Bernoulli(), prior=mx.priors.Normal(2.0))
    method = mx.infer.Laplace(structure=structures.Dense(), training=laplace.TRAINING)
    laplace.test_links_average_the_sigmoid_over_a_normal_logit((mx.fit(model, (x, y), method, key=0), x))


def every_row(self, weights):
    """Rows of the next epoch count."""
    del weights
    return self


def not_divided(sums):
    left, right = DECOMPOSE(sums)
    return left, {site: (values * sums.count[site], vectors) for site, (values, vectors) in right.items()}


def squares_of_places(self):
    """Squares before the sum over places."""
    if self.inputs is None:
        return jnp.sum(self.columns**2, axis=(0, 1, 2))
    return jnp.einsum("nmto,nti->oi", self.columns**2, self.inputs**2).ravel()


def no_prior(self, model, params, covariance):
    return self.log_likelihood - covariance.log_prob(jnp.zeros(covariance.size))


def gradient_for_information(self, model, params):
    """The empirical Fisher in place of Gauss-Newton."""
    return kinds.EmpiricalFisher().columns(model, params)


def scaled_once(self, factor):
    """The curvature does not feel the noise."""
    del factor
    return self


def scales_in_probit(self, mean, covariance, noise, log_weight, *, full):
    return SUMMARY(self, mean, jnp.sqrt(covariance), noise, log_weight, full=full)


DECOMPOSE = kronecker.decompose
SUMMARY = Probit.summary

BUGS = [
    Bug("rows of the next epoch count", Outer, "weighted", every_row, dense),
    Bug("inputs of a factor summed, not averaged", kronecker, "decompose", not_divided, factors),
    Bug("squares before the sum over places", Outer, "squares", squares_of_places, diagonal),
    Bug("evidence without the prior", Mode, "log_evidence", no_prior, exact),
    Bug("gradients in place of the information", kinds.GGN, "columns", gradient_for_information, exact),
    Bug("noise that the curvature does not feel", mx.curvature.BlockCurvature, "scaled", scaled_once, maximum),
    Bug("a scale in place of a variance", Probit, "summary", scales_in_probit, links),
]


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_bug_is_caught(bug):
    structures._case.cache_clear()
    assert_caught(bug, bug.check)
    structures._case.cache_clear()
