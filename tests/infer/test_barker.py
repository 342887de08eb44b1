"""Barker's proposal: known moments, its balance condition, and robustness to a scale that is wrong."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax import testing
from marginax.infer import Barker
from marginax.infer.mcmc.integrators import state_at
from marginax.infer.mcmc.sampler import Tuning


def test_recovers_a_linear_regression():
    method = Barker(num_warmup=1500, num_samples=4000, thin=5)
    testing.check_moments(method, testing.linear_regression(3))


@pytest.mark.slow
@pytest.mark.parametrize(
    "problem", [testing.logistic_regression(), testing.linear_regression(10)], ids=["logistic", "ten"]
)
def test_recovers_known_posteriors(problem):
    testing.check_moments(Barker(num_warmup=2000, num_samples=8000, thin=10), problem)


def test_a_tempered_posterior_is_as_much_narrower():
    target = mx.Density(lambda w: -0.5 * jnp.sum((w / jnp.array([1.0, 3.0])) ** 2), jnp.zeros(2))
    method = Barker(num_warmup=1000, num_samples=4000, thin=5, temperature=0.25)
    draws = np.asarray(mx.fit(target, None, method, key=0, progress=False).params, np.float64)
    for i, exact in enumerate((0.25, 9 * 0.25)):
        squares = draws[..., i] ** 2
        size = mx.evaluate.measure_convergence(squares[..., None]).smallest_bulk_ess
        assert size > 1000
        assert abs(squares.mean() - exact) < 4.9 * squares.std() / np.sqrt(size)


ROOTS = {"diagonal": jnp.array([1.0, 0.4]), "dense": jnp.array([[1.0, 0.0], [1.5, 0.6]])}


@pytest.mark.parametrize("name", ROOTS)
def test_one_move_keeps_a_normal_normal(name):
    """From exact draws of the target, one move with any step size and scale leaves the law as it was."""

    def density(position):
        return -0.5 * jnp.sum(position**2), -position

    method, num = Barker(), 40_000
    starts = jax.random.normal(jax.random.key(0), (num, 2))
    tuning = Tuning(jnp.asarray(1.7), ROOTS[name])

    def move(position, key):
        new, info, _ = method.move(density, state_at(density, position), tuning, key=key)
        return new.position, info.acceptance

    ends, acceptance = jax.vmap(move)(starts, jax.random.split(jax.random.key(1), num))
    ends = np.asarray(ends, np.float64)
    assert 0.2 < float(acceptance.mean()) < 0.9
    for values, exact in ((ends, 0.0), (ends**2, 1.0), (ends[:, :1] * ends[:, 1:], 0.0), (ends**4, 3.0)):
        error = values.std(axis=0) / np.sqrt(num)
        assert (np.abs(values.mean(axis=0) - exact) < 4.9 * error).all()


def test_without_the_correction_for_directions_the_law_is_another(monkeypatch):
    """A planted bug: the check above can fail."""
    monkeypatch.setattr(jax.nn, "softplus", lambda x: jnp.zeros_like(x))
    with pytest.raises(AssertionError):
        test_one_move_keeps_a_normal_normal("diagonal")
