"""Principal components: the closed form, planted subspaces, and intervals of missing entries that cover."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import marginax as mx
from marginax.data import Batch, FullBatch
from marginax.latent import PCA


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


@pytest.mark.slow
@pytest.mark.parametrize("outcome", ["normal", "binary"])
def test_planted_subspaces_are_found_and_the_bound_rises(outcome):
    with jax.enable_x64(True):
        loadings, x = planted(300) if outcome == "normal" else planted(2000, size=40, noise=0.0)
        if outcome == "binary":
            x = (np.random.default_rng(2).random(x.shape) < 1 / (1 + np.exp(0.5 * (3.0 - x)))).astype(float)
        pca = mx.fit(PCA(2, outcome), x, mx.infer.CoordinateAscent(200, tolerance=1e-9), key=0, progress=False)
        assert angle(pca.loadings(), loadings) < (3 if outcome == "normal" else 8)
        assert np.diff(pca.record.info["iterate"]["elbo"], axis=1).min() > -1e-6 * len(x)


@pytest.mark.slow
def test_intervals_of_missing_entries_cover():
    _, x = planted(400, seed=5)
    mask = np.random.default_rng(6).random(x.shape) < 0.8
    pca = mx.fit(PCA(2), {"x": x, "mask": mask}, mx.infer.CoordinateAscent(300), key=0, progress=False)
    mean, lower, upper = pca.impute({"x": x, "mask": mask}, 0.9, key=1)
    inside = ((lower < x) & (x < upper))[~mask].mean()
    assert abs(inside - 0.9) < 4.9 * np.sqrt(0.09 / (~mask).sum()) + 0.02
    np.testing.assert_allclose(mean[mask], x[mask], rtol=1e-5)
    assert np.corrcoef(mean[~mask], x[~mask])[0, 1] > 0.9


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
