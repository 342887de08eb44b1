"""Methods on `mx.Density`: laws that are known in closed form or by quadrature, in Monte Carlo standard errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import marginax as mx
from marginax import infer, testing
from marginax.infer import HMC, MALA, MCLMC, NUTS, AdjustedMCLMC, DenseMetric, MetropolisHastings, ParallelTempering

# ---- temperature

COVARIANCE = np.array([[1.0, 0.6, 0.0], [0.6, 2.0, -0.5], [0.0, -0.5, 0.5]])
MEAN = np.array([1.0, -2.0, 0.5])
PRECISION = jnp.asarray(np.linalg.inv(COVARIANCE), jnp.float32)
COLD = {
    "NUTS": NUTS(300, 2500, temperature=0.25),
    "NUTS, dense": NUTS(300, 2500, metric=DenseMetric(), temperature=0.25),
    "HMC": HMC(300, 2500, temperature=0.25),
    "MALA": MALA(1000, 2500, thin=8, temperature=0.25),
    "MetropolisHastings": MetropolisHastings(2000, 2500, thin=30, temperature=0.25),
    "AdjustedMCLMC": AdjustedMCLMC(300, 2500, temperature=0.25),
    "MCLMC": MCLMC(2000, 2500, thin=10, energy_variance=1e-5, temperature=0.25),
    "ParallelTempering": ParallelTempering(300, 2500, num_temperatures=3, max_temperature=4.0, temperature=0.25),
}


def normal(position):
    return -0.5 * (position - MEAN) @ PRECISION @ (position - MEAN)


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n == "NUTS" else pytest.mark.slow) for n in COLD])
def test_temperature_scales_the_covariance_and_not_the_log_density(name):
    posterior = mx.fit(mx.Density(normal, jnp.zeros(3)), None, COLD[name], key=0, num_chains=4, progress=False)
    draws = np.asarray(posterior.params)
    testing.assert_moments_match(draws, MEAN, 0.25 * COVARIANCE, min_ess=2e3, name=name)
    reported = posterior.record.info["sample"]["log_density"][:, COLD[name].thin - 1 :: COLD[name].thin]
    expected = -0.5 * np.einsum("...i,ij,...j", draws - MEAN, np.asarray(PRECISION), draws - MEAN)
    np.testing.assert_allclose(reported, expected, rtol=1e-3, atol=1e-3)


# ---- a banana


def banana(position):
    """x ~ N(0, 1), y ~ N(x^2 - 1, 1)."""
    x, y = position
    return -0.5 * x**2 - 0.5 * (y - x**2 + 1.0) ** 2


BANANA = {
    "NUTS": NUTS(500, 10_000, target_acceptance=0.95),  # steps that suit the bend are too long for the arms
    "HMC": HMC(500, 5000, target_acceptance=0.95),
    "MCLMC": MCLMC(3000, 2500, thin=40, energy_variance=1e-6),
    "ParallelTempering": ParallelTempering(500, 2500, thin=5, num_temperatures=3, max_temperature=4.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BANANA)
def test_banana(name):
    posterior = mx.fit(mx.Density(banana, jnp.zeros(2)), None, BANANA[name], key=0, num_chains=4, progress=False)
    x, y = np.moveaxis(np.asarray(posterior.params), -1, 0)
    known = np.stack([x, y, x**2 - y - 1.0], axis=-1)  # the last is normal, and independent of x
    covariance = np.array([[1.0, 0.0, 0.0], [0.0, 3.0, -1.0], [0.0, -1.0, 1.0]])
    testing.assert_moments_match(known, np.zeros(3), covariance, min_ess=1e3, name=name)


# ---- a hundred strongly correlated dimensions

CORRELATED = {
    "NUTS": NUTS(1000, 1500, metric=DenseMetric()),
    "HMC": HMC(1000, 1500, metric=DenseMetric()),
    "MCLMC": MCLMC(4000, 1500, thin=20, energy_variance=1e-5, metric=DenseMetric()),
    "ParallelTempering": ParallelTempering(
        2000, 1500, thin=10, num_temperatures=3, max_temperature=4.0, num_leapfrog=60
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CORRELATED)
def test_a_hundred_correlated_dimensions(name):
    covariance = 0.01 * np.eye(100) + 0.99
    precision = jnp.asarray(np.linalg.inv(covariance), jnp.float32)
    model = mx.Density(lambda z: -0.5 * z @ precision @ z, jnp.zeros(100))
    posterior = mx.fit(model, None, CORRELATED[name], key=0, num_chains=8, progress=False)
    testing.assert_moments_match(np.asarray(posterior.params), np.zeros(100), covariance, min_ess=1e3, name=name)


# ---- eight schools

EFFECTS = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
ERRORS = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])


def hyperprior(mean, log_scale):
    """N(0, 5) and half-Cauchy(5), the latter with its Jacobian."""
    return -0.5 * (mean / 5) ** 2 - jnp.log1p((jnp.exp(log_scale) / 5) ** 2) + log_scale


def centred(z):
    mean, log_scale, effects = z[0], z[1], z[2:]
    prior = -0.5 * jnp.sum(((effects - mean) / jnp.exp(log_scale)) ** 2) - 8 * log_scale
    return hyperprior(mean, log_scale) + prior - 0.5 * jnp.sum(((EFFECTS - effects) / ERRORS) ** 2)


def non_centred(z):
    mean, log_scale, effects = z[0], z[1], z[0] + jnp.exp(z[1]) * z[2:]
    prior = -0.5 * jnp.sum(z[2:] ** 2)
    return hyperprior(mean, log_scale) + prior - 0.5 * jnp.sum(((EFFECTS - effects) / ERRORS) ** 2)


def reference() -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of (mean, log scale, effects): effects exactly, the other two on a grid."""
    mean, log_scale = np.meshgrid(np.linspace(-25, 35, 601), np.linspace(-12, 6, 901), indexing="ij")
    variance = np.exp(2 * log_scale)[..., None]
    log_p = stats.norm.logpdf(mean, 0, 5) + stats.halfcauchy.logpdf(np.exp(log_scale), 0, 5) + log_scale
    log_p += stats.norm.logpdf(EFFECTS, mean[..., None], np.sqrt(variance + ERRORS**2)).sum(-1)
    weight = np.exp(log_p - log_p.max())
    weight = (weight / weight.sum()).ravel()
    shrunk = (mean[..., None] * ERRORS**2 + EFFECTS * variance) / (variance + ERRORS**2)
    spread = (variance * ERRORS**2 / (variance + ERRORS**2)).reshape(-1, 8)
    centres = np.concatenate([mean[..., None], log_scale[..., None], shrunk], axis=-1).reshape(-1, 10)
    expected = weight @ centres
    covariance = (centres - expected).T @ (weight[:, None] * (centres - expected))
    covariance[2:, 2:] += np.diag(weight @ spread)
    return expected, covariance


def warns(posterior) -> bool:
    """Does its summary say that the chains missed something?"""
    text = str(posterior.summary())
    return any(s in text for s in ("trajectories diverged", "chains disagree", "times the variance asked for"))


SCHOOLS = {
    "NUTS": NUTS(1000, 2500, target_acceptance=0.95),
    "HMC": HMC(1000, 2500, target_acceptance=0.95),
    "MCLMC": MCLMC(4000, 2500, thin=60, energy_variance=1e-5),
    # a single step size serves all coordinates, so its trajectories are long
    "ParallelTempering": ParallelTempering(
        1000, 2500, thin=5, num_temperatures=3, max_temperature=4.0, num_leapfrog=30
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHOOLS)
def test_eight_schools_without_centring(name):
    model = mx.Density(non_centred, jnp.zeros(10))
    posterior = mx.fit(model, None, SCHOOLS[name], key=0, num_chains=8, progress=False)
    draws = np.array(posterior.params)
    draws[..., 2:] = draws[..., :1] + np.exp(draws[..., 1:2]) * draws[..., 2:]
    testing.assert_moments_match(draws, *reference(), min_ess=1e3, name=name)
    assert "times the variance asked for" not in str(posterior.summary())


CENTRED = {
    "NUTS": NUTS(2000, 2500, target_acceptance=0.99),
    "HMC": HMC(2000, 2500, target_acceptance=0.99),
    "MCLMC": MCLMC(4000, 2500, thin=100, energy_variance=1e-6),
    "ParallelTempering": ParallelTempering(
        2000, 2500, thin=10, num_temperatures=4, max_temperature=6.0, num_leapfrog=30
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CENTRED)
def test_eight_schools_with_centring_is_right_or_says_that_it_is_not(name):
    """A funnel, whose neck a sampler with one step size hardly enters: each has a sign by which to tell."""
    posterior = mx.fit(mx.Density(centred, jnp.zeros(10)), None, CENTRED[name], key=0, num_chains=8, progress=False)
    if not warns(posterior):
        testing.assert_moments_match(np.asarray(posterior.params), *reference(), min_ess=200, name="centred")


# ---- every method, or a sentence

NETWORK_ONLY = {"AnchoredEnsemble", "MCDropout", "GaussianDropout", "ConcreteDropout", "DropConnect"}
NETWORK_ONLY |= {"StochasticActivations", "VariationalDropout", "BayesByBackprop"}


@pytest.mark.parametrize(
    "method",
    [
        *(getattr(infer, name)() for name in sorted(NETWORK_ONLY)),
        infer.VI(estimator=infer.Flipout()),
        infer.VI(infer.LowRank(1), estimator=infer.LocalReparameterisation()),
        infer.DeepEnsemble(3, infer.MCDropout()),
    ],
    ids=lambda method: type(method).__name__,
)
def test_methods_that_need_layers_refuse_in_one_sentence(method):
    with pytest.raises(TypeError, match=r"needs a network .* which Density has not: use an mx.Model, or"):
        mx.fit(mx.Density(normal, jnp.zeros(3)), None, method, key=0)


QUICK = infer.MAP(num_epochs=200)
SAMPLER = {"num_warmup": 10, "num_samples": 20, "thin": 2, "training": QUICK}
OTHERS = [
    infer.MAP(num_epochs=300),
    infer.DeepEnsemble(2, QUICK),
    infer.SGLD(**SAMPLER),
    infer.CyclicalSGMCMC(infer.SGHMC(**SAMPLER), num_cycles=2, cycle_length=20),
    infer.SWAG(num_snapshots=5, training=QUICK),
    infer.SVGD(4, num_epochs=200),
    infer.VI(num_epochs=200),
    infer.VI(infer.FullRank(), num_epochs=200),
    infer.IVON(num_epochs=200),
    infer.MILE(2, num_epochs=50, sampler=MCLMC(50, 20)),
    infer.BayesByBackprop(prior=None, num_epochs=200),
]


@pytest.mark.parametrize("method", OTHERS, ids=lambda method: type(method).__name__)
def test_other_methods_run_on_any_density(method):
    posterior = mx.fit(mx.Density(normal, jnp.zeros(3)), None, method, key=0, progress=False)
    assert np.isfinite(np.asarray(posterior.sample_params(5, key=jax.random.key(1)))).all()
