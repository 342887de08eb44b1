"""Predictions: what a posterior says about targets at new inputs, with honest uncertainty."""

from marginax.predict.arrays import NormalPrediction, SampledPrediction
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
from marginax.predict.prediction import AbstractClassPrediction, AbstractNumberPrediction, AbstractPrediction
from marginax.predict.predictive import Prediction, predict
from marginax.predict.reading import read_prediction
from marginax.predict.regression import RegressionPrediction

__all__ = [
    "AbstractClassPrediction",
    "AbstractLink",
    "AbstractNumberPrediction",
    "AbstractPrediction",
    "AbstractPredictive",
    "ClassificationPrediction",
    "DrawnOutputs",
    "LaplaceBridge",
    "LinearPart",
    "Linearised",
    "MonteCarlo",
    "MultiLabelPrediction",
    "NormalPrediction",
    "Prediction",
    "Probit",
    "RegressionPrediction",
    "SampledPrediction",
    "ThroughNetwork",
    "predict",
    "predict_linearised",
    "read_prediction",
]
