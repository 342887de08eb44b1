"""Bugs that neural processes can have, each planted alone and caught by a check of the suite."""

import jax.numpy as jnp
import pytest
from tests.latent import test_neural_process as processes
from tests.mutations.bug import Bug, assert_caught

from marginax.latent.neural_process import encoders, process
from marginax.latent.neural_process.tasks import Points

WEIGHTS, SPLIT, DIVERGENCE, MEAN, ONLY = (
    encoders.attention_weights,
    process.split_tasks,
    process.divergence,
    encoders.masked_mean,
    Points.only,
)


def padding() -> None:
    processes.test_padding_changes_nothing("cnp")


def padding_under_attention() -> None:
    processes.test_padding_changes_nothing("attentive")


def bound() -> None:
    processes.test_the_bound_is_below_the_density_by_the_divergence_from_the_true_belief("latent")


def other_targets() -> None:
    processes.test_the_order_of_the_context_does_not_matter_and_targets_do_not_know_of_each_other("cnp")


def by_hand() -> None:
    processes.test_the_likelihood_of_a_conditional_process_is_that_of_its_networks_point_by_point()


def targets_in_the_context(self, chosen):
    """All real points are given, those to be predicted as well."""
    return ONLY(self, jnp.ones_like(chosen))


def targets_stay_targets_in_the_context(points, sizes, keys):
    context, _ = SPLIT(points, sizes, keys)
    return context, points.mask


BUGS = [
    Bug("a mask ignored", encoders, "masked_mean", lambda values, mask: jnp.mean(values, 1), padding),
    Bug(
        "a mean over the padded count",
        encoders,
        "masked_mean",
        lambda values, mask: jnp.einsum("bn,bnr->br", mask, values) / mask.shape[1],
        padding,
    ),
    Bug("targets leak into the context", Points, "only", targets_in_the_context, by_hand),
    Bug("targets known of each other", Points, "only", targets_in_the_context, other_targets),
    Bug("the context is predicted, too", process, "split_tasks", targets_stay_targets_in_the_context, by_hand),
    Bug(
        "attention to masked points",
        encoders,
        "attention_weights",
        lambda queries, keys, mask: WEIGHTS(queries, keys, jnp.ones_like(mask)),
        padding_under_attention,
    ),
    Bug("a divergence of the wrong sign", process, "divergence", lambda a, b: -DIVERGENCE(a, b), bound),
    Bug("a divergence the other way round", process, "divergence", lambda a, b: DIVERGENCE(b, a), bound),
]
DEFAULT = ("targets leak into the context",)


@pytest.mark.parametrize(
    "bug", [pytest.param(b, id=b.name, marks=[] if b.name in DEFAULT else pytest.mark.slow) for b in BUGS]
)
def test_a_planted_bug_is_caught(bug):
    assert_caught(bug, bug.check)
