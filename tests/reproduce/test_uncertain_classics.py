"""Digits shown to garment networks, a convnet that is too sure, methods in ensembles: on little, and small budgets."""

from dataclasses import replace

import numpy as np
import pytest

import marginax as mx
from marginax.reproduce import combined, experiment, fashion_ood, guo_calibration, reproduce


def tiny(name, tmp_path, **changed):
    chosen = experiment(name)
    settings = dict(chosen.settings["small"]) | changed
    return reproduce(replace(chosen, settings={"small": settings}), tmp_path, progress=False)


def small(name, tmp_path):
    record = reproduce(experiment(name), tmp_path, progress=False)
    return {row.what: row for row in record.rows}


def test_garment_networks_on_few_pictures(tmp_path, data_dir):
    sizes = {"num_train": 100, "num_test": 60, "channels": (4, 4), "hidden": 16}
    record = tiny(
        "fashion-ood", tmp_path, num_epochs=1, num_draws=4, num_members=2, methods=("ensemble", "Laplace"), **sizes
    )
    members, together = (record.row(f"{name}: nats per garment").ours for name in ("single network", "ensemble"))
    gain = record.row("ensemble, gained on a member: nats per garment").ours
    assert gain == pytest.approx(members - together)
    assert gain >= 0  # the logarithm is concave
    assert set(record.curves["Laplace"]) > {"AUROC by entropy", "AUROC by mutual information"}


def test_areas_of_scores_are_those_of_the_public_function():
    rng = np.random.default_rng(0)
    near, far = rng.normal(size=50), rng.normal(1.0, size=70)
    area, influence = fashion_ood._area(({"entropy": near}, {"entropy": far}), "entropy")
    known = mx.evaluate.separate(near, far).auroc
    assert area == pytest.approx(known.value)
    assert fashion_ood._error(influence) == pytest.approx(known.standard_error)


def test_a_convnet_on_few_pictures(tmp_path, data_dir):
    sizes = {"num_train": 100, "num_valid": 60, "num_test": 60, "channels": (4, 4), "hidden": 16}
    record = tiny("guo-calibration", tmp_path, epochs=(1, 2), num_networks=1, num_simulated=5, **sizes)
    tried = dict(record.curves["validation, share right"])
    assert any(f"{max(tried, key=tried.get)} were chosen" in remark for remark in record.remarks)
    right = [record.row(f"{name}: share right").ours for name in ("as trained", "one temperature")]
    assert right[0] == right[1]  # the order of the classes stays
    nats = [record.row(f"{name}: nats per picture").ours for name in ("as trained", "one temperature")]
    assert record.row("gained by one temperature: nats per picture").ours == pytest.approx(nats[0] - nats[1])


def test_pictures_that_are_validated_by_are_not_trained_on(data_dir):
    data = guo_calibration._data({"num_train": 50, "num_valid": 20, "num_test": 30})
    assert [len(x) for x, _ in data.values()] == [50, 20, 30]
    rows = np.concatenate([x.reshape(len(x), -1) for x, _ in data.values()])
    assert len(np.unique(rows.round(4), axis=0)) == 100
    np.testing.assert_allclose(data["train"][0].mean((0, 2, 3)), 0, atol=1e-4)


@pytest.mark.parametrize("low", [0.3, 0.9])
def test_labels_that_come_as_predicted_have_nearly_no_calibration_error(low):
    rng = np.random.default_rng(1)
    sure = rng.uniform(low, 1.0, size=4000)
    probs = np.stack([sure, *[(1 - sure) / 2] * 2], 1)
    prediction = mx.predict.ClassificationPrediction.from_probs(probs)
    y = (probs.cumsum(1) > rng.random((4000, 1))).argmax(1)
    found = guo_calibration._scored(prediction, y, 20)
    assert found["ece"][0] < 0.03
    assert abs(found["ece if calibrated"] - found["ece"][0]) < 0.015
    wrong = guo_calibration._scored(prediction, (y + 1) % 3, 20)
    assert wrong["ece"][0] > 0.2  # what is invented does not know the labels
    assert wrong["ece if calibrated"] == pytest.approx(found["ece if calibrated"])


def test_methods_alone_and_together_on_few_digits(tmp_path, data_dir):
    sizes = {"num_train": 60, "num_test": 50, "hidden": (4,), "num_chains": 2, "num_draws": 5}
    record = tiny(
        "combined", tmp_path, methods=("MAP", "MCLMC"), num_steps=4, num_samples=4, thin=2, mclmc_warmup=10, **sizes
    )
    assert list(record.curves) == ["MAP", "MAP x 2", "MCLMC", "MCLMC x 2"]
    alone, both = (record.row(f"MCLMC{chains}: nats per digit").ours for chains in ("", " x 2"))
    assert record.row("MCLMC, gained by 2 chains: nats per digit").ours == pytest.approx(alone - both)


def test_all_methods_of_the_table_are_there():
    for settings in combined.SETTINGS.values():
        assert list(combined._methods(settings)) == list(combined._NAMES)


def test_pooling_averages_neighbours():
    image = np.arange(16.0).reshape(1, 1, 4, 4)
    np.testing.assert_array_equal(combined._pooled(image, 2), [[2.5, 4.5, 10.5, 12.5]])


@pytest.mark.slow
def test_an_ensemble_notices_digits_better_than_its_members(tmp_path, data_dir):
    rows = small("fashion-ood", tmp_path)
    for name in ("single network", "ensemble", "Laplace", "MC dropout", "Bayes by Backprop"):
        assert rows[f"{name}: share right"].ours > 0.75
        assert rows[f"{name}: AUROC by entropy"].ours > 0.55  # one half is chance
    gain = rows["ensemble, gained on a member: nats per garment"]
    assert gain.ours > 4 * gain.standard_error


@pytest.mark.slow
def test_one_temperature_mends_a_convnet_that_is_too_sure(tmp_path, data_dir):
    rows = small("guo-calibration", tmp_path)
    before, after = (rows[f"{name}: ECE"] for name in ("as trained", "one temperature"))
    assert before.ours - after.ours > 4 * np.hypot(before.standard_error, after.standard_error)
    assert after.ours < rows["one temperature: ECE if labels came as predicted"].ours + 0.03
    assert rows["as trained: mean confidence"].ours > rows["as trained: share right"].ours + 0.05
    assert rows["as trained: share right"].ours == rows["one temperature: share right"].ours > 0.3
    gain = rows["gained by one temperature: nats per picture"]
    assert gain.ours > 4 * gain.standard_error


@pytest.mark.slow
def test_several_chains_are_worth_it_where_one_sees_little(tmp_path, data_dir):
    rows = small("combined", tmp_path)
    for name in ("SGLD", "warm restarts"):  # of VI the small budget cannot tell: 1.5 standard errors
        gain = rows[f"{name}, gained by 4 chains: nats per digit"]
        assert gain.ours > 2 * gain.standard_error
    same = rows["MCLMC, gained by 4 chains: nats per digit"]  # each chain has seen the posterior
    assert abs(same.ours) < 0.01 + 2 * same.standard_error
    assert rows["MCLMC x 4: AUROC of garments by entropy"].ours > rows["MAP: AUROC of garments by entropy"].ours
