"""Posteriors: distributions over networks, their files, and their export."""

from marginax.posterior.chains import chain_predictions, diagnose_chains
from marginax.posterior.convergence import Convergence, measure_convergence
from marginax.posterior.diagnostics import ChainDiagnostics
from marginax.posterior.draws import Draws
from marginax.posterior.flow import AutoregressiveFlow, Transformed
from marginax.posterior.gaussian import Gaussian, Mixture
from marginax.posterior.mode import Mode
from marginax.posterior.posterior import AbstractPosterior
from marginax.posterior.record import FitRecord, describe
from marginax.posterior.stochastic import Stochastic
from marginax.posterior.storage import load
from marginax.posterior.summary import Summary
from marginax.posterior.tuning import (
    AbstractTuning,
    Evidence,
    HeldOut,
    PerLayer,
    WholeNetwork,
    rescale,
    rescale_noise,
)

__all__ = [
    "AbstractPosterior",
    "AbstractTuning",
    "AutoregressiveFlow",
    "ChainDiagnostics",
    "Convergence",
    "Draws",
    "Evidence",
    "FitRecord",
    "Gaussian",
    "HeldOut",
    "Mixture",
    "Mode",
    "PerLayer",
    "Stochastic",
    "Summary",
    "Transformed",
    "WholeNetwork",
    "chain_predictions",
    "describe",
    "diagnose_chains",
    "load",
    "measure_convergence",
    "rescale",
    "rescale_noise",
]
