"""Evidential heads: their losses are those of the papers, and they say that they are no posteriors."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import marginax as mx
from marginax.model.likelihoods.evidential import divergence_from_uniform

CLASSES, NUMBERS = mx.likelihoods.EvidentialCategorical, mx.likelihoods.EvidentialGaussian


def check_class_loss():
    """Expected squared error and divergence, both by draws of the Dirichlet distribution."""
    rng = np.random.default_rng(0)
    output, label, weight = rng.normal(size=3), 1, 0.7
    alpha = 1 + np.log1p(np.exp(output))
    target = np.eye(3)[label]
    draws = rng.dirichlet(alpha, size=400_000)
    squares = np.sum((target - draws) ** 2, axis=1)
    misleading = np.where(target == 1, 1.0, alpha)
    others = rng.dirichlet(misleading, size=400_000)
    log_ratio = stats.dirichlet(misleading).logpdf(others.T) - stats.dirichlet(np.ones(3)).logpdf(np.ones(3) / 3)
    found = CLASSES(weight).log_prob(jnp.asarray(output)[None], jnp.array([label]), {})
    error = np.sqrt((squares.var() + weight**2 * log_ratio.var()) / 400_000)
    assert abs(-float(found[0]) - (squares.mean() + weight * log_ratio.mean())) < 4.9 * error


def check_number_loss():
    """Student's t by a normal whose variance is drawn, and the penalty of the paper."""
    output, y, weight = np.array([0.3, 0.5, 0.2, -0.4]), 1.7, 0.2
    softplus = np.log1p(np.exp(output))
    location, nu, alpha, beta = output[0], softplus[1], 1 + softplus[2], softplus[3]
    rng = np.random.default_rng(0)
    variance = beta / rng.gamma(alpha, size=2_000_000)
    densities = stats.norm(location, np.sqrt(variance * (1 + 1 / nu))).pdf(y)
    error = densities.std() / densities.mean() / np.sqrt(len(densities))
    found = float(NUMBERS(weight).log_prob(jnp.asarray(output)[None], jnp.array([y]), {})[0])
    expected = np.log(densities.mean()) - weight * abs(y - location) * (2 * nu + alpha)
    assert abs(found - expected) < 4.9 * error + 1e-5


def test_the_loss_of_classes_is_that_of_the_paper():
    check_class_loss()


def test_the_loss_of_numbers_is_that_of_the_paper():
    check_number_loss()


def test_claims_are_moments_of_the_belief():
    """The variance of the mean under the normal-inverse-gamma distribution; evidence counted for classes."""
    output = jnp.array([[0.3, 0.5, 2.0, -0.4]])
    _, nu, alpha, beta = (float(np.ravel(value)[0]) for value in NUMBERS().normal_inverse_gamma(output))
    rng = np.random.default_rng(0)
    variance = beta / rng.gamma(alpha, size=1_000_000)
    np.testing.assert_allclose(NUMBERS().claimed_epistemic(output)[0, 0], (variance / nu).mean(), rtol=0.02)
    np.testing.assert_allclose(CLASSES().claimed_epistemic(jnp.full((1, 4), -40.0)), 1.0, rtol=1e-5)
    assert divergence_from_uniform(jnp.array([3.0, 1.0])) > 0


def rows():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 2)).astype(np.float32)
    return x, (x[:, 0] > 0).astype(np.int32), (x[:, 0] + 0.1 * rng.normal(size=100)).astype(np.float32)


@pytest.mark.parametrize("likelihood", [CLASSES(), NUMBERS()], ids=["classes", "numbers"])
def test_it_learns_and_says_what_it_is(likelihood, tmp_path):
    x, labels, numbers = rows()
    is_class = isinstance(likelihood, CLASSES)
    y = labels if is_class else numbers
    model = mx.Model(mx.nets.MLP(2, (8,), 2 if is_class else 4, key=0), likelihood)
    posterior = mx.fit(model, (x, y), mx.infer.MAP(num_epochs=500, batch_size=None), key=0, progress=False)
    prediction = posterior.predict(x)
    if is_class:
        assert (prediction.labels == y).mean() > 0.9
        assert prediction.mutual_information.max() < 1e-5  # nothing between networks: there is one
    else:
        assert np.mean((prediction.mean - y) ** 2) < 0.1
        assert prediction.epistemic.max() < 1e-6
    text = str(posterior.summary())
    assert "no likelihood of data" in text
    assert "evidential heads have no posterior" in text
    with pytest.raises(TypeError, match="no likelihood of data"):
        mx.evaluate.loo(posterior, (x, y))
    posterior.save(tmp_path / "run")
    np.testing.assert_array_equal(mx.load(tmp_path / "run").predict(x).log_prob(y), prediction.log_prob(y))


def test_what_the_head_claims_does_not_shrink_with_data_as_knowledge_does():
    """The criticism, measured: a hundred times the rows, while the variance of a mean falls a hundredfold."""
    claims = []
    for num in (20, 2000):
        y = np.random.default_rng(0).normal(size=num).astype(np.float32)
        model = mx.Model(mx.nets.Intercept(4), NUMBERS(), mx.priors.Normal(3.0))
        fit = mx.infer.MAP(num_epochs=2000, batch_size=None)
        posterior = mx.fit(model, (np.zeros((num, 1), np.float32), y), fit, key=0, progress=False)
        output = model.network_of(jax_first(posterior.params))(None)
        claims.append(float(NUMBERS().claimed_epistemic(output[None])[0, 0]))
    assert claims[1] > 0.1 * claims[0]


def jax_first(params):
    import jax

    return jax.tree.map(lambda leaf: jnp.asarray(leaf)[0, 0], params)


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="weight must be >= 0"):
        CLASSES(-1.0)
    with pytest.raises(ValueError, match="needs four per target"):
        NUMBERS().num_targets(6)
    with pytest.raises(ValueError, match="at least 2 outputs"):
        CLASSES().num_targets(1)
