"""Predictions: what a posterior says about targets at new inputs, with honest uncertainty."""

from marginax.predict.arrays import NormalPrediction, SampledPrediction
from marginax.predict.classification import ClassificationPrediction
from marginax.predict.functions import (
    MAX_BYTES,
    AbstractFunctions,
    AbstractFunctionSet,
    JoinedFunctions,
    ParameterDraws,
)
from marginax.predict.linearised import (
    AbstractPredictive,
    Linearised,
    LinearisedFunctions,
    LinearisedMixture,
    LinearisedNetwork,
    ThroughNetwork,
)
from marginax.predict.links import AbstractLink, LaplaceBridge, MonteCarlo, Probit
from marginax.predict.loop import DrawLoop
from marginax.predict.multilabel import MultiLabelPrediction
from marginax.predict.prediction import AbstractClassPrediction, AbstractNumberPrediction, AbstractPrediction
from marginax.predict.predictive import Prediction, predict
from marginax.predict.predictor import Predictor, make_predictor
from marginax.predict.reading import read_prediction
from marginax.predict.regression import RegressionPrediction

__all__ = [
    "MAX_BYTES",
    "AbstractClassPrediction",
    "AbstractFunctionSet",
    "AbstractFunctions",
    "AbstractLink",
    "AbstractNumberPrediction",
    "AbstractPrediction",
    "AbstractPredictive",
    "ClassificationPrediction",
    "DrawLoop",
    "JoinedFunctions",
    "LaplaceBridge",
    "Linearised",
    "LinearisedFunctions",
    "LinearisedMixture",
    "LinearisedNetwork",
    "MonteCarlo",
    "MultiLabelPrediction",
    "NormalPrediction",
    "ParameterDraws",
    "Prediction",
    "Predictor",
    "Probit",
    "RegressionPrediction",
    "SampledPrediction",
    "ThroughNetwork",
    "make_predictor",
    "predict",
    "read_prediction",
]
