"""Bugs that decisions can have, each planted alone and caught by a check of the suite."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.decide import test_conformal as coverage
from tests.decide import test_jackknife as members
from tests.decide import test_selective as selection
from tests.decide import test_utility as choices
from tests.mutations.bug import Bug, assert_caught

from marginax._keys import as_key
from marginax.decide import (
    APS,
    RAPS,
    ClopperPearson,
    Normalised,
    RiskCoverage,
    conformal,
    jackknife,
    rules,
    utility,
)
from marginax.decide.rules import read_mean_and_std


def check_intervals():
    coverage.check_law_of_coverage(coverage.repeat(lambda rng: coverage.covered_numbers(Normalised(), rng), num=300))


def check_groups():
    hits = coverage.repeat(coverage.covered_per_group, num=300)
    coverage.check_law_of_coverage(hits[:, 1])


CHECKS: dict[str, Callable[[], Any]] = {
    "coverage of intervals": check_intervals,
    "coverage of randomised sets": coverage.test_randomised_sets_are_smaller_and_exact_where_scores_tie,
    "coverage in groups": check_groups,
    "keys": coverage.test_the_key_decides_and_calibration_and_sets_do_not_share_numbers,
    "scores of classes": coverage.test_scores_of_classes_are_those_of_the_formulas,
    "jackknife+": lambda: members.check_definition("bootstrap", 0.8),
    "curve": lambda: selection.test_the_curve_is_what_counting_gives(5),
    "ties": selection.test_aurc_within_ties_is_the_average_over_orders,
    "promise": lambda: selection.check_promise(ClopperPearson(0.9), "no help"),
    "values": choices.test_targets_are_enumerated,
    "squared loss": choices.test_the_squared_loss_is_bias_and_variance,
}


def quantile_at(rank_of):
    def quantile(scores, level):
        rank = rank_of(len(scores), level)
        return np.asarray(scores[rank - 1] if rank <= len(scores) else np.full(scores.shape[1:], np.inf))

    return quantile


def one_quantile_for_all(scores, groups):
    return {name: np.sort(scores, axis=0) for name in ([None] if groups is None else np.unique(groups).tolist())}


def variance_for_std(self, prediction, bound):
    mean, std = read_mean_and_std(prediction)
    return mean - bound * std**2, mean + bound * std**2


def own_probability_left_out(self, probs, *, key=None):
    return INCLUSIVE(self, probs, key=key) - probs


def penalty_from_rank_zero(self, probs, *, key=None):
    order = np.argsort(-probs, axis=1, kind="stable")
    rank = np.argsort(order, axis=1)
    return APS().scores(probs) + self.penalty * np.maximum(rank - self.num_free, 0)


def first_rows_of_ties(self):
    starts = np.append(True, self.uncertainty[1:] != self.uncertainty[:-1])
    return np.flatnonzero(starts) + 1


def rows_as_they_come(self):
    return float(np.mean(np.cumsum(self.losses) / np.arange(1, len(self.losses) + 1)))


def doubt_not_shared(self, total, num, doubt):
    return UPPER(self, total, num, self.num_cuts * doubt)


def values_swapped(actions, expected, known, perfect, *, per_draw):
    return DECIDE(actions, expected, perfect, known, per_draw=per_draw)


def equal_weights(targets, weights, loss, actions):
    return AVERAGE(targets, np.full(len(weights), 1 / len(weights)), loss, actions)


INCLUSIVE, UPPER, DECIDE, AVERAGE = APS.scores, ClopperPearson.upper, utility._decide, utility._average

BUGS = [
    Bug(
        "the new row is forgotten",
        conformal,
        "conformal_quantile",
        quantile_at(lambda num, level: math.ceil(num * level)),
        "coverage of intervals",
    ),
    Bug(
        "the rank is one too high",
        conformal,
        "conformal_quantile",
        quantile_at(lambda num, level: math.ceil((num + 1) * level) + 1),
        "coverage of intervals",
    ),
    Bug(
        "the rank is rounded down",
        jackknife,
        "conformal_quantile",
        quantile_at(lambda num, level: math.floor((num + 1) * level)),
        "jackknife+",
    ),
    Bug("groups share a quantile", conformal, "_sort_by_group", one_quantile_for_all, "coverage in groups"),
    Bug("variance for standard deviation", Normalised, "interval", variance_for_std, "coverage of intervals"),
    Bug(
        "all inputs share a random number",
        rules,
        "draw_uniform",
        lambda key, num: np.full(num, DRAW(key, 1)),
        "coverage of randomised sets",
    ),
    Bug(
        "calibration and sets share random numbers",
        conformal,
        "_stream",
        lambda key, number: None if key is None else as_key(key),
        "keys",
    ),
    Bug("own probability does not count", APS, "scores", own_probability_left_out, "scores of classes"),
    Bug("penalty counts from rank zero", RAPS, "scores", penalty_from_rank_zero, "scores of classes"),
    Bug(
        "members judge rows they saw",
        jackknife,
        "_left_out",
        lambda unseen, members: np.tile(members.mean(axis=0), (len(unseen), 1)),
        "jackknife+",
    ),
    Bug("ties are split", RiskCoverage, "_num_accepted", property(first_rows_of_ties), "curve"),
    Bug("order within ties counts", RiskCoverage, "aurc", property(rows_as_they_come), "ties"),
    Bug("each cut takes all the doubt", ClopperPearson, "upper", doubt_not_shared, "promise"),
    Bug("values are swapped", utility, "_decide", values_swapped, "values"),
    Bug("weights of draws are ignored", utility, "_average", equal_weights, "squared loss"),
]
DRAW = rules.draw_uniform


@pytest.mark.parametrize("name", CHECKS)
def test_check_passes_without_a_bug(name):
    CHECKS[name]()


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_bug_is_caught(bug):
    assert_caught(bug, CHECKS[bug.check])
