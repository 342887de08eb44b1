"""The truth is true: closed forms against quadrature, and quadrature against finer grids and plain Monte Carlo."""

import dataclasses

import numpy as np
import pytest

import marginax as mx
from marginax import testing

PROBLEMS = [
    testing.gaussian_mean,
    testing.beta_binomial,
    testing.gamma_poisson,
    testing.dirichlet_multinomial,
    lambda: testing.linear_regression(1),
    lambda: testing.linear_regression(50, condition_number=1e4),
    lambda: testing.linear_layer(3),
    testing.linear_regression_unknown_noise,
    lambda: testing.correlated_normal(100, 0.99),
    testing.logistic_regression,
    lambda: testing.tanh_network(1),
    lambda: testing.tanh_network(2),
]


@pytest.mark.parametrize("make", PROBLEMS, ids=lambda make: make().name)
def test_model_and_truth_agree_on_the_log_density(make):
    testing.check_log_density(make())


@pytest.mark.parametrize("make", PROBLEMS, ids=lambda make: make().name)
def test_parameters_go_to_coordinates_and_back(make):
    problem = make()
    theta = np.random.default_rng(0).normal(size=(2, 3, problem.size)).astype(np.float32)
    assert np.array_equal(problem.flatten(problem.unflatten(theta)), theta)


@pytest.mark.parametrize("make", PROBLEMS, ids=lambda make: make().name)
def test_predictions_are_finite_and_spread(make):
    problem = make()
    prediction = problem.predictive(problem.x_new)
    assert np.isfinite(prediction.mean).all()
    assert (prediction.epistemic > 0).all()
    assert (prediction.aleatoric > 0).all()


def test_linear_evidence_is_the_normal_density_of_the_targets():
    problem = testing.linear_layer(10)
    design = np.concatenate([problem.x, np.ones((len(problem.x), 1))], axis=1)
    covariance = problem.noise_scale**2 * np.eye(len(design)) + problem.prior_scale**2 * design @ design.T
    quadratic = problem.y @ np.linalg.solve(covariance, problem.y)
    right = -0.5 * (quadratic + np.linalg.slogdet(2 * np.pi * covariance)[1])
    assert problem.log_evidence == pytest.approx(right, abs=1e-9)


def test_condition_number_is_as_asked():
    x = testing.linear_regression(10, condition_number=1e4).x
    eigenvalues = np.linalg.eigvalsh(x.T @ x / len(x))
    assert eigenvalues[-1] == pytest.approx(1.0, rel=1e-3)
    assert eigenvalues[-1] / eigenvalues[0] == pytest.approx(1e4, rel=1e-2)


@pytest.mark.parametrize("correlation", [0.0, 0.75, 0.99])
def test_correlated_normal_has_that_correlation(correlation):
    covariance = testing.correlated_normal(20, correlation).covariance
    assert covariance == pytest.approx((1 - correlation) * np.eye(20) + correlation, abs=2e-4)


CONJUGATE = [testing.beta_binomial, testing.gamma_poisson, testing.dirichlet_multinomial]


@pytest.mark.parametrize(
    "make", [testing.linear_regression_unknown_noise, testing.logistic_regression, *CONJUGATE], ids=lambda m: m.__name__
)
def test_truth_agrees_with_importance_sampling(make):
    problem = make()
    rng = np.random.default_rng(0)
    # a Student t around the mode, wide enough to cover the posterior
    root = 1.2 * np.linalg.cholesky(problem.covariance)
    df, size, num = 8, problem.size, 200_000
    shrink = np.sqrt(rng.chisquare(df, num) / df)[:, None]
    standard = rng.normal(size=(num, size)) / shrink
    theta = problem.mean + standard @ root.T
    log_proposal = -0.5 * (df + size) * np.log1p((standard**2).sum(1) / df) - np.log(np.diag(root)).sum()
    log_weight = problem.log_joint(theta) - log_proposal - _log_t_constant(df, size)
    _assert_evidence(log_weight, problem.log_evidence)
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    error = np.sqrt(weight**2 @ (theta - problem.mean) ** 2)
    assert (np.abs(weight @ theta - problem.mean) < 4.9 * error).all()
    product = (theta - problem.mean) ** 2
    error = np.sqrt(weight**2 @ (product - np.diag(problem.covariance)) ** 2)
    assert (np.abs(weight @ product - np.diag(problem.covariance)) < 4.9 * error).all()


@pytest.mark.parametrize(
    "problem",
    [testing.linear_regression_unknown_noise(), testing.logistic_regression(), *(make() for make in CONJUGATE)],
    ids=repr,
)
def test_mode_is_the_maximum_of_the_log_joint(problem):
    steps = 1e-3 * np.concatenate([np.eye(problem.size), -np.eye(problem.size)])
    assert (problem.log_joint(problem.mode + steps) < problem.log_joint(problem.mode)).all()
    gradient = (problem.log_joint(problem.mode + steps) - problem.log_joint(problem.mode - steps)) / 2e-3
    assert np.abs(gradient).max() < 1e-4


def test_logistic_grid_is_fine_and_wide_enough():
    coarse = testing.logistic_regression()
    fine = dataclasses.replace(coarse, num_nodes=2 * coarse.num_nodes, half_width=1.3 * coarse.half_width)
    assert coarse.log_evidence == pytest.approx(fine.log_evidence, abs=1e-8)
    assert coarse.covariance == pytest.approx(fine.covariance, abs=1e-8)


@pytest.mark.parametrize("num_hidden", [1, 2])
def test_tanh_network_agrees_with_monte_carlo_over_hidden_units(num_hidden):
    problem = testing.tanh_network(num_hidden)
    rng = np.random.default_rng(1)
    weight, bias = problem.prior_scale * rng.normal(size=(2, 400_000, num_hidden))

    def features(x):
        units = np.tanh(weight[:, :, None] * x[:, 0] + bias[:, :, None])
        return np.concatenate([units, np.ones((len(units), 1, len(x)))], axis=1)

    design, eye = features(problem.x), np.eye(num_hidden + 1)
    precision = design @ design.transpose(0, 2, 1) / problem.noise_scale**2 + eye / problem.prior_scale**2
    covariance = np.linalg.inv(precision)
    towards = design @ problem.y / problem.noise_scale**2
    mean = (covariance @ towards[..., None])[..., 0]
    log_weight = 0.5 * (mean * towards).sum(1) - 0.5 * np.linalg.slogdet(precision * problem.prior_scale**2)[1]
    num, noise = len(problem.y), problem.noise_scale
    log_weight -= 0.5 * (problem.y @ problem.y / noise**2 + num * np.log(2 * np.pi * noise**2))
    _assert_evidence(log_weight, problem.log_evidence)
    some = problem.x_new[[0, 7, 13, 19]]
    prediction = problem.predictive(some)
    weight_of = np.exp(log_weight - log_weight.max())
    weight_of /= weight_of.sum()
    basis = features(some)
    output = np.einsum("sk,skm->sm", mean, basis)
    error = np.sqrt(weight_of**2 @ (output - prediction.mean) ** 2)
    assert (np.abs(weight_of @ output - prediction.mean) < 4.9 * error).all()
    square = np.einsum("skm,skl,slm->sm", basis, covariance, basis) + (output - prediction.mean) ** 2
    error = np.sqrt(weight_of**2 @ (square - prediction.epistemic) ** 2)
    assert (np.abs(weight_of @ square - prediction.epistemic) < 4.9 * error).all()


def test_tanh_grid_is_fine_enough():
    for num_hidden, wider in ((1, 0.5), (2, 1.4)):
        problem = testing.tanh_network(num_hidden)
        other = dataclasses.replace(problem, spacing=wider * problem.spacing, half_width=5.5)
        here, there = problem.predictive(problem.x_new), other.predictive(problem.x_new)
        assert problem.log_evidence == pytest.approx(other.log_evidence, abs=1e-3)
        assert np.abs((here.mean - there.mean) / here.std).max() < 2e-3
        assert here.std == pytest.approx(there.std, rel=3e-3)


def test_prediction_of_labels_adds_up():
    problem = testing.logistic_regression()
    prediction = problem.predictive(problem.x_new)
    assert prediction.variance == pytest.approx(prediction.mean * (1 - prediction.mean))


def test_tanh_network_has_no_moments_of_weights():
    with pytest.raises(NotImplementedError, match="compare its predictions"):
        _ = testing.tanh_network(1).mean


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: testing.tanh_network(3), "num_hidden must be 1 or 2, got 3"),
        (lambda: testing.correlated_normal(2, 1.0), "correlation must be in"),
        (lambda: testing.linear_regression(3, condition_number=0.5), "condition_number must be >= 1"),
        (lambda: testing.linear_regression(30, num_examples=20), "num_examples must be at least"),
    ],
)
def test_wrong_arguments_are_named(make, text):
    with pytest.raises(ValueError, match=text):
        make()


def test_problems_can_be_saved_with_their_runs(tmp_path):
    problem = testing.linear_regression(2)
    posterior = mx.fit(problem.model, problem.data, mx.infer.MAP(num_epochs=2, batch_size=None), key=0)
    posterior.save(tmp_path / "run")
    assert np.array_equal(mx.load(tmp_path / "run").predict(problem.x).mean, posterior.predict(problem.x).mean)


def _assert_evidence(log_weight, log_evidence):
    top = log_weight.max()
    weight = np.exp(log_weight - top)
    estimate, error = weight.mean(), weight.std() / np.sqrt(len(weight))
    assert abs(estimate - np.exp(log_evidence - top)) < 4.9 * error
    assert error / estimate < 0.1  # or the comparison would be worth nothing


def _log_t_constant(df, size):
    from scipy.special import gammaln

    return gammaln((df + size) / 2) - gammaln(df / 2) - size / 2 * np.log(df * np.pi)
