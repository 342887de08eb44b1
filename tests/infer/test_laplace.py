"""Laplace: exact where the posterior is normal, evidence included; subsets, starts and combinations."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import marginax as mx
from marginax.curvature import (
    BlockDiagonal,
    Dense,
    Diagonal,
    FunctionSpace,
    Hessian,
    Kronecker,
    LowRank,
)
from marginax.infer import LBFGS, MAP, SWAG, VI, Laplace
from marginax.predict import LaplaceBridge, Linearised, MonteCarlo, Probit, ThroughNetwork

NOISE, PRIOR = 0.3, 0.7
TRAINING = MAP(num_epochs=60, batch_size=None, optimiser=LBFGS())


@pytest.fixture(scope="module")
def linear():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(103, 3))
    y = x @ np.array([1.0, -2.0, 0.5]) + 0.4 + NOISE * rng.normal(size=103)
    net = mx.nets.MLP(3, (), 1, key=0)
    model = mx.Model(net, likelihood=mx.likelihoods.Gaussian(scale=NOISE), prior=mx.priors.Normal(scale=PRIOR))
    return model, x, y


@pytest.fixture(scope="module")
def mode(linear):
    model, x, y = linear
    return mx.fit(model, (x, y), TRAINING, key=0)


def _exact(x, y, noise=NOISE, prior=PRIOR):
    """Covariance of weights and bias, and log evidence, of linear regression."""
    design = np.c_[x, np.ones(len(x))]
    covariance = np.linalg.inv(design.T @ design / noise**2 + np.eye(design.shape[1]) / prior**2)
    marginal = noise**2 * np.eye(len(x)) + prior**2 * design @ design.T
    return design, covariance, stats.multivariate_normal(np.zeros(len(x)), marginal).logpdf(y)


WHOLE = [Dense(), BlockDiagonal(), FunctionSpace(), LowRank(4, num_spare=0)]


@pytest.mark.parametrize("structure", WHOLE, ids=lambda s: type(s).__name__)
def test_linear_regression_is_exact_with_its_evidence(linear, mode, structure):
    model, x, y = linear
    design, covariance, evidence = _exact(x, y)
    data = mx.data.Minibatches((x, y), batch_size=16)
    posterior = mx.fit(model, data, Laplace(structure=structure), init=mode, key=1)
    np.testing.assert_allclose(posterior.covariance.dense(), covariance, rtol=1e-3, atol=1e-7)
    assert abs(float(posterior.log_evidence()) / evidence - 1) < 1e-4
    prediction = posterior.predict(x[:6])
    np.testing.assert_allclose(
        prediction.epistemic, np.einsum("ni,ij,nj->n", design[:6], covariance, design[:6]), rtol=1e-3
    )
    np.testing.assert_allclose(prediction.aleatoric, NOISE**2, rtol=1e-6)


def test_evidence_in_float64_is_exact_to_eight_digits(linear):
    _, x, y = linear
    with jax.enable_x64(True):
        net = jax.tree.map(lambda a: a.astype(jnp.float64), mx.nets.MLP(3, (), 1, key=0))
        model = mx.Model(net, likelihood=mx.likelihoods.Gaussian(scale=NOISE), prior=mx.priors.Normal(scale=PRIOR))
        posterior = mx.fit(model, (x, y), Laplace(structure=Dense(), training=TRAINING), key=0)
        assert abs(float(posterior.log_evidence()) / _exact(x, y)[2] - 1) < 1e-8


@pytest.mark.parametrize("batch_size", [None, 16])  # 103 is no multiple of 16: the last batch must not count twice
def test_kronecker_is_exact_for_the_weights_of_a_single_linear_layer(linear, mode, batch_size):
    model, x, y = linear
    data = (x, y) if batch_size is None else mx.data.Minibatches((x, y), batch_size=batch_size)
    posterior = mx.fit(model, data, Laplace(structure=Kronecker()), init=mode, key=1)
    exact = np.linalg.inv(x.T @ x / NOISE**2 + np.eye(3) / PRIOR**2)
    dense = np.asarray(posterior.covariance.dense())
    np.testing.assert_allclose(dense[:3, :3], exact, rtol=1e-4, atol=1e-8)
    np.testing.assert_allclose(dense[3, 3], 1 / (103 / NOISE**2 + 1 / PRIOR**2), rtol=1e-4)


def test_diagonal_is_the_inverse_of_the_diagonal_of_the_precision(linear, mode):
    model, x, y = linear
    posterior = mx.fit(model, (x, y), Laplace(structure=Diagonal()), init=mode, key=0)
    exact = 1 / (np.sum(x**2, 0) / NOISE**2 + 1 / PRIOR**2)
    np.testing.assert_allclose(np.diag(np.asarray(posterior.covariance.dense()))[:3], exact, rtol=1e-4)


@pytest.fixture(scope="module")
def wave():
    """A tanh network on a wave, trained; two targets."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(60, 1))
    y = np.stack([np.sin(3 * x[:, 0]), np.cos(2 * x[:, 0])], axis=1) + 0.2 * rng.normal(size=(60, 2))
    net = mx.nets.MLP(1, (8,), 2, activation=jax.nn.tanh, key=0)
    model = mx.Model(net, likelihood=mx.likelihoods.Gaussian(scale=0.2), prior=mx.priors.Normal(scale=1.0))
    return model, x, y, mx.fit(model, (x, y), TRAINING, key=0)


def test_last_layer_is_regression_on_the_features(wave):
    model, x, y, trained = wave
    posterior = mx.fit(model, (x, y), Laplace(structure=Dense(), subset=mx.LastLayer()), init=trained, key=0)
    net = model.network_of(posterior.mean)
    features = np.tanh(np.asarray(x @ net.layers[0].weight.T + net.layers[0].bias))
    design, covariance, _ = _exact(features, y[:, 0], 0.2, 1.0)
    at = np.linspace(-2, 2, 5)[:, None]
    inside = np.c_[np.tanh(np.asarray(at @ net.layers[0].weight.T + net.layers[0].bias)), np.ones(5)]
    exact = np.einsum("ni,ij,nj->n", inside, covariance, inside)
    prediction = posterior.predict(at)
    np.testing.assert_allclose(prediction.epistemic, np.stack([exact, exact], axis=1), rtol=2e-3)
    log_prior = -0.5 * sum(float(jnp.sum(leaf**2)) for leaf in jax.tree.leaves(net.layers[1])) - 9 * np.log(2 * np.pi)
    residual = (y - np.asarray(design @ np.r_[net.layers[1].weight.T, net.layers[1].bias[None]])) / 0.2
    log_likelihood = float(np.sum(stats.norm.logpdf(residual) - np.log(0.2)))
    evidence = log_likelihood + log_prior + 9 * np.log(2 * np.pi) + np.linalg.slogdet(covariance)[1]
    assert abs(float(posterior.log_evidence()) / evidence - 1) < 1e-4


def test_targets_of_one_input_are_predicted_jointly(wave):
    model, x, y, trained = wave
    posterior = mx.fit(model, (x, y), Laplace(structure=Dense()), init=trained, key=0)
    prediction, at = posterior.predict(x[:4]), y[:4]
    mean, covariance = prediction.mean, prediction.covariance
    exact = [stats.multivariate_normal(m, c).logpdf(v) for m, c, v in zip(mean, covariance, at, strict=True)]
    np.testing.assert_allclose(prediction.log_prob(at), exact, rtol=1e-5, atol=1e-5)
    assert (np.abs(covariance[:, 0, 1]) > 0).all()
    draws = prediction.sample(20_000, key=0)
    error = 4.9 * np.sqrt(2 / 20_000) * prediction.variance
    assert (np.abs(draws.var(0) - prediction.variance) < error).all()


def test_the_chosen_weights_are_those_of_largest_variance(wave):
    model, x, y, trained = wave
    diagonal = mx.fit(model, (x, y), Laplace(structure=Diagonal()), init=trained, key=0).covariance.variances()
    posterior = mx.fit(model, (x, y), Laplace(structure=Dense(), subset=mx.LargestVariance(7)), init=trained, key=0)
    dense = mx.fit(model, (x, y), Laplace(structure=Dense()), init=trained, key=0).covariance.dense()
    chosen = np.flatnonzero(np.asarray(posterior.covariance.variances()))
    assert set(chosen) == set(np.argsort(np.asarray(diagonal))[-7:])
    precision = np.linalg.inv(np.asarray(dense, np.float64))[np.ix_(chosen, chosen)]
    found = np.asarray(posterior.covariance.dense())[np.ix_(chosen, chosen)]
    np.testing.assert_allclose(found, np.linalg.inv(precision), rtol=5e-3, atol=1e-5)
    with pytest.raises(ValueError, match="whole leaves for the evidence"):
        posterior.log_evidence()


def test_draws_through_the_network_agree_with_the_linearisation_of_a_linear_model(linear, mode):
    model, x, y = linear
    posterior = mx.fit(model, (x, y), Laplace(structure=Dense()), init=mode, key=0)
    drawn = posterior.using(ThroughNetwork()).predict(x[:6], num_samples=20_000, key=4).epistemic
    assert (np.abs(drawn / posterior.predict(x[:6]).epistemic - 1) < 4.9 * np.sqrt(2 / 20_000)).all()


@pytest.mark.slow
def test_it_starts_from_vi_from_swag_and_from_an_ensemble(wave):
    model, x, y, trained = wave
    starts = {
        "VI": mx.fit(model, (x, y), VI(num_epochs=50), init=trained, key=0),
        "SWAG": mx.fit(model, (x, y), SWAG(num_snapshots=5, every=2), init=trained, key=0),
    }
    for start in starts.values():
        posterior = mx.fit(model, (x, y), Laplace(), init=start, key=0)
        assert all(
            jnp.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (posterior.mean, start.mean)), strict=True)
        )
        assert np.isfinite(posterior.predict(x).log_prob(y)).all()
    ensemble = mx.fit(model, (x, y), mx.infer.DeepEnsemble(3, MAP(num_epochs=50)), key=0)
    mixture = mx.fit(model, (x, y), Laplace(), init=ensemble, num_chains=3, key=0)
    known = [eqx.tree_at(lambda p: p.spec, c, mixture.spec, is_leaf=lambda v: v is None) for c in mixture.components]
    parts = [component.predict(x[:3]) for component in known]
    np.testing.assert_allclose(mixture.predict(x[:3]).mean, np.mean([p.mean for p in parts], axis=0), rtol=1e-5)
    spread = np.var([p.mean for p in parts], axis=0) + np.mean([p.epistemic for p in parts], axis=0)
    np.testing.assert_allclose(mixture.predict(x[:3]).epistemic, spread, rtol=1e-4)


@pytest.mark.slow
def test_a_users_frozen_function_gets_a_bayesian_last_layer():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 2))
    y = np.sin(x[:, 0])
    params = {"body": jnp.asarray(rng.normal(size=(2, 6))), "head": {"w": jnp.zeros((6, 1)), "b": jnp.zeros(1)}}

    def apply(p, x):
        return jnp.tanh(x @ p["body"]) @ p["head"]["w"] + p["head"]["b"]

    model = mx.Model(
        (params, apply),
        likelihood=mx.likelihoods.Gaussian(scale=0.1),
        prior=mx.priors.Normal(scale=1.0),
        subset=mx.Paths("*head/*"),
    )
    posterior = mx.fit(model, (x, y), Laplace(structure=Dense(), training=TRAINING), key=0)
    features = np.tanh(x @ np.asarray(params["body"]))
    _, covariance, evidence = _exact(features, y, 0.1, 1.0)
    design = np.c_[features, np.ones(50)]
    exact = np.einsum("ni,ij,nj->n", design[:5], covariance, design[:5])
    np.testing.assert_allclose(posterior.predict(x[:5]).epistemic, exact, rtol=5e-3)
    assert abs(float(posterior.log_evidence()) / evidence - 1) < 1e-3


@pytest.mark.slow
def test_it_is_the_same_after_saving_and_loading(wave, tmp_path):
    model, x, y, trained = wave
    posterior = mx.fit(
        model,
        (x, y),
        Laplace(tuning=mx.infer.Evidence(), subset=mx.LastLayer(), structure=LowRank(3)),
        init=trained,
        key=0,
    )
    posterior.save(tmp_path / "laplace")
    again = mx.load(tmp_path / "laplace")
    assert float(again.log_evidence()) == float(posterior.log_evidence())
    np.testing.assert_array_equal(again.predict(x).std, posterior.predict(x).std)
    assert float(again.tuned(mx.infer.Evidence()).log_evidence()) == pytest.approx(
        float(posterior.tuned(mx.infer.Evidence()).log_evidence())
    )


@pytest.mark.slow
def test_convolutional_networks_have_kronecker_factors():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(12, 1, 16, 16)), rng.integers(0, 3, 12)
    net = mx.nets.LeNet(in_shape=(1, 16, 16), channels=(2, 2), hidden=4, out_size=3, key=0)
    model = mx.Model(net, likelihood=mx.likelihoods.Categorical())
    posterior = mx.fit(model, (x, y), Laplace(structure=Kronecker()), init=net, key=0)
    prediction = posterior.predict(x)
    np.testing.assert_allclose(prediction.probs.sum(1), 1, rtol=1e-5)
    assert (prediction.mutual_information > 0).all()
    assert np.isfinite(float(posterior.log_evidence()))


LIKELIHOODS = {
    "gaussian": (mx.likelihoods.Gaussian(scale=0.5), 1),
    "scale from the network": (mx.likelihoods.Gaussian(scale=mx.likelihoods.FromNetwork()), 2),
    "student t": (mx.likelihoods.StudentT(5.0, 0.5), 1),
    "laplace": (mx.likelihoods.Laplace(mx.likelihoods.FromNetwork()), 2),
    "bernoulli": (mx.likelihoods.Bernoulli(), 1),
    "categorical": (mx.likelihoods.Categorical(), 3),
    "poisson": (mx.likelihoods.Poisson(), 1),
}


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_fisher_information_is_the_covariance_of_the_score(name):
    likelihood, size = LIKELIHOODS[name]
    output = jnp.linspace(-0.6, 0.9, size)[None]
    num = 40_000
    draws = likelihood.distribution(output, {}).sample(jax.random.key(0), (num,))
    draws = draws.reshape(num, -1) if name != "categorical" else draws.reshape(num)
    draws = draws[:, 0] if draws.ndim == 2 else draws
    score = jax.vmap(jax.grad(lambda f, y: likelihood.log_prob(f[None], y[None], {})[0]), (None, 0))(output[0], draws)
    score = np.asarray(score, np.float64)
    products = score[:, :, None] * score[:, None, :]
    error = products.std(0) / np.sqrt(num)
    assert (np.abs(products.mean(0) - np.asarray(likelihood.fisher(output, {})[0])) < 4.9 * error + 1e-4).all()


@pytest.fixture(scope="module")
def coin():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 2))
    y = (x[:, 0] + 0.5 * rng.normal(size=80) > 0).astype(int)
    model = mx.Model(mx.nets.MLP(2, (), 1, key=0), likelihood=mx.likelihoods.Bernoulli(), prior=mx.priors.Normal(2.0))
    return mx.fit(model, (x, y), Laplace(structure=Dense(), training=TRAINING), key=0), x


@pytest.mark.slow
def test_links_average_the_sigmoid_over_a_normal_logit(coin):
    posterior, x = coin
    at = np.r_[x[:5], 4 * x[:3]]
    functions = posterior.functions(key=jax.random.key(0))
    mean, covariance = (np.asarray(v, np.float64) for v in functions.outputs(jnp.asarray(at, jnp.float32)))
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    logits = mean + np.sqrt(covariance[:, :, 0]) * nodes
    exact = (1 / (1 + np.exp(-logits))) @ weights / weights.sum()
    probit = posterior.using(Linearised(link=Probit())).predict(at).probs[:, 1]
    formula = 1 / (1 + np.exp(-mean[:, 0] / np.sqrt(1 + np.pi / 8 * covariance[:, 0, 0])))
    np.testing.assert_allclose(probit, formula, rtol=1e-5)
    assert np.abs(probit - exact).max() < 0.02
    drawn = posterior.using(Linearised(link=MonteCarlo())).predict(at, num_samples=40_000).probs[:, 1]
    assert np.abs(drawn - exact).max() < 4.9 * 0.5 / np.sqrt(40_000)


def test_the_laplace_bridge_is_a_dirichlet_with_the_moments_it_says():
    mean, covariance = jnp.array([[1.0, -0.5, 0.2]]), jnp.array([[[0.5, 0.1, 0.0], [0.1, 0.7, -0.2], [0.0, -0.2, 0.4]]])
    summary = LaplaceBridge().summary(mean, covariance, jnp.zeros((1, 3)), jnp.zeros(()), full=True)
    rows, total = covariance[0].sum(0), covariance[0].sum()
    centred = np.asarray(mean[0] - rows * mean[0].sum() / total)
    narrow = np.asarray(covariance[0] - np.outer(rows, rows) / total)
    alpha = (1 - 2 / 3 + np.exp(centred) / 9 * np.exp(-centred).sum()) / np.diag(narrow)
    dirichlet = stats.dirichlet(alpha)
    np.testing.assert_allclose(np.exp(summary.log_probs[0]), dirichlet.mean(), rtol=1e-5)
    np.testing.assert_allclose(summary.covariance[0], dirichlet.cov(), rtol=1e-4, atol=1e-7)
    draws = dirichlet.rvs(40_000, random_state=0)
    entropy = -np.sum(draws * np.log(draws), axis=1)
    assert abs(float(summary.entropy[0]) - entropy.mean()) < 4.9 * entropy.std() / np.sqrt(40_000)


@pytest.mark.slow
def test_several_chains_give_a_mixture_and_spread_grows_away_from_the_data():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(60, 1))
    y = np.sin(3 * x[:, 0]) + 0.1 * rng.normal(size=60)
    model = mx.Model(mx.nets.MLP(1, (20,), 1, activation=jax.nn.tanh, key=0), likelihood=mx.likelihoods.Gaussian())
    posterior = mx.fit(model, mx.data.standardise((x, y)), Laplace(), key=0, num_chains=2)
    assert len(posterior.components) == 2
    prediction = posterior.predict([[0.0], [3.0]])
    assert prediction.epistemic[1] > 2 * prediction.epistemic[0] > 0


def test_what_cannot_be_done_is_said(linear):
    custom = mx.likelihoods.Custom(lambda f, y: -((f[0] - y) ** 2))
    model = mx.Model(mx.nets.MLP(1, (), 1, key=0), likelihood=custom)
    with pytest.raises(NotImplementedError, match="no Fisher information"):
        mx.fit(model, (np.zeros((4, 1)), np.zeros(4)), Laplace(training=MAP(num_epochs=1)), key=0)
    with pytest.raises(ValueError, match=r"LargestVariance\(...\) needs structure=mx.curvature.Dense"):
        Laplace(subset=mx.LargestVariance(3))
    model, x, y = linear
    with pytest.raises(ValueError, match="num_weights must be at most 4, all there are, got 5"):
        mx.fit(model, (x, y), Laplace(structure=Dense(), subset=mx.LargestVariance(5)), key=0)
    with pytest.raises(ValueError, match=r"only posteriors of mx\.infer\.Laplace know the evidence"):
        mx.fit(model, (x, y), VI(num_epochs=1), key=0).log_evidence()


def test_the_hessian_of_a_single_layer_is_exact(linear):
    """It is no sum of outer products, so it is not packed as those of one layer are."""
    _, x, y = linear
    model = mx.Model(mx.nets.MLP(3, (), 2, key=0), mx.likelihoods.Gaussian(scale=NOISE), mx.priors.Normal(scale=PRIOR))
    found = [
        mx.fit(model, (x, np.stack([y, -y], axis=1)), Laplace(structure=Dense(), kind=kind), key=0).covariance.dense()
        for kind in (Hessian(), mx.curvature.GGN())
    ]
    np.testing.assert_allclose(*found, rtol=1e-3, atol=1e-6)


def test_the_hessian_away_from_a_mode_is_refused():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 1)), 5 * rng.normal(size=30)
    net = mx.nets.MLP(1, (6,), 1, activation=jax.nn.tanh, key=0)
    model = mx.Model(net, likelihood=mx.likelihoods.Gaussian(scale=0.01), prior=mx.priors.Normal(10.0))
    with pytest.raises(ValueError, match="is not positive here: this is no mode"):
        mx.fit(model, (x, y), Laplace(structure=Dense(), kind=Hessian()), init=net, key=0)


def test_the_cost_is_known_before():
    data = np.zeros((1000, 784), np.float32), np.zeros(1000, int)
    model = mx.Model(mx.nets.MLP(784, (400, 400), 10, key=0), likelihood=mx.likelihoods.Categorical())
    cost = {
        type(structure).__name__: Laplace(structure=structure).cost(model, data)
        for structure in (Diagonal(), Kronecker(), LowRank(), Dense())
    }
    sizes = [cost[name].num_bytes for name in ("Diagonal", "Kronecker", "LowRank", "Dense")]
    assert sizes == sorted(sizes)
    assert cost["Dense"].num_bytes == 4 * 4 * 478_410**2
    assert 0 < cost["Diagonal"].seconds < cost["Dense"].seconds
    last = Laplace(structure=Dense(), subset=mx.LastLayer()).cost(model, data)
    assert last.num_bytes == 4 * 4 * 4010**2


def test_a_dense_matrix_of_a_million_weights_is_refused_at_once():
    net = mx.nets.MLP(10, (1000, 1000), 1, key=0)
    model = mx.Model(net, likelihood=mx.likelihoods.Gaussian())
    with pytest.raises(
        MemoryError, match=r"1,013,001 weights needs 15,\d\d\d GiB.*choose Kronecker\(\) \(\d+.\d\d GiB\)"
    ):
        mx.fit(model, (np.zeros((4, 10)), np.zeros(4)), Laplace(structure=Dense()), key=0)
