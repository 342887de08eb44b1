"""Regression predictions against direct float64 computations with NumPy and SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.stats as st

from marginax.data import DataSpec, Scaling
from marginax.model import distributions as dist
from marginax.predict import RegressionPrediction, predict, root

S, N, D = 40, 7, 2


class Law:
    """A model whose draws are the parameters of the distribution themselves."""

    def __init__(self, family):
        self.family = family

    def predictive(self, params, x, *, key=None):
        return self.family(*(p + 0 * x[:, :1] for p in params))


NORMAL, LAPLACE, STUDENT, POISSON = Law(dist.Normal), Law(dist.Laplace), Law(dist.StudentT), Law(dist.Poisson)


def _params(seed=0, d=1):
    """Location and scale per draw, output; float32 numbers, so that the references see the same."""
    rng = np.random.default_rng(seed)
    loc = rng.normal(size=(S, d)) * 2
    scale = np.exp(rng.normal(size=(S, d)) * 0.5)
    return loc.astype(np.float32), scale.astype(np.float32)


def _x(n=N):
    return np.zeros((n, 1), np.float32)


def _spec(d=None, scaling=None):
    return DataSpec(x_shape=(1,), y_shape=() if d is None else (d,), num_examples=5, scaling=scaling)


def _weights(seed=1):
    log_weights = np.random.default_rng(seed).normal(size=S)
    w = np.exp(log_weights)
    return log_weights, w / w.sum()


CASES = {
    "normal": (NORMAL, lambda loc, s: (loc, s), lambda loc, s: st.norm(loc, s)),
    "laplace": (LAPLACE, lambda loc, s: (loc, s), lambda loc, s: st.laplace(loc, s)),
    "student": (STUDENT, lambda loc, s: (np.full_like(s, 3.5), loc, s), lambda loc, s: st.t(3.5, loc, s)),
    "poisson": (POISSON, lambda loc, s: (s * 4,), lambda loc, s: st.poisson(s.astype(float) * 4)),
}


@pytest.mark.parametrize("name", CASES)
def test_mixture_matches_direct_computation(name):
    model, make, theirs = CASES[name]
    loc, scale = _params()
    log_weights, w = _weights()
    prediction = predict(model, make(loc, scale), _x(), spec=_spec(), log_weights=log_weights)
    law = theirs(*(a[:, 0].astype(float) for a in (loc, scale)))

    mean = w @ law.mean()
    epistemic, aleatoric = w @ (law.mean() - mean) ** 2, w @ law.var()
    np.testing.assert_allclose(prediction.mean, np.full(N, mean), rtol=1e-9)
    np.testing.assert_allclose(prediction.epistemic, np.full(N, epistemic), rtol=1e-9)
    np.testing.assert_allclose(prediction.aleatoric, np.full(N, aleatoric), rtol=1e-7)
    np.testing.assert_allclose(prediction.variance, prediction.epistemic + prediction.aleatoric, rtol=1e-12)
    np.testing.assert_allclose(prediction.std**2, prediction.variance, rtol=1e-12)

    y = np.arange(N) * 1.0 - (0 if name == "poisson" else 3)
    np.testing.assert_allclose(prediction.cdf(y), [w @ law.cdf(v) for v in y], rtol=1e-7, atol=1e-10)
    density = law.pmf if name == "poisson" else law.pdf
    np.testing.assert_allclose(prediction.log_prob(y), [np.log(w @ density(v)) for v in y], rtol=1e-7)


@pytest.mark.parametrize("name", ["normal", "laplace", pytest.param("student", marks=pytest.mark.slow)])
def test_quantiles_of_the_mixture(name):
    model, make, theirs = CASES[name]
    loc, scale = _params()
    log_weights, w = _weights()
    prediction = predict(model, make(loc, scale), _x(), spec=_spec(), log_weights=log_weights)
    law = theirs(*(a[:, 0].astype(float) for a in (loc, scale)))
    q = np.array([1e-6, 0.01, 0.3, 0.5, 0.95, 0.9999])
    exact = [scipy.optimize.brentq(lambda v, p=p: w @ law.cdf(v) - p, -1e4, 1e4, xtol=1e-12) for p in q]
    found = prediction.quantile(q)
    assert found.shape == (6, N)
    assert np.abs(found - np.array(exact)[:, None]).max() < 1e-5 * prediction.std[0]
    np.testing.assert_allclose(prediction.quantile(0.3), found[2], atol=1e-6)
    lower, upper = prediction.interval(0.9)
    np.testing.assert_allclose(prediction.cdf(lower), 0.05, atol=1e-8)
    np.testing.assert_allclose(prediction.cdf(upper), 0.95, atol=1e-8)


def test_quantiles_of_counts_are_the_smallest_count_that_reaches_q():
    rate = _params()[1] * 4
    rate[:2] = [[1e-3], [3e3]]
    prediction = predict(POISSON, (rate,), _x(), spec=_spec())
    counts = np.arange(5000)
    cdf = st.poisson.cdf(counts[:, None], rate[:, 0].astype(float)).mean(1)
    for q in [0.001, 0.1, 0.5, 0.9, 0.99]:
        assert prediction.quantile(q).tolist() == [int(np.argmax(cdf >= q))] * N


def test_quantiles_of_narrow_separated_components():
    loc = np.repeat([0.0, 1.0, 1e3], [10, 10, 20]).astype(np.float32)[:, None]
    prediction = predict(NORMAL, (loc, np.full((S, 1), 1e-4, np.float32)), _x(), spec=_spec())
    found = prediction.quantile([1 / 8, 3 / 8, 3 / 4])
    assert np.abs(found - np.array([[0.0], [1.0], [1e3]])).max() < 1e-5


def test_a_quantile_whose_inverse_is_quadratic_is_found_by_the_second_step(monkeypatch):
    """Of sqrt(y) it is q^2: one bisection makes a third point, and interpolation through three is exact."""
    monkeypatch.setattr(root, "_MAX_STEPS", 2)
    q = jnp.array([0.3, 0.45])
    found = root.find_quantile(jnp.sqrt, q, jnp.full(2, 0.35), jnp.full(2, 0.2))
    np.testing.assert_allclose(found, q**2, rtol=1e-5)


@pytest.mark.slow
def test_quantiles_of_heavy_tails_without_moments():
    loc, scale = (np.repeat(pair, S // 2).astype(np.float32)[:, None] for pair in ([0, 50], [1, 3]))
    prediction = predict(STUDENT, (np.ones_like(loc), loc, scale), _x(), spec=_spec())
    assert np.all(np.isnan(prediction.mean))
    assert np.all(np.isinf(prediction.variance))
    q = np.array([1e-4, 0.05, 0.5, 0.99])
    found = prediction.quantile(q)
    mixture = 0.5 * st.cauchy.cdf(found, 0, 1) + 0.5 * st.cauchy.cdf(found, 50, 3)
    np.testing.assert_allclose(mixture, np.repeat(q[:, None], N, 1), rtol=1e-6)


def test_infinite_variance_is_infinite_and_not_nan():
    loc, scale = _params()
    prediction = predict(STUDENT, (np.full_like(loc, 1.5), loc, scale), _x(), spec=_spec())
    assert np.all(np.isinf(prediction.variance))
    assert np.all(np.isinf(prediction.std))
    assert np.all(np.isinf(prediction.aleatoric))
    np.testing.assert_allclose(prediction.mean, loc.mean(dtype=float), rtol=1e-6)
    assert np.all(np.isfinite(prediction.interval(0.9)))
    assert np.all(np.isinf(np.diagonal(prediction.covariance, axis1=1, axis2=2)))


@pytest.mark.parametrize("name", ["normal", "student"])
def test_a_single_draw_is_its_likelihood(name):
    model, make, theirs = CASES[name]
    loc, scale = (a[:1] for a in _params())
    prediction = predict(model, make(loc, scale), _x(2), spec=_spec())
    law = theirs(loc.astype(float), scale.astype(float))
    np.testing.assert_allclose(prediction.quantile(0.975), law.ppf(0.975).item(), rtol=1e-7)
    np.testing.assert_allclose(prediction.mean, law.mean().item(), rtol=1e-7)
    np.testing.assert_allclose(prediction.std, law.std().item(), rtol=1e-6)
    assert np.all(prediction.epistemic == 0)
    np.testing.assert_allclose(prediction.log_prob(np.full(2, 0.3)), law.logpdf(0.3).item(), rtol=1e-6)


def test_outputs_are_joint_within_a_draw():
    loc, scale = _params(d=D)
    log_weights, w = _weights()
    prediction = predict(NORMAL, (loc, scale), _x(), spec=_spec(D), log_weights=log_weights)
    assert prediction.mean.shape == (N, D)
    assert prediction.quantile([0.1, 0.5, 0.9]).shape == (3, N, D)
    assert prediction.sample(4, key=0).shape == (4, N, D)
    y = np.random.default_rng(3).normal(size=(N, D))
    pdf = st.norm(loc.astype(float), scale.astype(float)).pdf(y[:, None]).prod(-1)
    np.testing.assert_allclose(prediction.log_prob(y), np.log(pdf @ w), rtol=1e-9)
    expected = np.cov(loc.astype(float).T, aweights=w, ddof=0) + np.diag(w @ scale.astype(float) ** 2)
    np.testing.assert_allclose(prediction.covariance, np.broadcast_to(expected, (N, D, D)), rtol=1e-9)
    diagonal = np.diagonal(prediction.covariance, axis1=1, axis2=2)
    np.testing.assert_allclose(diagonal, prediction.variance, rtol=1e-12)


def test_a_target_vector_of_length_one_keeps_its_axis():
    prediction = predict(NORMAL, _params(), _x(), spec=_spec(1))
    assert prediction.mean.shape == (N, 1)
    assert prediction.covariance.shape == (N, 1, 1)
    assert prediction.cdf(np.zeros((N, 1))).shape == (N, 1)
    assert prediction.log_prob(np.zeros((N, 1))).shape == (N,)


def test_standardisation_is_undone_everywhere():
    shift, factor = np.array([1e4, -2.0]), np.array([3.0, 0.01])
    scaling = Scaling(np.zeros(1), np.ones(1), shift, factor)
    loc, scale = _params(d=D)
    plain = predict(NORMAL, (loc, scale), _x(), spec=_spec(D))
    prediction = predict(NORMAL, (loc, scale), _x(), spec=_spec(D, scaling))
    z = np.random.default_rng(3).normal(size=(N, D))
    y = shift + factor * z
    np.testing.assert_allclose(prediction.mean, shift + factor * plain.mean, rtol=1e-12)
    np.testing.assert_allclose(prediction.std, factor * plain.std, rtol=1e-12)
    np.testing.assert_allclose(prediction.epistemic + prediction.aleatoric, prediction.variance, rtol=1e-12)
    np.testing.assert_allclose(prediction.quantile(0.2), shift + factor * plain.quantile(0.2), rtol=1e-12)
    np.testing.assert_allclose(prediction.cdf(y), plain.cdf(z), rtol=1e-6)
    np.testing.assert_allclose(prediction.log_prob(y), plain.log_prob(z) - np.log(factor).sum(), rtol=1e-6)
    np.testing.assert_allclose(prediction.covariance, plain.covariance * np.outer(factor, factor), rtol=1e-12)
    np.testing.assert_allclose(prediction.sample(5, key=2), shift + factor * plain.sample(5, key=2), rtol=1e-12)
    np.testing.assert_allclose(prediction.components.loc, shift + factor * loc[:, None] + 0 * z, rtol=1e-5)


def test_inputs_are_standardised():
    class Identity:
        def predictive(self, params, x, *, key=None):
            return dist.Normal(params * x, 1.0)

    scaling = Scaling(np.array([5.0]), np.array([2.0]))
    x = np.array([[5.0], [9.0]])
    prediction = predict(Identity(), np.ones(3, np.float32), x, spec=_spec(None, scaling))
    assert prediction.mean.tolist() == [0.0, 2.0]


@pytest.mark.parametrize("name", ["normal", "student", "poisson"])
def test_samples_have_the_moments_of_the_mixture(name):
    model, make, _ = CASES[name]
    params = make(*_params())
    if name == "student":
        params = (
            np.full_like(params[0], 12.0),
            *params[1:],
        )  # a fourth moment, for the error of the variance
    log_weights, _ = _weights()
    prediction = predict(model, params, _x(), spec=_spec(), log_weights=log_weights)
    num = 10_000
    samples = prediction.sample(num, key=jax.random.key(5))
    assert samples.shape == (num, N)
    assert np.issubdtype(samples.dtype, np.integer) == (name == "poisson")
    z = (samples.mean(0) - prediction.mean) / (prediction.std / np.sqrt(num))
    assert np.abs(z).max() < 4.9
    squares = (samples - prediction.mean) ** 2
    z = (squares.mean(0) - prediction.variance) / (squares.std(0) / np.sqrt(num))
    assert np.abs(z).max() < 4.9
    between = np.cov(samples.T)[0, 1]  # all inputs share the draw, so its uncertainty is common to them
    error = np.std((samples[:, 0] - samples[:, 0].mean()) * (samples[:, 1] - samples[:, 1].mean())) / np.sqrt(num)
    assert np.abs(between - prediction.epistemic[0]) / error < 4.9


def test_draws_of_weight_zero_do_not_count():
    loc, scale = np.full((S, 1), np.inf, np.float32), np.ones((S, 1), np.float32)
    loc[0] = 1.0
    log_weights = np.where(np.arange(S) == 0, 3.0, -np.inf)
    prediction = predict(NORMAL, (loc, scale), _x(), spec=_spec(), log_weights=log_weights)
    assert prediction.mean.tolist() == [1.0] * N
    assert prediction.variance.tolist() == [1.0] * N


def test_indexing_over_inputs():
    class Line:
        def predictive(self, params, x, *, key=None):
            return dist.Normal(params * x, 0.3)

    prediction = predict(Line(), np.arange(4.0), np.arange(6.0)[:, None], spec=_spec())
    assert repr(prediction) == "RegressionPrediction(n=6, outputs=1, draws=4)"
    assert len(prediction[2:5]) == 3
    np.testing.assert_allclose(prediction[2:5].mean, prediction.mean[2:5])
    np.testing.assert_allclose(prediction[[4, 0]].mean, prediction.mean[[4, 0]])
    np.testing.assert_allclose(prediction[-1].log_prob([7.0]), prediction.log_prob(np.full(6, 7.0))[-1:])
    mask = prediction.mean > 5
    assert len(prediction[mask]) == mask.sum()
    with pytest.raises(IndexError, match="at least one of the 6 inputs"):
        prediction[6:]


def test_a_distribution_with_only_log_prob_says_what_is_missing():
    class Bare(dist.AbstractDistribution):
        centre: jax.Array

        def log_prob(self, value):
            return -jnp.abs(value - self.centre)

    class Model:
        def predictive(self, params, x, *, key=None):
            return Bare(params + 0 * x)

    prediction = predict(Model(), np.zeros(2, np.float32), _x(3), spec=_spec())
    np.testing.assert_allclose(prediction.log_prob(np.array([0.0, 1.0, -2.0])), [0, -1, -2], atol=1e-12)
    for use, name in [
        (lambda p: p.mean, "mean"),
        (lambda p: p.quantile(0.5), "cdf"),
        (lambda p: p.cdf(np.zeros(3)), "cdf"),
        (lambda p: p.aleatoric, "variance"),
        (lambda p: p.sample(2, key=0), "sample"),
    ]:
        with pytest.raises(NotImplementedError, match=f"Bare has no {name}"):
            use(prediction)


def test_bad_arguments_are_named():
    prediction = predict(NORMAL, _params(), _x(), spec=_spec())
    assert isinstance(prediction, RegressionPrediction)
    with pytest.raises(ValueError, match=r"q must be .* strictly between 0 and 1"):
        prediction.quantile(1.0)
    with pytest.raises(ValueError, match="level must be a number strictly between 0 and 1"):
        prediction.interval(1.5)
    with pytest.raises(ValueError, match=r"y must have shape \(7,\)"):
        prediction.log_prob(np.zeros((N, 1)))
    with pytest.raises(ValueError, match="y must hold numbers"):
        prediction.cdf(np.array(["a"] * N))
    with pytest.raises(ValueError, match="num must be an int >= 1"):
        prediction.sample(0, key=0)
