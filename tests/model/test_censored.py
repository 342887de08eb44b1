"""Targets known only to lie between bounds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import marginax as mx
from marginax.model.likelihoods.censored import CensoredGaussian, log_interval

INF = np.inf


@pytest.mark.parametrize("low", [-9.0, -1.0, 0.0, 2.0, 9.0])
@pytest.mark.parametrize("width", [1e-4, 9e-4, 1.1e-3, 0.1, 3.0])
def test_the_probability_of_an_interval_is_exact_in_the_tails(low, width):
    low, high = np.float32(low), np.float32(low) + np.float32(width)
    exact = norm.logsf(float(low)) + np.log(-np.expm1(norm.logsf(float(high)) - norm.logsf(float(low))))
    if low < 0:
        exact = norm.logcdf(float(high)) + np.log(-np.expm1(norm.logcdf(float(low)) - norm.logcdf(float(high))))
    width = float(high) - float(low)  # as float32 has it
    digits = 1e-5 * max(1.0, abs(exact)) + 1e-6 * abs(float(low)) / width
    assert abs(float(log_interval(jnp.asarray(low), jnp.asarray(high))) - exact) < digits + 2e-3 * (width < 2e-3)


def test_seen_larger_smaller_and_between():
    y = np.array([[0.3, 0.3], [1.0, INF], [-INF, 1.0], [-0.5, 2.0]], np.float32)
    output = jnp.array([[0.1], [-0.4], [3.0], [0.2]])
    f, s = np.asarray(output)[:, 0], 0.7
    exact = [
        norm.logpdf(0.3, f[0], s),
        norm.logsf(1.0, f[1], s),
        norm.logcdf(1.0, f[2], s),
        np.log(norm.cdf(2.0, f[3], s) - norm.cdf(-0.5, f[3], s)),
    ]
    likelihood = CensoredGaussian(scale=s)
    np.testing.assert_allclose(likelihood.log_prob(output, jnp.asarray(y), {}), exact, rtol=1e-5)
    slope = jax.grad(lambda o: likelihood.log_prob(o, jnp.asarray(y), {}).sum())(output * 30)
    assert np.isfinite(slope).all()
    assert (np.asarray(slope)[:3, 0] != 0).all()


def line(seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, size=(600, 1))
    y = 50 + 20 * x[:, 0] + rng.normal(scale=10, size=600)
    limit = 55.0  # nothing beyond it can be read
    return x, np.stack([np.minimum(y, limit), np.where(y > limit, INF, y)], 1)


def slope_of(likelihood, data):
    model = mx.Model(mx.nets.MLP(1, (), 1, key=0), likelihood, prior=mx.priors.Normal(scale=10.0))
    posterior = mx.fit(
        model, data, mx.infer.MAP(num_epochs=300, optimiser=mx.infer.LBFGS(), batch_size=None), key=0, progress=False
    )
    low, high = posterior.predict(np.array([[-1.0], [1.0]])).mean
    return posterior, (high - low) / 2


def test_what_was_cut_off_is_recovered():
    x, y = line()
    posterior, slope = slope_of(CensoredGaussian(), mx.data.standardise((x, y), bounds=True))
    _, cut = slope_of(mx.likelihoods.Gaussian(), mx.data.standardise((x, y[:, 0])))
    error = 10 / np.sqrt(600 * np.var(x))  # of least squares with all values: a little too small
    assert abs(slope - 20) < 4 * error
    assert cut < 20 - 12 * error
    prediction = posterior.predict(x[:3])
    assert prediction.mean.shape == (3,)
    assert prediction.std.mean() == pytest.approx(10, rel=0.15)


def test_bounds_that_cannot_be_meant_are_refused():
    x, y = line()
    model = mx.Model(mx.nets.MLP(1, (), 1, key=0), CensoredGaussian())
    fit = lambda data: mx.fit(model, data, mx.infer.MAP(), key=0, progress=False)  # noqa: E731
    with pytest.raises(ValueError, match=r"pairs \(lower, upper\)"):
        fit((x, y[:, 0]))
    with pytest.raises(ValueError, match=r"lower <= upper, one of them finite, got \[60.0, 55.0\] in row 2"):
        fit((x, np.concatenate([np.zeros((2, 2)), [[60.0, 55.0]], np.zeros((597, 2))])))
    with pytest.raises(ValueError, match="one of them finite"):
        fit((x, np.tile([-INF, INF], (600, 1))))
    with pytest.raises(ValueError, match=r"pass bounds=True"):
        mx.data.standardise((x, y))
    closed = np.where(np.isfinite(y), y, 90.0)
    with pytest.raises(ValueError, match=r"column by column"):
        fit(mx.data.standardise((x, closed)))
    two = mx.Model(mx.nets.MLP(1, (), 2, key=0), mx.likelihoods.Gaussian())
    with pytest.raises(ValueError, match=r"y has infinite values: .* CensoredGaussian"):
        mx.fit(two, (x, y), mx.infer.MAP(), key=0, progress=False)
