"""Predictions: what a posterior says about targets at new inputs, with honest uncertainty."""

from marginax.predict.classification import ClassificationPrediction
from marginax.predict.linearised import (
    AbstractPredictive,
    DrawnOutputs,
    Linearised,
    LinearPart,
    ThroughNetwork,
    predict_linearised,
)
from marginax.predict.links import AbstractLink, LaplaceBridge, MonteCarlo, Probit
from marginax.predict.multilabel import MultiLabelPrediction
from marginax.predict.predictive import Prediction, predict
from marginax.predict.regression import RegressionPrediction

__all__ = [
    "AbstractLink",
    "AbstractPredictive",
    "ClassificationPrediction",
    "DrawnOutputs",
    "LaplaceBridge",
    "LinearPart",
    "Linearised",
    "MonteCarlo",
    "MultiLabelPrediction",
    "Prediction",
    "Probit",
    "RegressionPrediction",
    "ThroughNetwork",
    "predict",
    "predict_linearised",
]
