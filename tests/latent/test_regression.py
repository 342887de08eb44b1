"""Linear and logistic regression: exact posteriors and evidence, Student's t, and quadrature."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import marginax as mx
from marginax import testing
from marginax.latent import LinearRegression, LogisticRegression

ONCE = mx.infer.CoordinateAscent(2)


@pytest.mark.parametrize(("wide", "error"), [(True, 1e-6), (False, 1e-4)])
def test_known_noise_gives_the_normal_posterior_its_evidence_and_its_predictive(wide, error):
    with jax.enable_x64(wide):
        problem = testing.linear_regression(5, condition_number=10.0)
        model = LinearRegression(problem.prior_scale, problem.noise_scale, intercept=False)
        posterior = mx.fit(model, (problem.x, problem.y), ONCE, key=0, progress=False)
        assert posterior.elbo == pytest.approx(problem.log_evidence, rel=error)
        mean, deviation = posterior.coefficients()
        np.testing.assert_allclose(mean, problem.mean, atol=error)
        np.testing.assert_allclose(deviation, np.sqrt(np.diag(problem.covariance)), rtol=error)
        exact, found = problem.predictive(problem.x_new), posterior.predict(problem.x_new)
        np.testing.assert_allclose(found.mean, exact.mean, atol=10 * error)
        np.testing.assert_allclose(found.epistemic_variance, exact.epistemic, rtol=10 * error)
        np.testing.assert_allclose(found.std**2 - found.epistemic_variance, exact.aleatoric, rtol=10 * error)


def rows(num=12, size=2, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(num, size))
    return x, x @ np.arange(1.0, 1.0 + size) + 0.5 + 0.4 * rng.normal(size=num)


def evidence(x, y, scale, shape, rate):
    """Of the normal-inverse-gamma model: all targets together are a multivariate t."""
    phi = np.column_stack([x, np.ones(len(x))])
    covariance = rate / shape * (np.eye(len(x)) + scale**2 * phi @ phi.T)
    return stats.multivariate_t(np.zeros(len(x)), covariance, df=2 * shape).logpdf(y)


def test_unknown_noise_gives_the_evidence_and_the_predictive_of_the_t_distribution(tmp_path):
    with jax.enable_x64(True):
        x, y = rows()
        model = LinearRegression(1.7, noise_shape=2.5, noise_rate=0.6)
        posterior = mx.fit(model, (x, y), ONCE, key=0, progress=False)
        prior = 1.7, 2.5, 0.6
        assert posterior.elbo == pytest.approx(evidence(x, y, *prior), abs=1e-8)
        x_new, y_new = rows(4, seed=1)
        prediction = posterior.predict(x_new)
        for row in range(4):
            both = np.vstack([x, x_new[row]]), np.append(y, y_new[row])
            wanted = evidence(*both, *prior) - evidence(x, y, *prior)
            assert float(prediction.log_prob(y_new)[row]) == pytest.approx(wanted, abs=1e-6)
        np.testing.assert_allclose(posterior.log_likelihood((x_new, y_new)), prediction.log_prob(y_new))
        belief = posterior.belief
        df, scale = 2 * float(belief["a"]), np.sqrt(float(belief["b"]) / float(belief["a"]))
        phi = np.column_stack([x_new, np.ones(4)])
        width = np.sqrt(1 + np.einsum("ne,ef,nf->n", phi, np.linalg.inv(belief["precision"][0]), phi))
        wanted = stats.t(df, phi @ belief["mean"][0], scale * width)
        np.testing.assert_allclose(prediction.quantile(0.95), wanted.ppf(0.95), rtol=1e-5)
        np.testing.assert_allclose(prediction.std, wanted.std(), rtol=1e-6)
        posterior.save(tmp_path / "line")
        np.testing.assert_array_equal(mx.load(tmp_path / "line").predict(x_new).mean, prediction.mean)


def test_draws_are_those_of_the_posterior_and_average_to_the_closed_form():
    with jax.enable_x64(True):
        x, y = rows()
        posterior = mx.fit(LinearRegression(), (x, y), ONCE, key=0, progress=False)
        draws = posterior.sample(20_000, key=1)
        a, b = float(posterior.belief["a"]), float(posterior.belief["b"])
        assert stats.kstest(np.exp(draws["log_precision"]), stats.gamma(a, scale=1 / b).cdf).pvalue > 1e-4
        mean, deviation = posterior.coefficients()
        width = deviation * np.sqrt((a - 1) / a)  # of a t distribution with 2a degrees of freedom
        for axis in range(3):
            law = stats.t(2 * a, mean[axis], width[axis])
            assert stats.kstest(np.asarray(draws["weights"])[:, 0, axis], law.cdf).pvalue > 1e-4
        exact, sampled = posterior.predict(x), posterior.predict(x, num_samples=20_000, key=2)
        np.testing.assert_allclose(sampled.mean, exact.mean, atol=4.9 * np.sqrt(exact.epistemic.max() / 20_000))
        np.testing.assert_allclose(sampled.std, exact.std, rtol=0.03)


def test_a_row_with_weight_two_is_two_rows():
    with jax.enable_x64(True):
        x, y = rows(6)
        weighted = mx.data.Arrays(x, y, weight=np.array([2.0, 1, 1, 1, 1, 1]))
        twice = np.vstack([x, x[:1]]), np.append(y, y[0])
        first, second = (mx.fit(LinearRegression(), data, ONCE, key=0, progress=False) for data in (weighted, twice))
        for found, wanted in zip(first.coefficients(), second.coefficients(), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-9)


def test_em_is_least_squares_and_maximum_likelihood():
    from sklearn.linear_model import LogisticRegression as Peer

    with jax.enable_x64(True):
        x, y = rows(30)
        line = mx.fit(LinearRegression(), (x, y), mx.infer.EM(5), key=0, progress=False)
        wanted = np.linalg.lstsq(np.column_stack([x, np.ones(30)]), y, rcond=None)[0]
        np.testing.assert_allclose(line.params["weights"][0, 0, 0], wanted, atol=1e-8)
        labels = (y + np.random.default_rng(3).normal(size=30) > 0.5).astype(int)
        found = mx.fit(LogisticRegression(), (x, labels), mx.infer.EM(2000, tolerance=1e-14), key=0, progress=False)
        peer = Peer(C=1e12, tol=1e-10, max_iter=10_000).fit(x, labels)
        np.testing.assert_allclose(found.params["weights"][0, 0, 0], [*peer.coef_[0], peer.intercept_[0]], atol=1e-4)


def logistic(method, **options):
    problem = testing.logistic_regression()
    model = LogisticRegression(problem.prior_scale, intercept=False)
    return problem, mx.fit(model, (problem.x, problem.y), method, key=0, progress=False, **options)


def jaakkola_jordan(problem):
    """The integral of prior and bounds, at the best bounds: the normal one of their paper, in NumPy."""
    x, prior, xi = problem.x.astype(float), np.eye(2) / problem.prior_scale**2, np.ones(len(problem.y))
    for _ in range(500):
        weight = np.tanh(xi / 2) / (2 * xi)
        precision = prior + (weight[:, None] * x).T @ x
        linear = x.T @ (problem.y - 0.5)
        covariance = np.linalg.inv(precision)
        mean = covariance @ linear
        constant = np.sum(0.5 * weight * xi**2 - 0.5 * xi - np.log1p(np.exp(-xi)))
        xi = np.sqrt(np.einsum("ne,ef,nf->n", x, covariance + np.outer(mean, mean), x))
    logs = np.linalg.slogdet(prior)[1] - np.linalg.slogdet(precision)[1]
    return constant + 0.5 * (linear @ mean + logs)


def test_the_bound_of_logistic_regression_is_just_below_its_evidence():
    with jax.enable_x64(True):
        problem, posterior = logistic(mx.infer.CoordinateAscent(100, tolerance=0.0))
        assert posterior.elbo == pytest.approx(jaakkola_jordan(problem), abs=1e-8)
        assert problem.log_evidence - 1.0 < posterior.elbo < problem.log_evidence
        assert np.diff(posterior.record.info["iterate"]["elbo"], axis=1).min() > -1e-12
        mean, deviation = posterior.coefficients()
        exact = np.sqrt(np.diag(problem.covariance))
        assert np.all(np.abs(mean - problem.mean) < 0.2 * exact)  # pulled to the prior
        assert np.all((deviation < exact) & (deviation > 0.5 * exact))  # a bound's posterior is too narrow
        probs = posterior.predict(problem.x_new, num_samples=4000).probs[:, 1]
        np.testing.assert_allclose(probs, problem.predictive(problem.x_new).mean, atol=0.02)


@pytest.mark.slow
def test_chains_find_the_exact_posterior_of_logistic_regression():
    problem, posterior = logistic(mx.infer.NUTS(num_warmup=500, num_samples=3000), num_chains=4)
    draws = np.asarray(posterior.params["weights"], np.float64)[:, :, 0]
    testing.assert_moments_match(draws, problem.mean, problem.covariance)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: LinearRegression(-1.0), r"prior_scale must be > 0 and finite, got -1.0"),
        (lambda: LinearRegression(noise_scale=0.0), r"noise_scale must be > 0 and finite, got 0.0"),
        (
            lambda: fitted(LogisticRegression(), np.zeros((3, 1)), [0, 1, 2]),
            r"y must hold labels 0 and 1, got \[0, 1, 2\]",
        ),
        (lambda: fitted(LinearRegression(), np.zeros((3, 1)), np.zeros((3, 2))), r"y must have shape \(n,\)"),
        (lambda: fitted(LinearRegression(), [[np.nan], [1.0]], [0.0, 1.0]), "x .*NaN"),
    ],
)
def test_mistakes_are_named(call, text):
    with pytest.raises(ValueError, match=text):
        call()


def fitted(model, x, y):
    return mx.fit(model, (np.asarray(x, float), jnp.asarray(y)), ONCE, key=0)


def test_targets_whose_squares_lose_the_noise_are_refused_in_single_precision():
    x = np.linspace(-1, 1, 30)[:, None]
    y = 2 * x[:, 0] + 1 + 0.1 * np.sin(40 * x[:, 0])
    model = LinearRegression(1e5)
    with pytest.raises(ValueError, match="subtract its mean"):
        mx.fit(model, (x, y + 1e4), ONCE, key=0, progress=False)
    near = mx.fit(model, (x, y), ONCE, key=0, progress=False).predict(x).std
    with jax.enable_x64(True):
        far = mx.fit(model, (x, y + 1e3), ONCE, key=0, progress=False).predict(x).std
    np.testing.assert_allclose(near, far, rtol=0.02)
