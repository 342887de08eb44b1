"""The same intervals and sets as MAPIE, where both do the same."""

import mapie.classification
import mapie.regression
import numpy as np
import pytest
from mapie.subsample import Subsample
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import KFold, LeaveOneOut

from marginax.decide import APS, CQR, LAC, AbsoluteResidual, Randomised, conformalise, jackknife_plus, rules

LEVELS = [0.5, 0.8, 0.9, 0.97]


class Column(RegressorMixin, BaseEstimator):
    """Predicts a column of its input."""

    def __init__(self, index=0):
        self.index = index
        self.fitted_ = True
        self.n_features_in_ = 3

    def fit(self, x, y):
        return self

    def predict(self, x):
        return x[:, self.index]


class Rows(ClassifierMixin, BaseEstimator):
    """Predicts its input, as probabilities."""

    def __init__(self, num_classes=5):
        self.num_classes = num_classes
        self.classes_ = np.arange(num_classes)

    def fit(self, x, y):
        return self

    def predict_proba(self, x):
        return x

    def predict(self, x):
        return np.argmax(x, axis=1)


def regression(seed, num):
    rng = np.random.default_rng(seed)
    lower, upper = np.sort(rng.normal(size=(2, num)), axis=0)
    return np.stack([lower, upper, (lower + upper) / 2], axis=1), rng.normal(size=num)


def classification(seed, num):
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.ones(5), size=num)
    y = np.argmax(np.log(probs) + rng.gumbel(size=probs.shape), axis=1)
    y[:5] = np.arange(5)
    return probs, y


@pytest.mark.parametrize("num", [40, 57, 100])
def test_intervals_equal_those_of_mapie(num):
    (x, y), (new, _) = regression(0, num), regression(1, 30)
    peer = mapie.regression.SplitConformalRegressor(Column(2), LEVELS, prefit=True).conformalize(x, y)
    theirs = peer.predict_interval(new)[1]
    calibrated = conformalise(x[:, 2], y, AbsoluteResidual())
    for i, level in enumerate(LEVELS):
        np.testing.assert_allclose(np.transpose(calibrated.interval(new[:, 2], level)), theirs[:, :, i])


@pytest.mark.parametrize("num", [40, 57, 100])
@pytest.mark.parametrize("level", LEVELS)
def test_adjusted_quantiles_equal_those_of_mapie(num, level):
    (x, y), (new, _) = regression(0, num), regression(1, 30)
    estimators = [Column(0), Column(1), Column(2)]
    peer = mapie.regression.ConformalizedQuantileRegressor(estimators, level, prefit=True).conformalize(x, y)
    theirs = peer.predict_interval(new, symmetric_correction=True)[1][:, :, 0]
    ours = conformalise((x[:, 0], x[:, 1]), y, CQR()).interval((new[:, 0], new[:, 1]), level)
    np.testing.assert_allclose(np.transpose(ours), theirs)


@pytest.mark.parametrize("num", [40, 57, 100])
def test_sets_above_a_threshold_equal_those_of_mapie(num):
    (probs, y), (new, _) = classification(0, num), classification(1, 60)
    peer = mapie.classification.SplitConformalClassifier(Rows(), LEVELS, "lac", prefit=True).conformalize(probs, y)
    theirs = peer.predict_set(new)[1]
    calibrated = conformalise(probs, y, LAC())
    for i, level in enumerate(LEVELS):
        assert np.array_equal(calibrated.sets(new, level), theirs[:, :, i])


@pytest.mark.parametrize("num", [40, 57, 100])
def test_randomised_adaptive_sets_equal_those_of_mapie_for_the_same_random_numbers(num, monkeypatch):
    (probs, y), (new, _) = classification(0, num), classification(1, 60)
    peer = mapie.classification.SplitConformalClassifier(Rows(), LEVELS, "aps", prefit=True, random_state=3)
    theirs = peer.conformalize(probs, y).predict_set(new, {"include_last_label": "randomized"})[1]
    monkeypatch.setattr(rules, "draw_uniform", lambda key, num: np.random.RandomState(3).uniform(size=num))
    calibrated = conformalise(probs, y, Randomised(APS()), key=0)
    for i, level in enumerate(LEVELS):
        assert np.array_equal(calibrated.sets(new, level, key=0), theirs[:, :, i])


def _linear(num, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(num, 3))
    return x, x @ [1.0, -2.0, 0.5] + rng.standard_t(3, size=num)


@pytest.mark.parametrize("splits", [LeaveOneOut(), KFold(7)], ids=["jackknife+", "CV+"])
def test_models_with_rows_left_out_give_the_intervals_of_mapie(splits):
    (x, y), (new, _) = _linear(50, 0), _linear(20, 1)
    peer = mapie.regression.CrossConformalRegressor(LinearRegression(), LEVELS, cv=splits, method="plus")
    theirs = peer.fit_conformalize(x, y).predict_interval(new)[1]
    models = [(LinearRegression().fit(x[rows], y[rows]), np.isin(np.arange(50), rows)) for rows, _ in splits.split(x)]
    _compare(models, x, y, new, theirs)


def test_bootstrapped_models_give_the_intervals_of_mapie():
    (x, y), (new, _) = _linear(50, 0), _linear(20, 1)
    samples = Subsample(30, random_state=2)
    peer = mapie.regression.JackknifeAfterBootstrapRegressor(LinearRegression(), LEVELS, resampling=samples)
    theirs = peer.fit_conformalize(x, y).predict_interval(new)[1]
    models = [(LinearRegression().fit(x[rows], y[rows]), np.isin(np.arange(50), rows)) for rows, _ in samples.split(x)]
    _compare(models, x, y, new, theirs)


def _compare(models, x, y, new, theirs):
    predictions, at_new = (np.stack([model.predict(each) for model, _ in models]) for each in (x, new))
    calibrated = jackknife_plus(predictions, y, np.stack([seen for _, seen in models]))
    for i, level in enumerate(LEVELS):
        np.testing.assert_allclose(np.transpose(calibrated.interval(at_new, level)), theirs[:, :, i])
