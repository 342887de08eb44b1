"""Bugs that the playground can have, each planted alone and caught by a check of the suite."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from tests.mutations.bug import Bug, assert_caught
from tests.playground import test_labs as of_labs
from tests.playground import test_moves as of_moves

from marginax.playground.labs import moves, samplers, targets, variational
from marginax.playground.labs.targets import Target

METHOD_OF, COIN, TRUTH = samplers.method_of, variational.coin_numbers, Target.truth.func


def another_step_size(settings):
    """The text says one step size, and the page runs another."""
    return dataclasses.replace(METHOD_OF(settings), step_size=1.01 * settings["step_size"])


def all_orders_counted(settings, flips):
    """Evidence of the number of heads in place of that of the flips."""
    found = COIN(settings, flips)
    return {**found, "log_evidence": found["log_evidence"] + np.log(max(len(flips), 1))}


def always_forward(key, num_leaves):
    """Doublings that forget to go back in time."""
    depths = jnp.arange(moves.MAX_TREE_DEPTH)
    return jnp.clip(num_leaves - (2**depths - 1), 0, 2**depths)


def not_normalised(self):
    found = TRUTH(self)
    return dataclasses.replace(found, marginals=tuple(2.0 * part for part in found.marginals))


def at_the_end(density, start, step_size, num_steps):
    """A path without its start."""
    path, energy = ORBIT(density, start, step_size, num_steps + 1)
    return path[1:], energy[1:]


ORBIT = moves.orbit
BUGS = [
    Bug(
        "the text has another step size",
        samplers,
        "method_of",
        another_step_size,
        lambda: of_labs.check_run("samplers", {"sampler": "MALA", "steps": 25, "chains": 1}),
    ),
    Bug(
        "evidence of the number of heads",
        variational,
        "coin_numbers",
        all_orders_counted,
        of_labs.test_a_coin_is_the_beta_law_of_its_flips,
    ),
    Bug(
        "trees grow forward alone",
        moves,
        "tree_doublings",
        always_forward,
        lambda: of_moves.test_paths_begin_where_the_chain_was_and_end_where_it_went("NUTS"),
    ),
    Bug(
        "paths without their start",
        moves,
        "orbit",
        at_the_end,
        lambda: of_moves.test_paths_begin_where_the_chain_was_and_end_where_it_went("HMC"),
    ),
    Bug(
        "truth is not a density",
        targets.Target,
        "truth",
        property(not_normalised),
        lambda: of_moves.test_truth_integrates_to_one_and_has_its_own_moments("ring"),
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_bug_is_caught(bug):
    assert_caught(bug, bug.check)
