"""sample_weight and class_weight: what a row counts."""

import jax
import numpy as np
import pytest

import marginax as mx
from marginax.estimators import BayesianClassifier, BayesianRegressor

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2))
Y = X[:, 0] + 0.1 * RNG.normal(size=60)
RARE = np.where(X[:, 0] + RNG.normal(size=60) > 1.2, "rare", "common")


def test_weights_multiply_the_log_likelihood_of_rows():
    weight = RNG.integers(0, 4, size=60)
    model, data = BayesianRegressor(hidden=(4,)).prepare(X, Y, weight)
    twice = data.take(np.repeat(np.arange(60), weight)).weighted(None)
    batches = [mx.data.FullBatch(each).batch(0, key=jax.random.key(0)) for each in (data, twice)]
    params = model.init(mx.data.FullBatch(data))
    np.testing.assert_allclose(*(model.log_density(params, batch) for batch in batches), rtol=1e-5)


@pytest.mark.parametrize(
    ("class_weight", "weights"), [("balanced", None), ({"rare": 5.0, "common": 0.5}, (5.0, 0.5)), (None, None)]
)
def test_classes_count_as_scikit_learn_says(class_weight, weights):
    num_rare = int(np.sum(RARE == "rare"))
    if class_weight == "balanced":
        weights = 60 / (2 * num_rare), 60 / (2 * (60 - num_rare))
    _, data = BayesianClassifier(class_weight=class_weight).prepare(X, RARE)
    if weights is None:
        assert data.weight is None
        return
    np.testing.assert_allclose(data.weight, np.where(RARE == "rare", *weights), rtol=1e-6)
    _, data = BayesianClassifier(class_weight=class_weight).prepare(X, RARE, np.arange(60))
    np.testing.assert_allclose(data.weight, np.arange(60) * np.where(RARE == "rare", *weights), rtol=1e-6)


@pytest.mark.slow
def test_a_rare_class_is_found_more_often_when_classes_are_balanced(tmp_path):
    plain = BayesianClassifier(method="map", hidden=()).fit(X, RARE)
    balanced = BayesianClassifier(method="map", hidden=(), class_weight={"rare": 6, "common": 1}).fit(X, RARE)
    assert balanced.predict_proba(X)[:, 1].mean() > plain.predict_proba(X)[:, 1].mean() + 0.1
    balanced.save(tmp_path / "balanced")
    assert mx.estimators.load(tmp_path / "balanced").class_weight == {"rare": 6, "common": 1}


@pytest.mark.parametrize(
    ("kind", "arguments", "weight", "message"),
    [
        (BayesianRegressor, {}, -np.ones(60), "sample_weight must be >= 0, got -1 in row 0"),
        (BayesianRegressor, {}, np.ones(59), r"sample_weight.shape == \(59,\), expected \(60,\)"),
        (BayesianRegressor, {}, np.full(60, np.nan), "sample_weight contains NaN"),
        (BayesianClassifier, {"class_weight": "even"}, None, "class_weight"),
        (BayesianClassifier, {"class_weight": {"rare": -1}}, None, "class_weight must be >= 0"),
        (BayesianClassifier, {"class_weight": {"unknown": 1}}, None, "class_weight"),
    ],
)
def test_weights_that_cannot_be_meant_are_refused(kind, arguments, weight, message):
    with pytest.raises(ValueError, match=message):
        kind(**arguments).fit(X, Y if kind is BayesianRegressor else RARE, weight)
