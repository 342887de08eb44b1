"""A score goes where a float goes, and shows its standard error."""

import numpy as np
import pytest

import marginax as mx
from marginax.evaluate import Score, ScoreTable
from marginax.evaluate.score import jackknife_error, mean_score


def test_a_score_shows_its_error_in_as_many_digits_as_that_has():
    assert repr(Score(0.12345, 0.0042, 200)) == "0.123 ± 0.004 (n=200)"
    assert str(Score(-12.3456, 1.234, 7)) == "-12.3 ± 1.2 (n=7)"
    assert str(Score(1.0, 0.0, 7)) == "1.000 ± 0.000 (n=7)"
    assert str(Score(0.25, float("nan"), 1)) == "0.25 (n=1)"
    assert str(Score(12345.6, 789.0, 9)) == "12346 ± 789 (n=9)"


def test_a_score_formats_compares_and_sorts_as_its_value():
    low, high = Score(0.1, 0.5, 3), Score(0.2, 0.0, 9)
    assert float(low) == 0.1
    assert f"{low:.2f} {low}" == "0.10 0.1 ± 0.5 (n=3)"
    assert low < high
    assert low <= 0.1 < high
    assert high > 0.15
    assert high >= low
    assert low == 0.1
    assert low != high
    assert max(low, high) is high
    assert np.float64(0.15) > low
    with pytest.raises(TypeError):
        _ = low < "0.2"
    with pytest.raises(TypeError):
        _ = low - high


def test_the_error_of_a_mean_is_over_rows_not_over_outputs():
    values = np.random.default_rng(0).normal(size=(50, 3)) + np.random.default_rng(1).normal(size=(50, 1))
    rows = values.mean(axis=1)
    score = mean_score(values, name="mae")
    np.testing.assert_allclose(score.value, rows.mean(), rtol=1e-12)
    np.testing.assert_allclose(score.standard_error, rows.std(ddof=1) / np.sqrt(50), rtol=1e-12)
    assert score.num == 50
    assert np.isnan(mean_score(np.array([2.0]), name="mae").standard_error)
    assert float(mean_score(np.array([np.inf, 1.0]), name="nll")) == np.inf


def test_the_jackknife_of_a_variance_matches_direct_deletion():
    x = np.random.default_rng(0).normal(size=30)
    without = np.array([np.delete(x, i).var() for i in range(30)])
    pseudo = 30 * x.var() - 29 * without
    np.testing.assert_allclose(jackknife_error(without), pseudo.std(ddof=1) / np.sqrt(30), rtol=1e-10)


def test_a_table_is_a_mapping_that_prints_aligned():
    table = ScoreTable({"nll": Score(1.25, 0.04, 80), "auroc": Score(0.75, 0.0123, 80)}, "80 rows", {"ece": "no bins"})
    assert str(table).splitlines() == ["80 rows", "nll     1.25 ± 0.04", "auroc  0.750 ± 0.012", "no ece: no bins"]
    assert dict(table) == {"nll": 1.25, "auroc": 0.75}
    assert len(table) == 2
    with pytest.raises(KeyError, match="no bins"):
        table["ece"]
    with pytest.raises(KeyError, match="the names are nll, auroc"):
        table["rmse"]


def test_the_folder_is_loaded_on_demand():
    assert mx.evaluate.Score is Score
    assert set(mx.evaluate.__all__) <= set(dir(mx.evaluate))
