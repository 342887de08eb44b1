"""LOO and WAIC against ArviZ, exact leave-one-out, and the prediction itself."""

import arviz
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats as st

import marginax as mx
from marginax.curvature import DiagonalCovariance
from marginax.data import DataSpec, standardise
from marginax.data.scaling import Scaling
from marginax.evaluate import loo, waic
from marginax.posterior import Draws, Gaussian, Mixture

N = 30
SPEC = DataSpec(x_shape=(2,), y_shape=(), num_examples=N)
MODEL = mx.Model(mx.nets.MLP(2, (), 1, key=0), mx.likelihoods.Gaussian(scale=0.7))


def _data(seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(N, 2)).astype(np.float32)
    return x, (x @ [0.5, -1.0] + 0.7 * rng.normal(size=N)).astype(np.float32)


def _draws(num_chains, num_draws, *, spec=SPEC, model=MODEL, correlation=0.0, centre=(0.5, -1.0, 0.0), seed=1):
    """Chains of the weights and the bias, with autocorrelation."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(num_chains, num_draws, 3))
    for t in range(1, num_draws):
        noise[:, t] = correlation * noise[:, t - 1] + np.sqrt(1 - correlation**2) * noise[:, t]
    values = (np.array(centre) + 0.05 * noise).astype(np.float32)
    weight, bias = values[:, :, None, :2], values[:, :, 2:]
    params = jax.tree.unflatten(jax.tree.structure(model.initial(1)), [weight, bias])
    return Draws(model, params, spec), values


def _log_likelihood(values, x, y):
    """Axes (chain, draw, row), by SciPy."""
    mean = values[..., :2].astype(float) @ x.T.astype(float) + values[..., 2:].astype(float)
    return st.norm.logpdf(y.astype(float), mean, 0.7)


def _inference_data(values, log_likelihood):
    if len(values) > 4:  # independent draws: one long chain
        values, log_likelihood = np.swapaxes(values, 0, 1), np.swapaxes(log_likelihood, 0, 1)
    return arviz.from_dict(posterior={"w": values}, log_likelihood={"y": log_likelihood})


def test_independent_draws_match_arviz():
    posterior, values = _draws(1000, 1)
    x, y = _data()
    data = _inference_data(values, _log_likelihood(values, x, y))
    ours, theirs = loo(posterior, (x, y)), arviz.loo(data, reff=1.0, pointwise=True)
    np.testing.assert_allclose(float(ours), theirs["elpd_loo"], rtol=1e-6)
    np.testing.assert_allclose(ours.standard_error, theirs["se"], rtol=1e-5)
    np.testing.assert_allclose(ours.num_effective, theirs["p_loo"], rtol=1e-5)
    np.testing.assert_allclose(ours.pointwise, theirs["loo_i"], rtol=1e-5)
    np.testing.assert_allclose(ours.pareto_k, theirs["pareto_k"], atol=1e-4)
    assert ours.most_k == pytest.approx(theirs["good_k"])
    assert ours.num == N
    ours, theirs = waic(posterior, (x, y)), arviz.waic(data, pointwise=True)
    np.testing.assert_allclose(float(ours), theirs["elpd_waic"], rtol=1e-6)
    np.testing.assert_allclose(ours.standard_error, theirs["se"], rtol=1e-5)
    np.testing.assert_allclose(ours.num_effective, theirs["p_waic"], rtol=1e-5)
    np.testing.assert_allclose(ours.pointwise, theirs["waic_i"], rtol=1e-5)


def test_chains_count_by_the_effective_size_of_each_rows_likelihood():
    posterior, values = _draws(4, 300, correlation=0.9)
    x, y = _data()
    ours = loo(posterior, (x, y))
    log_likelihood = _log_likelihood(values, x, y)
    plain = []
    for i in range(N):
        row = log_likelihood[:, :, i : i + 1]
        ess = float(arviz.ess(np.exp(row[..., 0]), method="mean"))
        assert ess < 400
        theirs = arviz.loo(_inference_data(values, row), reff=ess / 1200, pointwise=False)
        np.testing.assert_allclose(ours.pointwise[i], theirs["elpd_loo"], rtol=1e-5)
        plain.append(arviz.loo(_inference_data(values, row), reff=1.0, pointwise=False)["elpd_loo"])
    assert np.abs(ours.pointwise - plain).max() > 1e-5  # so the effective size did matter


def test_loo_is_near_the_exact_leave_one_out_of_a_conjugate_model():
    rng = np.random.default_rng(3)
    y = (1 + rng.normal(size=N)).astype(np.float32)
    x = np.zeros((N, 2), np.float32)
    model = mx.Model(mx.nets.MLP(2, (), 1, key=0), mx.likelihoods.Gaussian(scale=1.0))
    posterior, values = _draws(4000, 1, model=model, centre=(0.0, 0.0, 0.0))
    bias = y.mean() + rng.normal(size=(4000, 1, 1)) / np.sqrt(N)  # a flat prior
    params = jax.tree.unflatten(jax.tree.structure(posterior.params), [values[:, :, None, :2], bias.astype(np.float32)])
    found = loo(Draws(model, params, SPEC), (x, y))
    others = (y.sum() - y) / (N - 1)
    exact = st.norm.logpdf(y, others, np.sqrt(1 + 1 / (N - 1)))
    np.testing.assert_allclose(found.pointwise, exact, atol=0.05)
    assert abs(float(found) - exact.sum()) < 0.1
    own = st.norm.logpdf(y, y.mean(), np.sqrt(1 + 1 / N)).sum()
    assert abs(found.num_effective - (own - exact.sum())) < 0.1
    assert abs(float(waic(Draws(model, params, SPEC), (x, y))) - exact.sum()) < 0.15


@pytest.mark.parametrize("max_bytes", [256 * 2**20, 100_000])
def test_densities_are_those_of_the_prediction_in_the_units_of_the_data(max_bytes):
    scaling = Scaling(np.array([1.0, 2.0]), np.array([3.0, 0.5]), np.array(-4.0), np.array(10.0))
    spec = DataSpec(x_shape=(2,), y_shape=(), num_examples=N, scaling=scaling)
    posterior, _ = _draws(300, 1, spec=spec)
    x, y = _data()
    x, y = scaling.x_shift + scaling.x_factor * x, -4 + 10 * y
    found = loo(posterior, (x, y), max_bytes=max_bytes)
    density = posterior.predict(x).log_prob(y)
    np.testing.assert_allclose(found.value + found.num_effective, density.sum(), rtol=1e-6)
    criterion = waic(posterior, (x, y), max_bytes=max_bytes)
    np.testing.assert_allclose(criterion.pointwise + criterion.variances, density, rtol=1e-5)


def test_standardised_data_are_taken_as_they_were_fitted():
    x, y = _data()
    data = standardise((x, 5 * y))
    spec = DataSpec(x_shape=(2,), y_shape=(), num_examples=N, scaling=data.scaling)
    posterior, _ = _draws(200, 1, spec=spec)
    np.testing.assert_allclose(float(waic(posterior, data)), float(waic(posterior, (x, 5 * y))), rtol=1e-5)


@pytest.mark.parametrize("likelihood", ["classes", "labels", "counts"])
def test_other_targets_have_the_density_of_their_prediction(likelihood):
    rng = np.random.default_rng(0)
    x, _ = _data()
    kind, size, y = {
        "classes": (mx.likelihoods.Categorical(), 3, rng.integers(0, 3, N)),
        "labels": (mx.likelihoods.Bernoulli(), 2, rng.integers(0, 2, (N, 2))),
        "counts": (mx.likelihoods.Poisson(), 1, rng.poisson(1.0, N)),
    }[likelihood]
    model = mx.Model(mx.nets.MLP(2, (4,), size, key=0), kind)
    params = jax.tree.map(
        lambda leaf: np.float32(0.3 * leaf + 0.02 * rng.normal(size=(200, 1, *leaf.shape))), model.initial(size)
    )
    posterior = Draws(model, params, DataSpec(x_shape=(2,), y_shape=y.shape[1:], num_examples=N))
    found = waic(posterior, (x, y))
    np.testing.assert_allclose(found.pointwise + found.variances, posterior.predict(x).log_prob(y), rtol=1e-5)


def test_linearised_posteriors_draw_their_outputs():
    x, y = _data()
    model = mx.Model(mx.nets.MLP(2, (4,), 1, key=0), mx.likelihoods.Gaussian(scale=5.0))
    covariance = DiagonalCovariance(jnp.full(17, 0.05))
    posterior = Gaussian(model, model.initial(1), covariance, SPEC, predictive=mx.predict.Linearised())
    found = waic(posterior, (x, y), num_samples=20_000)
    np.testing.assert_allclose(found.pointwise + found.variances, posterior.predict(x).log_prob(y), rtol=1e-3)
    assert found.num_effective > 0


def test_draws_are_those_that_predictions_take():
    x, y = _data()
    model = mx.Model(mx.nets.MLP(2, (4,), 1, key=0), mx.likelihoods.Gaussian(scale=5.0))
    posterior = mx.fit(model, (x, y), mx.infer.MCDropout(rate=0.1, num_epochs=1), key=0)
    for num_samples in (None, 40):
        found = waic(posterior, (x, y), num_samples=num_samples)
        density = posterior.predict(x, num_samples=num_samples).log_prob(y)
        np.testing.assert_allclose(found.pointwise + found.variances, density, rtol=1e-5)
        assert found.num_effective > 0


def test_weights_of_a_mixture_count():
    (one, first), (other, second) = (
        _draws(400, 1, seed=seed, centre=(c, -1.0, 0.0)) for seed, c in ((1, 0.5), (2, 0.6))
    )
    posterior = Mixture((one, other), np.array([0.8, 0.2]), spec=SPEC)
    x, y = _data()
    w = np.repeat([0.8 / 400, 0.2 / 400], 400)
    log_likelihood = _log_likelihood(np.concatenate([first, second]), x, y)[:, 0]
    found = waic(posterior, (x, y))
    mean = w @ log_likelihood
    np.testing.assert_allclose(found.variances, w @ (log_likelihood - mean) ** 2, rtol=1e-4)
    crossed = loo(posterior, (x, y))
    weights, _ = arviz.psislw((np.log(w)[:, None] - log_likelihood).T)
    exact = np.logaddexp.reduce(weights + log_likelihood.T, axis=1)
    np.testing.assert_allclose(crossed.pointwise, exact, rtol=1e-4)


def test_an_outlier_is_warned_about():
    posterior, _ = _draws(500, 1)
    x, y = _data()
    x[7], y[7] = (6.0, 6.0), 15.0
    with pytest.warns(UserWarning, match=r"of 30 rows have Pareto k above 0.63 \(highest .*, row 7\)"):
        found = loo(posterior, (x, y))
    assert found.pareto_k[7] > 0.7
    with pytest.warns(UserWarning, match=r"variance over draws is more than 0.4 \(highest .*, row 7\): use loo"):
        waic(posterior, (x, y))


def test_bad_arguments_are_named():
    posterior, _ = _draws(4, 5)
    x, y = _data()
    with pytest.raises(ValueError, match=r"y must have shape \(30,\), as in the training data, got \(29,\)"):
        loo(posterior, (x, y[1:]))
    with pytest.raises(ValueError, match=r"x must have shape \(n, 2\)"):
        loo(posterior, (x[:, :1], y))
    with pytest.raises(ValueError, match="y has 1 values that are NaN"):
        waic(posterior, (x, np.where(np.arange(N) == 3, np.nan, y)))
    with pytest.raises(TypeError, match=r"data must be a pair \(x, y\), got ndarray"):
        waic(posterior, x)
    with pytest.raises(ValueError, match="has no data spec"):
        loo(Draws(MODEL, posterior.params), (x, y))
    with pytest.raises(ValueError, match=r"at least 2 draws to leave data out, got a single network"):
        loo(_draws(1, 1)[0], (x, y))
