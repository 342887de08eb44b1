"""Guides that draw unknowns of each example from its row: the weights of exact ones are the evidence, in every draw."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats
from numpyro.contrib.module import eqx_module
from numpyro.distributions.constraints import positive

import marginax as mx
from marginax.data import Batch
from marginax.infer import ELBO, IWAE, SVI, Adam
from marginax.model.program.layout import Layout

RNG = np.random.default_rng(0)
LOADINGS, NOISE, PRIOR = np.array([1.0, -0.5, 2.0]), 0.7, 1.5
X = (RNG.normal(size=(6, 1)) * LOADINGS + NOISE * RNG.normal(size=(6, 3))).astype(np.float32)
SPREAD = 1 / np.sqrt(1 + LOADINGS @ LOADINGS / NOISE**2)  # of the score of a row, given the row
SLOPES = SPREAD**2 * LOADINGS / NOISE**2
COVARIANCE = np.outer(LOADINGS, LOADINGS) + NOISE**2 * np.eye(3)


def scores(x):
    """Probabilistic PCA of one component: nothing is shared."""
    with numpyro.plate("rows", len(x)):
        score = numpyro.sample("score", dist.Normal(0.0, 1.0))
        numpyro.sample("x", dist.Normal(score[..., None] * LOADINGS, NOISE).to_event(1), obs=x)


def encoder(x):
    slopes = numpyro.param("slopes", jnp.zeros(3))
    spread = numpyro.param("spread", 1.0, constraint=positive)
    with numpyro.plate("rows", len(x)):
        numpyro.sample("score", dist.Normal(x @ slopes, spread))


EXACT = {"slopes": jnp.asarray(SLOPES, jnp.float32), "spread": jnp.log(SPREAD)}


def centred(x):
    """A centre that all rows share, and a level of each; the plate is as long as all data."""
    centre = numpyro.sample("centre", dist.Normal(0.0, PRIOR))
    with numpyro.plate("rows", 6, subsample_size=3):
        level = numpyro.sample("level", dist.Normal(centre, 1.0))
        numpyro.sample("x", dist.Normal(level, NOISE), obs=numpyro.subsample(x, event_dim=0))


def centred_encoder(x):
    centre = numpyro.sample("centre", dist.Normal(numpyro.param("mean", 0.0), numpyro.param("spread", 1.0)))
    slope = numpyro.param("slope", 0.5)
    with numpyro.plate("rows", 6, subsample_size=3):
        x = numpyro.subsample(x, event_dim=0)
        mean = centre + slope * (x - centre)
        numpyro.sample("level", dist.Normal(mean, numpyro.param("level_spread", 1.0)))


def rates(x):
    """Unknowns with bounds."""
    with numpyro.plate("rows", len(x)):
        rate = numpyro.sample("rate", dist.Gamma(2.0, 3.0))
        numpyro.sample("x", dist.Poisson(rate), obs=x)


def rates_encoder(x):
    shape = numpyro.param("shape", 1.0)
    with numpyro.plate("rows", len(x)):
        numpyro.sample("rate", dist.Gamma(shape + x, numpyro.param("inverse", 1.0)))


for name, function in (("scores", scores), ("encoder", encoder)):
    mx.register_function(f"tests/amortised/{name}", function)


def weights(model, guide, points, x, rows=None, bound=None, seed=0):
    """Log likelihood and KL of a batch of rows, at draws of a guide with these parameters."""
    method = SVI(guide, ELBO(3) if bound is None else bound)
    program = method.prepare_model(mx.Program(model)).bind({"x": x})
    assert program.layout.splits
    rows = np.arange(len(x)) if rows is None else np.asarray(rows)

    @jax.jit
    def terms(x, index):
        return method.terms(program, points, Batch({"x": x}, index, 6), key=jax.random.key(seed))

    return terms(x[rows], rows)


def test_the_exact_guide_has_the_evidence_of_each_row_as_its_weight():
    exact = scipy.stats.multivariate_normal(np.zeros(3), COVARIANCE).logpdf(X)
    for rows in (range(6), (4, 1)):
        log_likelihood, kl = weights(scores, encoder, EXACT, X, rows)
        found = np.asarray(log_likelihood - kl)
        np.testing.assert_allclose(found, np.broadcast_to(exact[list(rows)], found.shape), atol=1e-4)
    given = dist.Normal(X @ SLOPES, SPREAD)
    expected = dist.kl_divergence(given, dist.Normal(0.0, 1.0))  # in expectation: the prior is where it should be
    _, kl = weights(scores, encoder, EXACT, X, bound=ELBO(4000))
    assert np.all(np.abs(kl.mean(0) - expected) < 4.9 * kl.std(0) / 4000**0.5)


def test_unknowns_with_bounds_are_weighed_with_their_jacobian():
    x = np.array([0, 1, 3, 0, 7, 2])
    log_likelihood, kl = weights(rates, rates_encoder, {"shape": 2.0, "inverse": 4.0}, x)
    exact = scipy.stats.nbinom(2, 3 / 4).logpmf(x)
    np.testing.assert_allclose(log_likelihood - kl, np.broadcast_to(exact, (3, 6)), atol=1e-4)


def centred_points(x):
    """The exact posterior of the centre, and of levels given it."""
    precision = 1 / PRIOR**2 + len(x) / (1 + NOISE**2)
    slope, spread = 1 / (1 + NOISE**2), NOISE / np.sqrt(1 + NOISE**2)
    mean = x.sum() / (1 + NOISE**2) / precision
    return {"mean": mean, "spread": precision**-0.5, "slope": slope, "level_spread": spread}


def check_minibatches():
    """Local terms count N/B times and shared ones once: the mean over all minibatches is what all rows give."""
    x = X[:, 0]
    covariance = PRIOR**2 * np.ones((6, 6)) + (1 + NOISE**2) * np.eye(6)
    exact = scipy.stats.multivariate_normal(np.zeros(6), covariance).logpdf(x)
    points = centred_points(x)
    whole = np.subtract(*weights(centred, centred_encoder, points, x))
    np.testing.assert_allclose(whole, exact, atol=2e-4)
    method = SVI(centred_encoder, ELBO(3))
    program = method.prepare_model(mx.Program(centred)).bind({"x": x})
    points["mean"] += 0.5  # weights that differ from draw to draw

    @jax.jit
    def terms(x, index):
        return method.terms(program, points, Batch({"x": x}, index, 6), key=jax.random.key(0))

    parts = [np.subtract(*terms(x[r], r)) for r in map(np.array, itertools.combinations(range(6), 2))]
    np.testing.assert_allclose(np.mean(parts, axis=0), np.subtract(*terms(x, np.arange(6))), rtol=1e-4)


def test_minibatches_are_unbiased():
    check_minibatches()


def test_bounds_are_ordered():
    """At a guide that is too wide: IWAE lies between the ELBO and the evidence."""
    evidence = scipy.stats.multivariate_normal(np.zeros(3), COVARIANCE).logpdf(X).sum()
    wide = EXACT | {"spread": jnp.log(2.0 * SPREAD)}
    log_likelihood, kl = weights(scores, encoder, wide, X, bound=ELBO(4000))
    log_weights = np.asarray(log_likelihood - kl).T.reshape(6, 500, 8)
    elbo = log_weights.mean(axis=(1, 2)).sum()
    iwae = np.asarray(jax.vmap(jax.vmap(IWAE(8)))(log_weights)).mean(axis=1).sum()
    assert elbo + 0.1 < iwae < evidence + 0.02


def network_encoder(x):
    net = eqx_module("net", eqx.nn.Linear(3, 2, key=jax.random.key(0)))
    out = jax.vmap(net)(x)
    with numpyro.plate("rows", len(x)):
        numpyro.sample("score", dist.Normal(out[:, 0], jnp.exp(out[:, 1])))


@pytest.mark.parametrize("guide", [encoder, pytest.param(network_encoder, marks=pytest.mark.slow)])
def test_training_in_minibatches_reaches_the_evidence(guide):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(40, 1)) * LOADINGS + NOISE * rng.normal(size=(40, 3))
    method = SVI(guide, ELBO(4), num_epochs=600, batch_size=10, optimiser=Adam(learning_rate=0.02))
    posterior = mx.fit(mx.Program(scores), {"x": x}, method, key=0, progress=False)
    evidence = scipy.stats.multivariate_normal(np.zeros(3), COVARIANCE).logpdf(x).sum()
    info = posterior.record.info["train"]
    np.testing.assert_allclose(info["elbo"], info["log_likelihood"] - info["kl"], rtol=1e-3, atol=1e-3)
    assert abs(info["elbo"][0, -400:].mean() - evidence) < 1.0  # of about -150; batches differ
    new = x[:2] + 1.0
    drawn = posterior.sample_predictive({"x": new}, data={"x": new}, num_samples=2000)
    assert drawn["x"].shape == (2000, 2, 3)
    np.testing.assert_allclose(drawn["score"].mean(0), new @ SLOPES, atol=0.1)
    np.testing.assert_allclose(drawn["score"].std(0), SPREAD, rtol=0.2)
    fresh = posterior.sample_predictive({"x": new}, num_samples=2000)["score"]  # of new examples
    np.testing.assert_allclose([fresh.mean(), fresh.std()], [0.0, 1.0], atol=0.1)


def test_what_a_program_with_unknowns_of_examples_knows_is_kept(tmp_path):
    program = mx.Program(scores).guided_by(encoder).bind({"x": X})
    assert program.layout.local == (("score", (-1,)),)
    assert program.layout.unknowns == ()
    assert Layout.from_structure(program.layout.to_structure()) == program.layout
    posterior = mx.posterior.Guided(program, encoder, EXACT)
    posterior.save(tmp_path / "run")
    both = (posterior, mx.load(tmp_path / "run"))
    draws = [each.sample_predictive({"x": X}, data={"x": X}, num_samples=3) for each in both]
    np.testing.assert_array_equal(draws[0]["score"], draws[1]["score"])


def one_each(x):
    means = numpyro.param("means", jnp.zeros(len(x)))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("score", dist.Normal(means, 1.0))


def test_a_guide_with_parameters_for_each_row_sees_all_of_them_at_once():
    assert not mx.Program(scores).guided_by(one_each).bind({"x": X}).layout.splits
    assert not mx.Program(scores).bind({"x": X}).layout.splits


# ---- what is refused


def without_plate(x):
    numpyro.sample("score", dist.Normal(x @ numpyro.param("slopes", jnp.zeros(3)), 1.0))


def shared_from_rows(x):
    numpyro.sample("centre", dist.Normal(numpyro.param("m", 0.0) + x.mean(), 1.0))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("level", dist.Normal(x, 1.0))


def test_guides_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="guide must draw 'score' inside the plate 'rows', as the program does"):
        mx.fit(mx.Program(scores), {"x": X}, SVI(without_plate), key=0)
    with pytest.raises(ValueError, match="must not use the values of the data for 'centre'"):
        mx.fit(mx.Program(centred), {"x": X[:, 0]}, SVI(shared_from_rows), key=0)
    posterior = mx.posterior.Guided(mx.Program(scores).guided_by(encoder).bind({"x": X}), encoder, EXACT)
    with pytest.raises(ValueError, match=r"data must have the same rows as arguments, got \[2, 6\] of them"):
        posterior.sample_predictive({"x": X}, data={"x": X[:2]})
    with pytest.raises(ValueError, match="'score' is an unknown of each example"):
        posterior.to_arviz({"x": X})
    with pytest.raises(ValueError, match="batch_size must be left out or None for a program that sees all data"):
        mx.fit(mx.Program(scores), {"x": X}, SVI(one_each, batch_size=2), key=0)
