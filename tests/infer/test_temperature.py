"""Every method with a `temperature` gives, at T = 1/4, the law (or the optimum) of the tempered posterior."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from tests.infer import test_stochastic as laws
from tests.infer.test_stochastic import BUDGET, PRECISION, VARIANCE, underdamped

import marginax as mx
from marginax import testing
from marginax.infer import (
    HMC,
    IVON,
    MALA,
    MCLMC,
    NUTS,
    SGHMC,
    SGLD,
    SGNHT,
    VBLL,
    VI,
    Adam,
    AdjustedMCLMC,
    Barker,
    BayesByBackprop,
    MeanField,
    MetropolisHastings,
    MinibatchMetropolis,
    ParallelTempering,
    PreconditionedSGLD,
    Uniform,
)
from marginax.infer.catalogue import catalogue

T = 0.25
COVARIANCE = np.array([[1.0, 0.6], [0.6, 2.0]])
MEAN = np.array([1.0, -2.0])
NORMAL = np.linalg.inv(COVARIANCE).astype(np.float32)

CHAINS = {
    "NUTS": NUTS(300, 1000, temperature=T),
    "HMC": HMC(300, 1000, temperature=T),
    "MALA": MALA(500, 1000, thin=8, temperature=T),
    "Barker": Barker(500, 1000, thin=8, temperature=T),
    "MetropolisHastings": MetropolisHastings(1000, 1000, thin=20, temperature=T),
    "AdjustedMCLMC": AdjustedMCLMC(300, 1000, temperature=T),
    "MCLMC": MCLMC(1500, 1000, thin=20, energy_variance=1e-5, temperature=T),
    "ParallelTempering": ParallelTempering(300, 1000, num_temperatures=3, max_temperature=4.0, temperature=T),
}


@pytest.mark.parametrize("name", CHAINS)
def test_samplers_have_the_covariance_of_the_tempered_posterior(name):
    density = mx.Density(lambda q: -0.5 * (q - MEAN) @ NORMAL @ (q - MEAN), jnp.zeros(2))
    posterior = mx.fit(density, None, CHAINS[name], key=0, num_chains=8, progress=False)
    testing.assert_moments_match(np.asarray(posterior.params), MEAN, T * COVARIANCE, min_ess=1e3, name=name)


ALL_ROWS: dict[str, Any] = BUDGET | {"batch_size": None, "temperature": T}
STEP = 0.2 * VARIANCE


def thermostatted(step: float, friction: float) -> float:
    """Variance of theta where the friction has settled: velocities then have the temperature of what is injected."""

    def warmth(damping: float) -> float:
        transition = np.array([[1 - step * PRECISION, 1 - damping], [-step * PRECISION, 1 - damping]])
        return laws.lyapunov(transition, 2 * friction * step * np.ones((2, 2)))[1, 1] / step

    low, high = 0.5 * friction, 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if warmth(middle) > 1 else (low, middle)
    return underdamped(step, low, 2 * friction * step)


# without noise of batches all laws are those at T = 1, scaled
DIFFUSIONS = {
    "SGLD": (SGLD(step_size=0.8 * VARIANCE, **ALL_ROWS), VARIANCE / (1 - 0.8 / 4)),
    "SGLD, corrected": (SGLD(step_size=2.0 * VARIANCE, correction=MinibatchMetropolis(), **ALL_ROWS), VARIANCE),
    "SGHMC": (SGHMC(step_size=STEP, friction=0.5, **ALL_ROWS), underdamped(STEP, 0.5, 2 * 0.5 * STEP)),
    "SGNHT": (
        SGNHT(step_size=0.1 * VARIANCE, coupling=8e-4, **ALL_ROWS | {"num_warmup": 4000, "thin": 20}),
        thermostatted(0.1 * VARIANCE, 0.1),
    ),
}


@pytest.mark.parametrize("name", DIFFUSIONS)
def test_diffusions_have_their_discretised_law_at_the_temperature(name):
    method, variance = DIFFUSIONS[name]
    laws.assert_law(laws.draws_of(method, laws.PROBLEM.data), T * variance)


def test_preconditioned_steps_have_the_law_of_their_scaling_at_the_temperature():
    """As at T = 1 (tests of `test_stochastic`), where the noise of batches is not tempered and the rest is."""
    step = 2e-3
    method = PreconditionedSGLD(
        step_size=step, decay=0.9999, stabiliser=1e-3, **BUDGET | {"num_warmup": 4000, "temperature": T}
    )
    variance, noise = VARIANCE, laws.gradient_variance()
    for _ in range(200):
        square = (noise + variance * PRECISION**2) / laws.NUM**2
        scaled = step / (1e-3 + np.sqrt(square))
        variance = VARIANCE * (T + scaled * noise / 4) / (1 - scaled / (4 * VARIANCE))
    assert abs(laws.draws_of(method).var() / variance - 1) < 0.03


OPTIMA = {
    "VI": VI(num_epochs=3000, num_particles=32, temperature=T, kl_warmup=0.1, batch_size=None, optimiser=Adam(2e-2)),
    "BayesByBackprop": BayesByBackprop(
        prior=None,
        weighting=Uniform(),
        num_particles=32,
        temperature=T,
        num_epochs=3000,
        batch_size=None,
        optimiser=Adam(2e-2),
    ),
    "VBLL": VBLL(MeanField(), num_epochs=3000, batch_size=None, temperature=T),
    "IVON": IVON(num_epochs=20_000, batch_size=None, b2=0.999, temperature=T),
}


@pytest.mark.parametrize("name", OPTIMA)
def test_variational_optima_are_those_of_the_tempered_posterior(name):
    problem = testing.linear_layer(3, condition_number=5.0)
    posterior = mx.fit(problem.model, problem.data, OPTIMA[name], key=0, progress=False)
    variances = T / np.diag(problem.precision)
    mean = np.asarray(ravel_pytree(posterior.mean)[0])
    assert (np.abs(mean - problem.mean) < 0.1 * np.sqrt(variances)).all()
    np.testing.assert_allclose(np.diag(np.asarray(posterior.covariance.dense())), variances, rtol=0.1)


def test_no_method_with_a_temperature_is_left_out():
    tested = [*CHAINS.values(), *(method for method, _ in DIFFUSIONS.values()), *OPTIMA.values(), PreconditionedSGLD()]
    having = {entry.name for entry in catalogue() if hasattr(entry.method, "temperature")}
    assert having == {type(method).__name__ for method in tested}
