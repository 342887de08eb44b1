"""Decisions: expected losses and values of information are what enumeration and closed forms give."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from marginax.decide import choose, utility
from marginax.model.distributions import Bernoulli, Normal, Poisson
from marginax.predict import ClassificationPrediction, MultiLabelPrediction, RegressionPrediction
from marginax.predict.mixture import Mixture


def of_numbers(means, scale, weights=None, y_shape=(), **scaling):
    """Gaussian draws: means (s, n, d)."""
    means = jnp.asarray(means, jnp.float32)
    weights = np.ones(len(means)) if weights is None else np.asarray(weights)
    components = Normal(means, jnp.full(means.shape, scale))
    mixture = Mixture(components, (True, True), np.log(weights / weights.sum()), means.shape[1], 10**8)
    return RegressionPrediction(mixture, y_shape, **scaling)


def of_classes(probs):
    return ClassificationPrediction(np.log(probs), np.zeros(len(probs)), np.zeros(probs.shape), 1, 10**8)


def squared(action, y):
    return (y - action) ** 2


# ---- classes


def test_classes_are_enumerated():
    rng = np.random.default_rng(0)
    draws = rng.dirichlet(np.ones(4), size=(7, 20))
    loss = rng.normal(size=(3, 4))
    decision = choose(draws, loss, ["a", "b", "c"])
    for i in range(20):
        expected = [np.mean([sum(p[i, k] * loss[a, k] for k in range(4)) for p in draws]) for a in range(3)]
        np.testing.assert_allclose(decision.expected_loss[i], expected)
        assert decision.best[i] == np.argmin(expected)
        assert decision.chosen[i] == "abc"[np.argmin(expected)]
        np.testing.assert_allclose(decision.risk[i], min(expected))
        target_known = np.mean([sum(p[i, k] * min(loss[:, k]) for k in range(4)) for p in draws])
        np.testing.assert_allclose(decision.value_of_perfect_information[i], min(expected) - target_known)
        known = np.mean([min(sum(p[i, k] * loss[a, k] for k in range(4)) for a in range(3)) for p in draws])
        np.testing.assert_allclose(decision.value_of_learning[i], min(expected) - known, atol=1e-15)


def test_the_zero_one_loss_chooses_the_most_probable_class():
    probs = np.random.default_rng(0).dirichlet(np.ones(5), size=50)
    decision = choose(of_classes(probs), 1 - np.eye(5))
    assert np.array_equal(decision.chosen, np.argmax(probs, axis=1))
    np.testing.assert_allclose(decision.risk, 1 - probs.max(axis=1))
    np.testing.assert_allclose(decision.value_of_perfect_information, decision.risk)


def test_an_option_to_refuse_is_taken_where_the_prediction_is_unsure():
    probs = np.array([[0.95, 0.05], [0.6, 0.4]])
    assert choose(probs, [[0, 1], [1, 0], [0.2, 0.2]], [0, 1, "refuse"]).chosen == [0, "refuse"]


def test_a_function_serves_as_well_as_a_matrix():
    probs = np.random.default_rng(0).dirichlet(np.ones(4), size=20)
    distance = np.abs(np.arange(4)[:, None] - np.arange(4))
    by_matrix = choose(of_classes(probs), distance)
    by_function = choose(of_classes(probs), lambda action, y: np.abs(y - action), range(4))
    np.testing.assert_allclose(by_function.expected_loss, by_matrix.expected_loss)


def check_order_of_values(decision):
    assert (decision.value_of_learning >= 0).all()
    assert (decision.value_of_perfect_information >= decision.value_of_learning).all()


def test_knowing_the_target_is_worth_more_than_knowing_the_parameters():
    rng = np.random.default_rng(0)
    for _ in range(50):
        s, n, k, a = rng.integers(2, 6, size=4)
        check_order_of_values(choose(rng.dirichlet(np.full(k, 0.3), size=(s, n)), rng.normal(size=(a, k))))
        check_order_of_values(choose(rng.normal(size=(s, 4, n)), squared, rng.normal(size=a)))


def test_values_at_the_extremes():
    rng = np.random.default_rng(0)
    loss = rng.uniform(size=(4, 3))
    sure = choose(np.eye(3)[rng.integers(3, size=(30, 10))], loss)  # draws that leave no noise
    np.testing.assert_allclose(sure.value_of_learning, sure.value_of_perfect_information)
    assert sure.value_of_learning.max() > 0.05
    same = choose(np.tile(rng.dirichlet(np.ones(3), size=10), (30, 1, 1)), loss)  # draws that all agree
    np.testing.assert_allclose(same.value_of_learning, 0, atol=1e-15)
    assert same.value_of_perfect_information.max() > 0.05
    clear = choose(rng.dirichlet(np.ones(3), size=(30, 10)), [[0, 0, 0], [1, 2, 3]])  # one action is always better
    assert (clear.value_of_perfect_information == 0).all()


# ---- numbers


def test_targets_are_enumerated():
    rng = np.random.default_rng(0)
    targets, actions = rng.normal(size=(5, 6, 3)) + rng.normal(size=(5, 1, 3)), np.array([-1.0, 0.0, 2.0])
    decision = choose(targets, squared, actions)
    losses = (targets[..., None] - actions) ** 2  # (s, num, n, a)
    np.testing.assert_allclose(decision.expected_loss, losses.mean(axis=(0, 1)))
    least = losses.mean(axis=(0, 1)).min(axis=1)
    np.testing.assert_allclose(decision.value_of_perfect_information, least - losses.min(axis=-1).mean(axis=(0, 1)))
    known = losses.mean(axis=1).min(axis=-1).mean(axis=0)
    np.testing.assert_allclose(decision.value_of_learning, least - known, atol=1e-15)
    pooled = choose(targets.reshape(30, 3), squared, actions)
    np.testing.assert_allclose(pooled.expected_loss, decision.expected_loss)
    np.testing.assert_allclose(pooled.value_of_perfect_information, decision.value_of_perfect_information)
    with pytest.raises(ValueError, match="value_of_learning needs the prediction of each draw"):
        _ = pooled.value_of_learning


def test_the_squared_loss_is_bias_and_variance():
    means, weights, scale = np.array([[[0.0], [1.0]], [[2.0], [5.0]]]), np.array([0.75, 0.25]), 0.5
    prediction = of_numbers(means, scale, weights)
    actions, num = np.array([0.0, 1.0, 2.0]), 20_000
    decision = choose(prediction, squared, actions, num_targets=num, key=0)
    expected = (prediction.mean[:, None] - actions) ** 2 + prediction.variance[:, None]
    # Within a draw the loss has a variance of 2 scale^4 + 4 scale^2 gap^2.
    gaps = means[:, :, 0][..., None] - actions
    error = np.sqrt(np.einsum("s,sna->na", weights**2, 2 * scale**4 + 4 * scale**2 * gaps**2) / num)
    assert (np.abs(decision.expected_loss - expected) < 4.9 * error).all()
    # With the parameters known, the action nearest to the mean is taken.
    known = weights @ ((gaps**2).min(axis=-1) + scale**2)
    np.testing.assert_allclose(decision.value_of_learning, expected.min(axis=1) - known, atol=4.9 * error.max())
    check_order_of_values(decision)


def test_stock_for_a_random_demand_is_its_quantile():
    # To have one too few costs 9, one too many costs 1: the 0.9-quantile.
    prediction = of_numbers(np.array([[[10.0], [50.0]]]), 5.0)

    def loss(stock, demand):
        return np.where(demand > stock, 9 * (demand - stock), stock - demand)

    actions = np.arange(0.0, 80.0, 0.5)
    chosen = choose(prediction, loss, actions, num_targets=20_000, key=0).chosen
    np.testing.assert_allclose(chosen, stats.norm.ppf(0.9, [10, 50], 5), atol=0.75)


@pytest.mark.slow
def test_scaling_counts_and_several_outputs_are_handled():
    prediction = of_numbers(np.zeros((1, 3, 1)), 1.0, y_shift=np.array(100.0), y_factor=np.array(10.0))
    decision = choose(prediction, squared, [90.0, 101.0], num_targets=5000, key=0)
    np.testing.assert_allclose(decision.expected_loss, [[200, 101]] * 3, rtol=0.1)
    counts = Mixture(Poisson(jnp.full((2, 4, 1), 3.0)), (True,), np.log([0.5, 0.5]), 4, 10**8)
    decision = choose(RegressionPrediction(counts, ()), squared, [3], num_targets=500, key=0)
    np.testing.assert_allclose(decision.expected_loss, 3, atol=4.9 * np.sqrt(21 / 1000))
    pair = of_numbers(np.array([[[1.0, 2.0]]]), 0.1, y_shape=(2,))
    decision = choose(pair, lambda action, y: (y @ action - 4) ** 2, np.array([[0.0, 2.0], [1.0, 1.0]]), key=0)
    np.testing.assert_allclose(decision.expected_loss, [[0.04, 1.02]], atol=0.1)


def test_chunks_of_inputs_give_the_same_law(monkeypatch):
    prediction = of_numbers(np.zeros((2, 50, 1)), 1.0)
    monkeypatch.setattr(utility, "_CHUNK", 2 * 400 * 7)
    losses = choose(prediction, squared, [0.0], num_targets=400, key=0).expected_loss[:, 0]
    assert losses.shape == (50,)
    assert len(set(losses.tolist())) == 50  # no two chunks share their random numbers
    assert abs(losses.mean() - 1) < 4.9 * np.sqrt(2 / (50 * 800))


def test_the_key_decides():
    prediction = of_numbers(np.zeros((2, 3, 1)), 1.0)
    one, again, other = (choose(prediction, squared, [0.0], key=key).expected_loss for key in (1, 1, 2))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


# ---- bad input


def test_bad_arguments_are_refused():
    probs, loss = np.tile([0.6, 0.4], (20, 1)), np.eye(2)
    numbers = of_numbers(np.zeros((1, 2, 1)), 1.0)
    for call, message in (
        (lambda: choose(probs, np.eye(3)), r"loss must have a row per action and 2 columns, got shape \(3, 3\)"),
        (lambda: choose(probs, [1.0, 2.0]), r"loss must have a row per action and 2 columns, got shape \(2,\)"),
        (lambda: choose(probs, loss * np.nan), "loss has 4 values that are NaN or infinite, the first in row 0"),
        (lambda: choose(probs, loss, ["a"]), "actions must have one entry for each of the 2 rows of loss, got 1"),
        (lambda: choose(probs * 0.5, loss), "rows that sum to one, got 0.5 in row 0"),
        (lambda: choose(probs, squared), "actions must be given with a loss function, one or more, got None"),
        (lambda: choose(probs, squared, []), r"actions must be given with a loss function, one or more, got \[\]"),
        (lambda: choose(probs[:, 0], squared, [0]), r"targets of shape \(num, n\) or \(s, num, n\)"),
        (lambda: choose(probs, loss, key=0), "key is of use with a prediction of numbers only"),
        (lambda: choose(numbers, squared, [0], key=0, num_targets=0), "num_targets must be an int >= 1, got 0"),
        (lambda: choose(numbers, lambda a, y: y.mean(), [0], key=0), r"one number per target, shape \(1, 200, 2\)"),
        (
            lambda: choose(numbers, lambda a, y: y * np.inf, [7], key=0),
            "loss of action 7 has 400 values that",
        ),
        (lambda: choose(probs, loss).value_of_learning, r"an array \(s, n, k\) of the class probabilities"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_wrong_kinds_are_refused():
    numbers = of_numbers(np.zeros((1, 2, 1)), 1.0)
    labels = MultiLabelPrediction(Mixture(Bernoulli(jnp.zeros((1, 2, 2))), (True,), np.zeros(1), 2, 10**6))
    for call, message in (
        (lambda: choose(numbers, np.eye(2)), "loss must be a function .* for a prediction of numbers"),
        (lambda: choose(numbers, squared, [0]), "key must be an int seed or a JAX key"),
        (lambda: choose(labels, squared, [0]), "prediction must be one of numbers or classes, got MultiLabel"),
        (
            lambda: choose(labels, np.eye(2)),
            "one class per input to have decisions, got a MultiLabel",
        ),
    ):
        with pytest.raises(TypeError, match=message):
            call()
