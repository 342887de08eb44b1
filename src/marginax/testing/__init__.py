"""Exact posteriors to compare with, and checks that every method must pass: for ours, and for yours."""

from marginax.testing.batches import IndependentBatches
from marginax.testing.calibration import (
    Calibration,
    functions_and_fit,
    simulation_based_calibration,
    weights_and_fit,
)
from marginax.testing.conformance import check_method
from marginax.testing.conjugate import (
    BetaBinomial,
    DirichletMultinomial,
    GammaPoisson,
    beta_binomial,
    dirichlet_multinomial,
    gamma_poisson,
)
from marginax.testing.drawings import invented_characters
from marginax.testing.functions import TestFunction, ackley, branin, forrester, hartmann6
from marginax.testing.linear import (
    LinearGaussian,
    correlated_normal,
    gaussian_mean,
    linear_layer,
    linear_regression,
)
from marginax.testing.logistic import Logistic, logistic_regression
from marginax.testing.problem import AbstractProblem, ExactPrediction
from marginax.testing.recovery import (
    assert_posterior_matches,
    check_batches,
    check_log_density,
    check_mode,
    check_moments,
    coordinates,
)
from marginax.testing.scores import MomentScores, assert_moments_match, z_scores
from marginax.testing.tanh import TanhNetwork, tanh_network
from marginax.testing.tasks import (
    gaussian_process_predictive,
    gaussian_process_tasks,
    periodic,
    squared_exponential,
)
from marginax.testing.unknown_noise import LinearUnknownNoise, linear_regression_unknown_noise

__all__ = [
    "AbstractProblem",
    "BetaBinomial",
    "Calibration",
    "DirichletMultinomial",
    "ExactPrediction",
    "GammaPoisson",
    "IndependentBatches",
    "LinearGaussian",
    "LinearUnknownNoise",
    "Logistic",
    "MomentScores",
    "TanhNetwork",
    "TestFunction",
    "ackley",
    "assert_moments_match",
    "assert_posterior_matches",
    "beta_binomial",
    "branin",
    "check_batches",
    "check_log_density",
    "check_method",
    "check_mode",
    "check_moments",
    "coordinates",
    "correlated_normal",
    "dirichlet_multinomial",
    "forrester",
    "functions_and_fit",
    "gamma_poisson",
    "gaussian_mean",
    "gaussian_process_predictive",
    "gaussian_process_tasks",
    "hartmann6",
    "invented_characters",
    "linear_layer",
    "linear_regression",
    "linear_regression_unknown_noise",
    "logistic_regression",
    "periodic",
    "simulation_based_calibration",
    "squared_exponential",
    "tanh_network",
    "weights_and_fit",
    "z_scores",
]
