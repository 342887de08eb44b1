"""Gross errors: densities, information and probabilities of being an outlier against sums by hand and quadrature."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import marginax as mx

L = mx.likelihoods
RNG = np.random.default_rng(1)
CASES = {
    "known": (L.Outliers(L.Gaussian(scale=0.5), share=0.2, width=3.0), 1),
    "learned": (L.Outliers(), 2),
    "from network": (L.Outliers(L.Gaussian(scale=L.FromNetwork()), share=0.05, width=8.0), 2),
    "narrow": (L.Outliers(L.Gaussian(scale=0.01), share=0.3, width=5.0), 1),
}


def parts(likelihood, output, unknowns):
    """Share, mean and the two scales of the first row, by hand."""
    clean = likelihood.distribution(output, unknowns)
    share = 1 / (1 + np.exp(-float(unknowns["logit_share"]))) if "logit_share" in unknowns else likelihood.share
    width = np.exp(float(unknowns["log_width"])) if "log_width" in unknowns else likelihood.width
    scale = np.asarray(clean.scale, float)
    return share, np.asarray(clean.loc, float), scale, np.sqrt(scale**2 + width**2)


@pytest.mark.parametrize("name", CASES)
def test_density_and_errors_are_those_of_two_normals(name):
    likelihood, size = CASES[name]
    unknowns = {k: v + 0.3 * RNG.normal(size=v.shape) for k, v in likelihood.init(size).items()}
    output = jnp.asarray(RNG.normal(size=(5, size)), jnp.float32)
    share, loc, scale, wide = parts(likelihood, output, unknowns)
    y = loc + scale * RNG.normal(size=loc.shape) * np.array([[1], [5], [0.1], [20], [2]])
    clean, gross = (1 - share) * stats.norm(loc, scale).pdf(y), share * stats.norm(loc, wide).pdf(y)
    found = likelihood.log_prob(output, jnp.asarray(y), unknowns)
    np.testing.assert_allclose(found, np.log(clean + gross).sum(axis=1), rtol=1e-3, atol=1e-3)
    errors = likelihood.observed(output, unknowns).label_errors(jnp.asarray(y))
    np.testing.assert_allclose(errors, gross / (clean + gross), rtol=2e-3, atol=1e-5)


@pytest.mark.parametrize("name", ["from network", "narrow"])
def test_information_is_the_integral_of_squared_scores(name):
    likelihood, size = CASES[name]
    unknowns = likelihood.init(size)
    with jax.enable_x64(True):
        unknowns = {k: jnp.asarray(v, float) for k, v in unknowns.items()}
        output = jnp.asarray(RNG.normal(size=(1, size)))
        share, loc, scale, wide = parts(likelihood, output, unknowns)
        found = np.asarray(likelihood.fisher(output, unknowns)[0])
        grid = np.linspace(0, 9 * wide[0, 0], 400_001)  # both sides are alike, but for the sign of the score of a mean
        density = (1 - share) * stats.norm(0, scale[0, 0]).pdf(grid) + share * stats.norm(0, wide[0, 0]).pdf(grid)
        log_prob = jax.grad(lambda f, y: likelihood.observed(f[None], unknowns).log_prob(y)[0, 0])
        scores = np.asarray(jax.jit(jax.vmap(log_prob, (None, 0)))(output[0], loc[0, 0] + grid))
        for i in range(size if name == "from network" else 1):
            total = 2 * integrate.simpson(scores[:, i] ** 2 * density, x=grid)
            np.testing.assert_allclose(found[i, i], total, rtol=1e-4)
        assert np.count_nonzero(found - np.diag(np.diag(found))) == 0


def test_priors_are_those_of_share_and_width():
    likelihood = L.Outliers(L.Gaussian(scale=1.0), share=mx.priors.Beta(2.0, 5.0))
    unknowns = {"logit_share": jnp.asarray(-0.7), "log_width": jnp.asarray(0.4)}
    rate = 1 / (1 + np.exp(0.7))
    expected = stats.beta(2, 5).logpdf(rate) + np.log(rate * (1 - rate)) + stats.norm(1.0, 0.5).logpdf(0.4)
    np.testing.assert_allclose(likelihood.log_prior(unknowns), expected, rtol=1e-5)


def test_beta_is_that_of_scipy():
    law, ours = stats.beta(2.5, 0.7), mx.priors.Beta(2.5, 0.7)
    at = np.array([0.1, 0.5, 0.9])
    np.testing.assert_allclose(ours.log_prob(at), law.logpdf(at), rtol=1e-5)
    np.testing.assert_allclose(ours.cdf(at), law.cdf(at), rtol=1e-5)
    np.testing.assert_allclose([ours.mean, ours.variance], law.stats(), rtol=1e-5)
    assert np.isneginf(ours.log_prob(np.array([-0.1, 1.2]))).all()
    drawn = np.asarray(ours.sample(jax.random.key(0), (20_000,)))
    assert abs(drawn.mean() - law.mean()) < 4.9 * law.std() / np.sqrt(len(drawn))


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: L.Outliers(L.StudentT()), TypeError, "Gaussian"),
        (lambda: L.Outliers(share=1.0), ValueError, "share must be > 0 and < 1, got 1.0"),
        (lambda: L.Outliers(width=0.0), ValueError, "width must be > 0"),
        (lambda: L.Outliers(width=L.FromNetwork()), TypeError, "width must be"),
        (lambda: mx.priors.Beta(0.0, 1.0), ValueError, "a must be > 0"),
    ],
)
def test_what_cannot_be_meant_is_refused(make, error, says):
    with pytest.raises(error, match=says):
        make()
