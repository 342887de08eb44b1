"""What is fitted on held-out data to mend predictions."""

from marginax.calibrate.binary import Beta, Isotonic, IsotonicCalibrator, OddsCalibrator, Platt
from marginax.calibrate.calibrated import Calibrated
from marginax.calibrate.calibrator import AbstractCalibrator, AbstractRecalibration, recalibrate
from marginax.calibrate.logits import (
    BayesianTemperature,
    BayesianTemperatureCalibrator,
    Temperature,
    TemperatureCalibrator,
    VectorCalibrator,
    VectorScaling,
)
from marginax.calibrate.regression import (
    QuantileCalibrator,
    QuantileRecalibration,
    VarianceCalibrator,
    VarianceScaling,
)
from marginax.predict.recalibrated import RecalibratedPrediction

__all__ = [
    "AbstractCalibrator",
    "AbstractRecalibration",
    "BayesianTemperature",
    "BayesianTemperatureCalibrator",
    "Beta",
    "Calibrated",
    "Isotonic",
    "IsotonicCalibrator",
    "OddsCalibrator",
    "Platt",
    "QuantileCalibrator",
    "QuantileRecalibration",
    "RecalibratedPrediction",
    "Temperature",
    "TemperatureCalibrator",
    "VarianceCalibrator",
    "VarianceScaling",
    "VectorCalibrator",
    "VectorScaling",
    "recalibrate",
]
