r"""Where to evaluate a function next that is dear to evaluate, given what is believed of it.

Expected improvement (Mockus, 1975; Jones, Schonlau & Welch, 1998): of a value $f \sim N(\mu, \sigma^2)$ over the best
$f^*$ so far,

$E[\max(f - f^*, 0)] = \sigma\,(u\,\Phi(u) + \varphi(u)), \quad u = (\mu - f^*) / \sigma$.
"""

import numpy as np
from jaxtyping import Float
from scipy.special import erfcx, ndtr

from marginax.predict.checks import check_array


def expected_improvement(
    mean: Float[np.ndarray, "*n"], std: Float[np.ndarray, "*n"], best: float
) -> Float[np.ndarray, "*n"]:
    """By how much a value that is believed to be normal is expected to exceed the best so far.

    To make a value small, give minus the mean and minus the best. Noise of a measurement is no improvement: `std` is
    the epistemic one, `np.sqrt(prediction.epistemic)` of a prediction.

    Args:
        mean: of each value.
        std: standard deviation of each; where it is 0, the value is known.
        best: so far.

    >>> expected_improvement(np.array([0.0, 1.0, -9.0]), np.array([1.0, 0.0, 1.0]), best=0.0).round(4).tolist()
    [0.3989, 1.0, 0.0]
    """
    mean, std = check_array(mean, "mean"), check_array(std, "std")
    if mean.shape != std.shape:
        raise ValueError(f"std must have the shape of mean, {mean.shape}, got {std.shape}")
    if np.any(std < 0):
        raise ValueError(f"std must be >= 0, got {std.min()}")
    if not np.isfinite(best):
        raise ValueError(f"best must be finite, got {best}")
    gain, known = mean - best, std == 0
    with np.errstate(over="ignore"):
        u = np.clip(gain / np.where(known, 1.0, std), -1e100, 1e100)
    density = np.exp(-0.5 * u**2) / np.sqrt(2 * np.pi)
    # far below the best both terms nearly cancel: the ratio of the tail to the density keeps what is left
    below = std * density * np.maximum(1 - np.sqrt(np.pi / 2) * np.abs(u) * erfcx(np.abs(u) / np.sqrt(2)), 0.0)
    found = np.where(u < 0, below, gain * ndtr(u) + std * density)
    return np.where(known, np.maximum(gain, 0.0), found)
