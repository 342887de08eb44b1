"""Posteriors: distributions over networks, their files, and their export."""

from marginax.posterior.chains import chain_predictions, diagnose_chains
from marginax.posterior.convergence import Convergence, measure_convergence
from marginax.posterior.diagnostics import ChainDiagnostics
from marginax.posterior.draws import Draws
from marginax.posterior.gaussian import Gaussian, Mixture
from marginax.posterior.posterior import AbstractPosterior
from marginax.posterior.record import FitRecord, describe
from marginax.posterior.storage import load
from marginax.posterior.summary import Summary

__all__ = [
    "AbstractPosterior",
    "ChainDiagnostics",
    "Convergence",
    "Draws",
    "FitRecord",
    "Gaussian",
    "Mixture",
    "Summary",
    "chain_predictions",
    "describe",
    "diagnose_chains",
    "load",
    "measure_convergence",
]
