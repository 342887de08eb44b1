"""How good a prediction is: scores, calibration and what to do about it, ranking, comparisons, strange inputs.

Every function takes one of our predictions or plain arrays, and gives a number with its standard error.
"""

from marginax.evaluate.bins import AbstractBins, Distinct, EqualMass, EqualWidth
from marginax.evaluate.calibrated import Calibrated
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
from marginax.evaluate.comparison import Comparison, ComparisonRow, compare, load_comparison
from marginax.evaluate.crps import Empirical, Fair, crps
from marginax.evaluate.density import log_predictive_density, nll
from marginax.evaluate.distances import agreement, total_variation, wasserstein
from marginax.evaluate.evidence import EvidenceRow, EvidenceTable, compare_evidence
from marginax.evaluate.leave_one_out import WAIC, LeaveOneOut, loo, waic
from marginax.evaluate.logit_scaling import (
    BayesianTemperature,
    BayesianTemperatureCalibrator,
    Temperature,
    TemperatureCalibrator,
    VectorCalibrator,
    VectorScaling,
)
from marginax.evaluate.number_maps import (
    QuantileCalibrator,
    QuantileRecalibration,
    VarianceCalibrator,
    VarianceScaling,
)
from marginax.evaluate.odds_maps import Beta, Isotonic, IsotonicCalibrator, OddsCalibrator, Platt
from marginax.evaluate.out_of_distribution import (
    AbstractOODScore,
    Entropy,
    Epistemic,
    MaxProbability,
    MutualInformation,
    OODResult,
    Std,
    ood,
    separate,
)
from marginax.evaluate.ranking import aupr, auroc
from marginax.evaluate.recalibrated import RecalibratedPrediction
from marginax.evaluate.recalibration import AbstractCalibrator, AbstractRecalibration, recalibrate
from marginax.evaluate.regression import coverage, interval_score, mae, pinball, rmse, sharpness
from marginax.evaluate.score import AbstractScore, Score, ScoreTable
from marginax.evaluate.strangeness import Energy, Mahalanobis
from marginax.evaluate.table import scores

__all__ = [
    "WAIC",
    "AbsoluteGap",
    "AbstractBins",
    "AbstractCalibrator",
    "AbstractGap",
    "AbstractOODScore",
    "AbstractRecalibration",
    "AbstractScore",
    "BayesianTemperature",
    "BayesianTemperatureCalibrator",
    "Beta",
    "BrierDecomposition",
    "Calibrated",
    "Comparison",
    "ComparisonRow",
    "Distinct",
    "Empirical",
    "Energy",
    "Entropy",
    "Epistemic",
    "EqualMass",
    "EqualWidth",
    "EvidenceRow",
    "EvidenceTable",
    "Fair",
    "Isotonic",
    "IsotonicCalibrator",
    "LeaveOneOut",
    "Mahalanobis",
    "MaxProbability",
    "MutualInformation",
    "OODResult",
    "OddsCalibrator",
    "Platt",
    "QuantileCalibrator",
    "QuantileRecalibration",
    "RecalibratedPrediction",
    "Score",
    "ScoreTable",
    "SquaredGap",
    "Std",
    "Temperature",
    "TemperatureCalibrator",
    "VarianceCalibrator",
    "VarianceScaling",
    "VectorCalibrator",
    "VectorScaling",
    "accuracy",
    "agreement",
    "aupr",
    "auroc",
    "brier",
    "brier_decomposition",
    "classwise_ece",
    "compare",
    "compare_evidence",
    "coverage",
    "crps",
    "ece",
    "interval_score",
    "load_comparison",
    "log_predictive_density",
    "loo",
    "mae",
    "nll",
    "ood",
    "pinball",
    "pit",
    "recalibrate",
    "regression_calibration_error",
    "rmse",
    "scores",
    "separate",
    "sharpness",
    "total_variation",
    "waic",
    "wasserstein",
]
