"""Bugs that models with unobserved parts can have, each planted alone and caught by a check of the suite."""

import equinox as eqx
import jax.numpy as jnp
import pytest
from tests.latent import test_coins as coins
from tests.latent import test_hmm as hmms
from tests.latent import test_lda as topics
from tests.latent import test_mixture as mixtures
from tests.latent import test_pca as components
from tests.latent import test_regression as regressions
from tests.latent import test_sizes as sizes
from tests.mutations.bug import Bug, assert_caught

from marginax.latent import lda
from marginax.latent.entries import CountEntries
from marginax.latent.hmm import HMM
from marginax.latent.mixture import Mixture
from marginax.latent.normals import Normals
from marginax.latent.pca import PCA
from marginax.latent.simplex import Dirichlet
from marginax.latent.sizes import SizeChoice
from marginax.latent.weights import RegressionWeights


def one_component() -> None:
    mixtures.test_the_bound_of_one_component_is_the_evidence("full")


def scikit_learn() -> None:
    mixtures.test_coordinate_ascent_equals_scikit_learn()


EXPECT, STEPS, DIVERGENCE, ENTRIES = Mixture.expect, HMM._steps, Dirichlet.divergence, PCA._entries
NATURAL, COUNTS = Normals.expected_natural, CountEntries.bound


def entropy_of_the_wrong_sign(self, natural, batch):
    """The divergence of the labels is added, not taken away."""
    expected = EXPECT(self, natural, batch)
    return eqx.tree_at(lambda e: e.complexity, expected, -expected.complexity)


def mask_ignored(self, rows):
    x, mask = STEPS(self, rows)
    return x, jnp.ones_like(mask)


def entries_all_observed(self, rows):
    x, mask = ENTRIES(self, rows)
    return x, jnp.ones_like(mask)


def divergence_of_the_prior_from_the_belief(self, belief):
    """The Kullback-Leibler divergence the other way round."""
    prior = jnp.broadcast_to(jnp.asarray(self._prior(belief.shape[-1]), belief.dtype), belief.shape)
    logs = self.expected_natural(prior)
    return jnp.sum((prior - belief) * logs) + DIVERGENCE(self, belief) * 0.5


def uncertain_means_forgotten(self, belief):
    """Without the term D / (2 beta), as if the means were known."""
    natural = NATURAL(self, belief)
    size = belief["means"].shape[1]
    return natural | {"offset": natural["offset"] + 0.5 * size / belief["mean_precision"]}


def bound_of_counts_too_flat(self, x, first, second):
    """The parabola has half the curvature that it needs, and is above the density far from where it touches."""
    bound = COUNTS(self, x, first, second)
    less = 0.5 * 0.1671 * x
    return bound._replace(
        constant=bound.constant + 0.5 * less * first**2,
        target=bound.target - less * first,
        weight=bound.weight - less,
    )


WEIGHTS, BLOCKS = RegressionWeights.expected_natural, lda.over_blocks


def documents_left_sorted(function, start, rows, dtype):
    """What is found for documents stays in the order of their lengths."""
    total, found = BLOCKS(function, start, rows, dtype)
    return total, found[jnp.argsort(jnp.sum(rows["count"] > 0, 1))]


def uncertain_weights_forgotten(self, belief):
    """Second moments without the covariance, as if the weights were known."""
    natural = WEIGHTS(self, belief)
    mean = belief["mean"]
    return natural | {"second": natural["precision"] * mean[:, :, None] * mean[:, None, :]}


def bound_of_logistic_regression() -> None:
    regressions.test_the_bound_of_logistic_regression_is_just_below_its_evidence()


def parabolas_of_counts() -> None:
    components.test_parabolas_are_below_the_density_and_touch_it_at_the_moments("poisson")


def planted_number_of_clusters() -> None:
    sizes.test_the_planted_size_has_the_highest_bound("mixture")


def size_that_costs_most(self):
    """Complexity is added to the bound, not taken away."""
    return max(self.rows, key=lambda row: row.reconstruction + row.complexity)


BUGS = [
    Bug(
        "complexity speaks for a size",
        SizeChoice,
        "best",
        property(size_that_costs_most),
        planted_number_of_clusters,
    ),
    Bug(
        "documents left in the order of their lengths",
        lda,
        "over_blocks",
        documents_left_sorted,
        topics.test_blocks_of_sorted_documents_are_all_documents_at_once,
    ),
    Bug(
        "weights of a regression taken for known",
        RegressionWeights,
        "expected_natural",
        uncertain_weights_forgotten,
        bound_of_logistic_regression,
    ),
    Bug("a bound of counts too flat", CountEntries, "bound", bound_of_counts_too_flat, parabolas_of_counts),
    Bug("entropy of the wrong sign", Mixture, "expect", entropy_of_the_wrong_sign, scikit_learn),
    Bug("a mask ignored", HMM, "_steps", mask_ignored, hmms.test_ragged_and_masked_sequences_are_as_one_at_a_time),
    Bug(
        "missing entries taken for zeros",
        PCA,
        "_entries",
        entries_all_observed,
        components.test_likelihood_and_bound_are_those_of_the_normal_distribution,
    ),
    Bug(
        "divergence the other way round",
        Dirichlet,
        "divergence",
        divergence_of_the_prior_from_the_belief,
        coins.test_evidence_and_predictive_are_those_of_scipy,
    ),
    Bug("means taken for known", Normals, "expected_natural", uncertain_means_forgotten, one_component),
    Bug(
        "half of the divergence of topics",
        Dirichlet,
        "divergence",
        lambda self, belief: 0.5 * DIVERGENCE(self, belief),
        topics.test_one_topic_has_the_evidence_in_closed_form,
    ),
]


DEFAULT = ("divergence the other way round", "a bound of counts too flat")


@pytest.mark.parametrize(
    "bug", [pytest.param(b, id=b.name, marks=[] if b.name in DEFAULT else pytest.mark.slow) for b in BUGS]
)
def test_a_planted_bug_is_caught(bug):
    assert_caught(bug, bug.check)
