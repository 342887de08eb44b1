"""Does a model say what it should, and does a method find it? Checks against exact problems.

Each raises an AssertionError that says what was found and what is right.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from marginax._keys import Key, as_key
from marginax.data import AbstractSource, Batch, FullBatch, Minibatches
from marginax.infer import AbstractMethod, fit
from marginax.model import Model, Params
from marginax.posterior import AbstractPosterior, Draws
from marginax.testing.problem import AbstractProblem
from marginax.testing.scores import Z, assert_moments_match

_NUM_SAMPLES = 10_000


def check_log_density(problem: AbstractProblem, *, num_points: int = 20, key: Key = 0) -> None:
    """The model's log density equals one written down independently, at random points.

    >>> from marginax.testing import gaussian_mean
    >>> check_log_density(gaussian_mean())
    """
    theta = np.asarray(jax.random.normal(as_key(key), (num_points, problem.size)), np.float64)
    params = problem.unflatten(theta)
    batch = FullBatch(problem.data).batch(0, key=as_key(0))
    found = np.asarray(_log_densities(problem.model, params, batch), np.float64)
    right = problem.log_joint(problem.flatten(params))
    error = np.abs(found - right) / np.maximum(1.0, np.abs(right))
    worst = int(error.argmax())
    _require(
        error[worst] <= 1e-5,
        f"{problem.name}: log density is {found[worst]:.6g}, should be {right[worst]:.6g}",
    )


def check_batches(problem: AbstractProblem, batch_size: int, *, key: Key = 0) -> None:
    """Gradients from minibatches average to the gradient from all the data, also when sizes do not divide.

    N batches of size B go through the data B times whatever their remainder, so the averages agree but for rounding.
    """
    source = Minibatches(problem.data, batch_size)
    num = source.spec.num_examples
    params = problem.unflatten(np.asarray(jax.random.normal(as_key(key), (problem.size,))))
    full = problem.flatten(_gradient(problem.model, params, FullBatch(problem.data), 1, as_key(key)))
    average = problem.flatten(_gradient(problem.model, params, source, num, as_key(key)))
    error = float(np.abs(average - full).max() / np.abs(full).max())
    _require(
        error <= 1e-4,
        f"{problem.name}: batches of {batch_size} of {num} rows give a gradient that is off by {error:.2g} on average",
    )


def check_mode(
    method: AbstractMethod,
    problem: AbstractProblem,
    *,
    num_chains: int = 1,
    key: Key = 0,
    tolerance: float = 1e-4,
    data: Any = None,
) -> AbstractPosterior:
    """Every chain of the method ends at the mode of the posterior.

    Args:
        method: one that looks for the mode.
        problem: one whose mode is known.
        num_chains: how many starts.
        key: seed.
        tolerance: largest error of a coordinate, relative to the largest coordinate of the mode.
        data: the problem's data in another guise, such as a source from `mx.data`.
    """
    posterior = fit(problem.model, problem.data if data is None else data, method, key=key, num_chains=num_chains)
    found = coordinates(posterior, problem)[:, -1]
    error = np.abs(found - problem.mode).max(axis=1) / np.abs(problem.mode).max()
    for chain, value in enumerate(error):
        _require(
            bool(value <= tolerance),
            f"{problem.name}: chain {chain} ended {value:.2g} away from the mode, more than {tolerance:g} of its size",
        )
    return posterior


def check_moments(
    method: AbstractMethod,
    problem: AbstractProblem,
    *,
    num_chains: int | None = None,
    key: Key = 0,
    z: float = Z,
    min_ess: float = 0.0,
) -> AbstractPosterior:
    """Means and covariances of the draws, and of the functions they give, are those of the exact posterior.

    Args:
        method: one that claims to sample the posterior (of this problem).
        problem: the truth.
        num_chains: how many chains; the method's own number by default.
        key: seed.
        z: largest difference in Monte Carlo standard errors.
        min_ess: smallest effective sample size that is accepted.
    """
    posterior = fit(problem.model, problem.data, method, key=key, num_chains=num_chains)
    assert_posterior_matches(posterior, problem, z=z, min_ess=min_ess)
    return posterior


def assert_posterior_matches(
    posterior: AbstractPosterior, problem: AbstractProblem, *, z: float = Z, min_ess: float = 0.0
) -> None:
    """As `check_moments`, for a posterior that is there already."""
    independent = None if isinstance(posterior, Draws) else True
    theta = coordinates(posterior, problem)
    try:
        mean, covariance = problem.mean, problem.covariance
    except NotImplementedError:
        pass
    else:
        assert_moments_match(
            theta,
            mean,
            covariance,
            z=z,
            min_ess=min_ess,
            independent=independent,
            name=f"{problem.name}, parameters",
        )
    outputs = np.asarray(_outputs(problem.model, problem.unflatten(theta), jnp.asarray(problem.x_new)))
    functions = problem.conditional_mean(np.asarray(outputs, np.float64))
    truth = problem.predictive(problem.x_new)
    assert_moments_match(
        functions,
        truth.mean,
        truth.epistemic,
        z=z,
        min_ess=min_ess,
        independent=independent,
        name=f"{problem.name}, predictions",
    )


def coordinates(posterior: AbstractPosterior, problem: AbstractProblem) -> Float[np.ndarray, "c s d"]:
    """Draws of a posterior in the coordinates of a problem's truth; 10,000 fresh ones of a continuous posterior."""
    if isinstance(posterior, Draws):
        return problem.flatten(posterior.params)
    return problem.flatten(posterior.sample_params(_NUM_SAMPLES, key=jax.random.key(0)))[None]


@eqx.filter_jit
def _log_densities(model: Model, params: Params, batch: Batch) -> Float[Array, " s"]:
    return jax.vmap(lambda p: model.log_density(p, batch))(params)


@eqx.filter_jit
def _gradient(model: Model, params: Params, source: AbstractSource, num_steps: int, key: Array) -> PyTree:
    def one(step: Array) -> PyTree:
        batch = source.batch(step, key=key)
        return jax.grad(lambda p: model.log_density(p, batch))(params)

    return jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), jax.vmap(one)(jnp.arange(num_steps)))


@eqx.filter_jit
def _outputs(model: Model, params: Params, x: Array) -> Float[Array, "c s m k"]:
    return jax.vmap(jax.vmap(lambda p: model.output(p, x)))(params)


def _require(condition: Any, text: str) -> None:
    if not condition:
        raise AssertionError(text)
