"""The table of scores holds what suits the prediction, and says what it leaves out."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.evaluate.laws import predict_classes, predict_law, some_classes, some_params

import marginax as mx
from marginax.data import DataSpec
from marginax.evaluate import (
    accuracy,
    auroc,
    brier,
    coverage,
    crps,
    ece,
    interval_score,
    mae,
    nll,
    registered_scores,
    regression_calibration_error,
    rmse,
    scores,
    sharpness,
)
from marginax.model import Outcome
from marginax.model import distributions as dist
from marginax.predict import predict

N = 20
Y = np.random.default_rng(0).normal(size=N)


def test_numbers_have_theirs():
    prediction = predict_law(dist.Normal, *some_params(7, N))
    table = scores(prediction, Y, level=0.8)
    single = {
        "rmse": rmse(prediction, Y),
        "mae": mae(prediction, Y),
        "nll": nll(prediction, Y),
        "crps": crps(prediction, Y),
        "coverage": coverage(prediction, Y, 0.8),
        "interval_score": interval_score(prediction, Y, 0.8),
        "sharpness": sharpness(prediction),
        "calibration_error": regression_calibration_error(prediction, Y),
    }
    assert [name for name in table if name in single] == list(single)
    assert list(table) == list(registered_scores("table", Outcome.REAL))
    assert {name: table[name] for name in single} == single
    assert [table[name].standard_error for name in single] == [each.standard_error for each in single.values()]
    lines = str(table).splitlines()
    assert lines[0] == "20 rows, intervals of 80%"
    assert len({re.search(r"[±\[]", line).start() for line in lines[1:]}) == 1


@pytest.mark.parametrize("num_classes", [2, 4])
def test_classes_have_theirs(num_classes):
    probs, y = some_classes(60, num_classes)
    single = {score.__name__: score(probs, y) for score in (accuracy, nll, brier, ece, auroc)}
    assert dict(scores(probs, y)) == single
    table = scores(predict_classes(probs), y)
    assert list(table) == list(single)
    assert all(abs(float(table[name]) - float(single[name])) < 1e-9 for name in single)
    assert str(table).startswith("60 rows\naccuracy")


def test_samples_have_no_density_and_a_single_one_no_fair_crps():
    samples = np.random.default_rng(1).normal(size=(9, N))
    table = scores(samples, Y)
    assert "nll" not in table
    assert table["crps"] == crps(samples, Y)
    assert "no nll: samples have no density" in str(table)
    assert "no crps: prediction must have at least 2 samples" in str(scores(samples[:1], Y))


def test_a_row_per_sample_is_told_from_a_row_per_class():
    probs, y = some_classes(6, 6)
    assert "accuracy" in scores(probs, y)
    assert "rmse" in scores(2 * probs, y)


@pytest.mark.slow
def test_a_density_is_enough_for_all_scores_of_numbers():
    likelihood = mx.likelihoods.Custom(lambda f, y: -jnp.log(jnp.pi * (1 + (y - f[0]) ** 2)), mean_function=lambda f: f)
    model = mx.Model(mx.nets.MLP(1, (), 1, key=0), likelihood)
    params = jax.tree.map(lambda leaf: leaf[None], model.initial(1))
    prediction = predict(model, params, Y[:, None].astype(np.float32), spec=DataSpec((1,), (), N))
    table = scores(prediction, Y)
    assert {"rmse", "nll", "crps", "coverage", "interval_score"} <= set(table)


def test_a_class_that_is_missing_leaves_only_its_ranking_out():
    table = scores([0.1, 0.2, 0.3], [0, 0, 0])
    assert list(table) == ["accuracy", "nll", "brier", "ece"]
    assert "no auroc: y must hold rows with and without class 1" in str(table)


def test_wrong_input_is_refused_as_a_whole():
    with pytest.raises(ValueError, match=r"y must have shape \(20,\)"):
        scores((np.zeros(N), np.ones(N)), Y[1:])
    with pytest.raises(ValueError, match="labels from 0 to 1, got 7"):
        scores(np.full(3, 0.5), [0, 1, 7])
    with pytest.raises(ValueError, match="level must be"):
        scores((np.zeros(N), np.ones(N)), Y, level=1.0)
