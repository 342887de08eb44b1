"""Bugs that neural statisticians can have, each planted alone and caught by a check of the suite."""

import jax.numpy as jnp
import pytest
from tests.latent import test_neural_statistician as statisticians
from tests.mutations.bug import Bug, assert_caught

from marginax.latent import ELBO
from marginax.latent.neural_statistician import inference, networks
from marginax.latent.neural_statistician.inference import SetInference

DIVERGENCE, MEAN = inference.divergence, networks.masked_mean


def bound() -> None:
    statisticians.test_the_bound_is_below_the_evidence_by_the_divergences_of_context_and_of_every_latent()


def every_draw() -> None:
    statisticians.test_every_draw_gives_the_evidence_of_sets_of_all_sizes_where_the_beliefs_are_exact(
        ELBO(analytic_kl=False)
    )


def once(first, second):
    """The divergence of the latents of the first example alone."""
    found = DIVERGENCE(first, second)
    return found * (jnp.arange(found.shape[-1]) == 0)


BUGS = [
    Bug("the divergence of latents counted once, not for every example", inference, "divergence", once, bound),
    Bug(
        "a divergence the other way round",
        inference,
        "divergence",
        lambda first, second: DIVERGENCE(second, first),
        bound,
    ),
    Bug("examples that are not there counted", SetInference, "_total", lambda self, parts: parts.sum(-1), every_draw),
    Bug("a mask ignored in the mean", networks, "masked_mean", lambda values, mask: jnp.mean(values, 1), every_draw),
]


@pytest.mark.parametrize("bug", [pytest.param(b, id=b.name, marks=pytest.mark.slow) for b in BUGS])
def test_a_planted_bug_is_caught(bug):
    assert_caught(bug, bug.check)
