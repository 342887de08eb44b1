"""NUTS on normal posteriors, compared in Monte Carlo standard errors; its adaptation windows are Stan's."""

import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax.infer import NUTS
from marginax.infer.nuts import adaptation_windows
from marginax.posterior.chains import diagnose


def test_draws_match_the_exact_posterior_of_a_linear_regression():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2)) @ np.array([[1.0, 0.9], [0.0, 0.3]])
    y = x @ np.array([1.0, -1.0]) + 0.5 * rng.normal(size=40)
    model = mx.Model(
        (jnp.zeros(2), lambda w, v: (w @ v)[None]), mx.likelihoods.Gaussian(scale=0.5), mx.priors.Normal(scale=1.0)
    )
    posterior = mx.fit(model, (x, y), NUTS(num_warmup=400, num_samples=5000), key=0)
    draws = np.asarray(posterior.params.network.params, np.float64)
    precision = x.T @ x / 0.25 + np.eye(2)
    covariance = np.linalg.inv(precision)
    mean = covariance @ x.T @ y / 0.25
    centred = draws - mean
    moments = np.concatenate([centred, centred**2, centred[..., :1] * centred[..., 1:]], axis=-1)
    exact = np.concatenate([np.zeros(2), np.diag(covariance), covariance[0, 1:]])
    for quantity, truth in zip(np.moveaxis(moments, -1, 0), exact, strict=True):
        r_hat, ess = diagnose(quantity[..., None])
        assert r_hat < 1.02
        assert ess > 3000
        assert abs(quantity.mean() - truth) < 4.9 * quantity.std() / np.sqrt(ess)
    assert not posterior.record.info["sample"]["diverging"].any()
    assert 0.75 < posterior.record.info["sample"]["acceptance"].mean() < 0.97


@pytest.mark.parametrize("num", [1, 7, 20, 150, 151, 500, 1000])
def test_windows_end_once_and_leave_the_last_steps_to_the_step_size(num):
    slow, ends = adaptation_windows(num)
    assert len(slow) == len(ends) == num
    if num >= 20:
        last = np.flatnonzero(ends)[-1]
        assert slow[last]
        assert not slow[last + 1 :].any()
        assert slow.sum() == np.flatnonzero(slow)[-1] - np.flatnonzero(slow)[0] + 1


@pytest.mark.parametrize(
    ("kwargs", "match"),
    [({"num_samples": 0}, "num_samples must be"), ({"target_acceptance": 1.0}, "target_acceptance must be in")],
)
def test_bad_budgets_are_refused(kwargs, match):
    with pytest.raises(ValueError, match=match):
        NUTS(**kwargs)
