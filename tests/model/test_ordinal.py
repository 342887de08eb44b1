"""Classes with an order: probabilities by hand, the prior of the cut points, and under every family of methods."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, special

import marginax as mx

ORDINAL = mx.likelihoods.Ordinal(num_classes=4)
UNKNOWNS = {"first_cut": jnp.array([-1.2]), "log_gaps": jnp.log(jnp.array([0.5, 2.0]))}
CUTS = np.array([-1.2, -0.7, 1.3])


def by_hand(f):
    below = special.expit(CUTS - f)
    return np.diff(np.concatenate([[0.0], below, [1.0]]))


@pytest.mark.parametrize("f", [-3.0, 0.0, 0.4, 6.0])
def test_probabilities_are_differences_of_the_logistic_function(f):
    found = ORDINAL.distribution(jnp.full((1, 1), f), UNKNOWNS)
    np.testing.assert_allclose(found.probs[0], by_hand(f), rtol=2e-5)
    np.testing.assert_allclose(jax.nn.logsumexp(found.logits), 0, atol=1e-6)
    labels = jnp.arange(4)
    found = ORDINAL.log_prob(jnp.full((4, 1), f), labels, UNKNOWNS)
    np.testing.assert_allclose(found, np.log(by_hand(f)), rtol=2e-5)


def test_far_outputs_have_finite_log_probabilities_and_slopes():
    for f in (-60.0, 60.0):
        log_prob = lambda f: jnp.sum(ORDINAL.distribution(f[None, None], UNKNOWNS).logits)  # noqa: E731
        assert np.isfinite(log_prob(jnp.array(f)))
        assert np.isfinite(jax.grad(log_prob)(jnp.array(f)))


def test_fisher_information_is_the_variance_of_the_score():
    for f in (-2.0, 0.3):
        scores = jax.jacobian(lambda f: ORDINAL.distribution(f[None, None], UNKNOWNS).logits[0])(jnp.array(f))
        exact = np.sum(by_hand(f) * np.asarray(scores) ** 2)
        np.testing.assert_allclose(ORDINAL.fisher(jnp.full((1, 1), f), UNKNOWNS)[0, 0, 0], exact, rtol=1e-4)


def test_prior_of_the_cut_points_is_flat_over_probabilities():
    """Three classes: the density integrates to one, and the mean probability of each class at f = 0 is a third."""
    three = mx.likelihoods.Ordinal(num_classes=3)
    first, gaps = np.meshgrid(np.linspace(-16, 16, 321), np.linspace(-14, 4, 361), indexing="ij")
    unknowns = {"first_cut": jnp.asarray(first)[..., None], "log_gaps": jnp.asarray(gaps)[..., None]}
    over = jax.vmap(jax.vmap(lambda u: (three.log_prior(u), three.distribution(jnp.zeros((1, 1)), u).probs[0])))
    log_prior, probs = over(unknowns)

    def total(values):
        inner = integrate.simpson(values, x=gaps[0], axis=1)
        return integrate.simpson(inner, x=first[:, 0], axis=0)

    density = np.exp(np.asarray(log_prior, float))
    np.testing.assert_allclose(total(density), 1.0, atol=1e-3)
    means = [total(density * np.asarray(probs[..., k], float)) for k in range(3)]
    np.testing.assert_allclose(means, 1 / 3, atol=1e-3)


def problem():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(150, 1))
    y = np.searchsorted([-1.0, 0.5, 1.5], 2 * x[:, 0] + rng.logistic(size=150))
    return x, y.astype(np.int32)


METHODS = {
    "nuts": mx.infer.NUTS(num_warmup=100, num_samples=100),
    "vi": mx.infer.VI(num_epochs=1500, batch_size=None),
    "laplace": mx.infer.Laplace(training=mx.infer.MAP(num_epochs=1500, batch_size=None)),
    "dropout": mx.infer.MCDropout(0.05, num_epochs=1500, batch_size=None),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n == "laplace" else pytest.mark.slow) for n in METHODS])
def test_it_runs_under_every_family_of_methods(name, tmp_path):
    x, y = problem()
    model = mx.Model(mx.nets.MLP(1, (), 1, key=0), ORDINAL)
    posterior = mx.fit(model, (x, y), METHODS[name], key=0, progress=False)
    prediction = posterior.predict(x)
    assert prediction.probs.shape == (150, 4)
    np.testing.assert_allclose(prediction.probs.sum(axis=1), 1, rtol=1e-5)
    shares = np.bincount(y, minlength=4) / 150
    assert np.mean(prediction.log_prob(y)) > np.sum(shares * np.log(shares)) + 0.15
    order = prediction.probs[np.argsort(x[:, 0])] @ np.arange(4)
    assert np.all(np.diff(order) > -1e-6)  # a linear network: later classes along the line
    posterior.save(tmp_path / "run")
    assert np.array_equal(mx.load(tmp_path / "run").predict(x).probs, prediction.probs)


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="num_classes must be an int >= 2, got 1"):
        mx.likelihoods.Ordinal(num_classes=1)
    with pytest.raises(ValueError, match="network must give 1 output"):
        ORDINAL.num_targets(4)
    with pytest.raises(ValueError, match="between 0 and 3"):
        ORDINAL.check(1, np.array([0, 4]))
