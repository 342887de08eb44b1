"""Variational Bayesian last layers: exact on fixed features, a bound elsewhere."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax import testing
from marginax.infer import VBLL, Adam, Flow, MeanField

LONG = {"num_epochs": 6000, "batch_size": None, "optimiser": Adam(3e-2)}


def fit(model, data, method=None, **options):
    return mx.fit(model, data, VBLL(**LONG) if method is None else method, key=0, progress=False, **options)


def features(x, net):
    """Of the hidden layer, and a one for the bias."""
    hidden = np.tanh(np.asarray(x) @ np.asarray(net.layers[0].weight).T + np.asarray(net.layers[0].bias))
    return np.concatenate([hidden, np.ones((len(x), 1))], axis=1).astype(np.float64)


def regression(num=40):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(num, 2)).astype(np.float32)
    return x, (np.sin(x[:, 0]) + 0.3 * x[:, 1] + 0.2 * rng.normal(size=num)).astype(np.float32)


def fixed_features(likelihood, prior_scale=1.5, hidden=5):
    """A network whose body is not random."""
    net = mx.nets.MLP(2, (hidden,), 1, activation=jnp.tanh, key=3)
    return mx.Model(net, likelihood, mx.priors.Normal(prior_scale), subset=mx.LastLayer())


def ridge(net, x, y, noise, prior_scale, temperature=1.0):
    """Mean, covariance and log evidence of Bayesian linear regression, by NumPy in float64."""
    phi = features(x, net)
    precision = phi.T @ phi / noise**2 + np.eye(phi.shape[1]) / prior_scale**2
    covariance = temperature * np.linalg.inv(precision)
    mean = np.linalg.solve(precision, phi.T @ y / noise**2)
    kernel = prior_scale**2 * phi @ phi.T + noise**2 * np.eye(len(x))
    evidence = -0.5 * (y @ np.linalg.solve(kernel, y) + np.linalg.slogdet(2 * np.pi * kernel)[1])
    return mean, covariance, evidence


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_on_fixed_features_it_is_bayesian_linear_regression(temperature):
    """Mean, covariance and log evidence to 1e-4, predictions too."""
    x, y = regression()
    model = fixed_features(mx.likelihoods.Gaussian(0.3))
    mean, covariance, evidence = ridge(model.network, x, y, 0.3, 1.5, temperature)
    posterior = fit(model, (x, y), VBLL(temperature=temperature, **LONG))
    scale = np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)))
    np.testing.assert_allclose((np.asarray(posterior.covariance.dense()) - covariance) / scale, 0, atol=1e-4)
    found = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(posterior.mean.network)])
    np.testing.assert_allclose((found - mean) / np.sqrt(np.diag(covariance)), 0, atol=1e-3)
    np.testing.assert_allclose(found, mean, atol=1e-4)
    if temperature == 1.0:
        elbo = posterior.record.info["train"]["elbo"][0, -1]
        np.testing.assert_allclose(elbo, evidence, atol=1e-4 * abs(evidence))
    new = np.random.default_rng(1).normal(size=(7, 2)).astype(np.float32)
    phi = features(new, model.network)
    prediction = posterior.predict(new)
    np.testing.assert_allclose(prediction.mean, phi @ mean, atol=1e-4)
    np.testing.assert_allclose(prediction.epistemic, np.einsum("ni,ij,nj->n", phi, covariance, phi), rtol=1e-3)


def test_mean_field_has_the_precisions_of_the_diagonal():
    x, y = regression()
    model = fixed_features(mx.likelihoods.Gaussian(0.3))
    mean, covariance, evidence = ridge(model.network, x, y, 0.3, 1.5)
    posterior = fit(model, (x, y), VBLL(MeanField(), **LONG))
    precision = np.linalg.inv(covariance)
    np.testing.assert_allclose(posterior.covariance.variances(), 1 / np.diag(precision), rtol=1e-3)
    found = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(posterior.mean.network)])
    np.testing.assert_allclose(found, mean, atol=1e-3)
    gap = 0.5 * (np.log(np.diag(precision)).sum() - np.linalg.slogdet(precision)[1])
    np.testing.assert_allclose(posterior.record.info["train"]["elbo"][0, -1], evidence - gap, atol=5e-3)


def test_noise_is_at_the_mode_of_the_bound():
    """Learned with the evidence: where the derivative of log evidence plus log prior is zero."""
    x, y = regression()
    model = fixed_features(mx.likelihoods.Gaussian())
    posterior = fit(model, (x, y))
    log_scale = float(np.ravel(posterior.mean.likelihood["log_scale"])[0])

    def objective(log_scale):
        prior = float(model.likelihood.log_prior({"log_scale": jnp.array([log_scale])}))
        return ridge(model.network, x, y, np.exp(log_scale), 1.5)[2] + prior

    grid = np.linspace(log_scale - 0.02, log_scale + 0.02, 41)
    best = grid[np.argmax([objective(value) for value in grid])]
    assert abs(best - log_scale) <= 2e-3


def test_the_body_moves_and_only_the_last_layer_has_a_spread():
    x, y = regression(100)
    model = mx.Model(mx.nets.MLP(2, (8,), 1, activation=jnp.tanh, key=0), mx.likelihoods.Gaussian())
    posterior = fit(model, (x, y), VBLL(num_epochs=300, batch_size=None))
    assert not np.allclose(posterior.mean.network.layers[0].weight, model.network.layers[0].weight)
    variances = np.asarray(posterior.covariance.variances())
    assert np.flatnonzero(variances).tolist() == list(range(24, 33))
    draws = posterior.sample_params(4, key=jax.random.key(1)).network
    assert np.ptp(np.asarray(draws.layers[0].weight), axis=0).max() == 0
    assert np.ptp(np.asarray(draws.layers[1].weight), axis=0).min() > 0


BOUNDS = {
    "Categorical": (mx.likelihoods.Categorical(), 3, np.array([2])),
    "Bernoulli": (mx.likelihoods.Bernoulli(), 1, np.array([1])),
    "Bernoulli, several": (mx.likelihoods.Bernoulli(), 3, np.array([[1, 0, 1]])),
}
EXACT = {
    "Gaussian": (mx.likelihoods.Gaussian(0.7), 2, np.array([[0.3, -1.0]])),
    "Poisson": (mx.likelihoods.Poisson(), 1, np.array([3])),
    "Poisson, several": (mx.likelihoods.Poisson(), 2, np.array([[7, 0]])),
    "Tempered": (mx.likelihoods.Tempered(mx.likelihoods.Gaussian(0.7), 0.4), 1, np.array([0.3])),
}


def expectations(likelihood, width, y):
    """By the formula, and by draws with its standard error."""
    rng = np.random.default_rng(0)
    root = 0.6 * rng.normal(size=(width, width)) + 0.5 * np.eye(width)
    mean, covariance = np.array([[2.0, -1.0, 0.5]])[:, :width], root @ root.T
    formula = likelihood.expected_log_prob(jnp.asarray(mean), jnp.asarray(covariance)[None], jnp.asarray(y), {})
    outputs = mean + rng.normal(size=(200_000, width)) @ root.T
    values = np.asarray(likelihood.log_prob(jnp.asarray(outputs), jnp.repeat(jnp.asarray(y), len(outputs), 0), {}))
    return float(formula[0]), values.mean(), values.std() / np.sqrt(len(values))


@pytest.mark.parametrize("name", EXACT)
def test_expected_log_probabilities_are_exact(name):
    formula, mean, error = expectations(*EXACT[name])
    assert abs(formula - mean) < 4.9 * error


@pytest.mark.parametrize("name", BOUNDS)
def test_expected_log_probabilities_of_classes_are_bounded_from_below(name):
    formula, mean, error = expectations(*BOUNDS[name])
    assert formula < mean - 4.9 * error  # strictly, here
    assert formula > mean - 0.5  # and of use


@pytest.mark.parametrize("prior", [mx.priors.Laplace(0.5), mx.priors.StudentT(), mx.priors.Normal(1.0)])
def test_priors_know_weights_without_a_spread(prior):
    """The body has none, and biases begin at zero."""
    x, y = regression()
    model = mx.Model(mx.nets.MLP(2, (4,), 1, key=0), mx.likelihoods.Gaussian(0.3), prior)
    assert np.isfinite(fit(model, (x, y), VBLL(num_epochs=20, batch_size=None)).predict(x).mean).all()


def test_views_are_not_compared():
    likelihood = mx.likelihoods.ConsistencyRegularised(mx.likelihoods.Categorical(), mx.data.Jitter(1.0))
    x, y = moons()
    with pytest.raises(ValueError, match="likelihood must not compare views for VBLL"):
        mx.fit(mx.Model(mx.nets.MLP(2, (4,), 2, key=0), likelihood), (x, y), VBLL(), key=0)


def moons(num=60):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(num, 2)).astype(np.float32)
    return x, (x[:, 0] * x[:, 1] > 0).astype(np.int32)


OTHERS = {"bound": mx.likelihoods.Categorical(), "drawn": mx.likelihoods.StudentT()}


@pytest.mark.parametrize("likelihood", OTHERS.values(), ids=OTHERS)
def test_other_likelihoods_run_and_learn(likelihood):
    """Classes by the bound, Student's t by draws of the outputs."""
    is_class = isinstance(likelihood, mx.likelihoods.Categorical)
    x, y = moons(200) if is_class else regression(100)
    model = mx.Model(mx.nets.MLP(2, (16,), 2 if is_class else 1, activation=jnp.tanh, key=0), likelihood)
    method = VBLL(num_epochs=1500, batch_size=None)
    prediction = fit(model, (x, y), method).predict(x)
    if is_class:
        assert (prediction.labels == y).mean() > 0.9
        assert prediction.mutual_information.mean() > 0
    else:
        assert np.mean((prediction.mean - y) ** 2) < 0.3 * y.var()


def test_the_bound_of_classes_is_below_the_evidence():
    """By quadrature over the two weights of logistic regression."""
    problem = testing.logistic_regression()
    posterior = fit(problem.model, problem.data)
    assert posterior.record.info["train"]["elbo"][0, -1] < problem.log_evidence
    assert posterior.record.info["train"]["elbo"][0, -1] > problem.log_evidence - 3


def test_probit_and_monte_carlo_agree_about_classes():
    x, y = moons()
    model = mx.Model(mx.nets.MLP(2, (8,), 2, activation=jnp.tanh, key=0), mx.likelihoods.Categorical())
    posterior = fit(model, (x, y), VBLL(num_epochs=500, batch_size=None))
    probit = posterior.using(mx.predict.Linearised(link=mx.predict.Probit()))
    drawn = posterior.predict(x, num_samples=4000)
    np.testing.assert_allclose(probit.predict(x).probs, drawn.probs, atol=0.05)


def test_networks_that_are_not_linear_in_the_last_layer_are_refused():
    def squashed(params, x):
        return jnp.tanh(params @ x)

    x, y = regression()
    model = mx.Model(mx.nets.Function(jnp.ones((1, 2)), squashed), mx.likelihoods.Gaussian(0.1))
    with pytest.raises(ValueError, match="linear in the weights of its last layer"):
        fit(model, (x, y))


def test_wrong_arguments_are_named():
    with pytest.raises(TypeError, match="family must be normal"):
        VBLL(Flow())
    with pytest.raises(ValueError, match="temperature must be > 0"):
        VBLL(temperature=0.0)
    with pytest.raises(TypeError, match="predictive must be"):
        VBLL(predictive=mx.predict.ThroughNetwork())
