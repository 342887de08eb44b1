"""Stacking: weights by held-out densities, and mixtures of models of different kinds."""

import numpy as np
import pytest
from scipy.optimize import minimize

import marginax as mx
from marginax.data import Arrays
from marginax.estimators import BayesianClassifier, BayesianRegressor
from marginax.estimators.stack import (
    Candidate,
    Stack,
    Stacked,
    held_out_log_probs,
    linear_candidate,
    process_candidate,
    stack,
    stacking_weights,
)


@pytest.fixture(scope="module")
def lines():
    """Eighty rows, two hundred columns, three of which matter."""
    generator = np.random.default_rng(3)
    x = generator.normal(size=(80, 200))
    return Arrays(x, x[:, :3] @ np.array([1.0, -1.0, 0.5]) + 0.3 * generator.normal(size=80))


def _network(num_inputs: int, num_epochs: int = 200) -> Candidate:
    model = mx.Model(mx.nets.MLP(num_inputs, (8,), 1, linear=True, key=0), mx.likelihoods.Gaussian())
    method = mx.infer.DeepEnsemble(2, member=mx.infer.MAP(num_epochs=num_epochs))
    return Candidate("network", lambda data, seed: mx.fit(model, data, method, key=seed, progress=False))


def test_weights_are_the_best_of_the_simplex():
    log_probs = np.random.default_rng(0).normal(size=(50, 3)) * [1.0, 2.0, 1.5] + [0.0, 0.3, 0.1]

    def loss(free):
        weights = np.exp(np.append(free, 0.0))
        return -np.mean(np.logaddexp.reduce(log_probs + np.log(weights / weights.sum()), axis=1))

    best = minimize(loss, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-12}).x
    expected = np.exp(np.append(best, 0.0))
    np.testing.assert_allclose(stacking_weights(log_probs, num_even=0.0), expected / expected.sum(), atol=1e-4)


def test_no_candidate_sees_the_rows_that_it_is_judged_by():
    data, seen, judged = Arrays(np.arange(53.0)[:, None], np.zeros(53)), [], []

    class Spy:
        def __init__(self, data):
            self.rows = set(data.x[:, 0].tolist())

        def predict(self, x):
            judged.append(set(x[:, 0].tolist()))
            assert not judged[-1] & self.rows
            seen.append(len(self.rows))
            return self

        def log_prob(self, y):
            return np.zeros(len(y))

    log_probs = held_out_log_probs([Candidate("spy", lambda data, seed: Spy(data))], data, 0)
    assert log_probs.shape == (50, 1)
    assert seen == [43] * 5
    assert len(set.union(*judged)) == 50


@pytest.mark.slow
def test_many_columns_and_few_rows_fall_back_to_a_line(lines):
    found = stack(_network(200), [linear_candidate(None, 1), process_candidate()], lines, 0)
    assert found is not None
    assert found.held_out[-1] >= found.held_out[:-1].max() + np.log(0.96)  # small weights cost next to nothing
    assert found.held_out[-1] > -0.5 * np.log(2 * np.pi * np.e * np.var(lines.y))  # nor than a constant
    assert found.weights[0] < 0.5


def test_a_stack_is_the_weighted_mean_of_densities():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(40, 2))
    data = Arrays(x, x[:, 0] ** 2 + 0.1 * generator.normal(size=40))
    network, others = _network(2, 50).fit(data, 0), [each.fit(data, 0) for each in _OTHERS]
    mixed = Stack(("network", "linear", "process"), tuple(others), np.array([0.5, 0.2, 0.3]), True, np.zeros(4))
    prediction = Stacked(network, mixed).predict(x[:6])
    parts = [np.exp(each.predict(x[:6]).log_prob(data.y[:6])) for each in (network, *others)]
    expected = 0.5 * parts[0] + 0.2 * parts[1] + 0.3 * parts[2]
    np.testing.assert_allclose(np.exp(prediction.log_prob(data.y[:6])), expected, rtol=1e-4)
    means = [each.predict(x[:6]).mean for each in (network, *others)]
    np.testing.assert_allclose(prediction.mean, np.tensordot([0.5, 0.2, 0.3], means, 1), atol=1e-4)
    assert np.all(prediction.epistemic > 0)


_OTHERS = [linear_candidate(None, 1), process_candidate()]


def test_the_line_is_bayesian_ridge_regression(lines):
    from sklearn.linear_model import BayesianRidge

    theirs = BayesianRidge().fit(lines.x, lines.y)
    mean, std = theirs.predict(lines.x[:10], return_std=True)
    ours = _OTHERS[0].fit(lines, 0).predict(lines.x[:10])
    error = std / np.sqrt(1000)
    assert np.all(np.abs(ours.mean - mean) < 4.9 * error)
    np.testing.assert_allclose(ours.std, std, rtol=0.1)


@pytest.mark.slow
def test_auto_says_what_it_mixed_and_comes_back_from_files(tmp_path):
    generator = np.random.default_rng(0)
    x = generator.normal(size=(60, 30))
    y = x[:, 0] + 0.2 * generator.normal(size=60)
    regressor = BayesianRegressor().fit(x, y, directory=tmp_path / "run")
    assert "held-out rows" in regressor.reason_
    again = BayesianRegressor.load(tmp_path / "run")
    np.testing.assert_array_equal(again.predict(x), regressor.predict(x))
    regressor.save(tmp_path / "saved")
    np.testing.assert_array_equal(BayesianRegressor.load(tmp_path / "saved").predict(x), regressor.predict(x))
    assert np.sqrt(np.mean((regressor.predict(x) - x[:, 0]) ** 2)) < 0.2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # they say that time was short
def test_a_time_limit_is_respected():
    """Beside what the shortest limit takes, in which warm-ups and compilation run to their end."""
    import time

    generator = np.random.default_rng(0)
    x = generator.normal(size=(4000, 10))
    seconds = []
    for limit in (0.001, 20):
        began = time.monotonic()
        found = BayesianClassifier(time_limit=limit).fit(x, x[:, 0] > 0)
        assert "no time to compare" in found.reason_
        seconds.append(time.monotonic() - began)
    assert seconds[1] < 20 + 2 * seconds[0]


def test_a_time_limit_must_be_a_number_of_seconds():
    with pytest.raises(ValueError, match="time_limit must be"):
        BayesianRegressor(time_limit=-1).fit(np.zeros((4, 1)), np.arange(4.0))
