"""Overdispersed counts: against SciPy, its own moments, and under every family of methods."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats as st

import marginax as mx
from marginax.model.likelihoods.negative_binomial import NegativeBinomialCounts

MEANS, SHAPES = np.array([0.01, 0.7, 3.0, 40.0, 900.0]), np.array([0.2, 1.0, 5.0, 300.0])
MU, R = (grid.ravel() for grid in np.meshgrid(MEANS, SHAPES))


def reference():
    return st.nbinom(R, R / (R + MU))


@pytest.mark.parametrize("count", [0, 1, 7, 60])
@pytest.mark.parametrize(("double", "rtol"), [(False, 5e-4), (True, 1e-6)])
def test_log_probability_and_distribution_function_match_scipy(count, double, rtol):
    """In single precision as the likelihood uses it, in double as predictions do."""
    with jax.enable_x64(double):
        found = NegativeBinomialCounts(jnp.asarray(MU), jnp.asarray(R))
        np.testing.assert_allclose(found.log_prob(count), reference().logpmf(count), rtol=rtol, atol=rtol)
        np.testing.assert_allclose(found.cdf(count + 0.4), reference().cdf(count), rtol=rtol, atol=1e-6)


def test_what_cannot_be_has_no_probability():
    counts = NegativeBinomialCounts(2.0, 3.0)
    assert counts.log_prob(-1) == -np.inf
    assert counts.cdf(-0.5) == 0


def test_samples_have_the_moments():
    counts = NegativeBinomialCounts(jnp.array([0.7, 8.0]), jnp.array([0.5, 3.0]))
    drawn = np.asarray(counts.sample(jax.random.key(0), (200_000,)), np.float64)
    error = np.sqrt(np.asarray(counts.variance) / len(drawn))
    assert (np.abs(drawn.mean(0) - np.asarray(counts.mean)) < 4.9 * error).all()
    spread = (drawn - drawn.mean(0)) ** 2
    assert (np.abs(spread.mean(0) - np.asarray(counts.variance)) < 4.9 * spread.std(0) / np.sqrt(len(drawn))).all()


def test_poisson_is_the_limit():
    many, poisson = NegativeBinomialCounts(3.0, 1e6), st.poisson(3.0)
    for count in (0, 3, 9):
        np.testing.assert_allclose(many.log_prob(count), poisson.logpmf(count), atol=2e-4)


def test_fisher_information_is_the_variance_of_the_score():
    likelihood = mx.likelihoods.NegativeBinomial(concentration=2.0)
    output = jnp.array([0.4])
    counts = jnp.arange(400.0)
    scores = jax.vmap(lambda y: jax.grad(lambda f: likelihood.log_prob(f[None], y[None], {})[0])(output))(counts)[:, 0]
    chances = st.nbinom(2.0, 2.0 / (2.0 + np.exp(0.4))).pmf(np.asarray(counts))
    exact = float(np.sum(chances * np.asarray(scores, np.float64) ** 2))
    np.testing.assert_allclose(float(likelihood.fisher(output[None], {})[0, 0, 0]), exact, rtol=1e-4)


def problem():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 1))
    mean = np.exp(1.0 + 0.5 * x[:, 0])
    return x, rng.negative_binomial(2.0, 2.0 / (2.0 + mean))


@pytest.mark.slow
def test_posterior_of_the_concentration_and_of_the_mean():
    """One intercept and the concentration: NUTS against a grid."""
    _, y = problem()
    x = np.zeros((len(y), 1))
    network = mx.nets.Function(jnp.zeros(1), lambda w, x: w)
    model = mx.Model(network, mx.likelihoods.NegativeBinomial(), mx.priors.Normal(2.0))
    draws = mx.fit(model, (x, y), mx.infer.NUTS(num_warmup=500, num_samples=2000), key=0, progress=False).params
    log_mean, log_shape = np.linspace(0.6, 1.6, 201), np.linspace(-0.6, 2.0, 201)
    mean, shape = (np.exp(grid)[..., None] for grid in np.meshgrid(log_mean, log_shape, indexing="ij"))
    log_p = st.nbinom(shape, shape / (shape + mean)).logpmf(y).sum(axis=-1)
    log_p += st.norm(0, 2).logpdf(log_mean)[:, None] + st.norm(1, 1).logpdf(log_shape)
    weights = np.exp(log_p - log_p.max())
    weights /= weights.sum()
    found = draws.network.params[..., 0], draws.likelihood["log_concentration"][..., 0]
    for values, points, axis in zip(found, (log_mean, log_shape), (1, 0), strict=True):
        values, marginal = np.asarray(values, np.float64), weights.sum(axis=axis)
        for power in (1, 2):
            exact = np.sum(marginal * points**power)
            size = mx.evaluate.measure_convergence(values[..., None] ** power).smallest_bulk_ess
            assert abs(np.mean(values**power) - exact) < 4.9 * np.std(values**power) / np.sqrt(size)


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [
        pytest.param(mx.infer.NUTS(num_warmup=60, num_samples=30), marks=pytest.mark.slow),
        pytest.param(mx.infer.VI(num_epochs=60), marks=pytest.mark.slow),
        pytest.param(mx.infer.Laplace(training=mx.infer.MAP(num_epochs=300)), marks=pytest.mark.slow),
        mx.infer.MCDropout(num_epochs=60),
    ],
    ids=lambda method: type(method).__name__,
)
def test_every_family_fits_predicts_and_is_scored(method, tmp_path):
    x, y = problem()
    network = mx.nets.MLP(1, (4,), 1, activation=jnp.tanh, key=0)
    posterior = mx.fit(mx.Model(network, mx.likelihoods.NegativeBinomial()), (x, y), method, key=0, progress=False)
    prediction = posterior.predict(x[:20])
    assert prediction.outcome is mx.model.Outcome.COUNT
    assert np.all(prediction.aleatoric > prediction.mean)  # more variable than Poisson's
    lower, upper = prediction.interval(0.9)
    assert np.all((lower >= 0) & (lower <= upper) & (lower == np.round(lower)))
    scores = mx.evaluate.scores(prediction, y[:20])
    assert np.isfinite([float(score) for score in scores.values()]).all()
    posterior.save(tmp_path / "posterior")
    np.testing.assert_array_equal(mx.load(tmp_path / "posterior").predict(x[:20]).mean, prediction.mean)
