"""Bugs that searches can have, each planted alone and caught by a check of the suite."""

import jax
import jax.numpy as jnp
import pytest
from tests.decide import test_search as searches
from tests.mutations.bug import Bug, assert_caught

from marginax.decide import ExpectedImprovement
from marginax.decide.search import acquisitions
from marginax.decide.search.acquisitions import log_expected_improvement, score_at
from marginax.decide.search.surrogates import ProcessBelief


def precisely(check):
    def run():
        with jax.enable_x64(True):
            check()

    return run


CHECKS = {
    "improvement": searches.check_improvement_is_downwards,
    "batch": precisely(searches.check_batch_by_hand),
    "process": precisely(searches.test_a_process_that_is_filled_up_is_the_process_by_hand),
}


def upwards(self, mean, std, best):
    return log_expected_improvement(mean, std, best)


def pending_ignored(rule, belief, u, best, pending):
    return SCORE(rule, belief, u, best, pending[:0])


def best_ignores_fantasies(rule, belief, u, best, pending):
    class Known(type(rule)):
        def score(self, mean, std, _):
            return type(rule).score(self, mean, std, best)

    return SCORE(Known(), belief, u, best, pending)


def all_rows_count(self, u):
    whole = ProcessBelief(self.params, self.rows, jnp.ones_like(self.present), self.weights, self.root)
    return JOINT(whole, u)


SCORE, JOINT = score_at, ProcessBelief.joint

BUGS = [
    Bug("improvement upwards while minimising", ExpectedImprovement, "score", upwards, "improvement"),
    Bug("points of a batch do not know of each other", acquisitions, "score_at", pending_ignored, "batch"),
    Bug("the best does not count what is expected", acquisitions, "score_at", best_ignores_fantasies, "batch"),
    Bug("rows that fill up count", ProcessBelief, "joint", all_rows_count, "process"),
]


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_bug_is_caught(bug):
    assert_caught(bug, CHECKS[bug.check])
