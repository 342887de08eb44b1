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
from marginax.infer import HMC, MALA, NUTS
from marginax.infer.flat import density_of, log_density_of, ravel, unravel
from marginax.infer.mcmc.adaptation import (
    DenseMetric,
    DiagonalMetric,
    adapt,
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
from marginax.infer.mcmc.nuts import Tree, _joined, grow
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


@pytest.mark.parametrize("metric", [DiagonalMetric(), DenseMetric()])
def test_the_metric_is_that_of_the_last_window(metric):
    """What was seen before it, far off and wide, leaves no trace."""
    num = 500
    start, stop = (np.flatnonzero(adaptation_windows(num)[1])[-2:] + 1).tolist()
    values = np.random.default_rng(0).normal(size=(num, 3)).astype(np.float32)
    values[:start] = 50 + 20 * values[:start]
    values[stop:] = -30 + 5 * values[stop:]

    def step(state, position):
        return adapt(state, position, jnp.asarray(0.8), 0.8, num), None

    first = first_adaptation(metric, jnp.zeros(3), 0.1)
    root = np.asarray(jax.lax.scan(step, first, jnp.asarray(values))[0].metric_sqrt, np.float64)
    found = np.diag(root**2) if root.ndim == 1 else root @ root.T
    weight = (stop - start) / (stop - start + 5)
    exact = weight * np.cov(values[start:stop].T) + 1e-3 * (1 - weight) * np.eye(3)
    exact = np.diag(np.diag(exact)) if root.ndim == 1 else exact
    np.testing.assert_allclose(found, exact, rtol=1e-3, atol=1e-4)


def test_a_branch_that_diverges_never_gives_the_next_state():
    """However heavy the points that it had before."""
    one = start_at(0, "float32", size=2)
    two = start_at(4, "float32", size=2)
    zero, yes, no = jnp.zeros(()), jnp.ones((), bool), jnp.zeros((), bool)

    def tree(at, log_weight, turning, diverging):
        return Tree(at, at, at.state, at.energy, log_weight, at.velocity, zero, jnp.asarray(1), turning, diverging)

    for turning, diverging in ((no, yes), (yes, no), (yes, yes)):
        joined = _joined(tree(one, zero, no, no), tree(two, zero + 50, turning, diverging), yes, zero + 1e-6)
        np.testing.assert_array_equal(joined.chosen.position, one.state.position)
        assert bool(joined.ended)
    joined = _joined(tree(one, zero, no, no), tree(two, zero + 50, no, no), yes, zero + 1e-6)
    np.testing.assert_array_equal(joined.chosen.position, two.state.position)


@pytest.mark.parametrize("key", range(3))
@pytest.mark.parametrize(("half_turns", "num_leaves"), [(1.03, 15), (0.97, 31)])
def test_a_trajectory_on_a_circle_ends_once_it_has_gone_half_around(half_turns, num_leaves, key):
    """Sixteen points after four doublings; leapfrog goes around a circle where the velocity is right for its step."""
    angle = half_turns * np.pi / 15
    step_size = 2 * np.sin(angle / 2)
    start = jnp.asarray([0.0, np.cos(angle / 2)])

    def density(q):
        return -0.5 * jnp.vdot(q, q), -q

    def of_tree(key):
        at = IntegratorState(state_at(density, jnp.asarray([1.0, 0.0])), start)
        return grow(density, at, jnp.asarray(step_size), jnp.ones(2), 5, key=key).num_leaves

    assert int(jax.jit(of_tree)(jax.random.key(key))) == num_leaves


def after_moves(method, density, starts, step_size, num_moves=4, extra=None):
    """Positions and divergences after some moves from each start."""

    def run(start, key):
        def move(state, key):
            state, info, _ = method.move(density, state, Tuning(jnp.asarray(step_size), jnp.ones(2), extra), key=key)
            return state, info.diverging

        end, diverging = jax.lax.scan(move, state_at(density, start), jax.random.split(key, num_moves))
        return end.position, jnp.any(diverging)

    keys = jax.random.split(jax.random.key(1), len(starts))
    return tuple(np.asarray(part, np.float64) for part in jax.jit(jax.vmap(run))(starts, keys))


def assert_same_law(ends, starts):
    """Means of powers and products, against those of independent draws."""
    for function in (lambda q: q, np.square, lambda q: q[:, :1] * q[:, 1:], lambda q: q**4):
        found, right = function(ends), function(np.asarray(starts, np.float64))
        error = np.sqrt((found.var(axis=0) + right.var(axis=0)) / len(ends))
        assert (np.abs(found.mean(axis=0) - right.mean(axis=0)) < 4.9 * error).all()


def test_no_u_turn_moves_keep_a_law_with_a_wall_where_trajectories_diverge():
    """A normal within walls, which every other trajectory hits."""

    def density(q):
        inside = jnp.all(jnp.abs(q) < 1.2)
        return jnp.where(inside, -0.5 * jnp.sum(q**2), -jnp.inf), jnp.where(inside, -q, jnp.nan)

    draws = np.random.default_rng(0).normal(size=(120_000, 2)).astype(np.float32)
    draws = draws[(np.abs(draws) < 1.2).all(axis=1)]
    starts, others = np.array_split(draws[: len(draws) // 2 * 2], 2)
    ends, diverging = after_moves(NUTS(max_tree_depth=4), density, jnp.asarray(starts), 0.35)
    assert 0.2 < diverging.mean() < 1.0
    assert np.isfinite(ends).all()
    assert_same_law(ends, others)


def test_hamiltonian_moves_of_random_length_keep_the_law():
    """Steps so long that acceptance depends on the length: the two random numbers of a move must not be one."""

    def density(q):
        return -0.5 * jnp.sum((q / jnp.array([1.0, 0.6])) ** 2), -q / jnp.array([1.0, 0.36])

    draws = np.random.default_rng(0).normal(size=(80_000, 2)).astype(np.float32) * np.array([1.0, 0.6], np.float32)
    starts, others = np.split(draws, 2)
    extra = first_path_length(jnp.zeros(2), 1.5)
    ends, _ = after_moves(HMC(), density, jnp.asarray(starts), 0.9, extra=extra)
    assert_same_law(ends, others)


def test_the_path_length_begins_again_with_a_new_metric_but_not_with_the_last():
    num, position = 500, jnp.zeros(2)
    jump = Jump(position, position + 1, jnp.ones(2), jnp.asarray(0.9), jnp.asarray(0.7))
    learned = eqx.tree_at(lambda s: s.log_average, first_path_length(position, 1.0), jnp.log(7.0))
    *early, last = np.flatnonzero(adaptation_windows(num)[1]).tolist()
    for count, again in [*((end + 1, True) for end in early), (last + 1, False), (early[0] + 2, False)]:
        adaptation = first_adaptation(DiagonalMetric(), position, 0.1)
        ended = 0 if count - 1 in (*early, last) else 1
        adaptation = eqx.tree_at(
            lambda a: (a.count, a.step.count), adaptation, (jnp.asarray(count), jnp.asarray(ended))
        )
        found = tune_path_length(learned, jump, adaptation, num, 1000)
        assert (float(found.path_length) == 1.0 and int(found.count) == 0) == again
