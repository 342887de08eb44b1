"""Bugs that stochastic segmentation can have, each planted alone and caught by a check of the suite."""

import jax
import jax.numpy as jnp
import pytest
from tests.evaluate import test_segmentation as scores
from tests.model import test_stochastic_segmentation as exact
from tests.mutations.bug import Bug, assert_caught

from marginax.evaluate import segmentation
from marginax.model.likelihoods.graders import Graders
from marginax.model.likelihoods.stochastic_segmentation import LowRankLogits

DRAW, ESTIMATE, MEAN_OF_GRADERS, IOU = (
    LowRankLogits.draw_logits,
    LowRankLogits.estimate_log_prob,
    Graders.estimate_log_prob,
    segmentation.iou,
)


def without_factors(self, key, num):
    own = jax.random.normal(key, (num, *self.mean_logits.shape))
    return self.mean_logits + jnp.exp(0.5 * self.log_diagonal) * own


def variance_as_scale(self, key, num):
    doubled = LowRankLogits(self.mean_logits, 2 * self.log_diagonal, self.factors, self.num_mc)
    return DRAW(doubled, key, num)


def sum_of_draws(self, value, key):
    """Without log S."""
    return ESTIMATE(self, value, key) + jnp.log(self.num_mc)


def pixel_by_pixel(self, value, key):
    """The mean over draws of each pixel alone, as if they were independent."""
    logits = self.draw_logits(key, self.num_mc)
    each = jax.nn.log_sigmoid(jnp.where(value > 0, logits, -logits))
    return jnp.sum(jax.nn.logsumexp(each, axis=0) - jnp.log(self.num_mc), axis=-1)


def first_grader(self, output, y, unknowns, keys):
    num = self.num_targets(output.shape[-1])
    return self.likelihood.estimate_log_prob(output, y[:, :num], unknowns, keys)


def empty_masks_apart(first, second):
    found = IOU(first, second)
    return jnp.where((first.sum(1)[:, None] + second.sum(1)) > 0, found, 0.0)


BUGS = [
    Bug(
        "factors left out",
        LowRankLogits,
        "draw_logits",
        without_factors,
        exact.test_sampled_masks_have_the_joint_frequencies_of_quadrature,
    ),
    Bug(
        "sum for mean",
        LowRankLogits,
        "estimate_log_prob",
        sum_of_draws,
        exact.test_probabilities_of_masks_are_those_of_quadrature,
    ),
    Bug(
        "pixels apart",
        LowRankLogits,
        "estimate_log_prob",
        pixel_by_pixel,
        exact.test_probabilities_of_masks_are_those_of_quadrature,
    ),
]
OTHERS = [
    Bug(
        "variance as scale",
        LowRankLogits,
        "draw_logits",
        variance_as_scale,
        exact.test_logits_have_the_covariance_of_factors_and_diagonal,
    ),
    Bug("one grader", Graders, "estimate_log_prob", first_grader, exact.test_graders_are_averaged),
    Bug("empty masks apart", segmentation, "iou", empty_masks_apart, scores.test_energy_distance_by_hand),
]


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_wrong_law_of_masks_is_caught(bug):
    assert_caught(bug, lambda: bug.check(2))


@pytest.mark.slow
@pytest.mark.parametrize("bug", OTHERS, ids=lambda bug: bug.name)
def test_a_wrong_scale_mean_or_distance_is_caught(bug):
    assert_caught(bug, bug.check)
