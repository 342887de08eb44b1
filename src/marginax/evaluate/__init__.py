"""How good a prediction is: proper scores, calibration, ranking, information criteria, and distances between two.

Every function takes one of our predictions or plain arrays, and gives a number with its standard error.
"""

from marginax.evaluate.bins import AbstractBins, Distinct, EqualMass, EqualWidth
from marginax.evaluate.calibration import (
    AbsoluteGap,
    AbstractGap,
    SquaredGap,
    classwise_ece,
    ece,
    pit,
    regression_calibration_error,
)
from marginax.evaluate.classification import BrierDecomposition, accuracy, brier, brier_decomposition
from marginax.evaluate.crps import Empirical, Fair, crps
from marginax.evaluate.density import log_predictive_density, nll
from marginax.evaluate.distances import agreement, total_variation, wasserstein
from marginax.evaluate.evidence import EvidenceRow, EvidenceTable, compare_evidence
from marginax.evaluate.leave_one_out import WAIC, LeaveOneOut, loo, waic
from marginax.evaluate.ranking import aupr, auroc
from marginax.evaluate.regression import coverage, interval_score, mae, pinball, rmse, sharpness
from marginax.evaluate.score import AbstractScore, Score, ScoreTable
from marginax.evaluate.table import scores

__all__ = [
    "WAIC",
    "AbsoluteGap",
    "AbstractBins",
    "AbstractGap",
    "AbstractScore",
    "BrierDecomposition",
    "Distinct",
    "Empirical",
    "EqualMass",
    "EqualWidth",
    "EvidenceRow",
    "EvidenceTable",
    "Fair",
    "LeaveOneOut",
    "Score",
    "ScoreTable",
    "SquaredGap",
    "accuracy",
    "agreement",
    "aupr",
    "auroc",
    "brier",
    "brier_decomposition",
    "classwise_ece",
    "compare_evidence",
    "coverage",
    "crps",
    "ece",
    "interval_score",
    "log_predictive_density",
    "loo",
    "mae",
    "nll",
    "pinball",
    "pit",
    "regression_calibration_error",
    "rmse",
    "scores",
    "sharpness",
    "total_variation",
    "waic",
    "wasserstein",
]
