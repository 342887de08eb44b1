"""SWAG: snapshots against NumPy, the stationary law of SGD on a quadratic, chains as a mixture."""

import equinox as eqx
import jax
import numpy as np
import pytest

import marginax as mx
from marginax import testing
from marginax.curvature import DiagonalCovariance, LowRankCovariance
from marginax.data import FullBatch
from marginax.infer import MAP, SWAG

NUM, BATCH = 20, 5
PROBLEM = testing.gaussian_mean(num_examples=NUM)


def wander(method: SWAG, problem, num_steps: int):
    """Snapshots of a run, taken by hand, and its last state."""
    batch = FullBatch(problem.data).batch(0, key=jax.random.key(0))
    state = method.init(problem.model, problem.unflatten(problem.mean + 1.0), batch, key=jax.random.key(0))
    step = eqx.filter_jit(lambda state: method.step(problem.model, state, batch, key=jax.random.key(1))[0])
    snapshots = []
    for i in range(num_steps):
        state = step(state)
        if (i + 1) % (method.every or 20) == 0:
            snapshots.append(problem.flatten(state.params))
    return np.stack(snapshots), jax.tree.map(lambda leaf: leaf[None], state)


@pytest.mark.parametrize("rank", [0, 4, 30])
def test_moments_are_those_of_the_snapshots(rank):
    problem = testing.linear_regression(3)
    method = SWAG(rank, 12, every=3, learning_rate=0.01, momentum=0.5, batch_size=None, training=None)
    snapshots, state = wander(method, problem, 36)
    posterior = method.posterior(problem.model, state, None, {})
    np.testing.assert_allclose(problem.flatten(posterior.mean), snapshots.mean(axis=0), rtol=1e-4)
    variances = snapshots.var(axis=0)
    assert variances.min() > 1e-4
    if not rank:
        assert isinstance(posterior.covariance, DiagonalCovariance)
        np.testing.assert_allclose(posterior.covariance.variances(), variances, rtol=1e-3)
        return
    assert isinstance(posterior.covariance, LowRankCovariance)
    running = np.cumsum(snapshots, axis=0) / np.arange(1, 13)[:, None]
    last = (snapshots - running)[-rank:]
    wanted = 0.5 * np.diag(variances) + 0.5 * last.T @ last / (len(last) - 1)
    np.testing.assert_allclose(posterior.covariance.dense(), wanted, rtol=2e-3, atol=1e-6)


def test_diagonal_has_the_stationary_variance_of_sgd_on_a_quadratic():
    r"""$\delta \leftarrow (1 - a h) \delta - a \xi$ has the variance $a C / (h (2 - a h))$ (Lyapunov)."""
    rate = 0.05
    bend = 1.0 / (NUM * PROBLEM.covariance[0, 0])  # h, of the mean loss per example
    noise = (PROBLEM.y / 0.5**2).var() / BATCH  # C, of its gradient on rows drawn with replacement
    exact = rate * noise / (bend * (2 - rate * bend))
    method = SWAG(0, 4000, every=20, learning_rate=rate, momentum=0.0, batch_size=BATCH, training=None)
    source = testing.IndependentBatches(PROBLEM.data, BATCH)
    start = mx.posterior.Draws(
        model=PROBLEM.model,
        params=jax.tree.map(lambda leaf: np.asarray(leaf)[None, None], PROBLEM.unflatten(PROBLEM.mode)),
    )
    posterior = mx.fit(PROBLEM.model, source, method, key=0, num_chains=8, init=start, progress=False)
    found = np.array([part.covariance.variances()[0] for part in posterior.components])
    means = np.array([PROBLEM.flatten(part.mean)[0] for part in posterior.components])
    decay = (1 - rate * bend) ** 20
    num = 8 * 4000 * (1 - decay**2) / (1 + decay**2)  # effective snapshots of the variance
    assert abs(found.mean() / exact - 1) < 4.9 * np.sqrt(2 / num)
    num = 8 * 4000 * (1 - decay) / (1 + decay)
    assert abs(means.mean() - PROBLEM.mean[0]) < 4.9 * np.sqrt(exact / num)


@pytest.mark.slow
def test_chains_are_a_mixture_and_predictions_are_good():
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=(200, 1))
    y = np.sin(2 * x[:, 0]) + 0.1 * rng.normal(size=200)
    model = mx.Model(mx.nets.MLP(1, (20,), 1, activation=jax.nn.tanh, key=0), mx.likelihoods.Gaussian(0.2))
    method = SWAG(10, 20, training=MAP(num_epochs=200, batch_size=32))
    posterior = mx.fit(model, mx.data.standardise((x, y)), method, key=0, num_chains=2)
    assert len(posterior.components) == 2
    assert set(posterior.record.num_steps) == {"train", "curvature", "collect"}
    prediction = posterior.predict(x)
    plain = mx.fit(model, mx.data.standardise((x, y)), method.training, key=0, num_chains=2).predict(x)
    error, error_of_start = (np.sqrt(np.mean((p.mean - np.sin(2 * x[:, 0])) ** 2)) for p in (prediction, plain))
    assert error < 1.05 * error_of_start < 0.2
    assert prediction.epistemic.min() > 0
    again = mx.fit(model, mx.data.standardise((x, y)), SWAG(num_snapshots=5, rank=3), init=posterior, key=1)
    assert set(again.record.num_steps) == {"curvature", "collect"}


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: SWAG(rank=1), ValueError, "rank must be 0"),
        (lambda: SWAG(num_snapshots=1), ValueError, "num_snapshots must be"),
        (lambda: SWAG(every=0), ValueError, "every must be"),
        (lambda: SWAG(learning_rate=0.0), ValueError, "learning_rate must be > 0"),
        (lambda: SWAG(momentum=1.0), ValueError, "momentum must be in"),
    ],
)
def test_bad_settings_are_refused(make, error, match):
    with pytest.raises(error, match=match):
        make()
