"""Every distribution against scipy.stats, over wide ranges of parameters, in float32."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats as st
from scipy.special import gammaln

from marginax.model import Outcome, tails
from marginax.model import distributions as d

Q = np.array([1e-6, 1e-3, 0.05, 0.3, 0.5, 0.7, 0.95, 0.999])
LOCS, SCALES = [-3e3, 0.0, 2.5], [1e-6, 0.3, 1.0, 1e5]
SHAPES = [0.05, 0.5, 1.0, 2.5, 9.0, 45.0, 300.0, 1e4, 1e6]
DFS = [0.3, 1.0, 2.0, 3.5, 12.0, 19.9, 20.1, 200.0, 1e4, 1e7]


def _grid(*axes):
    return [np.float32(a).astype(float) for a in np.meshgrid(*axes, indexing="ij")]


def _cases():
    loc, scale = _grid([0.0], SCALES)
    yield "Normal", d.Normal(loc, scale), st.norm(loc, scale)
    yield "Laplace", d.Laplace(loc, scale), st.laplace(loc, scale)
    loc, scale = _grid([-3.0, 0.0, 2.0], [0.1, 1.0, 4.0])
    yield "LogNormal", d.LogNormal(loc, scale), st.lognorm(scale, scale=np.exp(loc))
    df, scale = _grid(DFS, SCALES)
    yield "StudentT", d.StudentT(df, np.zeros_like(df), scale), st.t(df, scale=scale)
    (scale,) = _grid(SCALES)
    yield "HalfNormal", d.HalfNormal(scale), st.halfnorm(scale=scale)
    yield "HalfCauchy", d.HalfCauchy(scale), st.halfcauchy(scale=scale)
    shape, scale = _grid(SHAPES, [1e-3, 1.0, 50.0])
    yield "Gamma", d.Gamma(shape, scale), st.gamma(shape, scale=1 / scale)
    yield "InverseGamma", d.InverseGamma(shape, scale), st.invgamma(shape, scale=scale)


@eqx.filter_jit
def _jitted(dist, name, value):
    return getattr(dist, name)(value)


@eqx.filter_jit
def _sample(dist, seed, num):
    return dist.sample(jax.random.key(seed), (num,))


def _call(dist, name, value):
    return np.asarray(_jitted(dist, name, jnp.asarray(value)), float)


CONTINUOUS = [pytest.param(ours, theirs, id=name) for name, ours, theirs in _cases()]


def _values(theirs):
    """Quantiles of the exact distribution, rounded to float32, where float32 can hold them."""
    with np.errstate(over="ignore", under="ignore"):
        values = np.stack([theirs.ppf(q) for q in Q]).astype(np.float32)
    return values, np.isfinite(values) & (np.abs(values) < 1e30) & ((values == 0) | (np.abs(values) > 1e-30))


@pytest.mark.parametrize(("ours", "theirs"), CONTINUOUS)
def test_log_prob_matches_scipy(ours, theirs):
    values, usable = _values(theirs)
    usable &= values != 0
    got, want = _call(ours, "log_prob", values), theirs.logpdf(values.astype(float))
    with np.errstate(invalid="ignore"):
        error = np.abs(got - want) / (1 + np.abs(want))
    # Rounding a value in its last place moves its standardised value by that times value / std.
    spread = theirs.ppf(0.84) - theirs.ppf(0.16)
    conditioning = 1e-6 * (1 + 10 * np.abs(values.astype(float)) / spread)
    assert np.max(np.where(usable, error / (1e-5 + conditioning), 0)) < 1


@pytest.mark.parametrize(("ours", "theirs"), CONTINUOUS)
def test_cdf_matches_scipy(ours, theirs):
    values, usable = _values(theirs)
    got, want = _call(ours, "cdf", values), theirs.cdf(values.astype(float))
    spread = theirs.ppf(0.84) - theirs.ppf(0.16)
    tolerance = 3e-6 + 3e-7 * np.abs(values.astype(float)) / spread
    assert np.max(np.where(usable, np.abs(got - want) / tolerance, 0)) < 1
    assert np.all(np.where(usable, (got >= 0) & (got <= 1), True))


@pytest.mark.parametrize(("ours", "theirs"), CONTINUOUS)
def test_icdf_matches_scipy(ours, theirs):
    want, usable = _values(theirs)
    got = np.stack([_call(ours, "icdf", np.float32(q)) for q in Q])
    exact = np.stack([theirs.ppf(float(np.float32(q))) for q in Q])
    back = theirs.cdf(got)
    q = Q.reshape(-1, *[1] * (want.ndim - 1)).astype(np.float32)
    spread = theirs.ppf(0.84) - theirs.ppf(0.16)
    close = np.abs(got - exact) < 2e-5 * spread + 1e-6 * np.abs(exact)
    assert np.all(np.where(usable, close | (np.abs(back - q) < 3e-6), True))


@pytest.mark.parametrize(("ours", "theirs"), CONTINUOUS)
def test_moments_match_scipy(ours, theirs):
    with np.errstate(all="ignore"):
        mean, variance = theirs.stats("mv")
    ours_mean, ours_variance = np.asarray(ours.mean, float), np.asarray(ours.variance, float)
    finite = np.isfinite(mean) & (np.abs(mean) < 1e38)
    np.testing.assert_allclose(ours_mean[finite], mean[finite], rtol=1e-5)
    finite = np.isfinite(variance) & (variance < 1e38) & (variance > 1e-37)
    np.testing.assert_allclose(ours_variance[finite], variance[finite], rtol=2e-5)
    assert not np.isnan(ours_variance).any()


@pytest.mark.parametrize(("ours", "theirs"), CONTINUOUS)
def test_samples_follow_the_cdf(ours, theirs):
    # jax.random.gamma in float32 underflows to zero below concentrations of about 0.1: leave those out.
    uniform = theirs.cdf(np.asarray(_sample(ours, 0, 400), float))
    usable = np.ones(uniform.shape[1:], bool)
    if isinstance(ours, d.Gamma | d.InverseGamma):
        usable = np.asarray(ours.concentration) > 0.1
    pooled = uniform[:, usable].ravel()
    assert st.kstest(pooled, "uniform").pvalue > 1e-3
    assert np.abs(uniform[:, usable].mean(0) - 0.5).max() < 4.9 * np.sqrt(1 / 12 / 400)


@pytest.mark.parametrize("x64", [False, True])
def test_poisson_matches_scipy(x64):
    with jax.enable_x64(x64):
        dtype = np.float64 if x64 else np.float32
        rate = np.array([0.0, 1e-8, 0.3, 4.0, 40.0, 700.0, 2e4, 1e6], dtype).astype(float)
        k = np.round(rate + np.sqrt(rate) * np.array([-6, -2, -1, 0, 1, 2, 6])[:, None]).clip(0)
        k = np.concatenate([k, np.broadcast_to(np.array([0, 1, 7, 15, 60])[:, None], (5, 8))])
        tolerance = 1e-9 if x64 else 3e-6
        got = _call(d.Poisson(rate), "log_prob", k)
        np.testing.assert_allclose(got, st.poisson.logpmf(k, rate), rtol=tolerance, atol=8 * tolerance)
        excess = np.abs(_call(d.Poisson(rate), "cdf", k) - st.poisson.cdf(k, rate))
        assert np.max(excess / (3e-9 if x64 else 6e-6 + 2e-8 * np.sqrt(rate))) < 1
    assert _call(d.Poisson(2.0), "log_prob", -1.0) == -np.inf
    assert _call(d.Poisson(2.0), "cdf", -0.5) == 0
    np.testing.assert_allclose(_call(d.Poisson(2.0), "cdf", 1.5), st.poisson.cdf(1, 2), rtol=1e-6)


def test_poisson_samples_have_the_right_moments():
    rate = jnp.array([0.2, 3.0, 80.0])
    draws = np.asarray(_sample(d.Poisson(rate), 1, 20_000), float)
    z = (draws.mean(0) - rate) / np.sqrt(np.asarray(rate) / 20_000)
    assert np.abs(z).max() < 4.9
    np.testing.assert_allclose(draws.var(0), rate, rtol=0.06)


def test_bernoulli_matches_its_definition_at_extreme_logits():
    logits = np.array([-150.0, -20.0, -1.0, 0.0, 3.0, 30.0, 150.0])
    ours = d.Bernoulli(logits)
    np.testing.assert_allclose(ours.log_prob(1), -np.logaddexp(0, -logits), rtol=1e-6, atol=1e-40)
    np.testing.assert_allclose(ours.log_prob(0), -np.logaddexp(0, logits), rtol=1e-6, atol=1e-40)
    p = 1 / (1 + np.exp(-logits))
    np.testing.assert_allclose(ours.mean, p, rtol=1e-6, atol=1e-37)
    np.testing.assert_allclose(ours.variance, p * (1 - p), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(ours.cdf(0.5), 1 - p, rtol=1e-5, atol=1e-7)
    assert ours.cdf(-1).tolist() == [0.0] * 7
    assert ours.cdf(1).tolist() == [1.0] * 7
    draws = _sample(ours, 0, 4000)
    assert jnp.issubdtype(draws.dtype, jnp.integer)
    assert np.abs(draws.mean(0) - p).max() < 4.9 * 0.5 / np.sqrt(4000)


def test_categorical_log_prob_and_frequencies():
    logits = np.random.default_rng(0).normal(size=(5, 3)) * 3
    ours = d.Categorical(logits)
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    labels = np.array([0, 1, 2, 2, 1])
    np.testing.assert_allclose(ours.log_prob(labels), np.log(p[np.arange(5), labels]), rtol=1e-5)
    np.testing.assert_allclose(ours.probs, p, rtol=1e-5)
    draws = np.asarray(_sample(ours, 0, 8000))
    assert draws.shape == (8000, 5)
    frequency = np.stack([(draws == k).mean(0) for k in range(3)], -1)
    assert np.abs((frequency - p) / np.sqrt(p * (1 - p) / 8000)).max() < 4.9
    assert ours.log_prob(np.zeros((4, 5), int)).shape == (4, 5)


@pytest.mark.parametrize("family", [d.Normal, d.Laplace, lambda loc, scale: d.StudentT(3.0, loc, scale)])
@pytest.mark.parametrize("factor", [2.5, -0.4])
def test_affine_is_the_law_of_shift_plus_factor_times_y(family, factor):
    before, y = family(0.7, 1.3), np.linspace(-4, 4, 9)
    after = before.affine(-5.0, factor)
    np.testing.assert_allclose(after.log_prob(-5 + factor * y), before.log_prob(y) - np.log(abs(factor)), rtol=2e-5)
    cdf = before.cdf(y) if factor > 0 else 1 - before.cdf(y)
    np.testing.assert_allclose(after.cdf(-5 + factor * y), cdf, atol=1e-6)


@pytest.mark.parametrize(
    ("ours", "exact"),
    [
        (d.Normal(0.0, 1.0), st.norm.logpdf),
        (d.StudentT(3.0, 0.0, 1.0), st.t(3).logpdf),
        (d.Laplace(0.0, 1.0), lambda v: -v - np.log(2)),
        (d.HalfCauchy(1.0), st.halfcauchy.logpdf),
    ],
)
def test_far_tails_stay_finite_and_right(ours, exact):
    for v in [1e4, 1e12, 1e18]:
        np.testing.assert_allclose(ours.log_prob(np.float32(v)), exact(v), rtol=1e-5)
    assert np.isfinite(jax.grad(lambda v: ours.log_prob(v))(1e18))


def test_positive_distributions_are_zero_below_zero_with_finite_gradients():
    for ours in [
        d.HalfNormal(1.0),
        d.HalfCauchy(1.0),
        d.LogNormal(0.0, 1.0),
        d.Gamma(2.0, 1.0),
        d.InverseGamma(2.0, 1.0),
    ]:
        assert _call(ours, "log_prob", -1.0) == -np.inf
        assert _call(ours, "cdf", -1.0) == 0
        gradient = jax.jit(jax.grad(lambda dist, v: jnp.sum(jnp.where(v > 0, dist.log_prob(v), 0))))(
            ours, jnp.array([-1.0, 0.0, 2.0])
        )
        assert all(np.isfinite(g) for g in jax.tree.leaves(gradient))


@pytest.mark.parametrize(
    "make",
    [
        lambda a, b: d.Normal(a, b),
        lambda a, b: d.StudentT(b + 1, a, b),
        lambda a, b: d.Laplace(a, b),
        lambda a, b: d.Poisson(b),
        lambda a, b: d.Gamma(b, b + 1),
        lambda a, b: d.InverseGamma(b, b + 1),
        lambda a, b: d.LogNormal(a, b),
        lambda a, b: d.HalfNormal(b),
        lambda a, b: d.HalfCauchy(b),
        lambda a, b: d.Bernoulli(a),
    ],
)
def test_gradients_match_finite_differences(make):
    y = np.array([0.0, 1.0, 3.0]) + (0 if make(0.0, 1.0).outcome is not Outcome.REAL else 0.37)

    def total(a, b):
        return jnp.sum(make(a, b).log_prob(jnp.asarray(y)))

    @jax.jit
    @jax.vmap
    def compare(a, b):
        h = 1e-5
        ends = jnp.array([[a + h, a - h, a, a], [b, b, b + h, b - h]])
        f = jax.vmap(total)(*ends)
        return jnp.stack(jax.grad(total, (0, 1))(a, b)), jnp.stack([f[0] - f[1], f[2] - f[3]]) / (2 * h)

    with jax.enable_x64(True):
        got, want = compare(jnp.array([0.3, -1.0, 2.0]), jnp.array([0.7, 2.0, 30.0]))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-7)


def test_quantile_gradients():
    for ours in [d.Normal(1.0, 2.0), d.StudentT(3.0, 1.0, 2.0), d.Laplace(1.0, 2.0)]:
        value, slope = jax.jit(jax.value_and_grad(lambda q, o=ours: o.icdf(q)))(0.8)
        np.testing.assert_allclose(slope, np.exp(-_call(ours, "log_prob", value)), rtol=1e-4)


def test_broadcasting_and_vmap():
    stack = d.Normal(jnp.zeros((4, 3)), jnp.ones(3))
    assert stack.sample(jax.random.key(0), (2,)).shape == (2, 4, 3)
    assert stack.variance.shape == (4, 3)
    mapped = jax.jit(jax.vmap(lambda loc: d.StudentT(5, loc, 1.0).log_prob(0.0)))(jnp.arange(3.0))
    np.testing.assert_allclose(mapped, st.t.logpdf(0, 5, np.arange(3)), rtol=1e-5)
    assert d.Gamma(2, 1).mean.dtype == jnp.float32
    assert d.Normal(jnp.zeros(2, jnp.bfloat16), 1.0).log_prob(jnp.zeros(2, jnp.bfloat16)).dtype == jnp.bfloat16


def test_changing_a_number_does_not_recompile():
    count = 0

    @eqx.filter_jit
    def log_prob(dist, v):
        nonlocal count
        count += 1
        return dist.log_prob(v)

    for scale in [1.0, 2.0, 3.0]:
        log_prob(d.Normal(0.0, scale), jnp.ones(3))
    assert count == 1


def test_student_tail_in_float64_and_its_gradients():
    with jax.enable_x64(True):
        df, z = (
            jnp.asarray(a) for a in np.meshgrid([0.05, 0.7, 1, 2, 4, 9.3, 20, 21, 500], [0, 1e-3, 0.5, 1, 2, 5, 1e3])
        )
        sf = jax.jit(tails.student_sf)
        exact = st.t.sf(np.asarray(z), np.asarray(df))
        np.testing.assert_allclose(sf(df, z), exact, atol=2e-11)
        assert np.all(sf(df[0], jnp.full_like(df[0], jnp.inf)) < 0.02)
        small = np.asarray(df) <= 20
        np.testing.assert_allclose(np.asarray(sf(df, z))[small], exact[small], rtol=1e-11)
        slope = jax.jit(jax.vmap(jax.vmap(jax.grad(tails.student_sf, (0, 1)))))(df, z)
        np.testing.assert_allclose(slope[1], -st.t.pdf(np.asarray(z), np.asarray(df)), rtol=1e-9, atol=1e-10)
        h = 1e-5
        np.testing.assert_allclose(slope[0], (sf(df + h, z) - sf(df - h, z)) / (2 * h), rtol=1e-5, atol=1e-6)


def test_missing_methods_say_what_is_missing():
    class OnlyLogProb(d.AbstractDistribution):
        def log_prob(self, value):
            return -jnp.abs(value)

    with pytest.raises(NotImplementedError, match="OnlyLogProb has no cdf"):
        OnlyLogProb().cdf(0.0)
    with pytest.raises(NotImplementedError, match="Poisson has no icdf"):
        d.Poisson(1.0).icdf(0.5)


def test_log_gamma_ratio_in_float32():
    x = np.array([0.05, 1.0, 9.9, 10.1, 1e3])
    np.testing.assert_allclose(
        jax.jit(tails.log_gamma_ratio)(jnp.asarray(x)), gammaln(x + 0.5) - gammaln(x), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(jax.jit(tails.log_gamma_ratio)(jnp.asarray(1e8)), 0.5 * np.log(1e8), rtol=1e-6)
