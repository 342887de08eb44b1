"""The company that estimators keep: pipelines, searches, and other people's wrappers."""

import numpy as np
import pytest
from sklearn.compose import make_column_transformer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import marginax as mx
from marginax.estimators import BayesianClassifier, BayesianRegressor

MODE = mx.infer.MAP(num_epochs=300, batch_size=None, optimiser=mx.infer.Adam(learning_rate=0.03))
CLASSICAL = mx.infer.MLE(num_epochs=300, batch_size=None, optimiser=mx.infer.Adam(learning_rate=0.03))


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2))
    return X, 5 + 3 * X[:, 0] - X[:, 1] + rng.normal(0, 0.3, 120)


@pytest.mark.slow
def test_grid_search_goes_over_method_and_width(data):
    grid = {"method": [MODE, CLASSICAL], "hidden": [(2,), (4,)]}
    search = GridSearchCV(BayesianRegressor(), grid, cv=2, refit=False, error_score="raise").fit(*data)
    assert len(search.cv_results_["params"]) == 4
    assert search.best_score_ > 0.8


@pytest.mark.slow
def test_cross_validation_of_a_pipeline(data):
    X, y = data
    pipeline = make_pipeline(
        make_column_transformer((StandardScaler(), [0, 1])), BayesianRegressor(method=MODE, hidden=(4,))
    )
    assert cross_val_score(pipeline, X, y, cv=2).min() > 0.8
    mean, std = pipeline.fit(X, y).predict(X, return_std=True)
    assert (std > 0).all()
    assert np.corrcoef(mean, y)[0, 1] > 0.9


def test_mapie_conformalises_a_regressor(data):
    regression = pytest.importorskip("mapie.regression")
    X, y = data
    regressor = BayesianRegressor(method=MODE, hidden=(4,)).fit(X[:60], y[:60])
    wrapped = regression.SplitConformalRegressor(regressor, confidence_level=0.8, prefit=True)
    wrapped.conformalize(X[60:], y[60:])
    _, intervals = wrapped.predict_interval(X[60:])
    covered = (intervals[:, 0, 0] <= y[60:]) & (y[60:] <= intervals[:, 1, 0])
    assert covered.sum() == 49  # of its own 60 rows exactly ceil(0.8 * 61)


@pytest.mark.slow
def test_mapie_makes_sets_of_a_classifier(data):
    classification = pytest.importorskip("mapie.classification")
    X, y = data
    labels = np.digitize(y, [4.0, 6.0])
    classifier = BayesianClassifier(method=MODE, hidden=(4,)).fit(X[:60], labels[:60])
    wrapped = classification.SplitConformalClassifier(classifier, confidence_level=0.9, prefit=True)
    wrapped.conformalize(X[60:], labels[60:])
    _, sets = wrapped.predict_set(X[60:])
    assert sets[np.arange(60), labels[60:], 0].mean() >= 0.9


def test_active_learning_client_asks_where_the_classifier_is_unsure(data):
    pool = pytest.importorskip("skactiveml.pool")
    wrappers = pytest.importorskip("skactiveml.classifier")
    X, y = data
    labels = (y > 5).astype(float)
    known = labels.copy()
    known[20:] = np.nan
    wrapped = wrappers.SklearnClassifier(BayesianClassifier(method=MODE, hidden=(4,)), classes=[0, 1], random_state=0)
    asked = pool.UncertaintySampling(random_state=0).query(X, known, clf=wrapped, batch_size=5)
    assert len(set(asked)) == 5
    assert min(asked) >= 20
    unsure = np.abs(y[asked] - 5).mean()
    assert unsure < np.abs(y[20:] - 5).mean()
