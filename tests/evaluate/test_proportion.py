"""Shares of rows: their intervals are Wilson's, and certainty is never claimed from a few rows."""

import numpy as np
import pytest
from scipy import stats

import marginax as mx
from marginax.evaluate import Proportion, accuracy, coverage, r2
from marginax.evaluate.score import ScoreTable


@pytest.mark.parametrize(("hits", "num"), [(0, 7), (3, 7), (7, 7), (36, 36), (45, 50), (990, 1000)])
def test_the_interval_is_that_of_scipy(hits, num):
    expected = stats.binomtest(hits, num).proportion_ci(0.95, method="wilson")
    np.testing.assert_allclose(Proportion(hits, num).interval, expected, atol=1e-6)


def test_all_right_is_not_certain():
    found = accuracy(np.tile([0.1, 0.9], (36, 1)), np.ones(36, int))
    assert repr(found) == "1.000 [0.904, 1.000] (n=36)"
    assert np.isnan(found.standard_error)
    assert "± 0.000" not in repr(ScoreTable({"accuracy": found}, "36 rows"))


def test_coverage_is_a_share_of_rows_and_of_several_outputs_a_mean():
    y = np.random.default_rng(0).normal(size=(50, 2))
    one = coverage((np.zeros(50), np.ones(50)), y[:, 0])
    assert isinstance(one, Proportion)
    assert one.num == 50
    several = coverage((np.zeros((50, 2)), np.ones((50, 2))), y)
    rows = (np.abs(y) <= stats.norm.ppf(0.95)).mean(axis=1)
    np.testing.assert_allclose(several.value, rows.mean())
    np.testing.assert_allclose(several.standard_error, rows.std(ddof=1) / np.sqrt(50))


def test_the_standard_error_is_that_of_a_mean():
    hits = np.random.default_rng(0).uniform(size=80) < 0.7
    np.testing.assert_allclose(Proportion(int(hits.sum()), 80).standard_error, hits.std(ddof=1) / np.sqrt(80))


def test_it_survives_a_file(tmp_path):
    row = mx.evaluate.ComparisonRow("MAP()", {"accuracy": Proportion(9, 10)}, None, 1.0, 0.1, None, 3)
    table = mx.evaluate.Comparison({"MAP": row}, {}, mx.data.Arrays(np.zeros((3, 1)), np.zeros(3)), "3 rows")
    table.rows["MAP"] = row.__class__(**{**vars(row), "failure": "so that there is no posterior"})
    table.save(tmp_path / "kept")
    assert mx.evaluate.load_comparison(tmp_path / "kept")["MAP"].scores["accuracy"].text == "0.90 [0.60, 0.98]"


@pytest.mark.parametrize("outputs", [1, 3])
def test_r2_is_that_of_scikit_learn_and_its_error_that_of_deletion(outputs):
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(0)
    y = rng.normal(size=(30, outputs)) * np.arange(1, outputs + 1)
    mean = y + rng.normal(size=y.shape)
    y, mean = (y[:, 0], mean[:, 0]) if outputs == 1 else (y, mean)
    found = r2((mean, np.ones_like(mean)), y)
    np.testing.assert_allclose(found.value, metrics.r2_score(y, mean), rtol=1e-12)
    without = [metrics.r2_score(np.delete(y, i, axis=0), np.delete(mean, i, axis=0)) for i in range(30)]
    pseudo = 30 * found.value - 29 * np.array(without)
    np.testing.assert_allclose(found.standard_error, pseudo.std(ddof=1) / np.sqrt(30), rtol=1e-9)


def test_r2_of_a_constant_target_is_refused():
    with pytest.raises(ValueError, match="y must hold targets that differ"):
        r2((np.zeros(3), np.ones(3)), np.ones(3))
