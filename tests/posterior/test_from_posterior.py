"""Yesterday's posterior as today's prior: two parts of the data in turn are all data at once."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import marginax as mx
from marginax import testing
from marginax.curvature import DenseCovariance, DiagonalCovariance
from marginax.files import decode, encode
from marginax.posterior import Draws, Gaussian, Mixture

LAPLACE = mx.infer.Laplace(
    mx.curvature.Dense(), training=mx.infer.MAP(optimiser=mx.infer.LBFGS(), num_epochs=200, batch_size=None)
)
PROBLEM = testing.linear_layer(4, condition_number=10.0)
HALVES = [(PROBLEM.x[:16], PROBLEM.y[:16]), (PROBLEM.x[16:], PROBLEM.y[16:])]


log_prior = eqx.filter_jit(lambda model, params: model.log_prior(params))


def with_prior(model, prior):
    return mx.Model(model.network, model.likelihood, prior, model.subset)


def in_turn(parts, method=LAPLACE, **options):
    """Posteriors after each part, each the prior of the next."""
    posteriors, model = [], PROBLEM.model
    for part in parts:
        posteriors.append(mx.fit(model, part, method, key=0))
        model = with_prior(model, mx.priors.FromPosterior(posteriors[-1], **options))
    return posteriors


@pytest.fixture(scope="module")
def halves():
    return in_turn(HALVES)


def check_halves_equal_all(posteriors):
    """Moments and evidence of parts in turn are those of the closed form for all data."""
    last = posteriors[-1]
    np.testing.assert_allclose(PROBLEM.flatten(last.mean), PROBLEM.mean, atol=1e-4)
    np.testing.assert_allclose(last.covariance.dense(), PROBLEM.covariance, atol=1e-4 * PROBLEM.covariance.max())
    evidence = sum(float(p.log_evidence()) for p in posteriors)
    assert abs(evidence - PROBLEM.log_evidence) < 1e-4 * abs(PROBLEM.log_evidence)


def test_two_halves_in_turn_are_all_data_at_once(halves):
    check_halves_equal_all(halves)


def test_the_order_of_the_halves_does_not_matter():
    check_halves_equal_all(in_turn(HALVES[::-1]))


@pytest.mark.slow
def test_full_rank_variational_posteriors_are_exact_in_turn():
    method = mx.infer.VI(
        mx.infer.FullRank(),
        divergence=mx.infer.StickingTheLanding(),
        kl_warmup=0.0,
        batch_size=None,
        num_epochs=4000,
        num_particles=8,
        optimiser=mx.infer.Adam(0.02),
    )
    first = mx.fit(PROBLEM.model, HALVES[0], LAPLACE, key=0)
    last = mx.fit(with_prior(PROBLEM.model, mx.priors.FromPosterior(first)), HALVES[1], method, key=0)
    np.testing.assert_allclose(PROBLEM.flatten(last.mean), PROBLEM.mean, atol=1e-4)
    np.testing.assert_allclose(last.covariance.dense(), PROBLEM.covariance, atol=2e-4)


def test_diagonal_family_is_the_projection_in_closed_form():
    first = testing.linear_layer(4, condition_number=10.0)
    design, targets = first.features(HALVES[0][0]), HALVES[0][1]
    precision = design.T @ design / first.noise_scale**2 + np.eye(5)
    mean = np.linalg.solve(precision, design.T @ targets / first.noise_scale**2)
    variances = np.diag(np.linalg.inv(precision))
    again = first.features(HALVES[1][0])
    after = again.T @ again / first.noise_scale**2 + np.diag(1 / variances)
    right = np.linalg.solve(after, again.T @ HALVES[1][1] / first.noise_scale**2 + mean / variances)
    last = in_turn(HALVES, family=mx.priors.DiagonalNormal())[-1]
    np.testing.assert_allclose(PROBLEM.flatten(last.mean), right, atol=1e-4)
    np.testing.assert_allclose(last.covariance.dense(), np.linalg.inv(after), atol=1e-4)


def test_density_is_that_of_the_posterior_for_any_covariance(halves):
    """In the order of the model's leaves, whose names JAX would sort otherwise; a scale widens it."""
    first, params = halves[0], halves[1].mean
    for family, covariance in (
        (None, first.covariance.dense()),
        (mx.priors.DiagonalNormal(), np.diag(np.diag(first.covariance.dense()))),
        (mx.priors.LowRankNormal(2), _leading_correlations(first.covariance.dense(), 2)),
        (mx.priors.DenseNormal(), first.covariance.dense()),
    ):
        for scale in (1.0, 3.0):
            model = with_prior(PROBLEM.model, mx.priors.FromPosterior(first, scale, family))
            away = PROBLEM.flatten(params) - PROBLEM.flatten(first.mean)
            wide = scale**2 * np.asarray(covariance, np.float64)
            right = -0.5 * (away @ np.linalg.solve(wide, away) + np.linalg.slogdet(2 * np.pi * wide)[1])
            assert float(log_prior(model, params)) == pytest.approx(right, rel=2e-4)


def _leading_correlations(covariance, rank):
    """Correlations of low rank, with the variances as they are."""
    scale = np.sqrt(np.diag(covariance))
    values, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
    part = (vectors[:, -rank:] * values[-rank:]) @ vectors[:, -rank:].T
    return np.outer(scale, scale) * (part + np.diag(1 - np.diag(part)))


def test_leaves_are_matched_by_path_and_not_by_position(halves):
    prior = mx.priors.FromPosterior(halves[0])
    leaves = PROBLEM.model.leaves
    values = jax.tree.leaves(halves[1].mean.network)
    density = eqx.filter_jit(lambda prior, leaves, values: prior.log_joint(leaves, values, {}, {}))
    there, back = density(prior, leaves, values), density(prior, leaves[::-1], values[::-1])
    assert float(there) == float(back)


def test_draws_of_the_prior_have_its_moments(halves):
    for family in (None, mx.priors.DiagonalNormal()):
        model = with_prior(PROBLEM.model, mx.priors.FromPosterior(halves[0], 2.0, family))
        keys = jax.random.split(jax.random.key(0), 20_000)
        draws = PROBLEM.flatten(jax.jit(jax.vmap(lambda k, m=model: m.sample_prior(m.initial(1), key=k)))(keys))
        scale = 2.0 * np.sqrt(np.asarray(halves[0].covariance.variances()))
        error = (draws.mean(0) - PROBLEM.flatten(halves[0].mean)) / (scale / np.sqrt(20_000))
        assert np.abs(error).max() < 4.9
        assert np.abs(draws.std(0) / scale - 1).max() < 4.9 / np.sqrt(40_000)


# ---- draws, mixtures, networks


def test_draws_become_normals_by_their_moments():
    rng = np.random.default_rng(0)
    flat = rng.normal(size=(4, 50, 5)) @ rng.normal(size=(5, 5)) + np.arange(4)[:, None, None]
    params = PROBLEM.unflatten(flat)
    posterior = Draws(PROBLEM.model, params)
    together, rows = mx.priors.FromPosterior(posterior), flat.reshape(200, 5)
    np.testing.assert_allclose(together.means[0], rows.mean(0), rtol=1e-5)
    np.testing.assert_allclose(together.covariances[0].variances(), rows.var(0, ddof=1), rtol=1e-5)
    dense = mx.priors.FromPosterior(posterior, family=mx.priors.DenseNormal())
    np.testing.assert_allclose(dense.covariances[0].dense(), np.cov(rows.T), rtol=1e-4, atol=1e-4)
    apart = mx.priors.FromPosterior(posterior, family=mx.priors.NormalMixture(mx.priors.DenseNormal()))
    for chain in range(4):
        np.testing.assert_allclose(apart.covariances[chain].dense(), np.cov(flat[chain].T), rtol=1e-4, atol=1e-4)
    narrow = mx.priors.FromPosterior(posterior, family=mx.priors.LowRankNormal(2)).covariances[0]
    np.testing.assert_allclose(narrow.variances(), rows.var(0, ddof=1), rtol=1e-4)


def test_a_mixture_keeps_its_parts_and_their_weights():
    means = [PROBLEM.unflatten(np.full(5, centre)) for centre in (-1.0, 2.0)]
    parts = [
        Gaussian(PROBLEM.model, mean, DiagonalCovariance(jnp.full(5, s)))
        for mean, s in zip(means, (0.5, 1.0), strict=True)
    ]
    mixture = Mixture(parts, np.array([1.0, 3.0]))
    model = with_prior(PROBLEM.model, mx.priors.FromPosterior(mixture))
    params = PROBLEM.unflatten(np.linspace(-1, 1, 5))
    right = np.logaddexp(*(np.log(w) + float(p.log_prob(params)) for w, p in zip((0.25, 0.75), parts, strict=True)))
    assert float(log_prior(model, params)) == pytest.approx(right, rel=1e-5)
    one = mx.priors.FromPosterior(mixture, family=mx.priors.DiagonalNormal())
    assert one.means[0] == pytest.approx(1.25)
    assert one.covariances[0].variances() == pytest.approx(0.25 * 0.25 + 0.75 * 1.0 + 0.25 * 2.25**2 + 0.75 * 0.75**2)


def test_a_network_is_the_centre_and_the_width_is_learned():
    """The posterior of log width for weights at their centre plus known noise peaks where the widths are."""
    network = PROBLEM.model.network
    prior = mx.priors.FromPosterior(network, scale=mx.priors.LogNormal(-1.0, 1.0))
    model = with_prior(PROBLEM.model, prior)
    params = model.initial(1)
    assert sorted(params.prior) == ["layers/0/bias", "layers/0/weight"]
    moved = eqx.tree_at(lambda p: p.network.layers[0].weight, params, network.layers[0].weight + 0.3)
    log_width = np.linspace(-4, 2, 400)
    path = "layers/0/weight"
    at = jax.jit(jax.vmap(lambda s: model.log_prior(eqx.tree_at(lambda p: p.prior[path]["log_scale"], moved, s))))
    values = np.asarray(at(jnp.asarray(log_width)), np.float64)
    right = -4 * log_width - 0.5 * 4 * 0.09 * np.exp(-2 * log_width) - 0.5 * (log_width + 1) ** 2
    np.testing.assert_allclose(values - values[0], right - right[0], rtol=1e-3, atol=1e-2)


# ---- unknowns besides the weights


def test_the_noise_level_is_carried_over_where_it_has_a_spread():
    model = mx.Model(PROBLEM.model.network, mx.likelihoods.Gaussian(), mx.priors.Normal(mx.priors.HalfNormal(1.0)))
    params = model.initial(1)
    assert ravel_pytree(params)[0].shape == (8,)  # 5 weights, noise, 2 learned widths
    cholesky = np.linalg.cholesky(np.cov(np.random.default_rng(0).normal(size=(8, 40)))) * 0.1
    posterior = Gaussian(model, params, DenseCovariance(jnp.asarray(cholesky, jnp.float32)))
    prior = mx.priors.FromPosterior(posterior)
    later = with_prior(model, prior)
    start = later.initial(1)
    assert ravel_pytree(start)[0].shape == (6,)  # the old widths are averaged over
    np.testing.assert_allclose(start.likelihood["log_scale"], params.likelihood["log_scale"])
    point = jax.tree.map(lambda leaf: leaf + 0.05, start)
    covariance = (cholesky @ cholesky.T)[:6, :6]
    away = np.full(6, 0.05)
    right = -0.5 * (away @ np.linalg.solve(covariance, away) + np.linalg.slogdet(2 * np.pi * covariance)[1])
    assert float(log_prior(later, point)) == pytest.approx(right, rel=1e-3)
    diagonal = with_prior(model, mx.priors.FromPosterior(posterior, family=mx.priors.DiagonalNormal()))
    variances = np.diag(covariance)
    right = -0.5 * np.sum(away**2 / variances + np.log(2 * np.pi * variances))
    assert float(log_prior(diagonal, point)) == pytest.approx(right, rel=1e-3)
    alone = with_prior(model, mx.priors.FromPosterior(posterior, likelihood=False))
    assert not alone.prior.covers_likelihood
    with pytest.raises(ValueError, match="pass likelihood=False"):
        mx.Model(model.network, mx.likelihoods.Gaussian(0.5), prior).initial(1)


def test_laplace_holds_the_noise_fixed_so_it_keeps_its_own_prior():
    model = mx.Model(PROBLEM.model.network, mx.likelihoods.Gaussian(), mx.priors.Normal(1.0))
    first = mx.fit(model, HALVES[0], LAPLACE, key=0)
    assert not mx.priors.FromPosterior(first).covers_likelihood


# ---- under the driver


def test_other_numbers_do_not_compile_again(halves):
    count = 0

    @eqx.filter_jit
    def density(prior, params):
        nonlocal count
        count += 1
        return with_prior(PROBLEM.model, prior).log_prior(params)

    wide = [jnp.asarray(scale) for scale in (1.0, 2.0)]
    found = [density(mx.priors.FromPosterior(p, s), p.mean) for p, s in zip(halves, wide, strict=True)]
    assert count == 1
    assert found[0] != found[1]


@pytest.mark.parametrize(
    "family", [None, mx.priors.DiagonalNormal(), mx.priors.LowRankNormal(2)], ids=["own", "diagonal", "low rank"]
)
def test_it_is_stored_as_data(halves, family):
    prior = mx.priors.FromPosterior(halves[0], mx.priors.LogNormal(0.0, 1.0), family)
    again = decode(*encode(prior))
    assert jax.tree.structure(again) == jax.tree.structure(prior)
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(again), jax.tree.leaves(prior), strict=True))


def test_a_posterior_under_it_is_saved_and_loaded(halves, tmp_path):
    halves[1].save(tmp_path / "run")
    loaded = mx.load(tmp_path / "run")
    assert float(loaded.log_evidence()) == float(halves[1].log_evidence())
    np.testing.assert_array_equal(loaded.predict(PROBLEM.x_new).mean, halves[1].predict(PROBLEM.x_new).mean)


def check_moments_in_turn(method, family, num_chains=None):
    """Draws of a method under yesterday's posterior have the moments of all data, in Monte Carlo standard errors."""
    first = mx.fit(PROBLEM.model, HALVES[0], LAPLACE, key=0)
    model = with_prior(PROBLEM.model, mx.priors.FromPosterior(first, family=family))
    posterior = mx.fit(model, HALVES[1], method, num_chains=num_chains, key=0)
    draws = PROBLEM.flatten(posterior.flat())
    error = (draws.mean(0) - PROBLEM.mean) / np.sqrt(np.diag(PROBLEM.covariance) / len(draws))
    assert np.abs(error).max() < 4.9
    ratio = draws.var(0) / np.diag(PROBLEM.covariance)
    assert np.abs(ratio - 1).max() < 4.9 * np.sqrt(2 / len(draws))


@pytest.mark.slow
def test_anchored_ensembles_are_exact_under_it():
    """Members are drawn around the prior's own centre, not around zero."""
    method = mx.infer.AnchoredEnsemble(400, num_epochs=400, batch_size=None, optimiser=mx.infer.Adam(0.1))
    check_moments_in_turn(method, None)


@pytest.mark.slow
def test_nuts_is_exact_under_it():
    check_moments_in_turn(mx.infer.NUTS(num_warmup=300, num_samples=300, thin=4), None, num_chains=2)


@pytest.mark.slow
def test_ivon_takes_independent_weights_from_it(halves):
    """Nothing but the prior speaks where inputs are zero, and it is found again."""
    prior = mx.priors.FromPosterior(halves[0], family=mx.priors.DiagonalNormal())
    nothing = (np.zeros((4, 4)), np.zeros(4))
    model = mx.Model(PROBLEM.model.network, mx.likelihoods.Gaussian(1e3), prior)
    method = mx.infer.IVON(num_epochs=20_000, batch_size=None)
    found = mx.fit(model, nothing, method, key=0)
    np.testing.assert_allclose(PROBLEM.flatten(found.mean), prior.means[0], atol=0.01)
    np.testing.assert_allclose(found.covariance.variances(), prior.covariances[0].variances(), rtol=0.02)


# ---- refusals


def test_what_cannot_be_meant_is_refused(halves, as_users_run):
    coupled, model = mx.priors.FromPosterior(halves[0]), PROBLEM.model
    other = mx.nets.MLP(3, (), 1, key=0)
    with pytest.raises(ValueError, match=r"knows no leaf layers/0/weight of shape \(1, 3\), \(1, 4\) there"):
        mx.Model(other, model.likelihood, coupled)
    with pytest.raises(ValueError, match="each leaf by itself"):
        with_prior(model, mx.priors.ByPath({"*/bias": mx.priors.Flat()}, default=coupled))
    for method in (mx.infer.Laplace(), mx.infer.Laplace(mx.curvature.Diagonal())):
        with pytest.raises(ValueError, match="cannot add the precision of prior FromPosterior"):
            mx.fit(with_prior(model, coupled), HALVES[1], method, key=0)
    diagonal = mx.priors.FromPosterior(halves[0], family=mx.priors.DiagonalNormal())
    with pytest.raises(ValueError, match="takes the mean of a prior's precisions"):
        mx.fit(with_prior(model, diagonal), HALVES[1], mx.infer.Laplace(), key=0)
    with pytest.raises(ValueError, match="the precision of each weight by itself is needed"):
        mx.fit(with_prior(model, coupled), HALVES[1], mx.infer.IVON(), key=0)
    point = mx.fit(model, HALVES[0], mx.infer.MAP(num_epochs=1), key=0)
    with pytest.raises(ValueError, match="one draw, which has no spread"):
        mx.priors.FromPosterior(point)
    part = mx.infer.Laplace(mx.curvature.Dense(), subset=mx.Paths("*/weight"), training=mx.infer.MAP(num_epochs=1))
    some = mx.fit(model, HALVES[0], part, key=0)
    with pytest.raises(ValueError, match="no spread for some weights"):
        mx.priors.FromPosterior(some)
    with pytest.raises(TypeError, match="posterior must be a posterior or a network"):
        mx.priors.FromPosterior(3)
    with pytest.raises(ValueError, match="scale must be > 0"):
        mx.priors.FromPosterior(halves[0], -1.0)
    with pytest.raises(TypeError, match="family must be such as"):
        mx.priors.FromPosterior(halves[0], family="diagonal")


def test_leaves_without_a_past_get_a_prior_of_their_own():
    """A new head on an old body."""
    old, new = (mx.nets.MLP(2, (3,), size, key=0) for size in (1, 4))
    prior = mx.priors.ByPath({"layers/1/*": mx.priors.Normal(1.0)}, default=mx.priors.FromPosterior(old, 0.1))
    model = mx.Model(new, mx.likelihoods.Categorical(), prior)
    at_old = eqx.tree_at(lambda n: n.layers[0], model.initial(4).network, old.layers[0])
    params = eqx.tree_at(lambda p: p.network, model.initial(4), at_old)
    head = jax.tree.leaves(params.network.layers[1])
    right = -9 * np.log(0.1 * np.sqrt(2 * np.pi))
    right += sum(float(np.sum(-0.5 * w**2 - 0.5 * np.log(2 * np.pi))) for w in map(np.asarray, head))
    assert float(log_prior(model, params)) == pytest.approx(right, rel=1e-5)
