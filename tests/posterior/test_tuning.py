"""Prior precisions and noise by evidence: the fixed point is the maximum, and what is tuned is what is said."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, stats

import marginax as mx
from marginax.curvature import GGN, Dense, Kronecker
from marginax.data import FullBatch
from marginax.infer import LBFGS, MAP, Evidence, HeldOut, Laplace, Online, PerLayer, WholeNetwork
from marginax.infer.laplace.online import CurrentPrior, Tune
from marginax.infer.laplace.passes import LaplaceState, Pass, Passes
from marginax.infer.laplace.tuning import Factors, apply_factors
from marginax.model.priors import Normal, Rescaled

TRAINING = MAP(num_epochs=80, batch_size=None, optimiser=LBFGS())


@pytest.fixture(scope="module")
def linear():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 4))
    y = x @ np.array([1.0, -2.0, 0.1, 0.0]) + 0.5 * rng.normal(size=60)
    net = mx.nets.MLP(4, (), 1, key=0)
    model = mx.Model(net, likelihood=mx.likelihoods.Gaussian(), prior=Normal(scale=0.3))
    return model, x, y, mx.fit(model, (x, y), Laplace(structure=Dense(), training=TRAINING), key=0)


@pytest.fixture(scope="module")
def wave():
    return fitted_wave()


def fitted_wave():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(80, 1))
    y = np.sin(3 * x[:, 0]) + 0.2 * rng.normal(size=80)
    net = mx.nets.MLP(1, (8,), 1, activation=jax.nn.tanh, key=0)
    model = mx.Model(net, likelihood=mx.likelihoods.Gaussian(), prior=Normal(scale=1.0))
    return model, x, y, mx.fit(model, (x, y), Laplace(training=TRAINING), key=0)


def _tempered(likelihood, temperature):
    return likelihood if temperature == 1 else mx.likelihoods.Tempered(likelihood, temperature)


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_retraining_and_tuning_in_turn_finds_the_evidence_maximum_of_linear_regression(linear, temperature):
    model, x, y, _ = linear
    model = mx.Model(model.network, _tempered(model.likelihood, temperature), model.prior)
    rule = Evidence(WholeNetwork(), noise=True)
    method = Laplace(structure=Dense(), training=MAP(num_epochs=4000), tuning=Online(12, rule))
    posterior = mx.fit(model, (x, y), method, key=0)
    design = np.c_[x, np.ones(60)]

    def loss(logs):
        noise, prior = np.exp(2 * logs[0]), np.exp(2 * logs[1])
        wider = temperature * noise  # N(y; f, s^2)^(1/T) is proportional to N(y; f, T s^2)
        constant = 30 * np.log(2 * np.pi * wider) - 30 / temperature * np.log(2 * np.pi * noise)
        marginal = stats.multivariate_normal(np.zeros(60), wider * np.eye(60) + prior * design @ design.T)
        return -marginal.logpdf(y) - constant

    best = optimize.minimize(loss, np.zeros(2))
    noise = float(posterior.mean.likelihood["log_scale"][0])
    prior = np.log(0.3) - 0.5 * float(posterior.model.prior.log_factors["layers/0/weight"])
    np.testing.assert_allclose([noise, prior], best.x, atol=0.02)
    assert abs(float(posterior.log_evidence()) + best.fun) < 0.01


@pytest.mark.parametrize("noise", [False, True])
@pytest.mark.parametrize("groups", [WholeNetwork(), PerLayer()], ids=lambda g: type(g).__name__)
def test_the_fixed_point_is_a_maximum_of_the_evidence(wave, groups, noise):
    posterior = wave[3]
    tuned = posterior.tuned(Evidence(groups, noise=noise, num_steps=200))
    best = float(tuned.log_evidence())
    assert best > float(posterior.log_evidence())
    layers = np.array([0, 0, 1, 1])
    moves = [np.ones(4)] if isinstance(groups, WholeNetwork) else [layers == 0, layers == 1]
    steps = [Factors(0.3 * jnp.asarray(move, float), jnp.zeros(())) for move in moves]
    steps += [Factors(jnp.zeros(4), jnp.asarray(0.1))] if noise else []
    for step in steps:
        for sign in (-1, 1):
            near = apply_factors(tuned, jax.tree.map(lambda leaf, by=sign: by * leaf, step))
            assert float(near.log_evidence()) < best


def test_the_tuned_posterior_is_that_of_the_tuned_prior(wave):
    model, x, y, posterior = wave
    tuned = posterior.tuned(Evidence(noise=True))
    again = mx.fit(tuned.model, (x, y), Laplace(), init=tuned, key=3)
    np.testing.assert_allclose(again.covariance.variances(), tuned.covariance.variances(), rtol=1e-3)
    np.testing.assert_allclose(float(again.log_evidence()), float(tuned.log_evidence()), rtol=1e-4)
    assert isinstance(tuned.model.prior, Rescaled)
    assert not isinstance(model.prior, Rescaled)


@pytest.mark.parametrize("num_first", [2, 200])
def test_tuning_twice_ends_where_tuning_once_does(wave, num_first):
    """The second tuning starts from the prior and noise of the first, whether or not that had settled."""
    posterior, rule = wave[3], Evidence(noise=True, num_steps=200)
    once = posterior.tuned(rule)
    twice = posterior.tuned(Evidence(noise=True, num_steps=num_first)).tuned(rule)
    assert twice.model.prior.log_factors.keys() == once.model.prior.log_factors.keys()
    for path, log_factor in once.model.prior.log_factors.items():
        assert abs(float(log_factor)) > 0.1
        np.testing.assert_allclose(twice.model.prior.log_factors[path], log_factor, atol=1e-3)
    np.testing.assert_allclose(twice.mean.likelihood["log_scale"], once.mean.likelihood["log_scale"], atol=1e-4)
    np.testing.assert_allclose(float(twice.log_evidence()), float(once.log_evidence()), rtol=1e-5)
    np.testing.assert_allclose(twice.covariance.variances(), once.covariance.variances(), rtol=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [1.0, 0.5, 3.0])
def test_noise_and_prior_of_a_linear_model_are_those_of_the_closed_form(linear, temperature):
    model, x, y, _ = linear
    model = mx.Model(model.network, _tempered(model.likelihood, temperature), model.prior)
    posterior = mx.fit(model, (x, y), Laplace(structure=Dense(), training=TRAINING), key=0)
    tuned = posterior.tuned(Evidence(WholeNetwork(), noise=True, num_steps=200))
    design, layer = np.c_[x, np.ones(60)], model.network_of(posterior.mean).layers[0]
    weights = np.r_[np.asarray(layer.weight)[0], np.asarray(layer.bias)].astype(np.float64)
    misfit = np.sum((y - design @ weights) ** 2)

    def log_evidence(log_scale, log_prior):
        """At these weights: log joint density, and half the log determinant of the tempered precision."""
        noise, prior = np.exp(2 * log_scale), np.exp(2 * log_prior)
        log_joint = (-0.5 * misfit / noise - 30 * np.log(2 * np.pi * noise)) / temperature
        log_joint += -0.5 * weights @ weights / prior - 2.5 * np.log(2 * np.pi * prior)
        precision = design.T @ design / noise / temperature + np.eye(5) / prior
        return log_joint + 2.5 * np.log(2 * np.pi) - 0.5 * np.linalg.slogdet(precision)[1]

    before = float(posterior.mean.likelihood["log_scale"][0])
    np.testing.assert_allclose(float(posterior.log_evidence()), log_evidence(before, np.log(0.3)), rtol=1e-5)
    best = optimize.minimize(lambda logs: -log_evidence(*logs), np.zeros(2))
    noise = float(tuned.mean.likelihood["log_scale"][0])
    prior = np.log(0.3) - 0.5 * float(tuned.model.prior.log_factors["layers/0/weight"])
    np.testing.assert_allclose([noise, prior], best.x, atol=2e-3)
    np.testing.assert_allclose(float(tuned.log_evidence()), -best.fun, rtol=1e-5)
    assert noise != before


@pytest.mark.slow
def test_noise_that_is_known_stays():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 1))
    model = mx.Model(mx.nets.MLP(1, (), 1, key=0), likelihood=mx.likelihoods.Gaussian(scale=0.3), prior=Normal(1.0))
    posterior = mx.fit(model, (x, x[:, 0]), Laplace(tuning=Evidence(noise=True), training=TRAINING), key=0)
    assert posterior.mean.likelihood == {}
    np.testing.assert_allclose(posterior.predict(x).aleatoric, 0.09, rtol=1e-5)


def test_held_out_data_choose_the_factor_of_best_predictions(wave):
    posterior = wave[3]
    rng = np.random.default_rng(1)
    fresh = rng.uniform(-2, 2, size=(40, 1))
    data = (fresh, np.sin(3 * fresh[:, 0]) + 0.2 * rng.normal(size=40))
    factors = np.array([0.01, 1.0, 100.0])
    tuned = posterior.tuned(HeldOut(data, factors))
    scores = []
    for factor in factors:
        candidate = apply_factors(posterior, Factors(jnp.full(4, float(np.log(factor))), jnp.zeros(())))
        scores.append(candidate.predict(data[0]).log_prob(data[1]).mean())
    chosen = np.exp(float(tuned.model.prior.log_factors["layers/0/weight"]))
    np.testing.assert_allclose(chosen, factors[np.argmax(scores)], rtol=1e-4)


def test_rounds_of_online_tuning_at_one_mode_end_where_one_round_does(wave):
    """Factors of a round multiply those of the rounds before it: there is nothing left to choose the second time."""
    model, x, y, posterior = wave
    passes, source = Passes.of(Kronecker(), mx.All(), GGN()), FullBatch((x, y))
    batch, start = source.batch(0, key=jax.random.key(0)), posterior.mean
    sums = passes.start(model, start, batch, key=jax.random.key(0))
    none, zero = jnp.zeros((), jnp.int32), jnp.zeros(())
    prior = CurrentPrior(jnp.zeros(len(model.leaves)), jnp.ones(()))
    state = LaplaceState(start, (None, prior), sums, none, none, zero, jnp.asarray(80, jnp.int32), batch.x[0])

    @eqx.filter_jit
    def one_round(state):
        state = Pass(passes, 0).step(model, state, batch, key=jax.random.key(0))[0]
        return Tune(passes, Online(2)).step(model, state, batch, key=jax.random.key(0))[0]

    factors = []
    for _ in range(2):
        state = one_round(state)
        factors.append(np.asarray(state.training[1].log_factors))
    assert np.abs(factors[0]).max() > 0.3
    np.testing.assert_allclose(factors[1], factors[0], atol=2e-3)
    assert float(state.training[1].learns_noise) == 0


def test_a_posterior_of_online_tuning_is_that_under_the_prior_it_chose(wave):
    model, x, y, _ = wave
    method = Laplace(structure=Dense(), tuning=Online(1), training=MAP(num_epochs=60, batch_size=None))
    online = mx.fit(model, (x, y), method, key=0, progress=False)
    assert isinstance(online.model.prior, Rescaled)
    factors = {path: float(value) for path, value in online.model.prior.log_factors.items()}
    assert max(map(abs, factors.values())) > 0.1
    places = np.flatnonzero(np.asarray(online.covariance.variances()) > 0)
    found = np.linalg.inv(np.asarray(online.covariance.dense(), np.float64)[np.ix_(places, places)])
    leaves = online.model.leaves
    prior = np.concatenate([np.full(int(np.prod(leaf.shape)), np.exp(factors[leaf.path])) for leaf in leaves])
    curvature = np.linalg.inv(np.asarray(online.mode.curvature.covariance(jnp.asarray(prior)).dense(), np.float64))
    np.testing.assert_allclose(found, curvature, rtol=2e-2, atol=2e-2 * np.abs(curvature).max())


@pytest.mark.slow
def test_tuning_online_raises_the_evidence_of_the_network_it_ends_with(wave):
    model, x, y, posterior = wave
    method = Laplace(structure=Kronecker(), tuning=Online(3, Evidence(noise=True)), training=MAP(num_epochs=4000))
    online = mx.fit(model, (x, y), method, key=0)
    assert float(online.log_evidence()) > float(posterior.log_evidence())
    assert set(online.record.num_steps) == {
        f"{name} ({i})" for i in range(1, 5) for name in ("train", "curvature", "tune") if (name, i) != ("tune", 4)
    }


def test_a_rescaled_prior_is_the_density_of_the_shrunk_weight():
    leaf = mx.priors.Leaf("w", (50,), None)
    value = jnp.linspace(-2, 2, 50)
    rescaled = Rescaled(Normal(scale=0.5), {"w": jnp.log(4.0)}).at("w")
    np.testing.assert_allclose(
        float(rescaled.log_prob(value, leaf, {})), stats.norm(0, 0.25).logpdf(np.asarray(value)).sum(), rtol=1e-5
    )
    mean, scale = jnp.full(50, 0.3), jnp.full(50, 0.2)
    exact = 50 * (stats.norm(0, 0.25).logpdf(0.3) - 0.5 * 0.2**2 / 0.25**2)
    np.testing.assert_allclose(float(rescaled.expected_log_prob(mean, scale, leaf, {})), exact, rtol=1e-5)
    draws = np.asarray(rescaled.sample(leaf, {}, key=jax.random.key(0)))
    assert abs(draws.std() / 0.25 - 1) < 4.9 / np.sqrt(100)


def test_priors_that_cannot_be_tuned_are_named(wave):
    model, x, y, _ = wave
    heavy = mx.Model(model.network, model.likelihood, prior=mx.priors.StudentT())
    with pytest.raises(ValueError, match=r"prior at layers/0/weight must be mx\.priors\.Normal with a fixed scale"):
        mx.fit(heavy, (x, y), Laplace(tuning=Evidence(), training=MAP(num_epochs=1)), key=0)
    with pytest.raises(ValueError, match="LBFGS remembers the prior before"):
        Laplace(training=TRAINING, tuning=Online())
    with pytest.raises(ValueError, match="factors must be > 0"):
        HeldOut((x, y), [0.0])
