"""Simulation-based calibration: exact samplers pass on data sets of the model's own making, wrong ones fail."""

from dataclasses import dataclass

import jax
import numpy as np
import pytest

import marginax as mx
from marginax import testing
from marginax.curvature import Dense
from marginax.infer import (
    HMC,
    MALA,
    MAP,
    NUTS,
    SGLD,
    VI,
    Adam,
    AdjustedMCLMC,
    ClosedForm,
    FullRank,
    Laplace,
    MeanField,
    MetropolisHastings,
    ParallelTempering,
    StickingTheLanding,
)
from marginax.predict import ThroughNetwork

# Draws are thinned until neighbours hardly correlate.
EXACT = {
    "NUTS": NUTS(300, 63, thin=6),
    "HMC": HMC(300, 63, thin=6),
    "MALA": MALA(500, 63, thin=150),
    "MetropolisHastings": MetropolisHastings(2000, 63, thin=400),
    "AdjustedMCLMC": AdjustedMCLMC(300, 63, thin=6),
    "ParallelTempering": ParallelTempering(300, 63, thin=10, num_temperatures=3, max_temperature=4.0),
}
PROBLEMS = {
    "beta-binomial": (testing.beta_binomial(), testing.weights_and_fit),
    "gamma-Poisson": (testing.gamma_poisson(), testing.weights_and_fit),
    "Dirichlet-multinomial": (testing.dirichlet_multinomial(), testing.weights_and_fit),
    "linear regression": (testing.linear_regression(3), testing.weights_and_fit),
    "logistic regression": (testing.logistic_regression(), testing.weights_and_fit),
    "one tanh unit": (testing.tanh_network(1), testing.functions_and_fit),
}
# Full batch, so that the only fault is what is asked for: a posterior of twice the variance.
HOT = SGLD(step_size=0.002, temperature=2.0, num_warmup=500, num_samples=63, thin=100, batch_size=None, training=None)


@pytest.mark.slow
@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("method", EXACT.values(), ids=EXACT)
def test_exact_sampler_is_calibrated(method, problem):
    where, quantities = PROBLEMS[problem]
    found = testing.simulation_based_calibration(method, where, quantities=quantities)
    assert found.ranks.shape[0] == 200
    found.check()


@dataclass
class FewRows:
    """A line with slope and intercept, and so few rows that the prior matters."""

    num: int

    @property
    def model(self):
        network = mx.nets.MLP(1, (), 1, key=0)
        return mx.Model(network, mx.likelihoods.Gaussian(scale=2.0), mx.priors.Normal(1.0))

    @property
    def data(self):
        return np.array([[1.0], [-0.5]])[: self.num], np.zeros(self.num)


def test_two_rows_are_calibrated():
    """A normal posterior in closed form, so that the draws of prior and data are what is tested."""
    training = MAP(num_epochs=300, batch_size=None, optimiser=Adam(0.1))
    exact = Laplace(structure=Dense(), training=training, predictive=ThroughNetwork())
    testing.simulation_based_calibration(
        exact, FewRows(2), num_simulations=100, quantities=testing.functions_and_fit
    ).check()


@pytest.mark.slow
@pytest.mark.parametrize("num", [1, 2])
@pytest.mark.parametrize("method", EXACT.values(), ids=EXACT)
def test_exact_sampler_is_calibrated_on_one_or_two_rows(method, num):
    testing.simulation_based_calibration(method, FewRows(num), quantities=testing.functions_and_fit).check()


@pytest.mark.slow
def test_learned_noise_is_calibrated():
    """The noise scale is drawn from its prior, too."""
    problem = testing.linear_regression_unknown_noise()
    testing.simulation_based_calibration(NUTS(300, 63, thin=4), problem, quantities=testing.weights_and_fit).check()


@pytest.mark.slow
def test_hot_sampler_is_not_calibrated():
    found = testing.simulation_based_calibration(HOT, testing.gaussian_mean())
    with pytest.raises(AssertionError, match="not uniform"):
        found.check()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "is_right"), [(FullRank(), True), (MeanField(), False)], ids=["full rank", "mean field"]
)
def test_a_normal_with_correlations_is_calibrated_on_a_correlated_posterior_and_one_without_is_not(family, is_right):
    divergence = StickingTheLanding() if is_right else ClosedForm()
    method = VI(family, divergence=divergence, num_epochs=3000, batch_size=None, num_particles=4, optimiser=Adam(2e-2))
    problem = testing.linear_regression(3, condition_number=400.0)
    found = testing.simulation_based_calibration(method, problem, quantities=testing.weights_and_fit)
    if is_right:
        found.check()
        return
    with pytest.raises(AssertionError, match="not uniform"):
        found.check()


def calibration_of(ranks: np.ndarray) -> testing.Calibration:
    return testing.Calibration("made up", ranks[:, None], 63, np.zeros(1))


def test_p_values_are_uniform_for_uniform_ranks_and_tiny_for_others():
    rng = np.random.default_rng(0)
    ranks = rng.integers(0, 64, size=(200, 2000))
    p_values = testing.Calibration("uniform", ranks, 63, np.zeros(2000)).p_values
    assert abs((p_values < 0.05).mean() - 0.05) < 0.02
    assert (p_values < 0.001).sum() < 12
    position = rng.normal(size=200)
    for shift, stretch in ((0.5, 1.0), (0.0, 1.5), (0.0, 0.6)):
        # ranks of a truth among draws that are shifted or too narrow or too wide
        values = shift + stretch * position
        ranks = np.clip((np.asarray(jax.scipy.stats.norm.cdf(values)) * 64).astype(int), 0, 63)
        with pytest.raises(AssertionError, match="ranks of quantity 0 are not uniform"):
            calibration_of(ranks).check()
    calibration_of(rng.integers(0, 64, size=200)).check()


@pytest.mark.slow
def test_ties_are_broken_fairly():
    """A quantity that never varies has uniform ranks, not all zero."""
    found = testing.simulation_based_calibration(
        NUTS(20, 15),
        testing.gaussian_mean(),
        num_simulations=20,
        num_draws=15,
        quantities=lambda model, params, batch: testing.weights_and_fit(model, params, batch) * 0,
    )
    assert found.ranks.std() > 2
    assert found.ranks.max() <= 15


def test_bad_numbers_are_refused():
    with pytest.raises(ValueError, match="num_draws must be one less than a multiple of 16"):
        testing.simulation_based_calibration(NUTS(), testing.gaussian_mean(), num_draws=50)
    with pytest.raises(ValueError, match="num_draws=63 draws of equal weight, got 10"):
        testing.simulation_based_calibration(NUTS(10, 10), testing.gaussian_mean())
