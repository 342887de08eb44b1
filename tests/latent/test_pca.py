"""Principal components: the closed form, planted subspaces, and intervals of missing entries that cover."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, stats

import marginax as mx
from marginax.data import Batch, FullBatch
from marginax.latent import PCA
from marginax.latent.entries import ENTRIES


def planted(num=400, size=6, factors=2, noise=0.5, seed=0):
    rng = np.random.default_rng(seed)
    loadings = 2.0 * rng.normal(size=(size, factors))
    return loadings, rng.normal(size=(num, factors)) @ loadings.T + 3.0 + noise * rng.normal(size=(num, size))


def angle(a, b):
    """Largest angle between two subspaces, in degrees."""
    return np.rad2deg(np.max(np.arccos(np.clip(np.linalg.svd(basis(a).T @ basis(b))[1], -1, 1))))


def basis(a):
    return np.linalg.qr(np.asarray(a, np.float64))[0]


@pytest.mark.slow
def test_em_ends_at_the_closed_form():
    """Tipping & Bishop: the likelihood of the best subspace has a formula in the eigenvalues of the covariance."""
    with jax.enable_x64(True):
        _, x = planted(100)
        values = np.linalg.eigvalsh(np.cov(x.T, bias=True))[::-1]
        noise = values[2:].mean()
        logs = np.log(values[:2]).sum() + 4 * np.log(noise)
        best = -0.5 * len(x) * (6 * np.log(2 * np.pi) + logs + 6)
        pca = mx.fit(PCA(2), x, mx.infer.EM(2000, tolerance=1e-12), key=0, progress=False)
        assert float(pca.log_likelihood(x).sum()) == pytest.approx(best, abs=1e-4)
        assert float(np.exp(-pca.params["log_precision"][0, 0])) == pytest.approx(noise, rel=1e-4)


def test_likelihood_and_bound_are_those_of_the_normal_distribution():
    with jax.enable_x64(True):
        _, x = planted(30)
        mask = np.random.default_rng(1).random(x.shape) < 0.7
        mask[:, 0] = True
        model = PCA(2)
        rows = model.read({"x": x, "mask": mask})
        model = model.adapted_to(FullBatch(rows))
        params = model.init(FullBatch(rows))
        batch = Batch(jax.tree.map(jnp.asarray, rows.tree), jnp.arange(len(x)), len(x))
        found = np.asarray(eqx.filter_jit(model.log_likelihood)(params, batch))
        loadings, noise = np.asarray(params["loadings"]), float(np.exp(-params["log_precision"]))
        mean, covariance = np.asarray(params["offset"] + model.centre_of), loadings @ loadings.T + noise * np.eye(6)
        for row in range(5):
            seen = mask[row]
            law = stats.multivariate_normal(mean[seen], covariance[np.ix_(seen, seen)])
            assert found[row] == pytest.approx(law.logpdf(x[row, seen]), abs=1e-8)


def densities(outcome, x, eta):
    """Log densities of entries given their predictor, by scipy."""
    if outcome == "binary":
        return x * eta - np.logaddexp(0.0, eta)
    return stats.poisson(np.logaddexp(0.0, eta)).logpmf(x)


@pytest.mark.parametrize("outcome", ["binary", "poisson"])
def test_parabolas_are_below_the_density_and_touch_it_at_the_moments(outcome):
    with jax.enable_x64(True):
        x = np.array([[0.0, 1.0, 1.0, 0.0]]) if outcome == "binary" else np.array([[0.0, 1.0, 7.0, 40.0]])
        for at in (-6.0, -0.7, 0.4, 5.0, 30.0):
            bound = ENTRIES[outcome].bound(jnp.asarray(x), jnp.full(x.shape, at), jnp.full(x.shape, at**2))
            eta = np.linspace(-20, 60, 1001)[:, None]
            parabola = np.asarray(bound.constant + bound.target * eta - 0.5 * bound.weight * eta**2)
            assert np.all(parabola <= densities(outcome, x, eta) + 1e-9)
            there = np.asarray(bound.constant + bound.target * at - 0.5 * bound.weight * at**2)
            np.testing.assert_allclose(there, densities(outcome, x, at), atol=1e-9)
            step = 1e-3
            bend = (densities(outcome, x, at + step) + densities(outcome, x, at - step)) - 2 * densities(outcome, x, at)
            found = ENTRIES[outcome].curvature(jnp.asarray(x), jnp.full(x.shape, at))
            np.testing.assert_allclose(found, -bend / step**2, atol=1e-4)
            assert np.all(found <= bound.weight + 1e-9)


@pytest.mark.parametrize("outcome", ["binary", "poisson"])
def test_the_bound_of_a_row_is_just_below_its_likelihood_by_quadrature(outcome):
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        model = PCA(1, outcome)
        x = np.round(rng.random((6, 4))) if outcome == "binary" else 1.0 * rng.poisson(2.0, size=(6, 4))
        mask = rng.random(x.shape) < 0.8
        params = {"loadings": jnp.asarray(rng.normal(size=(4, 1))), "offset": jnp.asarray(0.5 + rng.random(4))}
        rows = jax.tree.map(jnp.asarray, model.read({"x": x, "mask": mask}).tree)
        found = np.asarray(eqx.filter_jit(model.log_likelihood)(params, Batch(rows, jnp.arange(6), 6)))
        nodes, weights = np.polynomial.hermite_e.hermegauss(80)
        eta = nodes[:, None, None] * np.asarray(params["loadings"])[:, 0] + np.asarray(params["offset"])
        logs = np.sum(mask * densities(outcome, x, eta), -1)
        exact = np.log(weights @ np.exp(logs) / weights.sum())
        assert np.all(found <= exact + 1e-9)
        np.testing.assert_allclose(found, exact, atol=0.3)


def test_the_gradient_of_the_bound_is_that_of_its_values():
    """Sweeps are held fast in the gradient; where they have settled, nothing is lost by that."""
    with jax.enable_x64(True):
        rng = np.random.default_rng(1)
        model = PCA(1, "poisson")
        rows = jax.tree.map(jnp.asarray, model.read(1.0 * rng.poisson(2.0, size=(5, 3))).tree)
        batch = Batch(rows, jnp.arange(5), 5)
        loadings = jnp.asarray(rng.normal(size=(3, 1)))

        def total(shift):
            return jnp.sum(model.log_likelihood({"loadings": loadings, "offset": jnp.ones(3) + shift}, batch))

        value, slope = jax.jit(total), jax.jit(jax.grad(total))(0.0)
        assert float(slope) == pytest.approx(float(value(1e-4) - value(-1e-4)) / 2e-4, rel=1e-5)


def with_known_factors(outcome, z, x):
    """Loadings by a regression of every column on the factors themselves, which nobody has."""
    design = np.column_stack([z, np.ones(len(z))])

    def regress(column):
        return optimize.minimize(lambda w: -densities(outcome, column, design @ w).sum(), np.zeros(3)).x[:2]

    return np.stack([regress(column) for column in x.T])


@pytest.mark.slow
@pytest.mark.parametrize("outcome", ["normal", "binary", "poisson"])
def test_planted_subspaces_are_found_and_the_bound_rises(outcome):
    """Binary entries say little each: even regressions on the known factors miss the subspace by some degrees.

    So the angle is compared with theirs: not to know the factors costs less than as much again.
    """
    with jax.enable_x64(True):
        rng = np.random.default_rng(2)
        loadings, z = rng.normal(size=(30, 2)), rng.normal(size=(1000, 2))
        eta = z @ loadings.T + 0.5
        if outcome == "normal":
            x, most = eta + 0.5 * rng.normal(size=eta.shape), 2.0
        else:
            x = 1.0 * (
                rng.random(eta.shape) < 1 / (1 + np.exp(-eta))
                if outcome == "binary"
                else rng.poisson(np.logaddexp(0, eta))
            )
            most = 2.0 * angle(with_known_factors(outcome, z, x), loadings)
        pca = mx.fit(PCA(2, outcome), x, mx.infer.CoordinateAscent(100, tolerance=0.0), key=0, progress=False)
        elbos = pca.record.info["iterate"]["elbo"]
        assert angle(pca.loadings(), loadings) < most
        assert np.diff(elbos, axis=1).min() > -1e-10 * np.abs(elbos).max()  # rounding


@pytest.mark.slow
@pytest.mark.parametrize("outcome", ["normal", "binary", "poisson"])
def test_intervals_of_missing_entries_cover(outcome):
    """Of whole numbers an interval of 90% holds at least as much with its ends, and at most as much without them."""
    rng = np.random.default_rng(5)
    eta = rng.normal(size=(500, 2)) @ rng.normal(size=(12, 2)).T + 1.0
    draws = {
        "normal": eta + 0.5 * rng.normal(size=eta.shape),
        "binary": 1.0 * (rng.random(eta.shape) < 1 / (1 + np.exp(-eta))),
        "poisson": 1.0 * rng.poisson(np.logaddexp(0, eta)),
    }
    x, mask = draws[outcome], rng.random(eta.shape) < 0.8
    data = {"x": x, "mask": mask}
    pca = mx.fit(PCA(2, outcome), data, mx.infer.CoordinateAscent(100), key=0, progress=False)
    mean, lower, upper = pca.impute(data, 0.9, key=1)
    error = 4.9 * np.sqrt(0.09 / (~mask).sum()) + 0.01  # of the share, and for the draws that the ends come from
    closed, inner = ((lower <= x) & (x <= upper))[~mask].mean(), ((lower < x) & (x < upper))[~mask].mean()
    assert inner - error < 0.9 < closed + error
    assert closed - inner < error or outcome != "normal"
    np.testing.assert_allclose(mean[mask], x[mask], rtol=1e-5)
    missed, chance = x[~mask] - mean[~mask], mean[~mask]
    assert abs(missed.mean()) < 4.9 * missed.std() / np.sqrt(len(missed))
    if outcome == "binary":  # what is said to be likely is so, and what is said to be unlikely is not
        for part in np.digitize(chance, np.quantile(chance, [1 / 3, 2 / 3])) == np.arange(3)[:, None]:
            assert abs(missed[part].mean()) < 4.9 * missed[part].std() / np.sqrt(part.sum()) + 0.01


@pytest.mark.slow
def test_the_number_of_factors_with_the_best_bound_is_the_planted_one():
    _, x = planted(200, seed=3)
    method = mx.infer.CoordinateAscent(200)
    bounds = [mx.fit(PCA(q), x, method, key=0, progress=False).elbo for q in (1, 2, 3)]
    assert np.argmax(bounds) == 1


def test_mistakes_are_named():
    with pytest.raises(ValueError, match=r'NaN in row 1: pass {"x": ..., "mask": ...} if an entry is missing'):
        mx.fit(PCA(1), np.array([[0.0, 1.0], [np.nan, 2.0]]), mx.infer.EM(), key=0)
    with pytest.raises(ValueError, match="must hold 0 and 1"):
        mx.fit(PCA(1, "binary"), np.array([[0.0, 2.0], [1.0, 1.0]]), mx.infer.EM(), key=0)
    with pytest.raises(ValueError, match="num_factors must be at most 2 for data 3 x 2, got 5"):
        mx.fit(PCA(5), np.zeros((3, 2)), mx.infer.EM(), key=0)
    with pytest.raises(ValueError, match="counts, whole numbers >= 0, for outcome='poisson', got -1 at least"):
        mx.fit(PCA(1, "poisson"), np.array([[0.0, 2.0], [-1.0, 1.0]]), mx.infer.EM(), key=0)
    with pytest.raises(ValueError, match="outcome must be one of 'normal', 'binary', 'poisson', got 'gamma'"):
        PCA(1, "gamma")


@pytest.mark.parametrize("outcome", ["binary", "poisson"])
def test_what_is_for_noise_is_refused_where_there_is_none(outcome):
    with pytest.raises(ValueError, match="noise_scale is for outcome='normal'"):
        PCA(2, outcome, noise_scale=0.3)
    with pytest.raises(ValueError, match="centre_of is for outcome='normal'"):
        PCA(2, outcome, centre_of=np.zeros(3))


def test_counts_of_tiny_rates_have_finite_bounds_and_little_curvature():
    eta = jnp.array([[-110.0, -90.0, -20.0, -14.5, -9.0]])
    counts = jnp.full_like(eta, 3.0)
    entries = ENTRIES["poisson"]
    for x in (0 * counts, counts):
        assert all(jnp.isfinite(part).all() for part in entries.bound(x, eta, eta**2))
    assert float(entries.curvature(counts, eta).max()) < 1e-3
