"""Bugs in terms that ask for no labels, each planted alone and caught by a check of the suite."""

import jax
import jax.numpy as jnp
import pytest
from tests.model import test_missing_targets as missing
from tests.mutations.bug import Bug, assert_caught
from tests.self_supervised import test_self_supervised as checks

import marginax as mx
from marginax.model.abstract import AbstractModel
from marginax.self_supervised import Contrastive, MaskedReconstruction, SelfSupervised, vicreg

L = mx.likelihoods


def among_all_views(self, outputs, x, keys):
    """A view may name itself."""
    num = outputs.shape[0]
    flat = jnp.concatenate([outputs[:, 0], outputs[:, 1]])
    flat = flat / jnp.linalg.norm(flat, axis=1, keepdims=True)
    log_probs, here = jax.nn.log_softmax(flat @ flat.T / self.temperature, axis=1), jnp.arange(num)
    return 0.5 * (log_probs[here, num + here] + log_probs[num + here, here])


def variance_counted_as_covariance(outputs):
    away = outputs - outputs.mean(0)
    covariance = away.T @ away / (outputs.shape[0] - 1)
    return SPREAD(outputs)[0], jnp.sum(covariance**2) / outputs.shape[1]


def scored_everywhere(self, outputs, x, keys):
    away = (outputs[:, 0] - x.reshape(len(x), -1)) / self.scale
    return jnp.sum(-0.5 * away**2 - jnp.log(self.scale) - 0.5 * jnp.log(2 * jnp.pi), axis=1)


def nothing_hidden(self, x, keys):
    return x[:, None]


def entropy_of_the_mean(self, outputs, unknowns):
    logits = self.likelihood.distribution(outputs.reshape(-1, outputs.shape[-1]), unknowns).class_logits
    each = jax.nn.softmax(logits, axis=-1).reshape(*outputs.shape[:2], -1)
    mean = each.mean(1)
    return self.weight * jnp.sum(mean * jnp.log(mean), axis=-1)


def warm(self, outputs, unknowns):
    return self.likelihood.agreement(outputs, unknowns)


def without_label_zero(self, output, y, unknowns):
    return self.likelihood.log_prob(output, jnp.maximum(y, 0), unknowns)


def no_centre(self):
    return False


def in_blocks(self, params, batch, *, key=None):
    return AbstractModel.scaled_log_likelihood(self, params, batch, key=key)


def by_the_same_key(self, x, keys, *, fresh):
    return VIEWS(self, x, keys if fresh else jnp.broadcast_to(keys[0], keys.shape), fresh=fresh)


def with_copies(self, outputs, x, keys):
    return TERMS(self, outputs, x, jax.random.split(jax.random.key(0), len(keys)))


SPREAD, VIEWS, TERMS = vicreg._spread, L.ConsistencyRegularised.views, Contrastive.terms
CHECKS = {
    "contrastive": checks.check_contrastive_terms_are_those_by_hand,
    "vicreg": checks.check_vicreg_terms_are_those_by_hand,
    "masked": checks.check_reconstruction_is_scored_behind_the_mask_alone,
    "consistency": missing.check_terms_are_the_label_and_the_divergence_of_views,
    "noise": missing.check_noise_without_a_key_is_each_rows_own,
    "twice": checks.check_a_row_that_is_in_a_batch_twice_is_no_negative_of_itself,
    "centre": checks.test_a_prior_with_a_centre_in_a_part_is_not_rescaled_about_zero,
    "blocks": checks.test_rows_of_a_large_batch_are_all_compared,
}
BUGS = [
    Bug("a view among its own candidates", Contrastive, "terms", among_all_views, "contrastive"),
    Bug("variances counted as covariances", vicreg, "_spread", variance_counted_as_covariance, "vicreg"),
    Bug("what is seen is scored", MaskedReconstruction, "terms", scored_everywhere, "masked"),
    Bug("nothing is hidden", MaskedReconstruction, "inputs", nothing_hidden, "masked"),
    Bug("entropy in place of divergence", L.ConsistencyRegularised, "agreement", entropy_of_the_mean, "consistency"),
    Bug("a term that no temperature changes", L.Tempered, "agreement", warm, "consistency"),
    Bug("a missing label taken for the first", L.ConsistencyRegularised, "log_prob", without_label_zero, "consistency"),
    Bug("one noise for all rows", L.ConsistencyRegularised, "views", by_the_same_key, "noise"),
    Bug("a copy as a negative", Contrastive, "terms", with_copies, "twice"),
    Bug("a part with a centre has none", mx.priors.ByPath, "has_centre", property(no_centre), "centre"),
    Bug("a large batch in blocks", SelfSupervised, "scaled_log_likelihood", in_blocks, "blocks"),
]


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKS)
def test_without_a_bug_the_checks_pass(name):
    CHECKS[name]()


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_bugs_are_caught(bug):
    assert_caught(bug, CHECKS[bug.check], (AssertionError, pytest.fail.Exception))
