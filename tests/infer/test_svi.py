"""SVI of programs: closed forms of the coin, bounds that order themselves, and the promises that all methods make."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import autoguide
from scipy.special import betaln

import marginax as mx
from marginax.infer import ELBO, IWAE, SVI, Renyi
from marginax.testing.conformance import InterruptAt

FLIPS = {"flips": np.array([1] * 30 + [0] * 10)}
EVIDENCE = betaln(32, 12) - betaln(2, 2)


def coin(flips):
    prob = numpyro.sample("heads_prob", dist.Beta(2.0, 2.0))
    with numpyro.plate("flip", len(flips)):
        numpyro.sample("heads", dist.Bernoulli(prob), obs=flips)


def beta_guide(flips):
    a = numpyro.param("a", 5.0, constraint=dist.constraints.positive)
    b = numpyro.param("b", 5.0, constraint=dist.constraints.positive)
    numpyro.sample("heads_prob", dist.Beta(a, b))


mx.register_function("tests/coin", coin)
mx.register_function("tests/beta_guide", beta_guide)


def fit_coin(method, **options):
    return mx.fit(mx.Program(coin), FLIPS, method, key=0, progress=False, **options)


def test_a_beta_guide_finds_the_exact_posterior_and_evidence():
    posterior = fit_coin(SVI(beta_guide, ELBO(10), num_epochs=6000))
    a, b = (float(jnp.exp(posterior.points[name])) for name in "ab")
    found, exact = dist.Beta(a, b), dist.Beta(32.0, 12.0)
    assert abs(found.mean / exact.mean - 1) < 0.01
    assert abs((found.variance / exact.variance) ** 0.5 - 1) < 0.01
    info = posterior.record.info["train"]
    assert abs(info["elbo"][0, -500:].mean() - EVIDENCE) < 0.01
    np.testing.assert_allclose(info["elbo"], info["log_likelihood"] - info["kl"], rtol=1e-4, atol=1e-4)
    draws = posterior.sites["heads_prob"]
    assert draws.shape == (1, 1000)
    assert abs(draws.mean() - found.mean) < 4.9 * float(found.variance / 1000) ** 0.5


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.7, 2.0])
def test_the_renyi_bound_is_that_of_its_formula(alpha):
    log_weights = np.array([-1.0, 0.5, 2.0, -3.0])
    exact = np.log(np.mean(np.exp((1 - alpha) * log_weights))) / (1 - alpha)
    np.testing.assert_allclose(Renyi(alpha)(jnp.asarray(log_weights)), exact, rtol=1e-5)
    if alpha == 0:
        np.testing.assert_allclose(IWAE()(jnp.asarray(log_weights)), exact, rtol=1e-5)


@pytest.mark.slow
def test_bounds_lie_between_the_elbo_and_the_evidence():
    """At the same guide, too wide on purpose; each by many draws."""
    program = mx.Program(coin).bind(FLIPS)
    batch = mx.data.FullBatch(program.read(FLIPS)).batch(0, key=jax.random.key(0))
    points = {"a": jnp.log(10.0), "b": jnp.log(6.0)}
    terms = jax.jit(lambda key: SVI(beta_guide, ELBO(4000)).terms(program, points, batch, key=key))
    log_likelihood, kl = terms(jax.random.key(1))
    weights = (log_likelihood - kl).reshape(-1, 8)

    def value(bound):
        return float(jnp.mean(jax.vmap(bound)(weights)))

    assert value(ELBO()) < value(Renyi(0.5)) < value(IWAE()) < EVIDENCE + 0.02
    np.testing.assert_allclose(value(Renyi(0.0)), value(IWAE()), rtol=1e-5)
    np.testing.assert_allclose(value(Renyi(0.999)), value(ELBO()), atol=0.01)
    assert abs(float(IWAE()(weights.ravel())) - EVIDENCE) < 0.05
    exact = dist.kl_divergence(dist.Beta(10.0, 6.0), dist.Beta(2.0, 2.0))
    assert abs(float(kl.mean()) - exact) < 4.9 * float(kl.std()) / 4000**0.5


@pytest.mark.slow
def test_an_automatic_guide_is_mean_field_vi():
    """The same family by our own method: the same mean and spread."""
    auto = fit_coin(SVI(autoguide.AutoNormal, ELBO(10), num_epochs=3000))
    ours = fit_coin(mx.infer.VI(num_particles=10, num_epochs=3000))
    loc, scale = auto.points["heads_prob_auto_loc"], jax.nn.softplus(auto.points["heads_prob_auto_scale"])
    np.testing.assert_allclose(loc, ours.mean["heads_prob"], atol=0.02)
    draws = auto.sample_params(4000, key=jax.random.key(0))["heads_prob"]
    np.testing.assert_allclose(np.std(draws), ours.covariance.scale[0], rtol=0.06)
    assert scale.shape == ()


def correlated(x, y):
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(x @ weights, 0.5), obs=y)


@pytest.mark.slow
def test_a_multivariate_normal_guide_is_exact_on_linear_regression_in_minibatches():
    problem = mx.testing.linear_regression(2)
    x, y = (np.asarray(part) for part in problem.data)
    posterior = mx.fit(
        mx.Program(correlated),
        {"x": x, "y": y},
        SVI(autoguide.AutoMultivariateNormal, ELBO(5), batch_size=10, num_epochs=4000),
        key=0,
    )
    precision = np.eye(2) + x.T @ x / 0.25
    draws = posterior.sample_params(20_000, key=jax.random.key(0))["weights"]
    np.testing.assert_allclose(draws.mean(0), np.linalg.solve(precision, x.T @ y / 0.25), atol=0.02)
    np.testing.assert_allclose(np.cov(draws.T), np.linalg.inv(precision), rtol=0.1, atol=1e-3)


@pytest.mark.slow
def test_svi_is_resumed_and_does_not_depend_on_chunks(tmp_path):
    method = SVI(autoguide.AutoNormal, num_epochs=40)
    through = fit_coin(method, num_chains=2)
    hook = InterruptAt((("train", 20),))
    begun = fit_coin(method, num_chains=2, chunk_size=7, directory=tmp_path / "run", hooks=(hook,))
    assert not begun.record.finished
    resumed = mx.resume(tmp_path / "run", progress=False)
    loaded = mx.load(tmp_path / "run")
    assert resumed.record.finished
    for one in (resumed, loaded):
        for ours, theirs in zip(one.components, through.components, strict=True):
            jax.tree.map(np.testing.assert_array_equal, ours.points, theirs.points)
    np.testing.assert_array_equal(loaded.sites["heads_prob"], through.sites["heads_prob"])


def noisy(x):
    scale = numpyro.param("scale", 3.0, constraint=dist.constraints.positive)
    centre = numpyro.sample("centre", dist.Normal(0, 10))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("x", dist.Normal(centre, scale), obs=x)


@pytest.mark.slow
def test_parameters_of_the_program_are_trained_too():
    x = np.random.default_rng(0).normal(2.0, 0.5, 200)
    posterior = mx.fit(mx.Program(noisy), {"x": x}, SVI(num_epochs=2000), num_chains=2, key=0, progress=False)
    np.testing.assert_allclose(jnp.exp(posterior.model.points["scale"]), x.std(), rtol=0.03)
    drawn = posterior.sample_predictive({"x": x[:1]})["x"]
    np.testing.assert_allclose(drawn.std(), x.std(), rtol=0.1)


# ---- what is refused


def too_little(flips):
    numpyro.param("a", 1.0)


def too_much(flips):
    beta_guide(flips)
    numpyro.sample("more", dist.Normal(numpyro.param("m", 0.0), 1.0))


def amortised(flips):
    numpyro.sample("heads_prob", dist.Beta(1.0 + numpyro.param("a", 1.0) * jnp.sum(flips), 2.0))


def untrained(flips):
    numpyro.sample("heads_prob", dist.Beta(1.0, 2.0))


@pytest.mark.parametrize(
    ("guide", "error", "text"),
    [
        (too_little, ValueError, "every unknown of the program, but 'heads_prob' is missing"),
        (too_much, ValueError, "guide draws 'more', which is no unknown of the program"),
        (amortised, ValueError, "must not use the values of the data"),
        (untrained, ValueError, "nothing to train"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_guides_that_do_not_fit_are_refused(guide, error, text):
    with pytest.raises(error, match=text):
        fit_coin(SVI(guide))


def test_arguments_are_checked():
    with pytest.raises(ValueError, match=r"one of AutoNormal, AutoDelta, .* got AutoLaplaceApproximation"):
        SVI(autoguide.AutoLaplaceApproximation)
    with pytest.raises(ValueError, match="alpha must be >= 0 and not 1"):
        Renyi(1.0)
    with pytest.raises(ValueError, match="num_particles must be an int >= 1"):
        IWAE(0)
    with pytest.raises(TypeError, match=r"SVI is for an mx.Program, got Density: use mx.infer.VI\(\)"):
        mx.fit(mx.Density(lambda w: -(w**2), 0.0), None, SVI(), key=0)
