"""Methods against exact posteriors."""

import dataclasses

import numpy as np
import pytest

import marginax as mx
from marginax import testing
from marginax.infer import LBFGS, MAP, MLE, Adam, AnchoredEnsemble, DeepEnsemble

PRECISE = MAP(num_epochs=100, batch_size=None, optimiser=LBFGS())
FULL = MAP(num_epochs=5000, batch_size=None, optimiser=Adam(0.05))


@pytest.mark.parametrize(
    ("method", "problem"),
    [
        (FULL, testing.gaussian_mean()),
        (FULL, testing.linear_regression(1)),
        (FULL, testing.linear_regression(10, noise_scale=3.0, prior_scale=0.1)),
        (FULL, testing.linear_layer(10)),
        (FULL, testing.linear_regression_unknown_noise()),
        (FULL, testing.logistic_regression()),
        (PRECISE, testing.linear_regression(50, condition_number=1e4)),
    ],
    ids=lambda value: repr(value) if isinstance(value, testing.AbstractProblem) else "",
)
def test_map_finds_the_mode(method, problem):
    """For linear regression with a normal prior, that is ridge regression."""
    testing.check_mode(method, problem, num_chains=2)


def test_map_with_minibatches_finds_the_same_mode():
    method = MAP(num_epochs=2000, batch_size=16, optimiser=Adam(0.03))  # 16 does not divide 50
    testing.check_mode(method, testing.linear_regression(10), tolerance=1e-3)


@pytest.mark.parametrize("batch_size", [7, 49])
def test_minibatch_gradients_are_unbiased(batch_size):
    testing.check_batches(testing.linear_regression(10), batch_size)


def test_mle_is_least_squares():
    problem = testing.linear_regression(10, prior_scale=0.01)  # a prior that would be felt
    method = MLE(num_epochs=5000, batch_size=None, optimiser=Adam(0.05))
    posterior = mx.fit(problem.model, problem.data, method, key=0)
    found = testing.coordinates(posterior, problem)[0, 0]
    assert found == pytest.approx(problem.least_squares, abs=2e-4 * np.abs(problem.least_squares).max())


def test_map_with_a_flat_prior_is_least_squares():
    testing.check_mode(FULL, testing.correlated_normal(5, 0.75))


def test_tempered_likelihood_is_one_of_wider_noise():
    testing.check_mode(FULL, tempered(testing.linear_layer(3)))


def test_map_of_standardised_data_predicts_in_the_units_of_the_user():
    check_standardised()


def test_anchored_ensemble_is_exact_on_linear_regression():
    problem = testing.linear_regression(10)
    method = AnchoredEnsemble(2000, num_epochs=1000, batch_size=None, optimiser=Adam(0.03))
    posterior = testing.check_moments(method, problem)
    prediction, truth = posterior.predict(problem.x_new), problem.predictive(problem.x_new)
    error = np.sqrt(truth.epistemic / 2000)
    assert (np.abs(prediction.mean - truth.mean) < 4.9 * error).all()
    error = truth.epistemic * np.sqrt(2 / 2000)  # of a normal distribution's variance
    assert (np.abs(prediction.epistemic - truth.epistemic) < 4.9 * error).all()
    assert prediction.aleatoric == pytest.approx(truth.aleatoric, rel=1e-5)


@pytest.mark.slow
def test_anchored_ensemble_is_exact_with_minibatches_and_temperature():
    method = AnchoredEnsemble(400, num_epochs=150, batch_size=9, optimiser=Adam(0.1))
    testing.check_moments(method, tempered(testing.linear_layer(2, num_examples=20)))


def test_plain_ensemble_has_no_spread_on_linear_regression():
    """It is not Bayesian: all members end at the mode."""
    problem = testing.linear_layer(3)
    posterior = mx.fit(problem.model, problem.data, DeepEnsemble(3, FULL), key=0)
    truth = problem.predictive(problem.x_new)
    assert (posterior.predict(problem.x_new).epistemic < 1e-6 * truth.epistemic).all()
    with pytest.raises(AssertionError):
        testing.assert_posterior_matches(posterior, problem)


def tempered(problem):
    """The problem with a likelihood of temperature 4, whose posterior is that of twice the noise."""
    likelihood = mx.likelihoods.Tempered(problem.model.likelihood, temperature=4.0)
    model = mx.Model(problem.model.network, likelihood, problem.model.prior)
    return dataclasses.replace(problem, model=model, noise_scale=2 * problem.noise_scale)


def check_standardised():
    """Least squares does not mind scaling, so MLE on standardised data must predict what it predicts on raw data."""
    problem = testing.linear_layer(3)
    x, y = 10 + 5 * problem.x, 100 + 20 * problem.y
    method = MLE(num_epochs=5000, batch_size=None, optimiser=Adam(0.05))
    posterior = mx.fit(problem.model, mx.data.standardise((x, y)), method, key=0)
    prediction = posterior.predict(10 + 5 * problem.x_new)
    right = np.concatenate([problem.x_new, np.ones((len(problem.x_new), 1))], axis=1) @ problem.least_squares
    assert prediction.mean == pytest.approx(100 + 20 * right, abs=1e-2), "predictions are not in the user's units"
    noise = 0.5 * y.std()
    assert prediction.std == pytest.approx(np.full(len(right), noise), rel=1e-4), "noise is not in the user's units"
