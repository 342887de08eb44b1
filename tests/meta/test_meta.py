"""Meta-learning: a learned prior against empirical Bayes, new tasks against Bayesian linear regression."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import marginax as mx
from marginax.data import Batch
from marginax.meta import MAML, Hierarchy

NOISE, MU, SIGMA = 0.5, np.array([1.0, -0.5, 2.0]), np.array([0.7, 0.4, 1.2])
CORNERS = np.array([[a, b] for a in (-1.0, 1.0) for b in (-1.0, 1.0)] * 2)
DESIGN = np.append(CORNERS, np.ones((8, 1)), axis=1)  # orthogonal: 8 times the identity when squared
LINEAR = mx.nets.MLP(2, (), 1, key=0)
TRAINING = mx.infer.MLE(num_epochs=60, batch_size=None, optimiser=mx.infer.LBFGS())


def planted(num=150, seed=0):
    """Tasks of a linear network: weights from the planted prior, values with noise."""
    rng = np.random.default_rng(seed)
    weights = MU + SIGMA * rng.normal(size=(num, 3))
    y = weights @ DESIGN.T + NOISE * rng.normal(size=(num, 8))
    return {"x": np.tile(CORNERS, (num, 1, 1)), "y": y[..., None], "mask": np.ones((num, 8), bool)}


def learned_prior(posterior):
    """Mean and scale of (weight 1, weight 2, bias)."""
    params = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)[0]), posterior.starting_points(1))
    model = posterior.model
    layers = params["mean"].layers[0], model.scale_of(params).layers[0]
    return [np.append(np.asarray(layer.weight)[0], np.asarray(layer.bias)) for layer in layers]


@pytest.fixture(scope="module")
def posterior():
    return mx.fit(Hierarchy(LINEAR, noise=NOISE, num_steps=1), planted(), TRAINING, key=0, progress=False)


def check_prior_is_that_of_empirical_bayes(posterior):
    """Least squares of a task is normal around mu with variances sigma^2 + noise^2 / 8, so both are moments."""
    estimates = planted()["y"][..., 0] @ DESIGN / 8
    mean = estimates.mean(0)
    scale = np.sqrt(((estimates - mean) ** 2).mean(0) - NOISE**2 / 8)
    found = learned_prior(posterior)
    np.testing.assert_allclose(found[0], mean, atol=1e-4)
    np.testing.assert_allclose(found[1], scale, rtol=1e-4)


def test_the_learned_prior_is_that_of_empirical_bayes(posterior):
    check_prior_is_that_of_empirical_bayes(posterior)


def check_new_tasks_are_bayesian_linear_regression(posterior):
    mean, scale = learned_prior(posterior)
    rng = np.random.default_rng(3)
    x_new = rng.normal(size=(6, 2))
    new = np.append(x_new, np.ones((6, 1)), axis=1)
    for num in (1, 3, 7):
        x, y = rng.normal(size=(num, 2)), rng.normal(size=num)
        design = np.append(x, np.ones((num, 1)), axis=1)
        precision = np.diag(1 / scale**2) + design.T @ design / NOISE**2
        centre = np.linalg.solve(precision, mean / scale**2 + design.T @ y / NOISE**2)
        prediction = posterior.adapt((x, y)).predict(x_new)
        np.testing.assert_allclose(prediction.mean, new @ centre, atol=1e-4)
        np.testing.assert_allclose(
            prediction.epistemic, np.einsum("ni,ij,nj->n", new, np.linalg.inv(precision), new), rtol=1e-3
        )
        np.testing.assert_allclose(prediction.aleatoric, NOISE**2, rtol=1e-5)


def test_new_tasks_are_bayesian_linear_regression_under_that_prior(posterior):
    check_new_tasks_are_bayesian_linear_regression(posterior)


def test_without_points_the_prior_speaks(posterior):
    mean, scale = learned_prior(posterior)
    prediction = posterior.adapt((np.zeros((0, 2)), np.zeros(0))).predict([[2.0, -1.0]])
    at = np.array([2.0, -1.0, 1.0])
    np.testing.assert_allclose(prediction.mean, at @ mean, rtol=1e-4)
    np.testing.assert_allclose(prediction.epistemic, at**2 @ scale**2, rtol=1e-4)


# ---- networks that are not linear


def start_of(model):
    return {"mean": model.weights_of_network, **model.init_more()}


def batch_of(tasks):
    arrays = {name: jnp.asarray(array, float) for name, array in tasks.items()}
    return Batch(arrays, jnp.arange(len(tasks["x"])), len(tasks["x"]))


def sines(num, points=10, seed=0):
    """Finn et al.: amplitudes from 0.1 to 5, phases from 0 to pi, inputs from -5 to 5."""
    rng = np.random.default_rng(seed)
    amplitude, phase = rng.uniform(0.1, 5, (num, 1)), rng.uniform(0, np.pi, (num, 1))
    x = rng.uniform(-5, 5, (num, points))
    return {"x": x[..., None], "y": (amplitude * np.sin(x - phase))[..., None], "mask": np.ones(x.shape, bool)}


def test_points_that_are_masked_do_not_matter():
    tasks = sines(3, 7)
    wide = {name: np.concatenate([array, 7 + array[:, :2]], axis=1) for name, array in tasks.items()}
    wide["mask"][:, 7:] = False
    net = mx.nets.MLP(1, (4,), 1, key=0)
    for model in (Hierarchy(net, noise=0.3), MAML(net, noise=0.3, num_context=(7, 7))):
        params = start_of(model)
        if isinstance(model, Hierarchy):
            values = [model.log_likelihood(params, batch_of(each)) for each in (tasks, wide)]
        else:  # all points are seen by the steps, so look at these
            values = [
                ravel_pytree(model.stepped(params, jax.tree.map(lambda a: a[0], batch_of(each).data)))[0]
                for each in (tasks, wide)
            ]
        np.testing.assert_allclose(values[0], values[1], rtol=1e-4)


def test_a_step_of_maml_is_one_of_gradient_descent():
    model = MAML(LINEAR, noise=0.5, step_size=0.1)
    params = start_of(model)
    weights = ravel_pytree(params["mean"])[0]
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(4, 2)), rng.normal(size=4)
    design = np.append(x, np.ones((4, 1)), axis=1)
    task = {"x": jnp.asarray(x, float), "y": jnp.asarray(y[:, None], float), "mask": jnp.ones(4)}
    by_hand = np.asarray(weights) + 0.1 * design.T @ (y - design @ np.asarray(weights)) / 4
    np.testing.assert_allclose(ravel_pytree(model.stepped(params, task))[0], by_hand, atol=1e-5)


# ---- what cannot be meant


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: Hierarchy(LINEAR, noise=0.0), ValueError, "noise must be > 0, or None to learn it, got 0.0"),
        (lambda: Hierarchy(LINEAR, num_steps=0), ValueError, "num_steps must be an int >= 1, got 0"),
        (lambda: MAML(LINEAR, step_size=0.0), ValueError, "step_size must be > 0, got 0.0"),
        (lambda: MAML(LINEAR, num_context=(3, 2)), ValueError, "num_context must be a pair"),
        (
            lambda: mx.fit(Hierarchy(mx.nets.MLP(2, (), 2, key=0)), planted(3), "map", key=0),
            ValueError,
            "network must give one output for a point",
        ),
    ],
)
def test_arguments_that_cannot_be_meant_are_refused(make, error, words):
    with pytest.raises(error, match=words):
        make()
