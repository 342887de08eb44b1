"""Thirty bugs that were written down before the tests were read, each planted alone and caught by a default test.

They are of the kinds that laws at defaults do not see: second calls, arguments away from their defaults, unequal
weights, several chunks, keys over phases, last batches. `thirty_bugs.json` says where each is.
"""

import ast
import functools
import importlib
import json
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.curvature import test_structures as structures
from tests.data import test_weights as weights
from tests.decide import test_acquisition as acquisition
from tests.decide import test_randomised_sets as randomised
from tests.evaluate import test_distances as distances
from tests.evaluate import test_leave_one_out as leave_one_out
from tests.infer import test_barker as barker
from tests.infer import test_dropout as dropout
from tests.infer import test_mile as mile
from tests.infer import test_stochastic as stochastic
from tests.infer import test_svi as svi
from tests.infer import test_swag as swag
from tests.infer import test_temperature as temperatures
from tests.infer import test_variational as variational
from tests.latent import test_hmm as hmm
from tests.latent import test_lda as lda
from tests.model import test_enumeration as enumeration
from tests.model import test_model as models
from tests.model import test_program as programs
from tests.mutations.bug import planted
from tests.posterior import test_posterior as posteriors
from tests.posterior import test_tuning as tuned
from tests.predict import test_functions as functions
from tests.predict import test_predictive as predictive
from tests.predict import test_predictor as predictor
from tests.predict import test_protocol as protocol

import marginax

PACKAGE = Path(marginax.__file__).parent
BUGS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("thirty_bugs.json").read_text())


@contextmanager
def rewritten(bug: dict[str, Any]) -> Iterator[None]:
    """The function that holds the bug, compiled anew with it, wherever it is known."""
    path = PACKAGE / bug["file"]
    source = path.read_text()
    line = source[: source.index(bug["before"])].count("\n") + 1
    module = importlib.import_module("marginax." + bug["file"].removesuffix(".py").replace("/", "."))
    owner: Any = module
    places = ast.parse(source).body
    while True:
        place = next(node for node in places if node.lineno <= line <= (node.end_lineno or 0))
        if isinstance(place, ast.FunctionDef):
            break
        assert isinstance(place, ast.ClassDef)
        owner, places = getattr(module, place.name), place.body
    first = min([place.lineno, *(each.lineno for each in place.decorator_list)])
    text = "\n".join(source.splitlines()[first - 1 : place.end_lineno])
    assert text.count(bug["before"]) == 1
    names = dict(vars(module))
    exec(compile(textwrap.dedent(text.replace(bug["before"], bug["after"])), str(path), "exec"), names)  # noqa: S102
    new, old = names[place.name], getattr(owner, place.name)
    with planted(owner, place.name, new), pytest.MonkeyPatch.context() as patch:
        for other in [m for name, m in sys.modules.items() if name.startswith(("marginax", "tests"))]:
            if owner is module and getattr(other, place.name, None) is old:
                patch.setattr(other, place.name, new)
        yield


def acquired(name: str) -> None:
    probs = np.random.default_rng(0).dirichlet(0.5 * np.ones(acquisition.K), size=(acquisition.S, acquisition.N))
    getattr(acquisition, name)(probs)


CHECKS = {
    "swag_overwrites_its_last_slot": lambda: swag.test_moments_are_those_of_the_snapshots(4),
    "psgld_mean_of_squares_begins_at_zero": (
        stochastic.test_the_scaling_of_the_first_steps_is_by_the_plain_mean_of_squares
    ),
    "tempering_exchanges_at_temperature_one": lambda: (
        temperatures.test_samplers_have_the_covariance_of_the_tempered_posterior("ParallelTempering")
    ),
    "mclmc_forgets_its_path_length": lambda: mile.test_a_direction_is_forgotten_over_the_path_that_is_asked_for(0.5),
    "barker_goes_back_by_the_wrong_root": lambda: barker.test_one_move_keeps_a_normal_normal("dense"),
    "online_prior_forgets_earlier_rounds": lambda: (
        tuned.test_rounds_of_online_tuning_at_one_mode_end_where_one_round_does(tuned.fitted_wave())
    ),
    "laplace_counts_rows_and_not_weights": lambda: (
        weights.test_a_laplace_approximation_counts_weights_and_the_rows_of_one_epoch(structures.Dense())
    ),
    "layerwise_shares_the_key_of_shift_and_noise": (
        variational.test_what_weights_share_and_what_is_their_own_is_drawn_independently
    ),
    "renyi_count_is_not_divided": lambda: svi.test_the_renyi_bound_is_that_of_its_formula(0.3),
    "mile_keeps_the_weights_after_the_best": (
        mile.test_the_weights_that_are_kept_are_those_of_the_best_score_of_held_out_rows
    ),
    "probit_forgets_the_weight_of_its_normal": lambda: (
        functions.test_linearised_mixtures_with_unequal_weights_are_the_average_by_hand("classes")
    ),
    "class_covariance_between_chunks": lambda: predictive.test_classification_does_not_depend_on_chunks(20_000),
    "mixture_samples_chunks_by_the_same_keys": lambda: predictive.test_regression_does_not_depend_on_chunks(1),
    "averaged_rows_tile_weights_of_draws": lambda: (
        protocol.test_rows_that_are_averaged_are_the_mean_of_their_distributions(False)
    ),
    "loop_at_other_inputs_keeps_the_first": predictor.test_draws_that_do_not_fit_are_taken_in_chunks,
    "mixture_draws_sorted_by_component": lambda: (
        posteriors.test_every_draw_of_a_mixture_is_of_a_component_by_its_weight("sample_params", (np.zeros(1),) * 2)
    ),
    "stochastic_noise_of_the_first_chain": dropout.test_every_chain_has_the_noise_that_it_learned,
    "flat_prior_counts_the_weakest_twice": (
        structures.test_under_a_flat_prior_what_low_rank_left_out_is_as_weak_as_the_weakest_it_kept
    ),
    "kronecker_counts_rows_that_do_not_count": lambda: (
        weights.test_a_laplace_approximation_counts_weights_and_the_rows_of_one_epoch(structures.Kronecker())
    ),
    "perturbation_by_weight_and_not_its_root": weights.test_noise_of_targets_has_the_spread_of_repeated_rows,
    "scale_mixture_draws_the_other_component": lambda: models.test_draws_of_a_prior_have_the_law_of_its_density(
        "scale mixture"
    ),
    "product_over_a_plate_counts_once": lambda: enumeration.test_nested_plates_are_the_sum_over_all_assignments(True),
    "program_draws_chunks_by_the_same_keys": (
        programs.test_predictive_draws_follow_their_law_and_do_not_depend_on_chunks
    ),
    "path_ends_as_if_state_zero_followed": hmm.test_drawn_paths_have_the_weights_of_all_paths,
    "topic_sweeps_ignore_the_given_prior": lambda: (
        lda.test_proportions_are_the_fixed_point_under_the_prior_that_is_given(6.0)
    ),
    "loo_forgets_weights_of_draws": leave_one_out.test_weights_of_a_mixture_count,
    "samples_of_different_number": lambda: distances.test_samples_match_scipy((7, 30)),
    "targets_averaged_without_weights": functools.partial(acquired, "test_information_about_targets_is_enumerated"),
    "labellings_forget_the_first_inputs": acquisition.test_sampled_labellings_give_the_same_information,
    "conformal_sets_reuse_the_calibrations_numbers": (
        randomised.test_calibration_and_sets_from_one_seed_are_independent
    ),
}


def test_every_bug_has_a_check():
    assert {bug["name"] for bug in BUGS} == set(CHECKS)
    assert len(BUGS) == 30


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug["name"])
def test_every_bug_is_still_a_change_of_the_code(bug):
    source = (PACKAGE / bug["file"]).read_text()
    assert source.count(bug["before"]) == 1, f"{bug['file']} has changed: write the bug down again"


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug["name"])
def test_bug_is_caught(bug):
    with rewritten(bug), pytest.raises(AssertionError):
        CHECKS[bug["name"]]()
