"""Bugs that experiments and series of them can have, each planted alone and caught by a check of the suite."""

import pytest
from tests.mutations.bug import Bug, assert_caught
from tests.reproduce import test_series, test_uncertain_classics

from marginax.reproduce import combined, fashion_ood, guo_calibration, series

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
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_the_bug_is_caught(bug, request):
    if bug.attribute == "_data":
        given = [request.getfixturevalue("data_dir")]
        assert_caught(bug, lambda: bug.check(*given))
    else:
        assert_caught(bug, bug.check)


def test_a_series_that_begins_again_is_caught(tmp_path):
    check = lambda: test_series.test_what_is_finished_is_not_run_again(tmp_path)  # noqa: E731
    assert_caught(Bug("again", series, "is_finished", lambda *_: False, check), check)


def test_a_record_of_any_version_is_caught(tmp_path):
    check = lambda: test_series.test_a_record_of_other_settings_or_another_version_is_not_finished(tmp_path)  # noqa: E731
    assert_caught(Bug("any version", test_series, "is_finished", of_any_version, check), check)


def test_a_forecast_at_one_pace_is_caught(tmp_path):
    check = lambda: test_series.test_time_is_foreseen_by_earlier_records_and_by_the_pace_of_this_session(tmp_path)  # noqa: E731
    assert_caught(Bug("one pace", test_series, "Forecast", AtOnePace, check), check)
