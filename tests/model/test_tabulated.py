"""Densities that are known only by their logarithm: distribution functions, quantiles and samples by integration."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from marginax.model.likelihoods import Custom
from marginax.model.tabulated import tabulate

CASES = {
    "wide": (lambda y: -0.5 * ((y - 1e4) / 5) ** 2, stats.norm(1e4, 5), (-np.inf, np.inf)),
    "narrow": (lambda y: 7 - 0.5 * ((y - 3) / 1e-3) ** 2, stats.norm(3, 1e-3), (-np.inf, np.inf)),
    "heavy tails": (lambda y: -jnp.log1p((y - 1) ** 2), stats.cauchy(1), (-np.inf, np.inf)),
    "positive": (lambda y: jnp.where(y < 0, -jnp.inf, -2 * y), stats.expon(scale=0.5), (0.0, np.inf)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_table_has_the_distribution_function_and_the_quantiles_of_the_density(name):
    log_density, exact, support = CASES[name]
    table = jax.jit(lambda: tabulate(log_density, jnp.dtype("float32"), support))()
    levels = np.array([0.001, 0.05, 0.3, 0.5, 0.9, 0.999], np.float32)
    found = jax.vmap(table.quantile)(jnp.asarray(levels))
    np.testing.assert_allclose(exact.cdf(np.asarray(found, float)), levels, atol=5e-4)
    at = jnp.asarray(exact.ppf(levels), jnp.float32)
    np.testing.assert_allclose(jax.vmap(table.below)(at), exact.cdf(np.asarray(at, float)), atol=5e-4)


def _cauchy(f, y):
    return -jnp.log(jnp.pi * (1 + (y - f[0]) ** 2))


def test_a_custom_likelihood_samples_by_its_density():
    likelihood = Custom(_cauchy)
    distribution = likelihood.distribution(jnp.array([[2.0], [-1.0]]), {}).affine(10.0, 3.0)
    samples = jax.jit(jax.vmap(distribution.sample))(jax.random.split(jax.random.key(0), 4000))
    assert samples.shape == (4000, 2, 1)
    for column, location in ((0, 16.0), (1, 7.0)):
        assert stats.kstest(samples[:, column, 0], stats.cauchy(location, 3.0).cdf).pvalue > 1e-3
    turned = likelihood.distribution(jnp.array([[2.0]]), {}).affine(0.0, -1.0)
    np.testing.assert_allclose(turned.cdf(-1.0), [[0.75]], atol=1e-3)


def test_a_custom_likelihood_samples_by_the_function_it_was_given():
    likelihood = Custom(
        lambda f, y: -0.5 * jnp.sum((y - f) ** 2),
        scalar_target=False,
        sample_function=lambda f, key: f + jax.random.normal(key, f.shape),
    )
    distribution = likelihood.distribution(jnp.array([[2.0, -3.0]]), {})
    samples = jax.vmap(distribution.sample)(jax.random.split(jax.random.key(0), 4000))
    np.testing.assert_allclose(samples.mean(0), [[2.0, -3.0]], atol=4.9 / np.sqrt(4000))
    with pytest.raises(NotImplementedError, match="vectors has no distribution function"):
        distribution.cdf(0.0)
    with pytest.raises(ValueError, match="support must be"):
        Custom(_cauchy, support=(1.0, 0.0))
