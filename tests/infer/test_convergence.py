"""Training that had not converged, and posteriors that ignore the data, say so; those that are fine are silent."""

import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax.infer import IVON, LBFGS, MAP, NUTS, SGLD, VI, Adam, DeepEnsemble, EarlyStopping, Laplace
from marginax.infer.convergence import last_gain, training_warnings

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, size=(60, 1))
Y = np.sin(2 * X[:, 0]) + 0.1 * RNG.normal(size=60)
DATA = mx.data.standardise((X, Y))


def fit(method, hidden=(8,), likelihood=mx.likelihoods.Gaussian(), **options):
    model = mx.Model(mx.nets.MLP(1, hidden, 1, key=0), likelihood)
    return mx.fit(model, DATA, method, key=0, **options)


def said(posterior) -> str:
    return "\n".join(posterior.summary().warnings)


@pytest.mark.parametrize(
    "method",
    [MAP(num_epochs=1), VI(num_epochs=20), Laplace(training=MAP(num_epochs=20)), DeepEnsemble(2, MAP(num_epochs=20))],
    ids=["one step", "VI", "Laplace", "ensemble"],
)
def test_a_few_steps_are_called_few(method):
    posterior = fit(method)
    assert any("training took only" in text for text in posterior.record.warnings)
    assert "training took only" in said(posterior)


@pytest.mark.parametrize("method", [MAP(num_epochs=150, optimiser=Adam(1e-3)), VI(num_epochs=400)], ids=["MAP", "VI"])
def test_training_that_was_cut_off_was_still_improving(method):
    assert "still improving when it ended" in said(fit(method, likelihood=mx.likelihoods.Gaussian(scale=0.03)))


@pytest.mark.parametrize(
    "method",
    [
        MAP(),
        MAP(num_epochs=400, batch_size=None, optimiser=LBFGS()),
        Laplace(training=MAP(num_epochs=400, batch_size=None, optimiser=LBFGS())),
        DeepEnsemble(4),
    ],
    ids=["MAP", "line search", "Laplace", "ensemble"],
)
def test_training_that_has_converged_is_silent(method):
    assert "training" not in said(fit(method))


@pytest.mark.parametrize("method", [MAP(num_epochs=200), Laplace(training=MAP(num_epochs=200))], ids=["MAP", "Laplace"])
def test_noise_that_has_not_settled_is_named_after_a_twentieth_of_the_steps(method):
    """The rate has fallen to zero and the objective is flat, yet most rows lie outside of the intervals."""
    posterior = fit(method, hidden=(50,))
    assert "the noise that was learned is not that of the residuals" in said(posterior)
    assert not training_warnings(posterior.record.info, 60, method)
    whole = fit(MAP(), hidden=(50,))
    assert "noise that was learned" not in said(whole)
    lower, upper = whole.predict(X).interval(0.9)
    assert np.mean((lower < Y) & (upper > Y)) > 0.8


@pytest.mark.slow
def test_training_that_held_out_rows_have_ended_is_silent():
    posterior = fit(MAP(num_epochs=4000), hooks=[EarlyStopping(0.2, patience=5)])
    assert posterior.record.num_steps["train"] < 4000
    assert "training" not in said(posterior)


@pytest.mark.parametrize("slope", [0.0, 0.02])
def test_the_gain_is_told_from_noise(slope):
    """Of many noisy series without a slope none is said to improve, with one nearly all are."""
    series = slope * np.arange(400) + np.random.default_rng(1).normal(size=(300, 400))
    gains, errors = np.array([last_gain(values) for values in series]).T
    assert abs(gains.mean() - 160 * slope) < 4.9 * errors.mean() / np.sqrt(300)
    assert abs(gains.std() / errors.mean() - 1) < 0.2
    flagged = np.mean([bool(training_warnings({"train": {"elbo": s[None]}}, 1, MAP())) for s in series])
    assert flagged == 0 if slope == 0 else flagged > 0.95


@pytest.mark.slow
def test_chains_that_sample_are_judged_as_chains():
    few = fit(SGLD(num_samples=5, num_warmup=10, thin=1, training=MAP(num_epochs=5)), num_chains=2)
    assert "training" not in said(few)
    assert "each chain kept 5 draws, fewer than the 10 that R-hat" in said(few)
    one = mx.fit(mx.Density(lambda w: -0.5 * jnp.sum(w**2), jnp.zeros(2)), None, NUTS(20, 1), key=0)
    assert "each chain kept 1 draw, fewer" in said(one)
    assert "draws, fewer" not in said(fit(DeepEnsemble(2, MAP(num_epochs=200))))


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", [pytest.param(VI(num_epochs=3000), marks=pytest.mark.slow), IVON(num_epochs=2000)], ids=["VI", "IVON"]
)
def test_a_posterior_that_ignores_the_data_says_so(method):
    """Mean-field inference of a wide network under a wide prior; a small network is fine with the same."""
    assert "the bound is best by ignoring the data" in said(fit(method, hidden=(100, 100)))
    assert "ignoring the data" not in said(fit(method, hidden=(4,)))


@pytest.mark.slow
def test_what_is_sharper_than_bayes_does_not_ignore_the_data():
    assert "ignoring the data" not in said(fit(VI(num_epochs=3000, temperature=0.01), hidden=(100, 100)))


@pytest.mark.parametrize(
    "change", [lambda y: 1e8 * y, lambda y: 1e-8 * y, lambda y: y + 1e8], ids=["large", "small", "far"]
)
def test_targets_in_far_units_are_named(change):
    model = mx.Model(mx.nets.MLP(1, (8,), 1, key=0), mx.likelihoods.Gaussian())
    with pytest.warns(UserWarning, match=r"y has values of about .* pass mx\.data\.standardise"):
        mx.fit(model, (X, change(Y)), MAP(num_epochs=2), key=0)
