"""What to do with uncertainty: sets that cover, when not to answer, what to do, which weights to keep."""

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
from marginax.decide.selective import (
    AbstractRiskBound,
    ClopperPearson,
    Hoeffding,
    RiskCoverage,
    Threshold,
    risk_coverage,
    select,
)
from marginax.decide.utility import Decision, choose

__all__ = [
    "APS",
    "CQR",
    "LAC",
    "RAPS",
    "AbsoluteResidual",
    "AbstractIntervalRule",
    "AbstractRiskBound",
    "AbstractSetRule",
    "ClopperPearson",
    "ConformalIntervals",
    "ConformalSets",
    "Decision",
    "Hoeffding",
    "JackknifePlus",
    "Mondrian",
    "Normalised",
    "PerClass",
    "Pruning",
    "PruningRow",
    "Randomised",
    "RiskCoverage",
    "Threshold",
    "choose",
    "compact",
    "conformalise",
    "jackknife_plus",
    "prune",
    "risk_coverage",
    "select",
    "signal_to_noise",
]
