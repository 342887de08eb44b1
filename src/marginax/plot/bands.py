"""A 1-D regression with its uncertainty."""

from typing import Any

import numpy as np

from marginax.predict import AbstractNumberPrediction


def plot_band(
    ax: Any,
    x: np.ndarray,
    prediction: AbstractNumberPrediction,
    *,
    data: tuple[np.ndarray, np.ndarray] | None = None,
    level: float = 0.9,
    color: str = "C0",
) -> Any:
    """Mean, central interval, and within it the part that more data could remove.

    Args:
        ax: matplotlib Axes, which are returned.
        x: inputs in ascending order, shape (n,).
        prediction: at those inputs, one output.
        data: observations to show as points.
        level: of the interval.
        color: of mean and bands.
    """
    lower, upper = prediction.interval(level)
    mean, spread = np.asarray(prediction.mean), np.sqrt(np.asarray(prediction.epistemic))
    ax.fill_between(x, np.ravel(lower), np.ravel(upper), color=color, alpha=0.18, lw=0, label=f"{level:.0%} interval")
    ax.fill_between(
        x,
        np.ravel(mean - spread),
        np.ravel(mean + spread),
        color=color,
        alpha=0.35,
        lw=0,
        label="epistemic, 1 sd",
    )
    ax.plot(x, np.ravel(mean), color=color, lw=1.6, label="mean")
    if data is not None:
        ax.plot(np.ravel(data[0]), np.ravel(data[1]), "o", color="black", ms=4, label="measured")
    return ax
