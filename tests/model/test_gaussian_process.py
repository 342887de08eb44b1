"""Gaussian processes against the formulas, written with SciPy and scikit-learn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, WhiteKernel

import marginax as mx
from marginax.data import Arrays, Batch
from marginax.estimators.gaussian_process import fit_gaussian_process
from marginax.model.gaussian_process import kernel, log_evidence

PARAMS = {
    "amplitude": 0.2,
    "length": 0.4,
    "noise": -1.2,
    "offset": -0.7,
    "slope": -0.3,
    "relevance": np.array([0.5, -0.4, 0.0]),
}


@pytest.fixture
def rows():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(25, 3))
    return x, np.sin(x[:, 0]) + 0.5 * x[:, 1] + 0.2 * generator.normal(size=25)


def _params():
    return jax.tree.map(lambda value: jnp.asarray(value, float), PARAMS)


def test_log_likelihoods_of_rows_sum_to_the_log_marginal_likelihood(rows):
    x, y = rows
    with jax.enable_x64(True):
        model = mx.GaussianProcess(x, y)
        batch = Batch((jnp.asarray(x), jnp.asarray(y)), jnp.arange(25), 25)
        found = np.asarray(model.log_likelihood(_params(), batch))
        covariance = np.asarray(kernel(_params(), jnp.asarray(x), jnp.asarray(x)))
        noise = np.exp(2 * PARAMS["noise"]) + 1e-6 * np.mean(np.diag(covariance))
    expected = multivariate_normal(np.zeros(25), covariance + noise * np.eye(25)).logpdf(y)
    assert found.shape == (25,)
    np.testing.assert_allclose(found.sum(), expected, rtol=1e-9)


def test_log_evidence_and_its_slope_are_those_of_the_rows(rows):
    x, y = rows
    with jax.enable_x64(True):
        two = jnp.stack([jnp.asarray(y), jnp.asarray(y) ** 2], axis=1)
        model = mx.GaussianProcess(x, np.asarray(two))
        batch = Batch((jnp.asarray(x), two), jnp.arange(25), 25)
        by_rows = jax.value_and_grad(lambda params, y: jnp.sum(model.log_likelihood(params, batch)), argnums=0)
        at_once = jax.value_and_grad(lambda params, y: 3.0 * log_evidence(params, jnp.asarray(x), y), argnums=(0, 1))
        constant = jnp.sum(model.log_likelihood(_params(), Batch((jnp.asarray(x), 0 * two), jnp.arange(25), 25)))
        (expected, slope), (found, (own, of_targets)) = by_rows(_params(), two), at_once(_params(), two)
        np.testing.assert_allclose(found, 3 * expected, rtol=1e-12)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, 3 * b, rtol=1e-8), own, slope)
        along = jnp.sum(of_targets * two)
        np.testing.assert_allclose(along, 6 * (expected - constant), rtol=1e-10)  # it is quadratic in the targets


def test_predictions_are_those_of_scikit_learn_with_the_same_kernel(rows):
    x, y = rows
    lengths = np.exp(PARAMS["length"] - PARAMS["relevance"])
    theirs = (
        ConstantKernel(np.exp(2 * PARAMS["amplitude"])) * RBF(lengths)
        + ConstantKernel(np.exp(2 * PARAMS["slope"]) / 3) * DotProduct(1e-5)
        + ConstantKernel(np.exp(2 * PARAMS["offset"]))
        + WhiteKernel(np.exp(2 * PARAMS["noise"]))
    )
    process = GaussianProcessRegressor(theirs, optimizer=None, alpha=0.0).fit(x, y)
    new = np.random.default_rng(1).normal(size=(7, 3)) * 2
    mean, std = process.predict(new, return_std=True)
    with jax.enable_x64(True):
        ours = mx.GaussianProcess(x, y).predictive(_params(), jnp.asarray(new))
        total = jnp.sqrt(ours.variance + ours.epistemic_variance)[:, 0]
    np.testing.assert_allclose(ours.mean[:, 0], mean, atol=1e-4)
    np.testing.assert_allclose(total, std, rtol=1e-4)


@pytest.mark.slow
def test_the_fit_by_evidence_climbs_and_predicts_in_single_precision_what_it_would_in_double(rows):
    x, y = rows
    posterior = fit_gaussian_process(Arrays(x, y))
    with jax.enable_x64(True):
        model = mx.GaussianProcess(x, y)
        batch = Batch((jnp.asarray(x), jnp.asarray(y)), jnp.arange(25), 25)
        params = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), posterior.params)
        slope = jax.grad(model.log_density)(params, batch)
        assert max(float(jnp.max(jnp.abs(leaf))) for leaf in jax.tree.leaves(slope)) < 0.1  # a summit
        exact = model.predictive(params, jnp.asarray(x[:5] + 0.3))
    found = posterior.predict(x[:5] + 0.3)
    np.testing.assert_allclose(found.mean, exact.mean[:, 0], atol=1e-4)
    np.testing.assert_allclose(found.epistemic, exact.epistemic_variance[:, 0], atol=1e-4)


@pytest.mark.slow
def test_kernels_are_sampled_like_any_unknowns(rows):
    posterior = mx.fit(mx.GaussianProcess(*rows), None, mx.infer.MALA(num_warmup=50, num_samples=50), key=0)
    assert posterior.params["relevance"].shape == (4, 50, 3)
    assert posterior.predict(rows[0][:2]).std.shape == (2,)


def test_data_are_given_to_the_process_and_not_to_the_fit(rows):
    with pytest.raises(ValueError, match="data must be None"):
        mx.fit(mx.GaussianProcess(*rows), rows, mx.infer.NUTS(), key=0)
