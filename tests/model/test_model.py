"""The log density: its parts against SciPy, its scaling with the data, its subsets and its errors."""

import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import marginax as mx
from marginax.data import Batch

LIKELIHOODS = {
    "known noise": (
        mx.likelihoods.Gaussian(scale=0.3),
        1,
        lambda f, y, u: stats.norm(f[:, 0], 0.3).logpdf(y),
    ),
    "learned noise": (
        mx.likelihoods.Gaussian(),
        1,
        lambda f, y, u: stats.norm(f[:, 0], np.exp(u["log_scale"])).logpdf(y),
    ),
    "noise from the network": (
        mx.likelihoods.Gaussian(scale=mx.likelihoods.FromNetwork(min_scale=0.01)),
        2,
        lambda f, y, u: stats.norm(f[:, 0], np.log1p(np.exp(0.5 * f[:, 1] - 1)) + 0.01).logpdf(y),
    ),
    "student t": (mx.likelihoods.StudentT(3.0, 0.5), 1, lambda f, y, u: stats.t(3.0, f[:, 0], 0.5).logpdf(y)),
    "laplace": (mx.likelihoods.Laplace(0.5), 1, lambda f, y, u: stats.laplace(f[:, 0], 0.5).logpdf(y)),
    "tempered": (
        mx.likelihoods.Tempered(mx.likelihoods.Gaussian(scale=0.3), temperature=0.5),
        1,
        lambda f, y, u: 2 * stats.norm(f[:, 0], 0.3).logpdf(y),
    ),
    "custom": (
        mx.likelihoods.Custom(lambda f, y: -((y - f[0]) ** 2)),
        1,
        lambda f, y, u: -((y - f[:, 0]) ** 2),
    ),
}


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    return rng.normal(size=(20, 3)).astype(np.float32), rng.normal(size=20).astype(np.float32)


def _batch(x, y, num=None):
    return Batch((jnp.asarray(x), jnp.asarray(y)), jnp.arange(len(x)), num or len(x))


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_log_likelihood_equals_scipy(name, data):
    likelihood, out_size, expected = LIKELIHOODS[name]
    model = mx.Model(mx.nets.MLP(3, (4,), out_size, key=0), likelihood=likelihood)
    params = model.initial(out_size)
    output = np.asarray(model.output(params, jnp.asarray(data[0])), np.float64)
    np.testing.assert_allclose(
        model.log_likelihood(params, _batch(*data)),
        expected(output, data[1], params.likelihood),
        rtol=2e-4,
        atol=1e-4,
    )


def test_information_of_a_normal_with_scale_from_the_network_is_the_mean_square_of_its_score():
    """By Gauss-Hermite quadrature, which is exact: the score is quadratic in the target."""
    likelihood = mx.likelihoods.Gaussian(scale=mx.likelihoods.FromNetwork(min_scale=0.01))
    nodes, weights = np.polynomial.hermite_e.hermegauss(5)
    output = jnp.array([0.3, -0.8])

    @jax.jit
    def scores_and_fisher(output, nodes):
        loc, scale = likelihood.location_and_scale(output, {})
        score = jax.grad(lambda f, y: likelihood.log_prob(f[None], y, {})[0])
        scores = jax.vmap(score, (None, 0))(output, loc + scale * nodes[:, None])
        return scores, likelihood.fisher(output[None], {})[0]

    scores, found = (
        np.asarray(leaf, np.float64) for leaf in scores_and_fisher(output, jnp.asarray(nodes, jnp.float32))
    )
    np.testing.assert_allclose(found, scores.T * (weights / weights.sum()) @ scores, rtol=1e-4, atol=1e-5)


def test_classification_and_counts_equal_scipy(data):
    x, _ = data
    labels, counts = np.arange(20) % 3, np.arange(20) % 7
    net = mx.nets.MLP(3, (4,), 3, key=0)
    model = mx.Model(net, likelihood=mx.likelihoods.Categorical())
    params = model.initial(3)
    logits = np.asarray(model.output(params, jnp.asarray(x)), np.float64)
    expected = logits[np.arange(20), labels] - np.log(np.exp(logits).sum(1))
    np.testing.assert_allclose(model.log_likelihood(params, _batch(x, labels)), expected, rtol=1e-4)
    single = mx.nets.MLP(3, (4,), 1, key=0)
    model = mx.Model(single, likelihood=mx.likelihoods.Bernoulli())
    params = model.initial(1)
    logit = np.asarray(model.output(params, jnp.asarray(x)), np.float64)[:, 0]
    expected = stats.bernoulli(1 / (1 + np.exp(-logit))).logpmf(labels % 2)
    np.testing.assert_allclose(model.log_likelihood(params, _batch(x, labels % 2)), expected, rtol=1e-4)
    model = mx.Model(single, likelihood=mx.likelihoods.Poisson())
    expected = stats.poisson(np.exp(logit)).logpmf(counts)
    np.testing.assert_allclose(model.log_likelihood(params, _batch(x, counts)), expected, rtol=1e-4)


def test_several_outputs_add_up(data):
    x, y = data
    both = np.stack([y, 2 * y], 1)
    model = mx.Model(mx.nets.MLP(3, (4,), 2, key=0), likelihood=mx.likelihoods.Gaussian(scale=0.5))
    params = model.initial(2)
    output = np.asarray(model.output(params, jnp.asarray(x)))
    expected = stats.norm(output, 0.5).logpdf(both).sum(1)
    np.testing.assert_allclose(model.log_likelihood(params, _batch(x, both)), expected, rtol=1e-4)


PRIORS = {
    "normal": (mx.priors.Normal(0.7), lambda w: stats.norm(0, 0.7).logpdf(w).sum()),
    "laplace": (mx.priors.Laplace(0.7), lambda w: stats.laplace(0, 0.7).logpdf(w).sum()),
    "student t": (mx.priors.StudentT(3.0, 0.7), lambda w: stats.t(3.0, 0, 0.7).logpdf(w).sum()),
    "scale mixture": (
        mx.priors.ScaleMixture(0.25, 1.0, 0.1),
        lambda w: np.log(0.25 * stats.norm(0, 1).pdf(w) + 0.75 * stats.norm(0, 0.1).pdf(w)).sum(),
    ),
    "flat": (mx.priors.Flat(), lambda w: 0.0),
}


LAWS = {
    "normal": (mx.priors.Normal(0.7), stats.norm(0, 0.7).cdf),
    "laplace": (mx.priors.Laplace(0.7), stats.laplace(0, 0.7).cdf),
    "student t": (mx.priors.StudentT(3.0, 0.7), stats.t(3.0, 0, 0.7).cdf),
    "scale mixture": (
        mx.priors.ScaleMixture(0.25, 1.0, 0.1),
        lambda w: 0.25 * stats.norm(0, 1).cdf(w) + 0.75 * stats.norm(0, 0.1).cdf(w),
    ),
}


@pytest.mark.parametrize("name", LAWS)
def test_draws_of_a_prior_have_the_law_of_its_density(name):
    (prior, cdf), num = LAWS[name], 20_000
    draws = np.asarray(prior.sample(mx.priors.Leaf("w", (num,), None), {}, key=jax.random.key(0)), np.float64)
    for at in (-1.0, -0.15, 0.1, 0.5):
        exact = cdf(at)
        assert abs(np.mean(draws <= at) - exact) < 4.9 * np.sqrt(exact * (1 - exact) / num), at


@pytest.mark.parametrize("name", PRIORS)
def test_log_prior_equals_scipy(name):
    prior, expected = PRIORS[name]
    model = mx.Model(mx.nets.MLP(3, (4,), 1, key=0), likelihood=mx.likelihoods.Gaussian(scale=1.0), prior=prior)
    params = model.initial(1)
    weights = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(params.network)]).astype(np.float64)
    np.testing.assert_allclose(float(model.log_prior(params)), expected(weights), rtol=1e-4)


def test_default_prior_shrinks_with_fan_in():
    model = mx.Model(mx.nets.MLP(100, (50,), 1, key=0), likelihood=mx.likelihoods.Gaussian(scale=1.0))
    draws = jax.vmap(lambda k: model.sample_prior(model.initial(1), key=k))(jax.random.split(jax.random.key(0), 200))
    scales = [float(leaf.std()) for leaf in jax.tree.leaves(draws.network)]
    np.testing.assert_allclose(scales, [0.28, 1.0, 2.8 / np.sqrt(50), 1.0], rtol=0.1)


@pytest.mark.parametrize(
    "prior",
    [
        mx.priors.Normal(mx.priors.HalfNormal(0.5)),
        mx.priors.Normal(mx.priors.FanIn(gain=mx.priors.LogNormal(0.0, 0.5))),
        mx.priors.Horseshoe(0.3),
        mx.priors.StudentT(5.0, mx.priors.Gamma(2.0, 2.0)),
    ],
)
def test_hyperpriors_have_the_jacobian_of_the_log(prior):
    """In log coordinates the density of hyperparameters must integrate to one: checked by importance weights."""
    model = mx.Model((jnp.zeros(1), lambda w, x: w), likelihood=mx.likelihoods.Gaussian(scale=1.0), prior=prior)
    if isinstance(prior.scale, mx.priors.FanIn):
        model = mx.Model((jnp.zeros((1, 1)), lambda w, x: w[0]), mx.likelihoods.Gaussian(scale=1.0), prior)
    start = model.initial(1)
    draws = jax.vmap(lambda k: model.sample_prior(start, key=k))(jax.random.split(jax.random.key(0), 20_000))
    log_prior = np.asarray(jax.vmap(model.log_prior)(draws), np.float64)
    flat = np.concatenate([np.asarray(leaf).reshape(20_000, -1) for leaf in jax.tree.leaves(draws)], axis=1)
    # E_p[q/p] = 1 for any normalised q whose support lies inside that of p: q a narrow normal around the median
    centre, width = np.median(flat, 0), 0.3 * (np.quantile(flat, 0.75, 0) - np.quantile(flat, 0.25, 0))
    ratio = np.exp(stats.norm(centre, width).logpdf(flat).sum(1) - log_prior)
    assert abs(ratio.mean() - 1) < 4.9 * ratio.std() / np.sqrt(len(ratio))


def test_learned_noise_has_the_jacobian_of_the_log():
    likelihood = mx.likelihoods.Gaussian(scale=mx.priors.HalfNormal(1.0))
    grid = np.linspace(-12, 4, 4001)
    density = np.exp([float(likelihood.log_prior({"log_scale": jnp.array([g])})) for g in grid[::10]])
    assert abs(np.trapezoid(density, grid[::10]) - 1) < 1e-3


def test_batches_estimate_the_log_density_without_bias(data):
    x, y = data
    model = mx.Model(mx.nets.MLP(3, (4,), 1, key=0), likelihood=mx.likelihoods.Gaussian(scale=0.3))
    params = model.initial(1)
    full = float(model.log_density(params, _batch(x, y)))
    source = mx.data.Minibatches((x, y), batch_size=6)
    keys = jax.random.split(jax.random.key(0), 3000)
    parts = np.asarray(jax.vmap(lambda k: model.log_density(params, source.batch(3, key=k)))(keys))
    assert abs(parts.mean() - full) < 4.9 * parts.std() / np.sqrt(len(parts))


def test_priors_and_subsets_are_chosen_by_path():
    net = mx.nets.MLP(3, (4,), 1, key=0)
    prior = mx.priors.ByPath({"layers/0/*": mx.priors.Laplace(0.5), "*/bias": mx.priors.Flat()}, mx.priors.Normal(2.0))
    model = mx.Model(net, likelihood=mx.likelihoods.Gaussian(scale=1.0), prior=prior)
    first, last = net.layers
    expected = stats.laplace(0, 0.5).logpdf(np.asarray(first.weight)).sum()
    expected += stats.laplace(0, 0.5).logpdf(np.asarray(first.bias)).sum()
    expected += stats.norm(0, 2).logpdf(np.asarray(last.weight)).sum()
    np.testing.assert_allclose(float(model.log_prior(model.initial(1))), expected, rtol=1e-5)
    with pytest.raises(ValueError, match="'nothing/\\*' matches no leaf"):
        mx.Model(net, mx.likelihoods.Gaussian(), prior=mx.priors.ByPath({"nothing/*": mx.priors.Flat()}))
    with pytest.raises(ValueError, match="matches no leaf"):
        mx.Model(net, mx.likelihoods.Gaussian(), subset=mx.Paths("nothing/*"))


@pytest.mark.parametrize("subset", [mx.LastLayer(), mx.Paths("layers/1/*")])
def test_only_the_subset_moves(subset, data):
    net = mx.nets.MLP(3, (4,), 1, key=0)
    model = mx.Model(net, likelihood=mx.likelihoods.Gaussian(), subset=subset)
    posterior = mx.fit(model, data, mx.infer.MAP(num_epochs=20, batch_size=None), key=0, num_chains=2)
    nets = posterior.sample(2, key=0)
    assert (np.asarray(nets.layers[0].weight) == np.asarray(net.layers[0].weight)).all()
    assert (np.asarray(nets.layers[1].weight) != np.asarray(net.layers[1].weight)).any()


class Scalar(eqx.Module):
    w: jax.Array

    def __call__(self, x):
        return jnp.sum(self.w * x)


BAD = {
    "wrong input width": (
        lambda n: n(4, 1),
        mx.likelihoods.Gaussian(),
        None,
        "network cannot be called on an example",
    ),
    "too many outputs": (
        lambda n: n(3, 2),
        mx.likelihoods.Gaussian(),
        None,
        "2 outputs, which describe 2 targets",
    ),
    "odd outputs for mean and scale": (
        lambda n: n(3, 1),
        mx.likelihoods.Gaussian(scale=mx.likelihoods.FromNetwork()),
        None,
        "two per target",
    ),
    "labels out of range": (
        lambda n: n(3, 3),
        mx.likelihoods.Categorical(),
        np.arange(20),
        "between 0 and 2",
    ),
    "negative labels": (lambda n: n(3, 3), mx.likelihoods.Categorical(), np.arange(20) - 1, "got -1"),
    "fractional labels": (lambda n: n(3, 3), mx.likelihoods.Categorical(), np.full(20, 0.5), "whole numbers"),
    "one logit": (lambda n: n(3, 1), mx.likelihoods.Categorical(), np.zeros(20, int), "at least 2 logits"),
    "negative counts": (lambda n: n(3, 1), mx.likelihoods.Poisson(), np.arange(20) - 5, ">= 0"),
    "three-way Bernoulli": (
        lambda n: n(3, 1),
        mx.likelihoods.Bernoulli(),
        np.arange(20) % 3,
        "between 0 and 1",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_model_and_data_that_do_not_fit_are_refused_before_compilation(name, data):
    build, likelihood, y, match = BAD[name]
    model = mx.Model(build(lambda a, b: mx.nets.MLP(a, (4,), b, key=0)), likelihood=likelihood)
    began = time.perf_counter()
    with pytest.raises(ValueError, match=match):
        mx.fit(model, (data[0], data[1] if y is None else y), mx.infer.MAP(), key=0)
    assert time.perf_counter() - began < 1.0


def test_scalar_outputs_are_accepted(data):
    model = mx.Model(Scalar(jnp.ones(3)), likelihood=mx.likelihoods.Gaussian())
    assert model.output(model.initial(1), jnp.asarray(data[0])).shape == (20, 1)


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda: mx.likelihoods.Gaussian(scale=-1.0), "scale must be > 0 and finite, got -1.0"),
        (lambda: mx.likelihoods.Gaussian(scale="big"), "scale must be a positive number"),
        (lambda: mx.likelihoods.StudentT(df=0.0), "df must be > 0, got 0.0"),
        (
            lambda: mx.likelihoods.Tempered(mx.likelihoods.Gaussian(), temperature=0.0),
            "temperature must be > 0",
        ),
        (lambda: mx.priors.Normal(scale=0.0), "scale must be > 0"),
        (lambda: mx.priors.ScaleMixture(weight=1.5), "weight must be in"),
        (lambda: mx.priors.ScaleMixture(wide=0.1, narrow=1.0), "narrow must be below wide"),
        (lambda: mx.Model(mx.nets.MLP(1, (), 1, key=0), likelihood="gauss"), "likelihood must be an object"),
        (
            lambda: mx.Model(mx.nets.MLP(1, (), 1, key=0), mx.likelihoods.Gaussian(), prior=1.0),
            "prior must be",
        ),
    ],
)
@pytest.mark.usefixtures("as_users_run")
def test_bad_configuration_is_refused_by_name(build, match):
    with pytest.raises((ValueError, TypeError), match=match):
        build()


@pytest.mark.parametrize("scale", [mx.priors.FanIn(), mx.priors.LogNormal(0.0, 0.5)], ids=["fixed", "learned"])
def test_a_draw_of_the_prior_is_independent_over_leaves(scale):
    """All pairs of weights, within and between leaves, and pairs of scales where those are drawn."""
    model, num = mx.Model(mx.nets.MLP(2, (2,), 2, key=0), mx.likelihoods.Gaussian(), mx.priors.Normal(scale)), 20_000
    draw = jax.jit(jax.vmap(lambda key: model.sample_prior(model.initial(2), key=key)))
    drawn = draw(jax.random.split(jax.random.key(0), num))
    for leaves in (jax.tree.leaves(drawn.network), jax.tree.leaves(drawn.prior)):
        if leaves:
            values = np.concatenate([np.asarray(leaf, np.float64).reshape(num, -1) for leaf in leaves], axis=1)
            ranks = stats.rankdata(values, axis=0)  # scales that are drawn make heavy tails
            correlation = np.corrcoef(ranks.T) - np.eye(values.shape[1])
            assert np.abs(correlation).max() < 4.9 / np.sqrt(num)
