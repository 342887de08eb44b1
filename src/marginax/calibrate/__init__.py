"""What is fitted on held-out data to mend predictions."""

from marginax.calibrate.binary import Beta, Isotonic, Platt
from marginax.calibrate.calibrated import Calibrated
from marginax.calibrate.calibrator import AbstractCalibrator, recalibrate
from marginax.calibrate.logits import BayesianTemperature, Temperature, VectorScaling
from marginax.calibrate.regression import QuantileRecalibration, VarianceScaling
from marginax.predict.recalibrated import RecalibratedPrediction

__all__ = [
    "AbstractCalibrator",
    "BayesianTemperature",
    "Beta",
    "Calibrated",
    "Isotonic",
    "Platt",
    "QuantileRecalibration",
    "RecalibratedPrediction",
    "Temperature",
    "VarianceScaling",
    "VectorScaling",
    "recalibrate",
]
