"""Draws as functions of inputs: one loop, and laws that are joint over inputs."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy.special import expit

import marginax as mx
from marginax.curvature import DenseCovariance
from marginax.data import DataSpec
from marginax.infer import MAP, Laplace, MCDropout
from marginax.posterior import Gaussian
from marginax.predict import DrawLoop, LaplaceBridge, Linearised, MonteCarlo, Probit
from marginax.predict.loop import components

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 1)).astype(np.float32)
AT = np.linspace(-2, 2, 5, dtype=np.float32)[:, None]
TRAINING = MAP(num_epochs=300, batch_size=None)


def fit(likelihood, y, method, outputs=1, **options):
    network = mx.nets.MLP(1, (4,), outputs, activation=jnp.tanh, key=0)
    return mx.fit(mx.Model(network, likelihood), (X, y), method, key=0, progress=False, **options)


@pytest.fixture(scope="module")
def linearised():
    y = RNG.poisson(np.exp(0.5 * X[:, 0] + 1))
    return fit(mx.likelihoods.Poisson(), y, Laplace(structure=mx.curvature.Dense(), training=TRAINING))


def exact_covariance(posterior):
    """Of the outputs at all inputs together: J S J' with the Jacobian written out."""
    flat, unravel = ravel_pytree(posterior.mean)
    jacobian = jax.jacobian(lambda w: posterior.model.output(unravel(w), jnp.asarray(AT))[:, 0])(flat)
    return np.asarray(jacobian @ posterior.covariance.dense() @ jacobian.T, np.float64)


def assert_joint(outputs, posterior):
    exact, num = exact_covariance(posterior), len(outputs)
    centred = outputs - np.asarray(posterior.model.output(posterior.mean, jnp.asarray(AT)))[:, 0]
    products = centred[:, :, None] * centred[:, None, :]
    error = products.std(axis=0) / np.sqrt(num)
    assert (np.abs(products.mean(axis=0) - exact) < 4.9 * error).all()


def test_linearised_draws_are_joint_over_inputs(linearised):
    functions = linearised.functions(20_000, key=jax.random.key(1))
    (rates,) = DrawLoop(functions, AT, spec=None).collect(components)
    assert_joint(np.log(rates[:, :, 0].astype(np.float64)), linearised)


def test_networks_that_are_drawn_are_the_functions(linearised):
    functions = linearised.functions(50, key=jax.random.key(1))
    (rates,) = DrawLoop(functions, AT, spec=None).collect(components)
    networks = linearised.draw(50, key=jax.random.key(1))
    outputs = eqx.filter_vmap(lambda network: jax.vmap(network)(jnp.asarray(AT)))(networks)
    np.testing.assert_allclose(np.log(rates), outputs, rtol=1e-4, atol=1e-4)


def test_draws_of_the_margins_with_shared_noise_are_not_joint(linearised):
    """A planted bug: the same noise for the margin of every input, as it once was."""
    mean, covariance = linearised.functions(2, key=jax.random.key(1)).outputs(jnp.asarray(AT))
    noise = jax.random.normal(jax.random.key(2), (20_000, 1))
    outputs = np.asarray(mean[:, 0] + jnp.sqrt(covariance[:, 0, 0]) * noise, np.float64)
    with pytest.raises(AssertionError):
        assert_joint(outputs, linearised)


@pytest.mark.parametrize("chains", [1, 2])
@pytest.mark.parametrize(
    "method", [MCDropout(0.2, num_epochs=5), Laplace(training=TRAINING)], ids=["noise", "linearised"]
)
def test_chunks_and_their_order_leave_no_trace(method, chains):
    y = RNG.poisson(2.0, size=30)
    posterior = fit(mx.likelihoods.Poisson(), y, method, num_chains=chains)
    functions = posterior.functions(12, key=jax.random.key(3))
    (whole,) = DrawLoop(functions, AT, spec=None).collect(components)
    (small,) = DrawLoop(functions, AT, spec=None, max_bytes=2000).collect(components)
    np.testing.assert_allclose(small, whole, rtol=1e-5)
    turned = np.full_like(whole, np.nan)
    for draws, rows, leaves in DrawLoop(functions, AT, spec=None).run(components, rows_first=True, max_rows=2):
        (leaf,) = jax.tree.leaves(leaves)
        turned[draws, rows] = np.asarray(leaf)[: draws.stop - draws.start, : rows.stop - rows.start]
    np.testing.assert_allclose(turned, whole, rtol=1e-5)


def _targets(kind, factor):
    wave = factor * np.sin(2 * X[:, 0])
    return {"numbers": wave, "counts": np.round(np.exp(wave)), "classes": (wave > 0.5).astype(int)}[kind]


MIXED = {
    "numbers": (mx.likelihoods.Gaussian(scale=0.1), ("mean", "variance", "epistemic")),
    "counts": (mx.likelihoods.Poisson(), ("mean",)),
    "classes": (mx.likelihoods.Categorical(), ("probs",)),
}


@pytest.mark.parametrize("kind", MIXED)
def test_linearised_mixtures_with_unequal_weights_are_the_average_by_hand(kind):
    """In closed form, by draws of functions, and by a link."""
    likelihood, names = MIXED[kind]
    method = Laplace(training=TRAINING, predictive=mx.predict.Linearised(mx.predict.Probit()))
    outputs = 2 if kind == "classes" else 1
    parts = [fit(likelihood, _targets(kind, factor), method, outputs) for factor in (0.5, 1.5)]
    mixture = mx.posterior.Mixture(parts, np.array([1.0, 4.0]))
    weights, key = np.array([0.2, 0.8]), jax.random.key(5)
    found = mixture.predict(AT, num_samples=400, key=key)
    members = [
        part.functions(200, key=jax.random.fold_in(key, i)).predict(AT, spec=part.spec) for i, part in enumerate(parts)
    ]
    means = np.stack([member.mean if kind != "classes" else member.probs for member in members])
    assert np.abs(means[0] - means[1]).max() > 0.1
    exact = {"mean": np.tensordot(weights, means, 1), "probs": np.tensordot(weights, means, 1)}
    between = np.tensordot(weights, (means - exact["mean"]) ** 2, 1)
    for name in ("variance", "epistemic"):
        if name in names:
            exact[name] = np.tensordot(weights, np.stack([getattr(member, name) for member in members]), 1) + between
    for name in names:
        np.testing.assert_allclose(getattr(found, name), exact[name], rtol=1e-4, atol=1e-5, err_msg=name)
    y = _targets(kind, 1.0)[:5]
    densities = np.stack([np.exp(member.log_prob(y)) for member in members])
    np.testing.assert_allclose(np.exp(found.log_prob(y)), np.tensordot(weights, densities, 1), rtol=1e-3)


def _averaged(link, mean, variance):
    """Probability of the second class, and the variance of it over draws, by the formula of a link."""
    if isinstance(link, Probit):
        return expit(mean / np.sqrt(1 + np.pi / 8 * variance)), None
    if isinstance(link, LaplaceBridge):  # two classes: a Beta with the mean expit(m) and 1 / (v p (1 - p)) counts
        p = expit(mean)
        return p, p * (1 - p) / (1 + 1 / (variance * p * (1 - p)))
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    values, weights = expit(mean + np.sqrt(variance) * nodes[:, None]), weights / weights.sum()
    return weights @ values, weights @ values**2 - (weights @ values) ** 2


@pytest.mark.parametrize("link", [MonteCarlo(), Probit(), LaplaceBridge()], ids=lambda link: type(link).__name__)
def test_a_single_linearised_logit_is_two_classes_by_every_link(link):
    model = mx.Model(mx.nets.MLP(1, (), 1, key=0), mx.likelihoods.Bernoulli())
    root, spec, num = np.array([[0.8, 0.0], [0.3, 0.6]], np.float32), DataSpec((1,), (), 30), 20_000
    weights = jax.tree.map(lambda leaf: jnp.full_like(leaf, 0.7), model.initial(1))
    posterior = Gaussian(model, weights, DenseCovariance(jnp.asarray(root)), spec, predictive=Linearised(link))
    found = posterior.predict(AT, num_samples=num, key=1)
    phi = np.concatenate([AT, np.ones_like(AT)], axis=1).astype(np.float64)
    probs, spread = _averaged(link, phi @ np.array([0.7, 0.7]), np.sum((phi @ root) ** 2, axis=1))
    error = 4.9 * np.sqrt(spread / num) if isinstance(link, MonteCarlo) else 1e-5
    if isinstance(link, LaplaceBridge):
        np.testing.assert_allclose(found.epistemic_variance[:, 1], spread, rtol=1e-4)
    assert (np.abs(found.probs - np.stack([1 - probs, probs], axis=1)) < np.reshape(error, (-1, 1))).all()


def test_models_without_a_predictive_say_so():
    posterior = mx.fit(mx.Density(lambda w: -jnp.sum(w**2), jnp.zeros(2)), None, MAP(num_epochs=2), key=0)
    with pytest.raises(TypeError, match=r"Density says nothing about new data.*posterior\.sample"):
        posterior.predict(AT)
