"""Mixtures of normals from the network: against SciPy, their own moments, and under every family of methods."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import marginax as mx
from marginax.model.likelihoods.mixture_density import NormalMixture

LOGITS, LOC, SCALE = np.array([0.3, -1.0]), np.array([-2.0, 1.5]), np.array([0.4, 1.3])
WEIGHTS = np.exp(LOGITS) / np.exp(LOGITS).sum()


def mixture():
    return NormalMixture(jnp.asarray(LOGITS), jnp.asarray(LOC), jnp.asarray(SCALE))


def test_density_distribution_function_and_moments_match_scipy():
    at = np.array([-4.0, -2.0, 0.0, 1.0, 6.0])
    exact = stats.norm(LOC, SCALE)
    np.testing.assert_allclose(mixture().log_prob(at), np.log(exact.pdf(at[:, None]) @ WEIGHTS), rtol=1e-4)
    np.testing.assert_allclose(mixture().cdf(at), exact.cdf(at[:, None]) @ WEIGHTS, atol=1e-6)
    mean = WEIGHTS @ LOC
    np.testing.assert_allclose(mixture().mean, mean, rtol=1e-5)
    np.testing.assert_allclose(mixture().variance, WEIGHTS @ (SCALE**2 + LOC**2) - mean**2, rtol=1e-5)
    moved = mixture().affine(10.0, -2.0)
    np.testing.assert_allclose(moved.mean, 10 - 2 * mean, rtol=1e-5)
    np.testing.assert_allclose(moved.cdf(10.0), 1 - mixture().cdf(0.0), rtol=1e-5)


def test_samples_follow_the_distribution_function():
    drawn = np.asarray(mixture().sample(jax.random.key(0), (5000,)), float)
    assert stats.kstest(drawn, lambda y: stats.norm(LOC, SCALE).cdf(y[:, None]) @ WEIGHTS).pvalue > 1e-3


@pytest.mark.slow
def test_fisher_information_is_the_mean_of_squared_scores():
    likelihood = mx.likelihoods.MixtureDensity(num_components=2)
    output = jnp.array([0.3, -0.2, -0.6, 0.4, 0.1, 0.7])

    def score(y):
        return jax.grad(lambda f: likelihood.log_prob(f[None], y[None], {})[0])(output)

    grid = np.linspace(-12, 12, 2001)
    scores = np.asarray(jax.vmap(score)(jnp.asarray(grid)), float)
    chances = np.exp(np.asarray(likelihood.distribution(output, {}).log_prob(grid[:, None])[:, 0], float))
    exact = integrate.simpson(chances[:, None, None] * scores[:, :, None] * scores[:, None, :], x=grid, axis=0)
    np.testing.assert_allclose(likelihood.fisher(output[None], {})[0], exact, atol=3e-3)
    two = likelihood.fisher(jnp.concatenate([output, output])[None], {})[0]
    np.testing.assert_allclose(two[:6, :6], two[6:, 6:], atol=1e-6)
    assert not np.asarray(two[:6, 6:]).any()


def problem():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(200, 1))
    side = rng.choice([-1.0, 1.0], size=200)
    return x, 50 + 20 * (side * (1 + x[:, 0]) + 0.1 * rng.normal(size=200))


TRAINING = mx.infer.MAP(num_epochs=1000, batch_size=None)
METHODS = {
    "nuts": mx.infer.NUTS(num_warmup=100, num_samples=50),
    "vi": mx.infer.VI(num_epochs=1000, batch_size=None),
    "laplace": mx.infer.Laplace(training=TRAINING),
    "dropout": mx.infer.MCDropout(0.02, num_epochs=1000, batch_size=None),
}


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) for n in METHODS])
def test_it_finds_both_branches_under_every_family_of_methods(name, tmp_path):
    x, y = problem()
    likelihood = mx.likelihoods.MixtureDensity(num_components=2)
    model = mx.Model(mx.nets.MLP(1, (), 6, key=0), likelihood)
    posterior = mx.fit(model, mx.data.standardise((x, y)), METHODS[name], key=0, progress=False)
    prediction = posterior.predict(np.array([[0.8], [-0.9]]))
    between = prediction.log_prob(np.array([50.0, 50.0]))
    peaks = prediction.log_prob(np.array([86.0, 48.0]))
    assert peaks[0] > between[0] + 2  # two branches are far apart at 0.8
    lower, upper = prediction.interval(0.9)
    assert lower[0] < 30 < 70 < upper[0]
    assert upper[1] - lower[1] < upper[0] - lower[0]
    assert prediction.sample(3, key=0).shape == (3, 2)
    assert len(mx.evaluate.scores(prediction, np.array([86.0, 48.0]))) >= 4
    posterior.save(tmp_path / "run")
    assert np.array_equal(mx.load(tmp_path / "run").predict(x).mean, posterior.predict(x).mean)


def test_what_cannot_be_is_refused():
    likelihood = mx.likelihoods.MixtureDensity(num_components=2)
    with pytest.raises(ValueError, match="take 6 a target"):
        likelihood.num_targets(4)
    with pytest.raises(ValueError, match="num_components must be an int >= 1, got 0"):
        mx.likelihoods.MixtureDensity(num_components=0)
    with pytest.raises(ValueError, match="min_scale must be > 0"):
        mx.likelihoods.MixtureDensity(min_scale=0.0)
