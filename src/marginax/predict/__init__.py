"""Predictions: what a posterior says about targets at new inputs, with honest uncertainty."""

from marginax.predict.classification import ClassificationPrediction
from marginax.predict.multilabel import MultiLabelPrediction
from marginax.predict.predictive import Prediction, predict
from marginax.predict.regression import RegressionPrediction

__all__ = [
    "ClassificationPrediction",
    "MultiLabelPrediction",
    "Prediction",
    "RegressionPrediction",
    "predict",
]
