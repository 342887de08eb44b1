"""Posteriors: distributions over networks, their files, and their export."""

from marginax.posterior.chains import chain_predictions, diagnose_chains
from marginax.posterior.convergence import Convergence, measure_convergence
from marginax.posterior.diagnostics import ChainDiagnostics
from marginax.posterior.draws import Draws
from marginax.posterior.flow import AutoregressiveFlow, Transformed
from marginax.posterior.gaussian import Gaussian, Mixture
from marginax.posterior.posterior import AbstractPosterior
from marginax.posterior.record import FitRecord, describe
from marginax.posterior.stochastic import Stochastic
from marginax.posterior.storage import load
from marginax.posterior.summary import Summary

__all__ = [
    "AbstractPosterior",
    "AutoregressiveFlow",
    "ChainDiagnostics",
    "Convergence",
    "Draws",
    "FitRecord",
    "Gaussian",
    "Mixture",
    "Stochastic",
    "Summary",
    "Transformed",
    "chain_predictions",
    "describe",
    "diagnose_chains",
    "load",
    "measure_convergence",
]
