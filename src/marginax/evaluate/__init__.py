"""How good a prediction is: scores, calibration, ranking, comparisons, inputs out of distribution, chains.

Every function takes one of our predictions or plain arrays, and gives a number with its standard error.
"""

import importlib
import pkgutil

from marginax.evaluate.baselines import baselines
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
from marginax.evaluate.chain_diagnostics import ChainDiagnostics
from marginax.evaluate.chains import chain_predictions, diagnose_chains
from marginax.evaluate.classification import BrierDecomposition, accuracy, brier, brier_decomposition
from marginax.evaluate.comparison import Comparison, ComparisonRow, compare, load_comparison
from marginax.evaluate.convergence import Convergence, measure_convergence
from marginax.evaluate.crps import Empirical, Fair, crps
from marginax.evaluate.density import log_predictive_density, nll
from marginax.evaluate.distances import agreement, total_variation, wasserstein
from marginax.evaluate.evidence import EvidenceRow, EvidenceTable, compare_evidence
from marginax.evaluate.leave_one_out import WAIC, LeaveOneOut, loo, waic
from marginax.evaluate.ood_scores import Energy, Mahalanobis
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
from marginax.evaluate.proportion import Proportion
from marginax.evaluate.ranking import aupr, auroc
from marginax.evaluate.regression import coverage, interval_score, mae, pinball, r2, rmse, sharpness
from marginax.evaluate.score import AbstractScore, Score, ScoreEntry, ScoreTable, registered_scores
from marginax.evaluate.table import scores

__all__ = [
    "WAIC",
    "AbsoluteGap",
    "AbstractBins",
    "AbstractGap",
    "AbstractOODScore",
    "AbstractScore",
    "BrierDecomposition",
    "ChainDiagnostics",
    "Comparison",
    "ComparisonRow",
    "Convergence",
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
    "LeaveOneOut",
    "Mahalanobis",
    "MaxProbability",
    "MutualInformation",
    "OODResult",
    "Proportion",
    "Score",
    "ScoreEntry",
    "ScoreTable",
    "SquaredGap",
    "Std",
    "accuracy",
    "agreement",
    "aupr",
    "auroc",
    "baselines",
    "brier",
    "brier_decomposition",
    "chain_predictions",
    "classwise_ece",
    "compare",
    "compare_evidence",
    "coverage",
    "crps",
    "diagnose_chains",
    "ece",
    "interval_score",
    "load_comparison",
    "log_predictive_density",
    "loo",
    "mae",
    "measure_convergence",
    "nll",
    "ood",
    "pinball",
    "pit",
    "r2",
    "registered_scores",
    "regression_calibration_error",
    "rmse",
    "scores",
    "separate",
    "sharpness",
    "total_variation",
    "waic",
    "wasserstein",
]

for _module in pkgutil.iter_modules(__path__):  # a score is declared in its file, and found
    importlib.import_module(f"{__name__}.{_module.name}")
for _entry in registered_scores().values():
    if _entry.function.__name__ not in __all__:
        globals()[_entry.function.__name__] = _entry.function
        __all__ += [_entry.function.__name__]
