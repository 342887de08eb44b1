r"""Recalibration of class probabilities by scaling their logarithms: temperatures, and vectors.

Logits are the logarithms of the averaged probabilities, $z = \log p$, so that the maps work on any prediction, whatever
it averages; for a single network and one temperature that is the same as scaling its outputs.
"""

import dataclasses
import math
import warnings
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy import optimize

from marginax.calibrate.calibrator import AbstractClassCalibrator, log_softmax, nll_of
from marginax.files import register
from marginax.predict.checks import check_count

_MOST = math.log(1e4)  # of the log temperature, either way


@register("calibrator/temperature")
class Temperature(AbstractClassCalibrator):
    r"""One temperature for all classes, $p' \propto p^{1/T}$, by maximum likelihood (Guo et al., 2017).

    The order of the classes stays, and with it the accuracy.

    >>> sure = np.array([[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.9, 0.1]])
    >>> temperature = Temperature().fit(sure, [0, 0, 1, 1])
    >>> round(temperature.temperature, 3), temperature(sure)[0].round(3).tolist()
    (2.0, [0.75, 0.25])

    Attributes:
        temperature: fitted; above 1, predictions were too sure.
        num_classes: of the held-out prediction.
    """

    temperature: float | None = None
    num_classes: int | None = None

    def fit_log_probs(self, log_probs: Float[np.ndarray, "n k"], labels: Int[np.ndarray, " n"]) -> "Temperature":
        log_temperature = _minimise(lambda t: nll_of(log_softmax(log_probs / math.exp(t)), labels))
        return dataclasses.replace(self, temperature=math.exp(log_temperature), num_classes=log_probs.shape[1])

    def log_probs(self, log_probs: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
        return log_softmax(log_probs / self.temperature)


@register("calibrator/bayesian_temperature")
class BayesianTemperature(AbstractClassCalibrator):
    r"""A temperature that is not quite known: $\log T \sim N(0, s^2)$, and predictions average over its posterior.

    For few held-out rows. The posterior is computed on a grid around its mode, wide enough to hold it.

    Args:
        scale: $s$ of the prior.
        num_points: of the grid.

    >>> calibrator = BayesianTemperature().fit(np.array([0.9, 0.8, 0.3]), [1, 1, 0])
    >>> round(float(calibrator.weights.sum()), 6), bool(0.9 < calibrator([0.9])[0] < 1)
    (1.0, True)

    Attributes:
        temperatures: the grid, fitted.
        weights: of the grid, summing to one.
        num_classes: of the held-out prediction.
    """

    scale: float = 1.0
    num_points: int = 101
    temperatures: Float[np.ndarray, " g"] | None = None
    weights: Float[np.ndarray, " g"] | None = None
    num_classes: int | None = None

    def __check_init__(self):
        if not self.scale > 0:
            raise ValueError(f"scale must be > 0, got {self.scale!r}")
        check_count(self.num_points, "num_points", least=3)

    def fit_log_probs(
        self, log_probs: Float[np.ndarray, "n k"], labels: Int[np.ndarray, " n"]
    ) -> "BayesianTemperature":
        def energy(t: float) -> float:
            return len(labels) * nll_of(log_softmax(log_probs / math.exp(t)), labels) + 0.5 * (t / self.scale) ** 2

        mode = _minimise(energy)
        lowest = energy(mode)
        ends = []
        for sign in (-1, 1):  # where the density is e^-18 of its largest: six standard deviations of a normal
            step = 1e-3 * self.scale
            while energy(mode + sign * step) - lowest < 18 and step < 12 * self.scale:
                step *= 1.3
            ends.append(mode + sign * step)
        grid = np.linspace(ends[0], ends[1], self.num_points)
        logs = -np.array([energy(t) for t in grid])
        weights = np.exp(logs - np.logaddexp.reduce(logs))
        kept = weights > 0
        return dataclasses.replace(
            self, temperatures=np.exp(grid[kept]), weights=weights[kept], num_classes=log_probs.shape[1]
        )

    def log_probs(self, log_probs: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
        assert self.temperatures is not None
        assert self.weights is not None
        total = np.full(log_probs.shape, -np.inf)
        for temperature, weight in zip(self.temperatures, self.weights, strict=True):
            total = np.logaddexp(total, log_softmax(log_probs / temperature) + np.log(weight))
        return log_softmax(total)


@register("calibrator/vector")
class VectorScaling(AbstractClassCalibrator):
    r"""A factor and a shift for each class, $p'_k \propto e^{b_k} p_k^{w_k}$, by maximum likelihood (Guo et al., 2017).

    Unlike one temperature it can change which class is the most probable; it needs more held-out rows, of every class.

    >>> probs = np.array([[0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.5, 0.3, 0.2]] * 2)
    >>> calibrator = VectorScaling().fit(probs, [0, 0, 1, 1, 2, 0])
    >>> calibrator(probs).mean(axis=0).round(3).tolist()  # as often as they came
    [0.5, 0.333, 0.167]

    Attributes:
        factors: of each class, fitted.
        shifts: of each class, summing to zero.
        num_classes: of the held-out prediction.
    """

    factors: Float[np.ndarray, " k"] | None = None
    shifts: Float[np.ndarray, " k"] | None = None
    num_classes: int | None = None

    def fit_log_probs(self, log_probs: Float[np.ndarray, "n k"], labels: Int[np.ndarray, " n"]) -> "VectorScaling":
        num_classes = log_probs.shape[1]
        counts = np.bincount(labels, minlength=num_classes)
        if not counts.all():
            raise ValueError(
                f"y must hold rows of every class for VectorScaling(), got none of class {np.argmin(counts)}: use "
                "Temperature(), or more rows"
            )
        found = optimize.minimize(
            _vector_nll,
            np.concatenate([np.ones(num_classes), np.zeros(num_classes)]),
            (log_probs, labels),
            method="BFGS",
            jac=True,
            options={"gtol": 1e-8, "maxiter": 2000},
        )
        if np.max(np.abs(found.jac)) > 1e-5:
            warnings.warn(
                "VectorScaling() did not converge: too few held-out rows for two numbers per class, use Temperature()",
                stacklevel=6,
            )
        factors, shifts = np.split(found.x, 2)
        return dataclasses.replace(self, factors=factors, shifts=shifts - shifts.mean(), num_classes=num_classes)

    def log_probs(self, log_probs: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
        assert self.factors is not None
        return log_softmax(self.factors * log_probs + self.shifts)


def _vector_nll(
    both: Float[np.ndarray, " p"], log_probs: Float[np.ndarray, "n k"], labels: Int[np.ndarray, " n"]
) -> tuple[float, Float[np.ndarray, " p"]]:
    """The mean negative log probability, and its gradient."""
    factors, shifts = np.split(both, 2)
    new = log_softmax(factors * log_probs + shifts)
    excess = np.exp(new)
    excess[np.arange(len(labels)), labels] -= 1
    return nll_of(new, labels), np.concatenate([np.mean(excess * log_probs, axis=0), excess.mean(axis=0)])


def _minimise(function: Any) -> float:
    """Of a log temperature; the likelihood has one maximum, since it is log-concave in the inverse temperature."""
    found: Any = optimize.minimize_scalar(
        function, bounds=(-_MOST, _MOST), method="bounded", options={"xatol": 1e-9, "maxiter": 500}
    )
    best = float(found.x)
    best = -_MOST if function(-_MOST) <= found.fun else best  # it may be flat there
    if abs(best) > 0.99 * _MOST:
        what = "every prediction is right" if best < 0 else "predictions say nothing about y"
        warnings.warn(
            f"the temperature is at the end of its range, {math.exp(best):.3g}, since {what}: use more rows, or "
            "BayesianTemperature()",
            stacklevel=7,  # the caller of recalibrate: a method of an Equinox module is two frames
        )
    return best
