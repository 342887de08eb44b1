"""scikit-learn's face: estimators that take tables and give predictions with uncertainty."""

import os

from marginax._extras import require

require("sklearn")

from marginax.estimators.backtest import Backtest
from marginax.estimators.choice import choose_method, likelihood_named, method_named
from marginax.estimators.classifier import BayesianClassifier
from marginax.estimators.columns import ColumnEncoder
from marginax.estimators.estimator import BayesianEstimator
from marginax.estimators.forecast import Forecast
from marginax.estimators.forecaster import BayesianForecaster
from marginax.estimators.latent import BayesianHMM, BayesianMixture, BayesianPCA, BayesianTopics
from marginax.estimators.regressor import BayesianRegressor
from marginax.estimators.series import split_series


def load(path: str | os.PathLike[str]) -> BayesianRegressor | BayesianClassifier:
    """Read an estimator, whichever it is, that `save` or a finished `fit(X, y, directory=...)` wrote."""
    return BayesianEstimator.load(path)


def resume(
    directory: str | os.PathLike[str], *, progress: bool | None = None
) -> BayesianRegressor | BayesianClassifier:
    """Go on with a `fit(X, y, directory=...)`, of whichever estimator, that was interrupted."""
    return BayesianEstimator.resume(directory, progress=progress)


__all__ = [
    "Backtest",
    "BayesianClassifier",
    "BayesianEstimator",
    "BayesianForecaster",
    "BayesianHMM",
    "BayesianMixture",
    "BayesianPCA",
    "BayesianRegressor",
    "BayesianTopics",
    "ColumnEncoder",
    "Forecast",
    "choose_method",
    "likelihood_named",
    "load",
    "method_named",
    "resume",
    "split_series",
]
