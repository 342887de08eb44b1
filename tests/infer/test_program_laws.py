"""Methods on programs: laws in closed form, on grids, by long chains of NumPyro, and by simulation."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.diagnostics import effective_sample_size
from tests.infer.test_density import EFFECTS, ERRORS, reference
from tests.infer.test_svi import coin
from tests.model.test_program import mixture

import marginax as mx
from marginax import infer, testing
from marginax.curvature import Dense, Hessian
from marginax.testing.calibration import Calibration


def regression(x, y=None):
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(x @ weights, 0.5), obs=y)


def linear_problem(num=30):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(num, 2)) @ np.array([[1.0, 0.6], [0.0, 0.8]])
    y = x @ [1.0, -0.5] + 0.5 * rng.normal(size=num)
    covariance = np.linalg.inv(np.eye(2) + x.T @ x / 0.25)
    marginal = 0.25 * np.eye(num) + x @ x.T
    evidence = -0.5 * (y @ np.linalg.solve(marginal, y) + np.linalg.slogdet(2 * np.pi * marginal)[1])
    return {"x": x, "y": y}, covariance @ x.T @ y / 0.25, covariance, evidence


def test_nuts_finds_the_beta_of_a_coin():
    flips = np.array([1] * 7 + [0] * 2)
    posterior = mx.fit(mx.Program(coin), {"flips": flips}, infer.NUTS(300, 2000), key=0, progress=False)
    exact = dist.Beta(9.0, 4.0)
    draws = posterior.sites["heads_prob"][..., None]
    testing.assert_moments_match(draws, np.array([exact.mean]), np.array([[exact.variance]]), min_ess=2e3)


@pytest.mark.slow
def test_evidence_of_linear_regression_by_laplace():
    data, mean, covariance, evidence = linear_problem()
    method = infer.Laplace(structure=Dense(), kind=Hessian(), training=infer.MAP(2000, batch_size=None))
    posterior = mx.fit(mx.Program(regression), data, method, key=0, progress=False)
    np.testing.assert_allclose(posterior.mean["weights"], mean, atol=1e-4)
    np.testing.assert_allclose(posterior.covariance.dense(), covariance, rtol=1e-3)
    assert abs(float(posterior.log_evidence()) - evidence) < 1e-2


@pytest.mark.slow
def test_evidence_of_linear_regression_by_full_rank_vi():
    data, _, _, evidence = linear_problem()
    method = infer.VI(infer.FullRank(), num_particles=5, num_epochs=5000, batch_size=None)
    posterior = mx.fit(mx.Program(regression), data, method, key=0, progress=False)
    assert abs(posterior.record.info["train"]["elbo"][0, -1000:].mean() - evidence) < 0.02


SAMPLERS = {
    "NUTS": infer.NUTS(500, 2500),
    "HMC": infer.HMC(500, 2500),
    "MCLMC": infer.MCLMC(3000, 2500, thin=10, energy_variance=1e-5),
    "ParallelTempering": infer.ParallelTempering(500, 2500, thin=2, num_temperatures=3, max_temperature=4.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers_are_exact_on_linear_regression(name):
    data, mean, covariance, _ = linear_problem()
    posterior = mx.fit(mx.Program(regression), data, SAMPLERS[name], num_chains=4, key=0, progress=False)
    testing.assert_moments_match(posterior.sites["weights"], mean, covariance, min_ess=1e3, name=name)


TRAINED = infer.MAP(num_epochs=1000)
OTHERS = [
    infer.DeepEnsemble(2, TRAINED),
    infer.SGLD(num_warmup=200, num_samples=200, thin=5, training=TRAINED),
    infer.SGHMC(num_warmup=200, num_samples=200, thin=5, training=TRAINED),
    infer.SWAG(num_snapshots=20, training=TRAINED),
    infer.SVGD(10, num_epochs=2000),
    infer.VI(),
    infer.VI(infer.LowRank(1)),
    infer.VI(infer.Flow()),
    infer.IVON(num_epochs=2000),
    infer.MILE(2, num_epochs=200, sampler=infer.MCLMC(200, 100)),
]


@pytest.mark.slow
@pytest.mark.parametrize("method", OTHERS, ids=lambda method: type(method).__name__)
def test_other_methods_come_near_the_mean(method):
    data, mean, covariance, _ = linear_problem(200)
    posterior = mx.fit(mx.Program(regression), data, method, key=0, progress=False)
    found = posterior.sites["weights"].mean(axis=(0, 1))
    assert np.all(np.abs(found - mean) < np.sqrt(np.diag(covariance)))


# ---- hierarchies


def schools(errors, effects=None):
    mean = numpyro.sample("mean", dist.Normal(0, 5))
    scale = numpyro.sample("scale", dist.HalfCauchy(5.0))
    with numpyro.plate("school", len(errors)):
        raw = numpyro.sample("raw", dist.Normal(0, 1))
        effect = numpyro.deterministic("effect", mean + scale * raw)
        numpyro.sample("seen", dist.Normal(effect, errors), obs=effects)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["NUTS", "HMC"])
def test_eight_schools(name):
    """Against effects by formula and the other two on a grid."""
    method = {"NUTS": infer.NUTS, "HMC": infer.HMC}[name](1000, 2500, target_acceptance=0.95)
    data = {"errors": ERRORS, "effects": EFFECTS}
    posterior = mx.fit(mx.Program(schools), data, method, key=0, num_chains=8, progress=False)
    sites = posterior.sites
    draws = np.concatenate([sites["mean"][..., None], np.log(sites["scale"])[..., None], sites["effect"]], axis=-1)
    testing.assert_moments_match(draws, *reference(), min_ess=1e3, name=name)


def radon(county, floor, log_radon=None, num_counties=85):
    mean = numpyro.sample("mean", dist.Normal(0, 5))
    spread = numpyro.sample("spread", dist.HalfNormal(1.0))
    with numpyro.plate("county", num_counties):
        raw = numpyro.sample("raw", dist.Normal(0, 1))
    intercepts = numpyro.deterministic("intercepts", mean + spread * raw)
    slope = numpyro.sample("slope", dist.Normal(0, 2))
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))
    with numpyro.plate("home", len(floor)):
        numpyro.sample("log_radon", dist.Normal(intercepts[county] + slope * floor, noise), obs=log_radon)


def radon_data(folder):
    with np.load(folder / "hierarchical" / "radon.npz") as file:
        return {"county": file["county"].astype(int) - 1, "floor": file["floor"], "log_radon": file["log_radon"]}


@pytest.mark.slow
def test_radon_is_that_of_long_chains_of_numpyro(data_dir):
    data = radon_data(data_dir)
    names = ("mean", "spread", "slope", "noise")
    posterior = mx.fit(mx.Program(radon), data, infer.NUTS(1000, 1500), key=0, num_chains=4, progress=False)
    ours = np.stack([posterior.sites[name] for name in names], axis=-1)
    sampler = numpyro.infer.MCMC(
        numpyro.infer.NUTS(radon), num_warmup=1000, num_samples=3000, num_chains=4, chain_method="vectorized",
        progress_bar=False,
    )  # fmt: skip
    sampler.run(jax.random.key(0), **data)
    theirs = np.stack([np.asarray(sampler.get_samples(True)[name]) for name in names], axis=-1)

    def moments(draws):
        both = np.concatenate([draws, draws**2], axis=-1).astype(np.float64)
        ess = np.array([effective_sample_size(both[..., i]) for i in range(both.shape[-1])])
        return both.mean((0, 1)), both.var((0, 1)) / ess, ess

    (mean, error, ess), (their_mean, their_error, _) = moments(ours), moments(theirs)
    assert ess.min() > 300
    assert np.all(np.abs(mean - their_mean) < 4.9 * np.sqrt(error + their_error))


@pytest.mark.slow
def test_mixture_with_labels_summed_out_is_that_on_a_grid():
    x = np.array([-2.5, -2.0, -1.8, 1.5, 2.2, 2.4, 2.9], np.float32)
    posterior = mx.fit(mx.Program(mixture), {"x": x}, infer.NUTS(1000, 2500), key=0, num_chains=4, progress=False)
    grid = np.linspace(-8, 8, 161)
    share, one, two = np.meshgrid(np.linspace(0.0025, 0.9975, 200), grid, grid, indexing="ij", sparse=True)
    log_p = -0.5 * ((one / 3) ** 2 + (two / 3) ** 2)
    for value in x:
        parts = (1 - share) * np.exp(-0.5 * (value - one) ** 2) + share * np.exp(-0.5 * (value - two) ** 2)
        log_p = log_p + np.log(parts)
    weight = np.exp(log_p - log_p.max())
    weight /= weight.sum()
    apart = np.abs(one - two)  # which of the two is which does not matter to it
    expected = np.array([(weight * apart).sum(), (weight * (one + two)).sum()])
    second = np.array([(weight * apart**2).sum(), (weight * (one + two) ** 2).sum()])
    cross = (weight * apart * (one + two)).sum() - expected[0] * expected[1]
    covariance = np.array([[second[0] - expected[0] ** 2, cross], [cross, second[1] - expected[1] ** 2]])
    centres = posterior.sites["centres"]
    draws = np.stack([np.abs(centres[..., 0] - centres[..., 1]), centres.sum(-1)], axis=-1)
    testing.assert_moments_match(draws, expected, covariance, min_ess=500.0, name="mixture")


# ---- simulation


def few(x, y=None):
    """Two strongly correlated unknowns and a learned scale, and very few data."""
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([2]).to_event(1))
    scale = numpyro.sample("scale", dist.LogNormal(-1.0, 0.5))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ weights, scale), obs=y)


def calibration(method, num_simulations=200, num_draws=63):
    x = np.array([[1.0, 0.95], [0.9, 1.0]])
    program = mx.Program(few)
    truths = program.prior_predictive(num_simulations, {"x": x}, key=7)
    names, ranks = ("weights", "scale"), []
    for i in range(num_simulations):
        posterior = mx.fit(program, {"x": x, "y": truths["y"][i]}, method, num_chains=1, key=i, progress=False)
        params = posterior.starting_points(num_draws)
        if not isinstance(posterior, mx.posterior.Draws):
            params = posterior.sample_params(num_draws, key=jax.random.key(i))
        values = jax.jit(jax.vmap(posterior.model.sites))(jax.tree.map(jnp.asarray, params))
        draws = np.concatenate([np.reshape(values[name], (num_draws, -1)) for name in names], axis=1)
        draws = np.column_stack([draws, draws[:, 0] - draws[:, 1], draws[:, 0] + draws[:, 1]])
        truth = np.concatenate([np.ravel(truths[name][i]) for name in names])
        truth = np.append(truth, [truth[0] - truth[1], truth[0] + truth[1]])
        ranks.append((draws < truth).sum(axis=0))
    return Calibration(type(method).__name__, np.array(ranks), num_draws, np.zeros(5))


@pytest.mark.slow
def test_nuts_on_a_program_is_calibrated():
    calibration(infer.NUTS(300, 63, thin=5)).check()


@pytest.mark.slow
def test_mean_field_vi_on_a_program_is_not():
    """The sum and the difference of the weights have very different spreads, which independent weights cannot have."""
    with pytest.raises(AssertionError, match="are not uniform"):
        calibration(infer.VI(num_epochs=2000, batch_size=None)).check()
