"""Rank-1 networks: the closed-form optimum of a linear network, the bound, and draws that are functions."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax import testing
from marginax.data import Batch
from marginax.infer import Adam, Rank1VI
from marginax.infer.members.rank1_vi import divergence, normal_factors
from marginax.nets import RankOneFactors
from marginax.posterior import Stochastic

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2)).astype(np.float32)
Y = np.sin(2 * X[:, 0]).astype(np.float32)
PRIOR_SCALE = 0.4


def curve_model() -> mx.Model:
    return mx.Model(mx.nets.MLP(2, (8, 7), 1, key=0), mx.likelihoods.Gaussian(0.2))


def optimum_given_the_rest(design, target, noise_scale, other):
    """Mean and variances of the normal that is nearest to the posterior of factors, of which targets are linear.

    Args:
        design: what each factor is multiplied with, row by row.
        target: less the bias.
        noise_scale: of the targets.
        other: mean and variance of what multiplies the sum.
    """
    mean, variance = other
    precision = (mean**2 + variance) * design.T @ design / noise_scale**2 + np.eye(design.shape[1]) / PRIOR_SCALE**2
    towards = mean * design.T @ target / noise_scale**2 + 1.0 / PRIOR_SCALE**2
    return np.linalg.solve(precision, towards), 1.0 / np.diag(precision)


def check_linear_network(num_epochs: int = 60_000, num_examples: int = 16_000):
    """With one output the factors of the inputs make a diagonal normal of the weights: it is the nearest one.

    Rows are many, so that their noise averages out, and say little each.
    """
    scale = 3.0 * np.sqrt(num_examples / 2000)
    problem = testing.linear_layer(3, num_examples=num_examples, condition_number=5.0, noise_scale=float(scale))
    options = {"num_epochs": num_epochs, "batch_size": None, "optimiser": Adam(2e-3)}
    method = Rank1VI(num_members=1, prior_scale=PRIOR_SCALE, **options)
    posterior = mx.fit(problem.model, problem.data, method, key=0)
    (noise,) = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64)[0], posterior.noise)
    weight = np.asarray(posterior.params.network.layers[0].weight, np.float64)[0, 0]
    output = noise.outputs[0], noise.output_scale[0] ** 2
    mean, variance = optimum_given_the_rest(problem.x * weight, problem.y - noise.bias, problem.noise_scale, output)
    error = np.abs(noise.inputs - mean) / np.sqrt(variance)
    assert (error < 0.01).all(), error
    np.testing.assert_allclose(noise.input_scale**2, variance, rtol=0.01)


@pytest.mark.slow
def test_factors_of_a_linear_network_are_at_their_closed_form_optimum():
    check_linear_network()


def check_predictive_law():
    problem = testing.linear_layer(3, num_examples=60, condition_number=5.0)
    posterior = mx.fit(problem.model, problem.data, Rank1VI(num_members=2, num_epochs=100), key=0)
    (noise,) = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), posterior.noise)
    weight = np.asarray(posterior.params.network.layers[0].weight, np.float64)[:, 0]
    x, means, seconds = problem.x_new, [], []
    for m in range(2):
        inner = x @ (weight[m] * noise.inputs[m])
        spread = x**2 @ (weight[m] * noise.input_scale[m]) ** 2
        size = noise.outputs[m, 0] ** 2 + noise.output_scale[m, 0] ** 2
        mean = noise.outputs[m, 0] * inner + noise.bias[m, 0]
        means.append(mean)
        seconds.append(size * (inner**2 + spread) - (noise.outputs[m, 0] * inner) ** 2 + mean**2)
    assert np.ptp(means, axis=0).max() > 0.1 * np.std(means)  # members differ
    mean = np.mean(means, axis=0)
    variance, num = np.mean(seconds, axis=0) - mean**2, 20_000
    prediction = posterior.predict(x, num_samples=num, key=1)
    assert (np.abs(prediction.mean - mean) < 4.9 * np.sqrt(variance / num)).all()
    assert (np.abs(prediction.epistemic / variance - 1) < 4.9 * np.sqrt(3 / num)).all()


def test_predictions_of_a_linear_network_have_the_law_of_the_mixture():
    check_predictive_law()


def test_the_divergence_is_that_of_normal_distributions():
    own = (None, RankOneFactors(jnp.array([1.2, 0.7]), jnp.array([0.9]), None, jnp.array([0.3, 0.1]), jnp.array([0.2])))
    exact = 0.0
    for mean, scale in ((1.2, 0.3), (0.7, 0.1), (0.9, 0.2)):
        z = np.linspace(mean - 12 * scale, mean + 12 * scale, 200_001)
        log_q = -0.5 * ((z - mean) / scale) ** 2 - np.log(scale)
        log_p = -0.5 * ((z - 1) / PRIOR_SCALE) ** 2 - np.log(PRIOR_SCALE)
        exact += np.sum(np.exp(log_q) / np.sqrt(2 * np.pi) * (log_q - log_p)) * (z[1] - z[0])
    assert float(divergence(own, PRIOR_SCALE)) == pytest.approx(exact, rel=1e-5)


def test_the_bound_counts_data_once_and_the_prior_once():
    method, model = Rank1VI(num_members=4, prior_scale=PRIOR_SCALE), curve_model()
    batch = Batch((jnp.asarray(X[:12]), jnp.asarray(Y[:12])), jnp.arange(12), 60)
    state = method.init(model, model.initial(1), batch, key=KEY)
    biased = eqx.tree_at(lambda own: own[0].bias, state.own, 0.3 * jax.random.normal(KEY, (4, 8)))
    prices, priors = [], []
    for m in range(4):
        one = jax.tree.map(lambda leaf, m=m: leaf[m], biased)
        prices.append(float(divergence(normal_factors(one), PRIOR_SCALE)))
        params = eqx.tree_at(lambda p: p.network.layers[0].bias, state.params, one[0].bias)
        priors.append(float(model.log_prior(params)))
    found = float(method.log_prior(model, state.params, biased, jnp.asarray(0)))
    assert found == pytest.approx(np.mean(priors) - np.mean(prices), rel=1e-5)
    # with hardly any spread the likelihood is the mean of those of the members
    tight = Rank1VI(num_members=4, prior_scale=PRIOR_SCALE, initial_scale=1e-6)
    state = tight.init(model, model.initial(1), batch, key=KEY)
    members = tight.members(model, state.params, state.own)
    each = [float(model.scaled_log_likelihood(jax.tree.map(lambda a, m=m: a[m], members), batch)) for m in range(4)]
    dealt = [
        float(tight.log_likelihood(model, state.params, state.own, batch, jnp.asarray(m), key=KEY)) for m in range(4)
    ]
    assert np.mean(dealt) == pytest.approx(np.mean(each), rel=1e-3)


@pytest.mark.slow
def test_draws_are_functions_of_one_member_each():
    posterior = mx.fit(curve_model(), (X, Y), Rank1VI(num_members=3, num_epochs=50), key=0, num_chains=2)
    assert isinstance(posterior, Stochastic)
    assert posterior.num_chains == 6  # members of both chains
    assert "6 networks with noise inside (RankOneFactors)" in posterior.describe()
    networks = posterior.sample(12, key=posterior.key)
    outputs = eqx.filter_vmap(lambda net: jax.vmap(net)(jnp.asarray(X)))(networks)[..., 0]
    prediction = posterior.predict(X, num_samples=12, key=posterior.key)
    np.testing.assert_allclose(prediction.mean, outputs.mean(axis=0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(prediction.epistemic, outputs.var(axis=0), rtol=1e-3, atol=1e-6)
    alone = jax.tree.map(lambda a: a[0], networks)
    np.testing.assert_allclose(jax.vmap(alone)(X)[:, 0], outputs[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["prior_scale", "initial_scale"])
def test_scales_must_be_positive(name):
    with pytest.raises(ValueError, match=f"{name} must be > 0, got 0.0"):
        Rank1VI(**{name: 0.0})
