"""Bugs that augmentation can have, each planted alone and caught by a check of the suite."""

import jax
import jax.numpy as jnp
import pytest
from tests.data import test_augmented as of_data
from tests.infer import test_strengths as by_evidence
from tests.mutations.bug import Bug, assert_caught
from tests.nets import test_augmented as of_likelihood

from marginax.curvature.jacobians import Outer
from marginax.data import AugmentedSource, Batch, augmented
from marginax.data.transforms import apply_transforms, bilinear, draw_uniforms
from marginax.nets.augmented import Augmented, Probabilities

BATCH, CALL, VIEWS = AugmentedSource.batch, Augmented.call_batch, Augmented.views


def one_key_for_all_rows(transform, x, key):
    uniforms = draw_uniforms((transform,), key)
    return jax.vmap(lambda row: apply_transforms((transform,), row, *uniforms))(x)


def one_key_for_all_steps(self, step, *, key):
    batch = self.source.batch(step, key=key)
    return augmented._transform_batch(self.transforms, batch, jnp.uint32(0), key)


def views_counted_as_data(self, step, *, key):
    batch = BATCH(self, step, key=key)
    return Batch(batch.data, batch.index, 8 * batch.num_examples)


def about_the_corner_of_the_middle(x, degrees):
    """The middle of n pixels as n / 2, half a pixel away."""
    angle, middle, centre = jnp.deg2rad(degrees), x.shape[-2] / 2, x.shape[-1] / 2
    down, right = jnp.arange(x.shape[-2])[:, None] - middle, jnp.arange(x.shape[-1])[None, :] - centre
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    return bilinear(x, middle + cos * down + sin * right, centre + cos * right - sin * down)


def one_key_for_all_examples(self, xs, *, key=None):
    views = jax.vmap(lambda x: VIEWS(self, x, key=key))(xs)
    return jax.vmap(jax.vmap(self.network))(views).mean(1)


def no_views_without_a_key(self, x, *, key=None):
    """Augmentation forgotten at prediction."""
    return jnp.stack([x] * self.num_averaged) if key is None else VIEWS(self, x, key=key)


def mean_of_log_probabilities(self, outputs):
    return jnp.mean(jax.nn.log_softmax(outputs), axis=0)


BUGS = [
    Bug(
        "examples share transforms",
        augmented,
        "transform_rows",
        one_key_for_all_rows,
        of_data.test_every_example_and_every_step_has_transforms_of_its_own,
    ),
    Bug(
        "steps share transforms",
        AugmentedSource,
        "batch",
        one_key_for_all_steps,
        of_data.test_every_example_and_every_step_has_transforms_of_its_own,
    ),
    Bug(
        "N times views",
        AugmentedSource,
        "batch",
        views_counted_as_data,
        of_data.test_the_expected_log_density_is_that_of_ridge_regression,
    ),
    Bug(
        "turned about another place",
        of_data,
        "rotate",
        about_the_corner_of_the_middle,
        lambda: of_data.test_quarter_turns_are_those_of_numpy((6, 6)),
    ),
    Bug(
        "examples share views",
        Augmented,
        "call_batch",
        one_key_for_all_examples,
        of_likelihood.test_examples_have_views_of_their_own_with_a_key_and_the_same_without,
    ),
    Bug(
        "no views at prediction",
        Augmented,
        "views",
        no_views_without_a_key,
        of_likelihood.test_examples_have_views_of_their_own_with_a_key_and_the_same_without,
    ),
    Bug(
        "mean of log probabilities",
        Probabilities,
        "__call__",
        mean_of_log_probabilities,
        lambda: of_likelihood.test_a_finite_orbit_is_that_by_hand_with_and_without_a_key(
            Probabilities(), "probabilities"
        ),
    ),
    Bug(
        "views counted as examples by Kronecker factors",
        Outer,
        "over_views",
        lambda self: self,
        by_evidence.test_views_that_are_alike_leave_kronecker_factors_as_they_are,
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_the_suite_catches(bug):
    assert_caught(bug, bug.check)
