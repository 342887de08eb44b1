"""Bugs that last layers, adapters and evidential heads can have, each planted alone and caught by a check."""

import jax.numpy as jnp
import pytest
from tests.infer import test_vbll as vbll
from tests.model import test_evidential as evidential
from tests.mutations.bug import Bug, assert_caught
from tests.nets import test_low_rank as adapters
from tests.nets import test_spectral as spectral

import marginax as mx
from marginax.infer.vi import vbll as last_layer
from marginax.model.likelihoods import evidential as heads
from marginax.nets import RandomFeatures
from marginax.nets.low_rank import LowRankLayer
from marginax.nets.spectral import SpectralLayer

NORMAL, CLASSES = mx.likelihoods.Gaussian, mx.likelihoods.Categorical
EXPECTED, DIVERGENCE, FEATURES = NORMAL.expected_log_prob, last_layer._divergence, RandomFeatures.features


def spread_ignored(self, mean, covariance, y, unknowns):
    return self.log_prob(mean, y, unknowns)


def spread_twice(self, mean, covariance, y, unknowns):
    return EXPECTED(self, mean, 2 * covariance, y, unknowns)


def divergence_per_example(model, body, approximation, temperature, *, key):
    return DIVERGENCE(model, body, approximation, temperature, key=key) / 40


def merged_without_scale(self):
    return self.layer.weight + self.adapter_out.weight @ self.adapter_in.weight


def called_without_scale(self, x, *, key=None):
    return self.layer(x) + self.adapter_out(self.adapter_in(x))


def never_normalised(self):
    return self.weight


def amplitude_forgotten(self, h):
    return FEATURES(self, h) / jnp.sqrt(2.0)


def evidence_of_the_label_too(alpha):
    total = jnp.sum(alpha, axis=-1)
    return total - alpha.shape[-1]


def one_degree_too_many(self, output):
    location, *others = jnp.split(output, 4, axis=-1)
    nu, alpha, beta = (jnp.logaddexp(other, 0.0) for other in others)
    return location, nu, alpha, beta


def exact():
    vbll.test_on_fixed_features_it_is_bayesian_linear_regression(1.0)


def merge():
    adapters.test_it_starts_as_the_network_and_has_no_other_weights("MLP")


BUGS = [
    Bug("the spread of the last layer ignored", NORMAL, "expected_log_prob", spread_ignored, exact),
    Bug("the spread of the last layer counted twice", NORMAL, "expected_log_prob", spread_twice, exact),
    Bug("the divergence divided by the rows", last_layer, "_divergence", divergence_per_example, exact),
    Bug(
        "a bound of classes that is none",
        CLASSES,
        "expected_log_prob",
        spread_ignored,
        lambda: vbll.test_expected_log_probabilities_of_classes_are_bounded_from_below("Categorical"),
    ),
    Bug("a merge that forgets the scale", LowRankLayer, "weight", property(merged_without_scale), merge),
    Bug(
        "an adapter that forgets the scale",
        LowRankLayer,
        "__call__",
        called_without_scale,
        adapters.test_with_a_fixed_laplace_is_the_closed_form,
    ),
    Bug(
        "weights that are never normalised",
        SpectralLayer,
        "scaled",
        property(never_normalised),
        spectral.test_residual_blocks_keep_distances,
    ),
    Bug(
        "features of half the variance",
        RandomFeatures,
        "features",
        amplitude_forgotten,
        spectral.test_the_kernel_is_the_squared_exponential,
    ),
    Bug(
        "another divergence of a Dirichlet distribution",
        heads,
        "divergence_from_uniform",
        evidence_of_the_label_too,
        evidential.check_class_loss,
    ),
    Bug(
        "degrees of freedom without their one",
        heads.EvidentialGaussian,
        "normal_inverse_gamma",
        one_degree_too_many,
        evidential.check_number_loss,
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_is_caught(bug):
    assert_caught(bug, bug.check)
