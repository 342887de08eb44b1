"""Integrators: reversible, of second order, and right on closed forms; moves against independent formulas."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marginax import testing
from marginax._kernels.random import normal
from marginax.data import FullBatch
from marginax.evaluate.chains import diagnose
from marginax.infer import MALA, NUTS
from marginax.infer.flat import density_of, log_density_of, ravel, unravel
from marginax.infer.mcmc.adaptation import (
    DenseMetric,
    DiagonalMetric,
    adaptation_windows,
    add_to_moments,
    first_adaptation,
    metric_sqrt_of,
    no_moments,
)
from marginax.infer.mcmc.hmc import Jump, first_path_length, tune_path_length
from marginax.infer.mcmc.integrators import (
    IntegratorState,
    integrate,
    isokinetic_step,
    kick,
    leapfrog,
    refresh,
    state_at,
    unit,
)
from marginax.infer.mcmc.sampler import Tuning


def quartic(position):
    """A density that is not normal, so that integrators make errors."""
    return jax.value_and_grad(lambda q: -jnp.sum(q**4) / 4 - 0.5 * jnp.sum(q**2) - 0.3 * q[0] * q[1])(position)


def start_at(key: int, dtype, size: int = 5) -> IntegratorState:
    position = 0.5 * jax.random.normal(jax.random.key(key), (size,), dtype)
    return IntegratorState(state_at(quartic, position), jax.random.normal(jax.random.key(key + 1), (size,), dtype))


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("float64", 1e-10)])
@pytest.mark.parametrize("dense", [False, True])
def test_leapfrog_is_reversible(dtype, tolerance, dense):
    with jax.enable_x64(dtype == "float64"):
        start = start_at(0, dtype)
        metric_sqrt = jnp.asarray(np.linspace(0.5, 1.5, 5), dtype)
        metric_sqrt = jnp.diag(metric_sqrt) + 0.1 * jnp.tril(jnp.ones((5, 5), dtype), -1) if dense else metric_sqrt
        there = integrate(quartic, start, 0.1, metric_sqrt, 25)
        back = integrate(quartic, there, -0.1, metric_sqrt, 25)
        assert there.state.position.dtype == dtype
        assert np.abs(there.state.position - start.state.position).max() > 0.1
        np.testing.assert_allclose(back.state.position, start.state.position, atol=tolerance)
        np.testing.assert_allclose(back.velocity, start.velocity, atol=tolerance)


def test_halving_the_step_quarters_the_energy_error():
    with jax.enable_x64(True):
        start = start_at(2, "float64")

        def error(step_size, num_steps):
            end = integrate(quartic, start, step_size, jnp.ones(5), num_steps)
            return abs(float(end.energy - start.energy))

        ratios = [error(h, round(1 / h)) / error(h / 2, round(2 / h)) for h in (0.05, 0.025, 0.0125)]
        assert all(3.7 < ratio < 4.3 for ratio in ratios), ratios


def test_leapfrog_keeps_volume():
    with jax.enable_x64(True):
        start = start_at(4, "float64", size=2)

        def flow(state):
            start_state = IntegratorState(state_at(quartic, state[:2]), state[2:])
            end = leapfrog(quartic, start_state, 0.3, jnp.asarray([0.7, 1.4]))
            return jnp.concatenate([end.state.position, end.velocity])

        jacobian = jax.jacfwd(flow)(jnp.concatenate([start.state.position, start.velocity]))
        assert abs(np.linalg.det(jacobian) - 1) < 1e-12


def test_microcanonical_step_is_reversible_and_keeps_unit_speed():
    with jax.enable_x64(True):
        start = start_at(6, "float64")
        start = IntegratorState(start.state, unit(start.velocity))
        metric_sqrt = jnp.asarray(np.linspace(0.5, 1.5, 5))
        end, error = isokinetic_step(quartic, start, 0.4, metric_sqrt)
        turned, undone = isokinetic_step(quartic, IntegratorState(end.state, -end.velocity), 0.4, metric_sqrt)
        assert abs(jnp.linalg.norm(end.velocity) - 1) < 1e-12
        np.testing.assert_allclose(turned.state.position, start.state.position, atol=1e-12)
        np.testing.assert_allclose(turned.velocity, -start.velocity, atol=1e-12)
        assert abs(error + undone) < 1e-10


def test_microcanonical_energy_error_is_of_third_order_per_step():
    with jax.enable_x64(True):
        start = start_at(8, "float64")
        start = IntegratorState(start.state, unit(start.velocity))
        errors = [abs(float(isokinetic_step(quartic, start, h, jnp.ones(5))[1])) for h in (0.2, 0.1, 0.05)]
        assert all(6.5 < a / b < 9.5 for a, b in itertools.pairwise(errors)), errors


def test_kick_solves_its_equation():
    """du/dt = (I - uu') g / (d - 1), against many small Euler steps; kinetic energy against its integral."""
    with jax.enable_x64(True):
        direction = unit(jnp.asarray([1.0, -2.0, 0.5, 0.3]))
        gradient = jnp.asarray([0.4, 1.0, -2.0, 3.0])
        turned, gained = kick(direction, gradient, 0.7)
        u, work, steps = direction, 0.0, 20_000

        def euler(carry, _):
            u, work = carry
            rate = (gradient - u * jnp.vdot(u, gradient)) / 3
            return (unit(u + 0.7 / steps * rate), work + 0.7 / steps * jnp.vdot(u, gradient)), None

        (u, work), _ = jax.lax.scan(euler, (u, work), None, length=steps)
        np.testing.assert_allclose(turned, u, atol=1e-4)
        assert abs(gained - work) < 1e-3


def test_refresh_forgets_the_direction_over_its_length():
    """After a path of length L in many steps the correlation with the first direction has fallen to 1/e."""
    directions = jnp.tile(unit(jnp.ones(200)), (400, 1))
    for i in range(50):
        noise = normal(jax.random.key(i), directions.shape)
        directions = jax.vmap(lambda u, n: refresh(u, n, jnp.asarray(0.02), jnp.asarray(1.0)))(directions, noise)
    overlap = float(jnp.mean(directions @ unit(jnp.ones(200))))
    assert abs(overlap - np.exp(-1)) < 0.02


def flat_problem():
    problem = testing.correlated_normal(4, 0.75)
    batch = FullBatch(problem.data).batch(0, key=jax.random.key(0))
    return problem, density_of(problem.model, batch, problem.start), log_density_of(problem.model, batch, problem.start)


def test_langevin_acceptance_equals_the_ratio_of_densities_and_proposals():
    _, density, log_density = flat_problem()
    step_size, metric_sqrt = 0.7, jnp.asarray([0.5, 1.0, 1.5, 0.8])
    start_state = state_at(density, jnp.asarray([0.3, -0.5, 1.0, 0.2]))
    _, info, _ = MALA().move(density, start_state, Tuning(jnp.asarray(step_size), metric_sqrt), key=jax.random.key(3))
    noise = normal(jax.random.key(3), (4,))
    variance = (step_size * metric_sqrt) ** 2

    def drift(q):
        return q + 0.5 * variance * jax.grad(log_density)(q)

    def log_q(to, start):
        return -0.5 * jnp.sum((to - drift(start)) ** 2 / variance)

    start = start_state.position
    proposal = drift(start) + step_size * metric_sqrt * noise
    ratio = log_density(proposal) - log_density(start) + log_q(start, proposal) - log_q(proposal, start)
    assert abs(float(info.acceptance) - float(jnp.exp(jnp.minimum(0.0, ratio)))) < 1e-5


@pytest.mark.slow
def test_no_u_turn_trajectories_are_those_of_blackjax():
    """Same step size, same scale: the same law of trajectory lengths and acceptance, the same efficiency."""
    import blackjax

    problem, density, log_density = flat_problem()
    variances = jnp.asarray([0.5, 1.0, 1.5, 0.8])

    def theirs(key):
        kernel = blackjax.nuts.build_kernel()
        state = blackjax.nuts.init(ravel(problem.start), log_density)

        def step(state, key):
            state, info = kernel(key, state, log_density, 0.35, variances, 10)
            return state, (state.position, info.acceptance_rate, info.num_integration_steps)

        return jax.lax.scan(step, state, jax.random.split(key, 1500))[1]

    def ours(key):
        def step(state, key):
            state, info, _ = NUTS().move(density, state, Tuning(jnp.asarray(0.35), jnp.sqrt(variances)), key=key)
            return state, (state.position, info.acceptance, info.num_leapfrog)

        return jax.lax.scan(step, state_at(density, ravel(problem.start)), jax.random.split(key, 1500))[1]

    keys = jax.random.split(jax.random.key(1), 4)
    (q, a, n), (bq, ba, bn) = (jax.jit(jax.vmap(run))(keys) for run in (ours, theirs))
    assert abs(a.mean() - ba.mean()) < 4.9 * np.sqrt(2) * a.std() / np.sqrt(a.size / 4)
    assert abs(n.mean() - bn.mean()) < 4.9 * np.sqrt(2) * n.std() / np.sqrt(n.size / 4)
    ess, their_ess = diagnose(np.asarray(q))[1], diagnose(np.asarray(bq))[1]
    assert 0.6 < ess / their_ess < 1.7


@pytest.mark.parametrize("scale", [DiagonalMetric(), DenseMetric()])
def test_running_moments_equal_numpy(scale):
    values = np.random.default_rng(0).normal(size=(400, 3)) @ np.array([[1, 0.5, 0], [0, 1, 0.2], [0, 0, 2.0]]) + 5
    moments = no_moments(scale, jnp.zeros(3))
    for value in values:
        moments = add_to_moments(moments, jnp.asarray(value, jnp.float32))
    covariance = np.cov(values.T)
    weight = 400 / 405
    if isinstance(scale, DiagonalMetric):
        wanted = weight * np.diag(covariance) + 1e-3 * (1 - weight)
        np.testing.assert_allclose(metric_sqrt_of(moments) ** 2, wanted, rtol=1e-4)
    else:
        metric_sqrt = np.asarray(metric_sqrt_of(moments))
        np.testing.assert_allclose(
            metric_sqrt @ metric_sqrt.T, weight * covariance + 1e-3 * (1 - weight) * np.eye(3), rtol=1e-3
        )


def test_flat_and_tree_are_inverse_to_each_other():
    problem = testing.tanh_network(2)
    vector = ravel(problem.start) + jnp.arange(problem.size)
    np.testing.assert_array_equal(ravel(unravel(vector, problem.start)), vector)


@pytest.mark.parametrize("num", [1, 7, 20, 150, 151, 500, 1000])
def test_windows_end_once_and_leave_the_last_steps_to_the_step_size(num):
    slow, ends = adaptation_windows(num)
    assert len(slow) == len(ends) == num
    if num >= 20:
        last = np.flatnonzero(ends)[-1]
        assert slow[last]
        assert not slow[last + 1 :].any()
        assert slow.sum() == np.flatnonzero(slow)[-1] - np.flatnonzero(slow)[0] + 1


@pytest.mark.parametrize("dense", [False, True])
def test_the_slope_of_the_path_length_is_that_of_the_criterion(dense):
    """The change of a quarter of the squared change of |z - c|^2 along a free path, z in coordinates of unit scale."""
    rng = np.random.default_rng(0)
    start, centre, velocity = rng.normal(size=(3, 4))
    root = np.tril(rng.normal(size=(4, 4))) + 3.0 * np.eye(4) if dense else 1.0 + rng.random(4)
    end = start + 0.7 * (root @ velocity if dense else root * velocity)
    state = eqx.tree_at(lambda s: s.centre, first_path_length(jnp.asarray(start), 1.0), jnp.asarray(centre))
    adaptation = first_adaptation(DenseMetric() if dense else DiagonalMetric(), jnp.asarray(start), 0.1)
    adaptation = eqx.tree_at(lambda a: (a.metric_sqrt, a.step.count), adaptation, (jnp.asarray(root), jnp.asarray(1)))
    jump = Jump(*map(jnp.asarray, (start, end, velocity, 1.0, 0.7)))
    found = 10.0 * tune_path_length(state, jump, adaptation, 100, 1000).slope  # a tenth enters the average

    def criterion(log_time):
        whiten = (lambda v: np.linalg.solve(root, v)) if dense else (lambda v: v / root)
        before, after = whiten(start - centre), whiten(start - centre) + 0.7 * np.exp(log_time) * velocity
        return 0.25 * (after @ after - before @ before) ** 2

    np.testing.assert_allclose(found, (criterion(1e-5) - criterion(-1e-5)) / 2e-5, rtol=1e-4)
