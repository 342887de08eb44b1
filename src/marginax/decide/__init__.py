"""What to do with uncertainty: sets that cover, which weights to keep."""

from marginax.decide.conformal import ConformalIntervals, ConformalSets, conformalise
from marginax.decide.jackknife import JackknifePlus, jackknife_plus
from marginax.decide.pruning import Pruning, PruningRow, compact, prune, signal_to_noise
from marginax.decide.rules import (
    APS,
    CQR,
    LAC,
    RAPS,
    AbsoluteResidual,
    AbstractIntervalRule,
    AbstractSetRule,
    Mondrian,
    Normalised,
    PerClass,
    Randomised,
)

__all__ = [
    "APS",
    "CQR",
    "LAC",
    "RAPS",
    "AbsoluteResidual",
    "AbstractIntervalRule",
    "AbstractSetRule",
    "ConformalIntervals",
    "ConformalSets",
    "JackknifePlus",
    "Mondrian",
    "Normalised",
    "PerClass",
    "Pruning",
    "PruningRow",
    "Randomised",
    "compact",
    "conformalise",
    "jackknife_plus",
    "prune",
    "signal_to_noise",
]
