"""Bugs that experiments and series of them can have, each planted alone and caught by a check of the suite."""

import pytest
from tests.mutations.bug import Bug, assert_caught
from tests.reproduce import test_classics, test_experiment, test_noisy_mnist, test_series, test_uncertain_classics

from marginax.files import RunDirectory
from marginax.reproduce import (
    Record,
    Row,
    Workbench,
    combined,
    fashion_ood,
    gal_rotated_one,
    guo_calibration,
    noisy_mnist,
    series,
    uci,
)

ESTIMATED, UNKNOWNS, OF_RUNS = noisy_mnist.estimated, noisy_mnist.unknowns, Row.of_runs
DATA, AREA, SCORED, POOLED = guo_calibration._data, fashion_ood._area, guo_calibration._scored, combined._pooled


def validated_by_training_pictures(settings):
    found = DATA(settings)
    num = settings["num_valid"]
    return found | {"valid": tuple(part[:num] for part in found["train"])}


def digits_in_place_of_garments(pair, score):
    return AREA(pair[::-1], score)


def labels_that_are_seen(prediction, y, num_simulated):
    found = SCORED(prediction, y, num_simulated)
    return found | {"ece if calibrated": found["ece"][0]}


def every_other_pixel(images, size):
    by = images.shape[-1] // size
    return images[..., ::by, ::by].reshape(len(images), -1)


def all_that_are_sure(probs, sure, seconds):
    return Row("passes", float((probs.max(-1) > sure).mean()))


def by_seen_labels(probs):
    return ESTIMATED(probs).T


def without_the_diagonal_of_its_row(kind, matrix):
    return UNKNOWNS(kind, matrix.T)


def by_examples(row):
    gap = (row.published - row.ours) * (1 if row.lower_is_better else -1)
    return "better" if gap > 2 * row.standard_error else "matched" if gap >= -2 * row.standard_error else "not reached"


def as_if_there_were_several(cls, what, values, *beside, **options):
    return OF_RUNS(what, values, *beside, **{"compared": True} | options)


class AtOnePace(series.Forecast):
    def note(self, name, seconds):
        pass


def of_any_version(record, experiment, budget):
    return record is not None


BUGS = [
    Bug(
        "temperature fitted to training pictures",
        guo_calibration,
        "_data",
        validated_by_training_pictures,
        test_uncertain_classics.test_pictures_that_are_validated_by_are_not_trained_on,
    ),
    Bug(
        "digits in place of garments",
        fashion_ood,
        "_area",
        digits_in_place_of_garments,
        test_uncertain_classics.test_areas_of_scores_are_those_of_the_public_function,
    ),
    Bug(
        "what is invented knows the labels",
        guo_calibration,
        "_scored",
        labels_that_are_seen,
        lambda: test_uncertain_classics.test_labels_that_come_as_predicted_have_nearly_no_calibration_error(0.3),
    ),
    Bug(
        "pixels left out",
        combined,
        "_pooled",
        every_other_pixel,
        test_uncertain_classics.test_pooling_averages_neighbours,
    ),
    Bug(
        "splits that chose are averaged",
        uci,
        "counts",
        lambda *_: True,
        test_classics.test_splits_by_which_a_method_was_set_up_are_left_out,
    ),
    Bug(
        "passes that agree contradict",
        gal_rotated_one,
        "_contradicting",
        all_that_are_sure,
        test_classics.test_passes_that_contradict_are_sure_and_not_of_the_most_frequent_answer,
    ),
    Bug(
        "rows are labels that are seen",
        noisy_mnist,
        "estimated",
        by_seen_labels,
        test_noisy_mnist.test_a_matrix_is_estimated_where_predictions_of_noisy_labels_are_exact,
    ),
    Bug(
        "a matrix that starts transposed",
        noisy_mnist,
        "unknowns",
        without_the_diagonal_of_its_row,
        lambda: test_noisy_mnist.test_learned_matrices_start_where_they_are_put("full"),
    ),
    Bug(
        "verdicts by examples that are shared",
        Row,
        "verdict",
        property(by_examples),
        lambda: test_experiment.test_verdicts_are_by_runs_where_there_are_several(0.01, "not reached"),
    ),
    Bug(
        "a verdict of one run",
        Row,
        "of_runs",
        classmethod(as_if_there_were_several),
        test_experiment.test_one_run_has_no_verdict_beside_the_same_examples,
    ),
]
IN_A_FOLDER = [
    Bug(
        "data are kept",
        RunDirectory,
        "keep_result",
        lambda self: None,
        test_experiment.test_a_finished_fit_is_kept_without_its_data,
    ),
    Bug(
        "small budgets are judged",
        Record,
        "__post_init__",
        lambda self: None,
        test_experiment.test_a_small_budget_has_no_verdict,
    ),
    Bug(
        "warnings are lost",
        Workbench,
        "remarks",
        property(lambda self: []),
        test_experiment.test_warnings_of_fits_are_among_the_remarks,
    ),
    Bug(
        "any settings",
        series,
        "same_settings",
        lambda *_: True,
        test_series.test_a_record_of_other_settings_or_another_version_is_not_finished,
    ),
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_the_bug_is_caught(bug, request):
    if bug.attribute == "_data":
        given = [request.getfixturevalue("data_dir")]
        assert_caught(bug, lambda: bug.check(*given))
    else:
        assert_caught(bug, bug.check)


@pytest.mark.parametrize("bug", IN_A_FOLDER, ids=lambda bug: bug.name)
def test_the_bug_is_caught_in_a_folder(bug, tmp_path):
    assert_caught(bug, lambda: bug.check(tmp_path))


def test_a_series_that_begins_again_is_caught(tmp_path):
    check = lambda: test_series.test_what_is_finished_is_not_run_again(tmp_path)  # noqa: E731
    assert_caught(Bug("again", series, "is_finished", lambda *_: False, check), check)


def test_a_record_of_any_version_is_caught(tmp_path):
    check = lambda: test_series.test_a_record_of_other_settings_or_another_version_is_not_finished(tmp_path)  # noqa: E731
    assert_caught(Bug("any version", test_series, "is_finished", of_any_version, check), check)


def test_a_forecast_at_one_pace_is_caught(tmp_path):
    check = lambda: test_series.test_time_is_foreseen_by_earlier_records_and_by_the_pace_of_this_session(tmp_path)  # noqa: E731
    assert_caught(Bug("one pace", test_series, "Forecast", AtOnePace, check), check)
