"""Posteriors: distributions over networks, their files, and their export."""

from marginax.posterior.as_prior import FromPosterior, NormalAround
from marginax.posterior.augmentation import augment
from marginax.posterior.conjugate import Conjugate
from marginax.posterior.draws import Draws
from marginax.posterior.flow import AutoregressiveFlow, Transformed
from marginax.posterior.gaussian import Gaussian, Mixture
from marginax.posterior.guided import Guided
from marginax.posterior.hidden_labels import Confusion
from marginax.posterior.mode import AbstractTuning, Mode
from marginax.posterior.normal_families import (
    AbstractNormalFamily,
    DenseNormal,
    DiagonalNormal,
    LowRankNormal,
    NormalMixture,
)
from marginax.posterior.posterior import AbstractPosterior
from marginax.posterior.record import FitRecord, describe
from marginax.posterior.stochastic import Stochastic
from marginax.posterior.storage import load
from marginax.posterior.summary import Summary
from marginax.posterior.wrapped import AbstractWrapped

__all__ = [
    "AbstractNormalFamily",
    "AbstractPosterior",
    "AbstractTuning",
    "AbstractWrapped",
    "AutoregressiveFlow",
    "Confusion",
    "Conjugate",
    "DenseNormal",
    "DiagonalNormal",
    "Draws",
    "FitRecord",
    "FromPosterior",
    "Gaussian",
    "Guided",
    "LowRankNormal",
    "Mixture",
    "Mode",
    "NormalAround",
    "NormalMixture",
    "Stochastic",
    "Summary",
    "Transformed",
    "augment",
    "describe",
    "load",
]
