"""Strengths of augmentation by evidence: exact where the model is linear, found where the data are invariant."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax.curvature import GGN, Dense
from marginax.infer.laplace.passes import Passes
from marginax.infer.laplace.strengths import LearnedStrengths, evidence_part, strengths_of, with_strengths

KEY = jax.random.key(0)
TIMES, NOISE = 8, 0.3
VIEWS = np.array([1, 3, 5]) / 3 - 1  # the middles of three equal parts, from -1 to 1


def _series(num, seed=0):
    return np.random.default_rng(seed).normal(size=(num, TIMES, 1)).astype(np.float32)


def _features(x, largest):
    """Of averaged series, by NumPy in float64; and the 1 of the bias."""
    times = np.arange(TIMES)
    shifted = [[np.interp(times - largest * view, times, row[:, 0].astype(float)) for row in x] for view in VIEWS]
    return np.concatenate([np.mean(shifted, axis=0), np.ones((len(x), 1))], axis=1)


def _log_evidence(x, y, largest):
    features = _features(x, largest)
    covariance = features @ features.T + NOISE**2 * np.eye(len(x))
    _, log_det = np.linalg.slogdet(2 * np.pi * covariance)
    return -0.5 * (log_det + y @ np.linalg.solve(covariance, y))


def _model(largest):
    net = eqx.nn.Sequential([eqx.nn.Lambda(jnp.ravel), mx.nets.MLP(TIMES, (), 1, key=0)])
    model = mx.Model(net, mx.likelihoods.Gaussian(scale=NOISE), mx.priors.Normal(1.0))
    return mx.augment(model, mx.data.TimeShift(largest), num_views=3, fresh=False)


@pytest.fixture(scope="module")
def linear():
    x = _series(24)
    y = _features(x, 2.0) @ np.random.default_rng(1).normal(size=TIMES + 1)
    y = (y + NOISE * np.random.default_rng(2).normal(size=24)).astype(np.float32)
    training = mx.infer.MAP(batch_size=None, optimiser=mx.infer.LBFGS())
    posterior = mx.fit(_model(1.3), (x, y), mx.infer.Laplace(structure=Dense(), training=training), key=0)
    return x, y, posterior


def test_the_evidence_is_that_of_averaged_features(linear):
    x, y, posterior = linear
    np.testing.assert_allclose(posterior.log_evidence(), _log_evidence(x, y, 1.3), rtol=2e-4)
    assert abs(_log_evidence(x, y, 1.3) - _log_evidence(x, y, 0.0)) > 0.5  # averaging matters here


def _slope(posterior, batch):
    model, params = posterior.model, posterior.mean
    passes = Passes.of(Dense(), mx.All(), GGN())
    covariance = posterior.mode.curvature.covariance(posterior.mode.precision(model, params))

    def part(log):
        moved = with_strengths(model, LearnedStrengths((log,), None))
        return evidence_part(passes, moved, params, covariance, batch, key=KEY)

    return float(jax.jit(jax.grad(part))(jnp.zeros(())))


def test_the_gradient_is_the_derivative_of_the_exact_evidence_and_batches_are_unbiased(linear):
    x, y, posterior = linear
    step = 1e-4
    truth = (_log_evidence(x, y, 1.3 * np.exp(step)) - _log_evidence(x, y, 1.3 * np.exp(-step))) / (2 * step)
    assert abs(truth) > 0.1
    found = _slope(posterior, mx.data.FullBatch((x, y)).batch(0, key=KEY))
    np.testing.assert_allclose(found, truth, rtol=5e-3)
    source = mx.data.Minibatches((x, y), batch_size=8)
    parts = [_slope(posterior, source.batch(step, key=KEY)) for step in range(3)]
    np.testing.assert_allclose(np.mean(parts), truth, rtol=5e-3)
    assert np.ptp(parts) > 1e-2


def _best_log_evidence(x, y, largest):
    """Over factors of the prior's variance, too, which the rule chooses besides."""
    features, factors = _features(x, largest), np.exp(np.linspace(-4, 4, 65))

    def one(factor):
        covariance = factor * features @ features.T + NOISE**2 * np.eye(len(x))
        return -0.5 * (np.linalg.slogdet(2 * np.pi * covariance)[1] + y @ np.linalg.solve(covariance, y))

    return max(map(one, factors))


def test_strengths_go_where_the_exact_evidence_is_largest():
    """They grow where shifts matter little, and stay small where a shift by one step would change the sign."""
    x, rng = _series(40), np.random.default_rng(3)
    training = mx.infer.MAP(num_epochs=4000, batch_size=None, optimiser=mx.infer.Adam(0.02))
    tuning = mx.infer.Online(10, strengths=mx.infer.Strengths(0.1, num_epochs=8))
    method = mx.infer.Laplace(structure=Dense(), training=training, tuning=tuning)
    targets = {"smooth": _features(x, 1.5)[:, 3:5].sum(1), "sharp": x[:, 3, 0] - x[:, 4, 0]}
    found = {}
    for name, target in targets.items():
        y = (target / target.std() + NOISE * rng.normal(size=40)).astype(np.float32)
        posterior = mx.fit(_model(0.15), (x, y), method, key=0)
        (found[name],) = (float(value) for value in strengths_of(posterior.model).values())
        best = max(_best_log_evidence(x, y, largest) for largest in np.linspace(0.02, 1.4, 70))
        assert _best_log_evidence(x, y, found[name]) > best - 0.4
        assert posterior.record.info["strengths (1)"]["objective"].shape == (1, 8)
    assert found["smooth"] > 0.9
    assert found["sharp"] < 0.15


def test_views_that_are_alike_leave_kronecker_factors_as_they_are():
    x = _series(12)
    net = eqx.nn.Sequential([eqx.nn.Lambda(jnp.ravel), mx.nets.MLP(TIMES, (3,), 1, activation=jnp.tanh, key=0)])
    plain = mx.Model(net, mx.likelihoods.Gaussian(scale=NOISE), mx.priors.Normal(1.0))
    views = mx.augment(plain, mx.data.TimeShift(1e-6), num_views=3, fresh=False)
    one, other = (
        mx.fit(model, (x, np.sin(x[:, 0, 0])), mx.infer.Laplace(), init=model.network, key=0).log_evidence()
        for model in (plain, views)
    )
    np.testing.assert_allclose(one, other, rtol=1e-4)


def test_what_cannot_be_learned_is_refused():
    tuning = mx.infer.Online(1, strengths=mx.infer.Strengths())
    method = mx.infer.Laplace(structure=Dense(), tuning=tuning, training=mx.infer.MAP(num_epochs=1))
    data = (_series(6), np.zeros(6))
    plain = mx.Model(_model(1.0).network.network, mx.likelihoods.Gaussian(scale=NOISE), mx.priors.Normal(1.0))
    with pytest.raises(ValueError, match="strengths need a model whose transforms have some"):
        mx.fit(plain, data, method, key=0)
    with pytest.raises(ValueError, match="TimeShift/max must be > 0 where it is learned"):
        mx.fit(_model(0.0), data, method, key=0)
    with pytest.raises(ValueError, match="learning_rate must be > 0"):
        mx.infer.Strengths(learning_rate=0.0)
