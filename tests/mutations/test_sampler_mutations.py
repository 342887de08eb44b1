"""Bugs that samplers can have, each planted alone and caught by a check of the suite.

An accept step forgives much: with it, a wrong gradient or a wrong scale costs efficiency and leaves the law alone. Such
bugs are caught by checks of the dynamics, not of moments.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.infer import test_dynamics as dynamics
from tests.infer import test_stochastic as laws
from tests.mutations.bug import Bug, assert_caught

import marginax as mx
from marginax import testing
from marginax._kernels import random
from marginax.data import Batch, FullBatch, Minibatches
from marginax.infer import (
    HMC,
    MALA,
    NUTS,
    SGHMC,
    SGLD,
    SGNHT,
    AdjustedMCLMC,
    ControlVariates,
    MetropolisHastings,
    ParallelTempering,
)
from marginax.infer.flat import density_of
from marginax.infer.mcmc import adaptation, hmc, integrators, mala, metropolis, nuts, sampler, tempering
from marginax.infer.mcmc.integrators import IntegratorState, state_at
from marginax.infer.sgmcmc import diffusion, sghmc, sgld, sgnht
from marginax.model.likelihoods import real

REGRESSION = testing.linear_regression(3)
BUDGET: dict[str, Any] = {"num_warmup": 0, "num_samples": 1000, "thin": 5, "batch_size": laws.BATCH}
SPACED, SETTLED = dict(BUDGET, thin=10), dict(BUDGET, num_warmup=2000)
STEP = 0.8 * laws.VARIANCE


def check_sgld_law(temperature: float = 1.0) -> None:
    variance = laws.VARIANCE * (temperature + STEP * laws.gradient_variance() / 4) / (1 - STEP / (4 * laws.VARIANCE))
    laws.assert_law(laws.draws_of(SGLD(step_size=STEP, temperature=temperature, **BUDGET)), variance)


def check_control_variates() -> None:
    method = SGLD(step_size=STEP, variance_reduction=ControlVariates(), **BUDGET)
    draws = laws.draws_of(method, Minibatches(laws.PROBLEM.data, laws.BATCH))
    laws.assert_law(draws, laws.VARIANCE / (1 - STEP / (4 * laws.VARIANCE)))


def check_momentum_law() -> None:
    step, friction = 0.2 * laws.VARIANCE, 0.5
    noise = 2 * friction * step + step**2 * laws.gradient_variance()
    draws = laws.draws_of(SGHMC(step_size=step, friction=friction, **SPACED))
    laws.assert_law(draws, laws.underdamped(step, friction, noise))


def check_thermostat() -> None:
    """Velocities settle at the temperature that was asked for, whatever the noise of batches."""
    step = 0.1 * laws.VARIANCE
    method = SGNHT(step_size=step, coupling=2e-3, **SETTLED)
    model = laws.PROBLEM.model
    posterior = mx.fit(model, laws.independent(), method, key=0, num_chains=16, init=model.network)
    warmth = posterior.record.info["sample"]["temperature"].mean()
    assert abs(warmth - 1) < 0.05, f"velocities have temperature {warmth:.2f}"


def check_energy_with_a_dense_scale() -> None:
    """Halving the step quarters the energy error, also in stretched coordinates."""
    with jax.enable_x64(True):
        start = dynamics.start_at(2, "float64")
        metric_sqrt = jnp.diag(jnp.linspace(0.5, 1.5, 5)) + 0.4 * jnp.tril(jnp.ones((5, 5)), -1)

        def error(step_size: float, num_steps: int) -> float:
            end = integrators.integrate(dynamics.quartic, start, step_size, metric_sqrt, num_steps)
            return abs(float(end.energy - start.energy))

        ratio = error(0.02, 50) / error(0.01, 100)
        assert 3.7 < ratio < 4.3, f"half the step has an energy error {ratio:.2f} times smaller"


def check_chains() -> None:
    """A whole run of MALA: the step size stays what warm-up has settled on, and the draws are right."""
    posterior = mx.fit(REGRESSION.model, REGRESSION.data, MALA(300, 1000), key=0, num_chains=16)
    moved = np.ptp(posterior.record.info["sample"]["step_size"], axis=1).max()
    assert moved == 0, f"the step size moves by {moved:.2g} while draws are kept"
    testing.assert_posterior_matches(posterior, REGRESSION, min_ess=1e3)


def check_unit_speed() -> None:
    """MCLMC heads on at unit speed after its direction was refreshed; its moments do not tell."""
    start = integrators.unit(jnp.ones(5))
    speed = jnp.linalg.norm(integrators.refresh(start, jnp.arange(5.0), jnp.asarray(0.3), jnp.asarray(1.0)))
    assert abs(speed - 1) < 1e-6, f"the chain moves at speed {speed:.3f}"


UNIT_SCALE = np.linalg.cholesky(REGRESSION.covariance)


def check_moves(method: Any, step_size: float, metric_sqrt: np.ndarray = UNIT_SCALE) -> None:
    """Independent draws from the posterior are still that after a few moves with a long step."""
    batch = FullBatch(REGRESSION.data).batch(0, key=jax.random.key(0))

    @jax.jit
    def run(key: Any) -> Any:
        density = density_of(REGRESSION.model, batch, REGRESSION.start)
        scale = jnp.asarray(metric_sqrt, jnp.float32)
        starting, moving = jax.random.split(key)
        position = jnp.asarray(REGRESSION.mean, jnp.float32) + UNIT_SCALE @ jax.random.normal(starting, (3,))

        def move(state: Any, key: Any) -> Any:
            extra = hmc.first_path_length(state.position, 1.5)
            tuning = sampler.Tuning(jnp.asarray(step_size), scale, extra)
            return method.move(density, state, tuning, key=key)[0], None

        return jax.lax.scan(move, state_at(density, position), jax.random.split(moving, 4))[0].position

    draws = np.asarray(jax.vmap(run)(jax.random.split(jax.random.key(1), 20_000)))
    testing.assert_moments_match(draws[:, None], REGRESSION.mean, REGRESSION.covariance, name="after some moves")


def moments(method: Any, problem: Any = REGRESSION, num_chains: int = 16) -> Callable[[], Any]:
    return lambda: testing.check_moments(method, problem, num_chains=num_chains, min_ess=1e3)


CHECKS: dict[str, Callable[[], Any]] = {
    "Metropolis moves": lambda: check_moves(MetropolisHastings(), 1.5),
    "MALA moves": lambda: check_moves(MALA(), 1.3),
    "HMC moves": lambda: check_moves(HMC(), 1.0),
    "NUTS moves": lambda: check_moves(NUTS(max_tree_depth=5), 1.2),
    # unequal scales: with equal ones all trajectories turn at the same time, and subtrees never matter
    "NUTS turns": lambda: check_moves(NUTS(max_tree_depth=5), 0.15, np.ones(3)),
    "adjusted MCLMC moves": lambda: check_moves(AdjustedMCLMC(), 1.0),
    "chains": check_chains,
    "learned noise": moments(MALA(300, 1000), testing.linear_regression_unknown_noise()),
    "tempering": moments(ParallelTempering(300, 1000, num_temperatures=3), num_chains=4),
    "SGLD": check_sgld_law,
    "SGLD, cold": lambda: check_sgld_law(0.25),
    "SGHMC": check_momentum_law,
    "thermostat": check_thermostat,
    "control variates": check_control_variates,
    "reversible": lambda: dynamics.test_leapfrog_is_reversible("float64", 1e-10, False),
    "energy, dense scale": check_energy_with_a_dense_scale,
    "unit speed": check_unit_speed,
}


# ---- random numbers


def always_small(key, index, *, stream=0):
    del key, stream
    return jnp.full(jnp.shape(index), 1e-7)


def always_forward(key, index, *, stream=0):
    return always_small(key, index) if stream == nuts._DIRECTIONS else random.uniform(key, index, stream=stream)


def drawn_once(key, shape=(), dtype=float, *, stream=0):
    del key
    return random.normal(jax.random.key(0), shape, dtype, stream=stream)


def same_noise_every_step(key, tree):
    del key
    return random.normal_like(jax.random.key(0), tree)


def noise_times(factor: float):
    return lambda key, tree: jax.tree.map(lambda leaf: factor * leaf, random.normal_like(key, tree))


def same_key_every_step(self, model, state, batch, *, key, _original=sampler.AbstractSampler.step):
    del key
    return _original(self, model, state, batch, key=jax.random.key(7))


# ---- chains


def never_accepts(energy_error):
    return jnp.zeros_like(energy_error), jnp.zeros((), bool)


def adapts_for_ever(condition, yes, no):
    del condition, no
    return yes


# ---- the model


def without_jacobian(prior, log_scale):
    return jnp.sum(prior.log_prob(jnp.exp(log_scale)))


# ---- Hamiltonian dynamics


def full_first_kick(density, start, step_size, metric_sqrt):
    velocity = start.velocity + step_size * adaptation.apply_sqrt_transposed(metric_sqrt, start.state.gradient)
    state = state_at(density, start.state.position + step_size * adaptation.apply_sqrt(metric_sqrt, velocity))
    return IntegratorState(state, velocity)


def not_transposed(metric_sqrt, gradient):
    return metric_sqrt * gradient if metric_sqrt.ndim == 1 else metric_sqrt @ gradient


def downhill(metric_sqrt, gradient, _original=adaptation.apply_sqrt_transposed):
    return -_original(metric_sqrt, gradient)


def old_and_new_alike(tree, branch, forward, draw, _original=nuts._joined):
    def counted(part, num):
        return eqx.tree_at(lambda t: t.log_weight, part, jnp.log(num.astype(part.log_weight.dtype)))

    return _original(counted(tree, tree.num_leaves + 1), counted(branch, branch.num_leaves), forward, draw)


def never_turns_within(velocities, sums, velocity, total, lowest, highest):
    del velocities, sums, velocity, total, lowest, highest
    return jnp.zeros((), bool)


def exchange_without_test(betas, log_likelihoods, draws, parity, _original=tempering.exchange):
    return _original(betas, log_likelihoods, jnp.zeros_like(draws), parity)


# ---- microcanonical dynamics


def kick_of_full_rank(direction, gradient, step_size, _original=integrators.kick):
    share = max(direction.size - 1, 1) / direction.size
    turned, gained = _original(direction, gradient, share * step_size)
    return turned, gained / share


def unnormalised(direction, noise, step_size, length):
    return direction + jnp.sqrt(jnp.expm1(2.0 * step_size / length) / direction.size) * noise


# ---- stochastic gradients


def negative_gradient(self, model, state, batch, _original=diffusion.AbstractStochasticSampler.gradient):
    value, gradient = _original(self, model, state, batch)
    return value, jax.tree.map(jnp.negative, gradient)


def squared_temperature(self, model, state, batch, *, key):
    step_size = self.step_size_at(state, batch)
    return self.move(model, state, batch, step_size, self.temperature**2, key=key)


def anchor_without_prior(self, model, state, batch, *, key, _original=diffusion.AbstractStochasticSampler.anchor_step):
    new, info = _original(self, model, state, batch, key=key)
    prior = jax.grad(model.log_prior)(state.params)
    lacking = jax.tree.map(lambda g, p: g - jnp.where(state.anchor.count == 0, p, 0.0), new.anchor.gradient, prior)
    return eqx.tree_at(lambda s: s.anchor.gradient, new, lacking), info


def heats_when_hot(self, params, memory, gradient, step_size, temperature, key, _original=sgnht.SGNHT.update):
    params, new, info = _original(self, params, memory, gradient, step_size, temperature, key)
    return params, eqx.tree_at(lambda m: m.friction, new, 2.0 * memory.friction - new.friction), info


OFF = "more than 4.9 standard errors off"

ENERGY = "energy error .* times smaller"
SAMPLER, STOCHASTIC = sampler.AbstractSampler, diffusion.AbstractStochasticSampler

BUGS = [
    Bug("Metropolis accepts everything", metropolis, "uniform", always_small, "Metropolis moves", OFF),
    Bug("MALA has no accept step", mala, "uniform", always_small, "MALA moves", OFF),
    Bug("MALA draws velocity and accept from one stream", mala, "_ACCEPT", 0, "MALA moves", OFF),
    Bug("MALA never accepts", integrators, "acceptance_of", never_accepts, "chains", OFF),
    Bug("the key is the same at every step", SAMPLER, "step", same_key_every_step, "chains", OFF),
    Bug("adaptation never ends", sampler, "choose", adapts_for_ever, "chains", "step size moves"),
    Bug("HMC never refreshes its momentum", hmc, "normal", drawn_once, "HMC moves", OFF),
    Bug("leapfrog begins with a full kick", integrators, "leapfrog", full_first_kick, "reversible", "Not equal"),
    Bug("gradient has the wrong sign", integrators, "apply_sqrt_transposed", downhill, "energy, dense scale", ENERGY),
    Bug(
        "metric square root is not transposed",
        integrators,
        "apply_sqrt_transposed",
        not_transposed,
        "energy, dense scale",
        ENERGY,
    ),
    Bug("NUTS ignores energy between halves", nuts, "_joined", old_and_new_alike, "NUTS moves", OFF),
    Bug("NUTS only goes forward", nuts, "uniform", always_forward, "NUTS turns", OFF),
    Bug("NUTS overlooks turns within", nuts, "_any_turn", never_turns_within, "NUTS turns", OFF),
    Bug("Jacobian of the noise scale is missing", real, "log_prior_of_log", without_jacobian, "learned noise", OFF),
    Bug("replicas are exchanged without a test", tempering, "exchange", exchange_without_test, "tempering", OFF),
    Bug("kick has rank d", integrators, "kick", kick_of_full_rank, "adjusted MCLMC moves", OFF),
    Bug("direction is not renormalised", integrators, "refresh", unnormalised, "unit speed", "moves at speed"),
    Bug("N/B is missing", Batch, "weight", 1.0, "SGLD", OFF),
    Bug("SGLD goes downhill", STOCHASTIC, "gradient", negative_gradient, "SGLD", "became NaN"),
    Bug("SGLD noise is that of a doubled step", sgld, "normal_like", noise_times(2**0.5), "SGLD", OFF),
    Bug("SGLD noise is the same at every step", sgld, "normal_like", same_noise_every_step, "SGLD", OFF),
    Bug("temperature is squared", STOCHASTIC, "step", squared_temperature, "SGLD, cold", OFF),
    Bug("SGHMC noise lacks the friction", sghmc, "normal_like", noise_times(2**0.5), "SGHMC", OFF),
    Bug("thermostat has the wrong sign", sgnht.SGNHT, "update", heats_when_hot, "thermostat", "temperature|NaN"),
    Bug("anchor lacks the prior", STOCHASTIC, "anchor_step", anchor_without_prior, "control variates", OFF),
]


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKS)
def test_check_passes_without_a_bug(name):
    CHECKS[name]()


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_bug_is_caught(bug):
    assert_caught(bug, CHECKS[bug.check], (AssertionError, RuntimeWarning))  # a warning of the driver is an error here
