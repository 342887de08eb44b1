"""Classics on handwritten digits: all of each on few of them, and what their small budgets must show."""

from dataclasses import replace

import numpy as np
import pytest

from marginax.reproduce import experiment, reproduce
from marginax.reproduce.blundell_mnist import DROPOUT, GAUSSIAN, METHODS, MIXTURE, SGD
from marginax.reproduce.blundell_pruning import SETTINGS
from marginax.reproduce.gal_lenet import AVERAGES, PLACES


def tiny(name, tmp_path, **changed):
    chosen = experiment(name)
    settings = dict(chosen.settings["small"]) | changed
    return reproduce(replace(chosen, settings={"small": settings}), tmp_path, progress=False)


def small(name, tmp_path):
    record = reproduce(experiment(name), tmp_path, progress=False)
    return record, {row.what: row for row in record.rows}


def test_a_small_network_on_few_digits(tmp_path, data_dir):
    record = tiny("mlp-mnist", tmp_path, num_train=300, num_test=100, stages=((1, 0.3), (3, 0.1)), num_starts=2)
    assert record.row("weights and biases").ours == 13_002
    for curve in record.curves["learning"]:
        assert [point[0] for point in curve] == [0, 1, 4]
        assert curve[0][1] > np.log(10) > curve[-1][1]  # it has learned
    last = np.mean(record.curves["learning"], axis=0)[-1]
    wrong = record.row("test digits: wrong, %")
    assert wrong.ours == pytest.approx(last[4])
    each = [curve[-1][4] for curve in record.curves["learning"]]
    assert wrong.error_of_runs == pytest.approx(np.std(each, ddof=1) / np.sqrt(2))
    assert (tmp_path / "picture.png").stat().st_size > 1000


TINY = {
    "num_seeds": ((8, 2),),
    "num_train": 200,
    "num_valid": 50,
    "num_test": 60,
    "num_epochs": dict.fromkeys(METHODS, 1),
    "choosing_epochs": 1,
    "choosing_width": 8,
    "num_draws": 3,
}


def test_weight_uncertainty_on_few_digits(tmp_path, data_dir):
    small = experiment("blundell-mnist").settings["small"]["candidates"]
    candidates = small | {SGD: ({"learning_rate": 1e-6}, {"learning_rate": 0.1})}
    record = tiny("blundell-mnist", tmp_path, **TINY, candidates=candidates)
    errors = record.curves["validation % wrong"]
    assert len(errors[SGD]) == 2
    assert errors[DROPOUT] == errors[GAUSSIAN] == errors[MIXTURE] == []
    assert f"'{SGD}': {candidates[SGD][int(np.argmin(errors[SGD]))]}" in record.remarks[1]
    for name in (GAUSSIAN, MIXTURE):  # one epoch does not move them far
        what = f"8 units, {name}, first seed: median scale of weights over that at the start"
        assert record.row(what).ours == pytest.approx(1, abs=0.2)
    assert [len(record.curves["test % wrong"][f"8 {name}"]) for name in METHODS] == [2] * 4
    for name in METHODS[:-1]:
        ours = [record.row(f"8 units, {each}: wrong, %").ours for each in (MIXTURE, name)]
        assert record.row(f"8 units, {MIXTURE} less {name}: wrong, %").ours == pytest.approx(ours[0] - ours[1])
    again = tiny("blundell-mnist", tmp_path, **TINY, candidates=candidates)  # nothing is fitted or counted twice
    assert again.curves == record.curves


def test_few_weights_are_removed_from_a_network_of_few_digits(tmp_path, data_dir):
    sizes = {"num_train": 200, "num_valid": 50, "num_test": 100, "num_epochs": 1, "choosing_epochs": 1, "num_draws": 3}
    record = tiny("blundell-pruning", tmp_path, width=8, choosing_width=8, **sizes)
    assert record.row("weights and biases").ours == 785 * 8 + 9 * 8 + 9 * 10
    wrong = dict(record.curves["wrong"])
    assert record.row("98% removed costs, points").ours == pytest.approx(wrong[0.98] - wrong[0.0])
    assert np.all(np.diff(record.curves["decibels"]) >= 0)
    assert record.row("95% removed: wrong, %").verdict == ""
    assert len(record.curves["validation % wrong"]) == 2
    chosen = SETTINGS["small"]["candidates"][int(np.argmin(record.curves["validation % wrong"]))]
    assert f"units: {chosen}" in record.remarks[1]


def test_a_convnet_on_few_digits(tmp_path, data_dir):
    tiny_net = {"channels": (3,), "hidden": 4, "stages": ((1, 0.01), (1, 0.005)), "num_passes": 4}
    record = tiny("gal-lenet", tmp_path, num_train=100, num_test=50, **tiny_net)
    named = {f"{place}, {average}" for place in PLACES for average in AVERAGES}
    assert set(record.curves) == named - {f"{PLACES[0]}, {AVERAGES[1]}"}  # without dropout all passes are the same
    assert all(np.shape(curve) == (2, 3) for curve in record.curves.values())
    for place in PLACES[1:]:
        apart = record.row(f"{place}, Monte Carlo less weight averaging: nats").ours
        assert apart != 0
        assert apart == pytest.approx(np.subtract(*(record.row(f"{place}, {a}: nats").ours for a in AVERAGES[::-1])))


@pytest.mark.slow
def test_a_small_network_learns_digits(tmp_path, data_dir):
    record, rows = small("mlp-mnist", tmp_path)
    assert rows["weights and biases"].ours == 13_002
    assert rows["test digits: wrong, %"].ours < 8
    (curve,) = record.curves["learning"]
    assert curve[0][1] > np.log(10) > 2 * curve[1][1]  # one epoch is worth most of it
    assert curve[-1][1] < 0.7 * curve[1][1]
    assert curve[-1][1] < curve[-1][3]  # what was trained on is known better


@pytest.mark.slow
def test_few_weights_of_uncertain_ones_are_needed(tmp_path, data_dir):
    _, rows = small("blundell-pruning", tmp_path)
    assert rows["0% removed: wrong, %"].ours < 8
    for fraction in (50, 75):
        cost = rows[f"{fraction}% removed costs, points"]
        assert abs(cost.ours) < 0.5 + 2 * cost.standard_error


@pytest.mark.slow
def test_errors_of_uncertain_weights(tmp_path, data_dir):
    _, rows = small("blundell-mnist", tmp_path)
    assert max(rows[f"400 units, {name}: wrong, %"].ours for name in METHODS) < 8


@pytest.mark.slow
def test_dropout_in_a_convnet_averaged_in_two_ways(tmp_path, data_dir):
    _, rows = small("gal-lenet", tmp_path)
    for place in PLACES:
        assert rows[f"{place}, {AVERAGES[0]}: wrong, %"].ours < 10
