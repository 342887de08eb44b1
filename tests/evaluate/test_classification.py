"""Scores of classes against scikit-learn; standard errors against the spread over data sets."""

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics
from tests.evaluate.laws import predict_classes, predict_law, some_classes

from marginax.evaluate import (
    Distinct,
    EqualMass,
    EqualWidth,
    accuracy,
    aupr,
    auroc,
    brier,
    brier_decomposition,
    nll,
)
from marginax.model import distributions as dist

CASES = [(num_classes, seed) for num_classes in (2, 3, 7) for seed in range(2)]


@pytest.mark.parametrize(("num_classes", "seed"), CASES)
def test_scores_match_scikit_learn(num_classes, seed):
    probs, y = some_classes(150, num_classes, seed=seed)
    assert len(np.unique(y)) == num_classes
    hot = np.eye(num_classes)[y]
    two = num_classes == 2
    exact = {
        accuracy: metrics.accuracy_score(y, probs.argmax(axis=1)),
        nll: metrics.log_loss(y, probs),
        brier: metrics.brier_score_loss(y, probs[:, 1] if two else probs),
        auroc: metrics.roc_auc_score(y, probs[:, 1] if two else probs, multi_class="ovr"),
        aupr: metrics.average_precision_score(y if two else hot, probs[:, 1] if two else probs),
    }
    for score, value in exact.items():
        for prediction in (probs, predict_classes(probs), *([probs[:, 1]] if two else [])):
            np.testing.assert_allclose(float(score(prediction, y)), value, rtol=1e-10, err_msg=score.__name__)
            assert score(prediction, y).num == 150


@pytest.mark.parametrize("seed", range(3))
def test_ties_are_ranked_as_scikit_learn_does(seed):
    rng = np.random.default_rng(seed)
    probs, y = np.round(rng.uniform(size=80), 1), rng.integers(0, 2, size=80)
    np.testing.assert_allclose(float(auroc(probs, y)), metrics.roc_auc_score(y, probs), rtol=1e-12)
    np.testing.assert_allclose(float(aupr(probs, y)), metrics.average_precision_score(y, probs), rtol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_the_error_of_auroc_is_that_of_delong(seed):
    probs, y = some_classes(60, 2, seed=seed)
    probs = np.round(probs[:, 1], 2)
    cases, others = probs[y == 1], probs[y == 0]
    wins = (cases[:, None] > others) + 0.5 * (cases[:, None] == others)
    variance = wins.mean(1).var(ddof=1) / len(cases) + wins.mean(0).var(ddof=1) / len(others)
    np.testing.assert_allclose(auroc(probs, y).standard_error, np.sqrt(variance), rtol=1e-10)


def test_the_error_of_aupr_is_that_of_the_jackknife_for_many_rows():
    probs, y = some_classes(600, 2)
    probs = np.round(probs[:, 1], 2)
    without = [metrics.average_precision_score(np.delete(y, i), np.delete(probs, i)) for i in range(len(y))]
    exact = np.sqrt(599 / 600 * np.sum((without - np.mean(without)) ** 2))
    np.testing.assert_allclose(aupr(probs, y).standard_error, exact, rtol=0.03)


@pytest.mark.parametrize("score", [accuracy, nll, brier, auroc, aupr], ids=lambda s: s.__name__)
@pytest.mark.parametrize("num_classes", [2, 3])
def test_standard_errors_match_the_spread_over_data_sets(score, num_classes):
    """Over 400 data sets the spread of a score is known to 3.5%; the errors have to be right to four times that."""
    found = [score(*some_classes(300, num_classes, seed=seed, sharpness=1.5)) for seed in range(400)]
    spread = np.std([float(each) for each in found], ddof=1)
    error = np.sqrt(np.mean([each.standard_error**2 for each in found]))
    assert abs(error / spread - 1) < 0.14


@pytest.mark.parametrize("bins", [EqualWidth(10), EqualMass(7), EqualWidth(1), Distinct()], ids=repr)
@pytest.mark.parametrize("num_classes", [2, 4])
def test_the_parts_of_the_brier_score_add_up_exactly(bins, num_classes):
    probs, y = some_classes(200, num_classes, sharpness=2.0)
    parts = brier_decomposition(probs, y, bins=bins)
    assert abs(parts.brier - float(brier(probs, y))) < 1e-12
    base = np.bincount(y, minlength=num_classes) / len(y)
    variance = np.sum(base * (1 - base)) * (0.5 if num_classes == 2 else 1)
    np.testing.assert_allclose(parts.uncertainty, variance, rtol=1e-12)
    assert parts.reliability >= 0
    assert parts.resolution >= 0
    assert abs(parts.reliability - parts.generalised_resolution + parts.uncertainty - parts.brier) < 1e-12
    if bins == EqualWidth(1):
        assert parts.resolution < 1e-12


def test_distinct_forecasts_have_murphys_three_parts():
    rng = np.random.default_rng(0)
    forecast = rng.choice([0.1, 0.4, 0.8], size=300)
    y = (rng.uniform(size=300) < forecast + 0.1).astype(int)
    parts = brier_decomposition(forecast, y, bins=Distinct())
    rates = {p: y[forecast == p].mean() for p in (0.1, 0.4, 0.8)}
    weights = {p: np.mean(forecast == p) for p in rates}
    np.testing.assert_allclose(parts.reliability, sum(weights[p] * (p - rates[p]) ** 2 for p in rates), rtol=1e-12)
    np.testing.assert_allclose(
        parts.resolution, sum(weights[p] * (rates[p] - y.mean()) ** 2 for p in rates), rtol=1e-12
    )
    assert abs(parts.within_bin_variance) < 1e-15
    assert abs(parts.within_bin_covariance) < 1e-15
    assert abs(parts.reliability - parts.resolution + parts.uncertainty - np.mean((forecast - y) ** 2)) < 1e-12


def test_several_labels_are_scored_one_by_one_and_jointly_in_the_density():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(1, 200, 3)).astype(np.float32)
    prediction = predict_law(dist.Bernoulli, logits, several=True)
    probs = 1 / (1 + np.exp(-logits[0].astype(float)))
    y = (rng.uniform(size=(200, 3)) < probs).astype(int)
    np.testing.assert_allclose(float(accuracy(prediction, y)), np.mean((probs > 0.5) == y), rtol=1e-12)
    np.testing.assert_allclose(float(brier(prediction, y)), np.mean((probs - y) ** 2), rtol=1e-6)
    np.testing.assert_allclose(float(nll(prediction, y)), -stats.bernoulli.logpmf(y, probs).sum(1).mean(), rtol=1e-6)
    np.testing.assert_allclose(float(auroc(prediction, y)), metrics.roc_auc_score(y, probs), rtol=1e-10)
    np.testing.assert_allclose(float(aupr(prediction, y)), metrics.average_precision_score(y, probs), rtol=1e-6)
    parts = brier_decomposition(prediction, y, bins=EqualMass(5))
    assert abs(parts.brier - float(brier(prediction, y))) < 1e-12


def test_a_single_case_has_an_area_and_no_error():
    score = auroc([0.1, 0.2, 0.9], [0, 0, 1])
    assert float(score) == 1.0
    assert np.isnan(score.standard_error)


def test_a_missing_class_is_named():
    with pytest.raises(ValueError, match="with and without class 1 for auroc: it is never there"):
        auroc([0.1, 0.2], [0, 0])
    with pytest.raises(ValueError, match="with and without class 2 for aupr: it is never there"):
        aupr(np.full((3, 3), 1 / 3), [0, 1, 0])
