"""What to do with uncertainty: sets that cover, when not to answer, what to do or ask, which weights to keep."""

from marginax.decide.acquisition import (
    BALD,
    EPIG,
    AbstractAcquisition,
    AbstractPointwise,
    BatchBALD,
    Entropy,
    PredictiveCovariance,
    PredictiveVariance,
    Query,
    Random,
    VariationRatios,
)
from marginax.decide.active import Learned, OracleError, learn_actively, resume_learning
from marginax.decide.conformal import ConformalIntervals, ConformalSets, conformalise
from marginax.decide.curve import LearningCurve
from marginax.decide.drawn import draw_probs
from marginax.decide.jackknife import JackknifePlus, jackknife_plus
from marginax.decide.optimisation import expected_improvement
from marginax.decide.oracle import KnownLabels, OneAtATime
from marginax.decide.pool import Pool
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
    "BALD",
    "CQR",
    "EPIG",
    "LAC",
    "RAPS",
    "AbsoluteResidual",
    "AbstractAcquisition",
    "AbstractIntervalRule",
    "AbstractPointwise",
    "AbstractRiskBound",
    "AbstractSetRule",
    "BatchBALD",
    "ClopperPearson",
    "ConformalIntervals",
    "ConformalSets",
    "Decision",
    "Entropy",
    "Hoeffding",
    "JackknifePlus",
    "KnownLabels",
    "Learned",
    "LearningCurve",
    "Mondrian",
    "Normalised",
    "OneAtATime",
    "OracleError",
    "PerClass",
    "Pool",
    "PredictiveCovariance",
    "PredictiveVariance",
    "Pruning",
    "PruningRow",
    "Query",
    "Random",
    "Randomised",
    "RiskCoverage",
    "Threshold",
    "VariationRatios",
    "choose",
    "compact",
    "conformalise",
    "draw_probs",
    "expected_improvement",
    "jackknife_plus",
    "learn_actively",
    "prune",
    "resume_learning",
    "risk_coverage",
    "select",
    "signal_to_noise",
]
