"""Variational inference against closed forms: optimum and bound on normal posteriors, estimators and their noise."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import marginax as mx
from marginax import testing
from marginax.data import Batch
from marginax.infer import (
    IVON,
    SVGD,
    VI,
    Adam,
    BayesByBackprop,
    BlundellWeights,
    ClosedForm,
    Constant,
    Flipout,
    Flow,
    FullRank,
    LocalReparameterisation,
    LowRank,
    MeanField,
    MonteCarlo,
    Reparameterisation,
    StickingTheLanding,
    VariationalDropout,
)
from marginax.infer.svgd import stein_direction
from marginax.infer.vi.families import IndependentNormal, LowRankNormal, initial_rho, softplus
from marginax.infer.vi.variational_dropout import LogUniform, divergence_from_log_uniform

CALM = {"kl_warmup": 0.1, "batch_size": None, "optimiser": Adam(2e-2)}


def flat_moments(posterior) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the raveled parameters."""
    return np.asarray(ravel_pytree(posterior.mean)[0]), np.asarray(posterior.covariance.dense())


def bound(problem: testing.LinearGaussian, mean: np.ndarray, covariance: np.ndarray) -> float:
    """The ELBO of a normal approximation of a normal posterior, in closed form."""
    entropy = 0.5 * np.linalg.slogdet(2 * np.pi * np.e * covariance)[1]
    return float(problem.log_joint(mean) - 0.5 * np.trace(problem.precision @ covariance) + entropy)


@pytest.mark.parametrize(
    ("problem", "estimator"),
    [
        (testing.linear_regression(5, condition_number=20.0), Reparameterisation()),
        (testing.linear_layer(5, condition_number=20.0), LocalReparameterisation()),
        (testing.linear_layer(5, condition_number=20.0), Flipout()),
    ],
    ids=["plain", "local", "flipout"],
)
def test_mean_field_finds_the_closed_form_optimum(problem, estimator):
    method = VI(estimator=estimator, num_epochs=20_000, num_particles=64, **CALM)
    mean, covariance = flat_moments(mx.fit(problem.model, problem.data, method, key=0))
    spread = np.sqrt(np.diag(problem.covariance))
    assert (np.abs(mean - problem.mean) < 0.01 * spread).all()
    np.testing.assert_allclose(np.diag(covariance), 1 / np.diag(problem.precision), rtol=0.01)
    gap = 0.5 * (np.log(np.diag(problem.precision)).sum() - np.linalg.slogdet(problem.precision)[1])
    assert abs(bound(problem, mean, covariance) - (problem.log_evidence - gap)) < 0.01


@pytest.mark.parametrize(
    ("family", "tolerance"), [(FullRank(), 0.01), (LowRank(3), 0.01)], ids=["full rank", "low rank of full size"]
)
def test_a_family_that_holds_the_posterior_reaches_the_evidence(family, tolerance):
    problem = testing.linear_regression(3, condition_number=20.0)
    method = VI(family, divergence=StickingTheLanding(), num_epochs=10_000, num_particles=4, **CALM)
    mean, covariance = flat_moments(mx.fit(problem.model, problem.data, method, key=0))
    assert abs(bound(problem, mean, covariance) - problem.log_evidence) < tolerance
    np.testing.assert_allclose(covariance, problem.covariance, rtol=0.05, atol=0.02 * problem.covariance.max())


@pytest.mark.slow
def test_minibatches_and_their_divergence_leave_the_optimum_where_it_is():
    """The divergence is counted once for all data, whatever the size of the batches; a last batch that is short too."""
    problem = testing.linear_layer(3, num_examples=103, condition_number=5.0)
    method = VI(num_epochs=3000, num_particles=8, kl_warmup=0.1, batch_size=20, optimiser=Adam(1e-2))
    mean, covariance = flat_moments(mx.fit(problem.model, problem.data, method, key=0))
    assert (np.abs(mean - problem.mean) < 0.05 * np.sqrt(np.diag(problem.covariance))).all()
    np.testing.assert_allclose(np.diag(covariance), 1 / np.diag(problem.precision), rtol=0.05)


def test_halving_shares_out_the_divergence_as_published():
    factors = [float(BlundellWeights().factor(jnp.asarray(step), 5)) for step in range(10)]
    np.testing.assert_allclose(factors[:5], [5 * 2 ** (5 - i) / (2**5 - 1) for i in range(1, 6)], rtol=1e-6)
    np.testing.assert_allclose(np.mean(factors), 1.0, rtol=1e-6)
    assert factors[5:] == factors[:5]


def test_temperature_scales_the_covariance():
    problem = testing.linear_layer(3, condition_number=5.0)
    method = VI(num_epochs=8000, num_particles=8, temperature=0.25, **CALM)
    _, covariance = flat_moments(mx.fit(problem.model, problem.data, method, key=0))
    np.testing.assert_allclose(np.diag(covariance), 0.25 / np.diag(problem.precision), rtol=0.02)


def test_ivon_ends_at_the_mean_field_optimum():
    problem = testing.linear_layer(5, condition_number=20.0)
    method = IVON(num_epochs=20_000, batch_size=None, b2=0.999)
    mean, covariance = flat_moments(mx.fit(problem.model, problem.data, method, key=0))
    assert (np.abs(mean - problem.mean) < 0.05 * np.sqrt(np.diag(problem.covariance))).all()
    np.testing.assert_allclose(np.diag(covariance), 1 / np.diag(problem.precision), rtol=0.1)


def test_ivon_learns_the_width_of_a_prior_from_weights_and_their_spread():
    r"""At the optimum $k - 1 - \sum_i E[w_i^2]\, E[\tau^{-2}] + 2 E[\tau^2 / (1 + \tau^2)] = 0$ for k weights."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(20, 40))
    y = x @ generator.normal(size=40) * 0.5 + generator.normal(size=20)
    network = mx.nets.MLP(40, (), 1, key=0)
    model = mx.Model(network, mx.likelihoods.Gaussian(scale=1.0), prior=mx.priors.Normal(mx.priors.HalfCauchy(1.0)))
    posterior = mx.fit(model, (x, y), IVON(num_epochs=20_000, batch_size=None, b2=0.999), key=0)
    mean, unravel = posterior.mean, ravel_pytree(posterior.mean)[1]
    scale = unravel(jnp.sqrt(jnp.diag(posterior.covariance.dense())))
    m, s = (np.asarray(each.network.layers[0].weight) for each in (mean, scale))
    location, width = (float(each.prior["layers/0/weight"]["log_scale"]) for each in (mean, scale))
    shrinkage = np.tanh(location) + 1.0  # 2 tau^2 / (1 + tau^2)
    slope = 39 - np.sum(m**2 + s**2) * np.exp(-2 * location + 2 * width**2) + shrinkage
    assert abs(slope) < 1.0
    assert np.sum(s**2) * np.exp(-2 * location) > 10.0  # what is missing if the spread of the weights is forgotten


def test_ivon_finds_its_optimum_from_far_up_a_steep_slope():
    """At 10 the curvature of w^4 is 1,200 times what IVON begins with; E[12 w^2] = 1 / variance at the optimum."""
    model, method = mx.Density(lambda w: -jnp.sum(w**4), jnp.full(3, 10.0)), IVON(b2=0.999, num_epochs=4000)
    posterior = mx.fit(model, None, method, key=0)
    mean, covariance = flat_moments(posterior)
    assert (np.abs(mean) < 0.1 * 12**-0.25).all()
    np.testing.assert_allclose(np.diag(covariance), 12**-0.5, rtol=0.1)


@pytest.mark.parametrize("slope", [-1e12, 1e12])
def test_no_gradient_throws_ivon_out_of_reach_of_its_draws(slope):
    """Where squares of the curvature estimate overflow in float32, which made long runs NaN."""
    model, batch = mx.Density(lambda w: slope * jnp.sum(w), jnp.zeros(5)), Batch((), jnp.arange(1), 1)
    method = IVON(schedule=Constant())
    state = method.init(model, jnp.zeros(5), batch, key=jax.random.key(0))
    for step in range(5):
        new, _ = method.step(model, state, batch, key=jax.random.key(step))
        assert (jnp.abs(new.params - state.params) <= 1.001 * new.scale).all()
        precisions = (state.scale / new.scale) ** 2
        assert ((precisions > 0.499) & (precisions < 2.501)).all()
        state = new


def test_ivon_stays_proper_when_the_curvature_of_its_prior_drops():
    """Negative curvature of the data that the prior outweighed, and does not any more."""
    h, before, after = jnp.array([-0.009]), 0.01, jnp.array([1e-8])
    scale = jnp.sqrt(1 / (100 * (h + before)))
    new = IVON()._curvature(100.0, h, after, jnp.zeros(1), jnp.ones(1), scale)
    assert new + after > 0.49 * (h + before)


def test_particles_find_a_normal_posterior():
    problem = testing.linear_regression(2, condition_number=4.0)
    method = SVGD(100, num_epochs=3000, batch_size=None, optimiser=Adam(2e-2))
    draws = testing.coordinates(mx.fit(problem.model, problem.data, method, key=0), problem)[0]
    spread = np.sqrt(np.diag(problem.covariance))
    assert (np.abs(draws.mean(axis=0) - problem.mean) < 0.05 * spread).all()
    np.testing.assert_allclose(draws.std(axis=0), spread, rtol=0.1)


def test_the_direction_of_particles_is_that_of_the_paper():
    rng = np.random.default_rng(0)
    particles, gradients = rng.normal(size=(2, 6, 3))
    found, distance = stein_direction(jnp.asarray(particles), jnp.asarray(gradients))
    squares = ((particles[:, None] - particles[None]) ** 2).sum(-1)
    width = np.median(squares[np.triu_indices(6, 1)]) / np.log(7.0)
    wanted = np.zeros_like(particles)
    for i in range(6):
        for j in range(6):
            kernel = np.exp(-squares[i, j] / width)
            wanted[i] += kernel * (gradients[j] + 2.0 / width * (particles[i] - particles[j])) / 6
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(distance, np.median(squares[np.triu_indices(6, 1)]), rtol=1e-5)


# ---- estimators on a real layer


def estimates(estimator, num: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Log likelihoods and gradients with respect to the scales, from `num` keys."""
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(64, 20)), jnp.float32)
    y = jnp.asarray(rng.integers(0, 3, 64))
    model = mx.Model(mx.nets.MLP(20, (30,), 3, key=0), mx.likelihoods.Categorical())
    params = model.initial(3)
    approximation = MeanField(0.5).start(params, key=jax.random.key(0))
    batch = Batch((x, y), jnp.arange(64), 64)

    @jax.jit
    @jax.vmap
    def one(key):
        def value(rho):
            q = eqx.tree_at(lambda q: q.rho, approximation, rho)
            return estimator.log_likelihood(model, q, q.sample(key=key), batch, key=jax.random.fold_in(key, 1))

        found, gradient = jax.value_and_grad(value)(approximation.rho)
        return found, ravel_pytree(gradient.network)[0]

    return jax.tree.map(np.asarray, one(jax.random.split(jax.random.key(7), num)))


def test_estimators_agree_in_expectation_and_differ_in_noise_as_known():
    """Local reparameterisation is quieter than flipout, flipout than one draw for the batch."""
    found = {type(e).__name__: estimates(e) for e in (LocalReparameterisation(), Flipout(), Reparameterisation())}
    values, gradients = found["Reparameterisation"]
    noise = {}
    for name, (value, gradient) in found.items():
        noise[name] = gradient.var(axis=0).sum()
        errors = np.sqrt(value.var() / 400 + values.var() / 400)
        assert abs(value.mean() - values.mean()) < 4.9 * errors, name
        errors = np.sqrt(gradient.var(axis=0) / 400 + gradients.var(axis=0) / 400)
        z = (gradient.mean(axis=0) - gradients.mean(axis=0)) / np.maximum(errors, 1e-12)
        assert np.abs(z).max() < 4.9, name
    assert noise["LocalReparameterisation"] < noise["Flipout"] < noise["Reparameterisation"], noise


class Twice(eqx.Module):
    """A layer that is used twice: its weights are drawn once for the batch."""

    layer: eqx.nn.Linear

    def __call__(self, x):
        return self.layer(jnp.tanh(self.layer(x)))


def test_what_weights_share_and_what_is_their_own_is_drawn_independently():
    """Each of two weights moves along a direction of its own, too: the variance is 1 + 2^2, from one key (1 + 2)^2."""
    model = mx.Model(Twice(eqx.nn.Linear(2, 2, key=jax.random.key(0))), mx.likelihoods.Gaussian(scale=1.0))
    start, num = model.initial(2), 4000
    directions = 2.0 * jnp.eye(6)[:, :2]
    approximation = LowRankNormal(start, initial_rho(start, 0.5), directions)
    x = jnp.asarray(np.random.default_rng(0).normal(size=(8, 2)), jnp.float32)
    batch = Batch((x, x), jnp.arange(8), 8)
    found = {}
    for estimator in (Reparameterisation(), LocalReparameterisation(), Flipout()):

        def value(key, estimator=estimator):
            draw = approximation.sample(key=jax.random.fold_in(key, 0))
            return estimator.log_likelihood(model, approximation, draw, batch, key=jax.random.fold_in(key, 1))

        found[type(estimator).__name__] = np.asarray(
            jax.jit(jax.vmap(value))(jax.random.split(jax.random.key(3), num)), np.float64
        )
    values = found.pop("Reparameterisation")
    for name, value in found.items():
        errors = np.sqrt((value.var() + values.var()) / num)
        assert abs(value.mean() - values.mean()) < 4.9 * errors, name


def test_a_layer_that_is_used_twice_gets_one_draw_for_the_batch():
    net = Twice(eqx.nn.Linear(2, 2, key=jax.random.key(0)))
    model = mx.Model(net, mx.likelihoods.Gaussian(scale=0.3))
    x = np.random.default_rng(0).normal(size=(30, 2)).astype(np.float32)
    posterior = mx.fit(model, (x, x), VI(num_epochs=20), key=0)
    assert np.isfinite(posterior.predict(x).mean).all()


# ---- divergences


def test_scales_are_as_precise_as_floats_allow():
    rho = jnp.linspace(-60.0, 60.0, 20_001)
    wanted = np.logaddexp(np.asarray(rho, np.float64), 0.0)
    np.testing.assert_allclose(softplus(rho), wanted, rtol=3e-6)
    slope = jax.vmap(jax.grad(softplus))(rho)
    np.testing.assert_allclose(slope, 1 / (1 + np.exp(-np.asarray(rho, np.float64))), rtol=3e-6)


@pytest.mark.parametrize(
    "prior", [mx.priors.Normal(0.7), mx.priors.Laplace(0.5), mx.priors.Normal(), mx.priors.Flat()], ids=str
)
def test_expected_log_priors_are_those_of_many_draws(prior):
    rng = np.random.default_rng(0)
    mean, scale = jnp.asarray(rng.normal(size=(4, 3)), float), jnp.asarray(rng.uniform(0.1, 1, size=(4, 3)), float)
    leaf = mx.priors.Leaf("layers/0/weight", (4, 3), 3)
    draws = mean + scale * jnp.asarray(rng.normal(size=(20_000, 4, 3)), float)
    values = np.asarray(jax.vmap(lambda value: prior.log_prob(value, leaf, {}))(draws))
    exact = float(prior.expected_log_prob(mean, scale, leaf, {}))
    assert abs(values.mean() - exact) <= 4.9 * values.std() / np.sqrt(20_000) + 1e-4


def test_closed_and_monte_carlo_divergences_agree():
    params = mx.Model(mx.nets.MLP(3, (4,), 1, key=0), mx.likelihoods.Gaussian())
    approximation = MeanField(0.5).start(params.initial(1), key=jax.random.key(0))

    def both(key):
        draw, log_prob = approximation.sample_with_log_prob(key=key)
        return [sum(d.terms(params, approximation, draw, log_prob)) for d in (ClosedForm(), MonteCarlo())]

    closed, sampled = map(np.asarray, jax.vmap(both)(jax.random.split(jax.random.key(1), 20_000)))
    errors = np.sqrt((closed.var() + sampled.var()) / 20_000)
    assert abs(closed.mean() - sampled.mean()) < 4.9 * errors
    assert closed.std() < 0.5 * sampled.std()


def test_divergence_from_the_log_uniform_prior_falls_with_noise():
    """Against its definition, integrated numerically: KL = E[log|w|] - log scale + constant, for N(1, a)."""
    noise = np.random.default_rng(0).normal(size=2_000_000)

    def exact(alpha: float) -> float:
        return float(np.mean(np.log(np.abs(1 + np.sqrt(alpha) * noise)))) - 0.5 * np.log(alpha)

    alphas = [0.01, 0.1, 0.5, 2.0, 20.0]
    found = [float(divergence_from_log_uniform(jnp.ones(1), jnp.full(1, np.sqrt(a)))) for a in alphas]
    wanted = [exact(a) - exact(1e4) for a in alphas]
    np.testing.assert_allclose(found, wanted, atol=0.02)


def test_the_log_uniform_prior_has_the_tail_of_the_models():
    """Weights: divergence and the expected normal log density; biases: the usual two terms. By hand."""
    model = mx.Model(mx.nets.MLP(2, (), 1, key=0), mx.likelihoods.Gaussian(scale=1.0), mx.priors.Normal(0.7))
    params = model.init(mx.data.FullBatch(mx.data.Arrays(np.zeros((1, 2), np.float32), np.zeros(1, np.float32))))
    rho = jax.tree.map(lambda leaf: jnp.full_like(leaf, np.log(np.expm1(0.3))), params)
    approximation = IndependentNormal(params, rho)
    entropy, log_prior = LogUniform().terms(model, approximation, params, jnp.zeros(()))
    weight, bias = (np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(params.network))
    squares = sum(np.sum(mean**2 + 0.3**2) for mean in (weight, bias))
    expected = -squares / (2 * 0.7**2) - 3 * np.log(0.7 * np.sqrt(2 * np.pi))
    expected -= float(divergence_from_log_uniform(jnp.asarray(weight), jnp.full(weight.shape, 0.3)))
    np.testing.assert_allclose(log_prior, expected, rtol=1e-5)
    np.testing.assert_allclose(entropy, np.log(0.3), rtol=1e-5)


@pytest.mark.slow
def test_a_prior_that_is_learned_takes_part():
    x = np.linspace(-1, 1, 30)[:, None].astype(np.float32)
    prior = mx.priors.Normal(mx.priors.HalfNormal(1.0))
    model = mx.Model(mx.nets.MLP(1, (5,), 1, key=0), mx.likelihoods.Gaussian(), prior)
    posterior = mx.fit(model, (x, x[:, 0]), VI(num_epochs=50), key=0)
    assert posterior.mean.prior
    assert np.isfinite(posterior.predict(x).std).all()


# ---- what users see


def test_trace_splits_the_bound():
    problem = testing.linear_layer(3)
    info = mx.fit(problem.model, problem.data, VI(num_epochs=20), key=0).record.info["train"]
    np.testing.assert_allclose(info["elbo"], info["log_likelihood"] - info["kl"], rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize(
    "method",
    [VI(num_epochs=1, batch_size=None, optimiser=Adam(1e-6)), IVON(1e-6, num_epochs=1, batch_size=None)],
    ids=["VI", "IVON"],
)
def test_means_start_at_a_trained_network(method):
    problem = testing.linear_layer(3)
    start = mx.fit(problem.model, problem.data, mx.infer.MAP(num_epochs=200, batch_size=None), key=0)
    mean, _ = flat_moments(mx.fit(problem.model, problem.data, method, init=start, key=1))
    np.testing.assert_allclose(mean, ravel_pytree(start.starting_points(1))[0], atol=1e-5)


@pytest.mark.slow
def test_bayes_by_backprop_brings_its_prior_unless_told_otherwise():
    problem = testing.linear_layer(2)
    posterior = mx.fit(problem.model, problem.data, BayesByBackprop(num_epochs=1), key=0)
    assert isinstance(posterior.model.prior, mx.priors.ScaleMixture)
    own = mx.fit(problem.model, problem.data, BayesByBackprop(prior=None, num_epochs=1), key=0)
    assert isinstance(own.model.prior, mx.priors.Normal)


def test_variational_dropout_drowns_inputs_that_say_nothing():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 6)).astype(np.float32)
    y = (2 * x[:, 0] - x[:, 1] + 0.1 * rng.normal(size=400)).astype(np.float32)
    model = mx.Model(mx.nets.MLP(6, (), 1, key=0), mx.likelihoods.Gaussian(scale=0.1))
    posterior = mx.fit(model, (x, y), VariationalDropout(num_epochs=1500), key=0)
    ratio = np.asarray(mx.decide.signal_to_noise(posterior).layers[0].weight)[0]
    assert ratio[:2].min() > 20 * ratio[2:].max()


@pytest.mark.slow
def test_a_flow_bends_where_a_normal_cannot():
    """One weight squared: two modes or a ridge; the flow gets a better bound than any normal with a diagonal."""
    x = np.ones((4, 1), np.float32)
    model = mx.Model(
        (jnp.array([1.0, 1.0]), lambda w, x: w[0] * w[1] * x), mx.likelihoods.Gaussian(0.2), mx.priors.Normal(1.0)
    )
    bounds = {}
    for family in (MeanField(), Flow(4)):
        method = VI(family, num_epochs=6000, num_particles=8, batch_size=None, kl_warmup=0.1, optimiser=Adam(5e-3))
        posterior = mx.fit(model, (x, np.ones(4)), method, key=0)
        bounds[type(family).__name__] = posterior.record.info["train"]["elbo"][0, -1000:].mean()
    assert bounds["Flow"] > bounds["MeanField"] + 0.1


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: VI(FullRank(), estimator=Flipout()), "needs weights with independent noise"),
        (lambda: VI(num_particles=0), "num_particles must be an int >= 1"),
        (lambda: VI(kl_warmup=1.5), r"kl_warmup must be in \[0, 1\)"),
        (lambda: VI(temperature=0.0), "temperature must be > 0"),
        (lambda: VI(optimiser=mx.infer.LBFGS()), "optimiser must be Adam"),
        (lambda: MeanField(0.0), "initial_scale must be > 0"),
        (lambda: LowRank(0), "rank must be an int >= 1"),
        (lambda: IVON(b1=1.0), r"b1 must be in \[0, 1\)"),
        (lambda: SVGD(1), "num_particles must be an int >= 2"),
    ],
)
def test_bad_settings_are_refused(make, match):
    with pytest.raises(ValueError, match=match):
        make()


@pytest.mark.parametrize("family", [FullRank(), Flow()], ids=["full rank", "flow"])
def test_a_family_that_is_too_big_says_how_big(family):
    model = mx.Model(mx.nets.MLP(784, (400,), 10, key=0), mx.likelihoods.Categorical())
    x = np.zeros((4, 784), np.float32)
    with pytest.raises(ValueError, match="GiB for 318010 weights"):
        mx.fit(model, (x, np.zeros(4, int)), VI(family), key=0)
