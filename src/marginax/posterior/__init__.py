"""Posteriors: distributions over networks, their files, and their export."""

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
    "describe",
    "load",
    "rescale",
    "rescale_noise",
]
