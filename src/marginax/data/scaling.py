"""Standardisation that is undone in predictions."""

import warnings

import equinox as eqx
import numpy as np
from jaxtyping import Array

from marginax.files import register


@register("data/scaling")
class Scaling(eqx.Module):
    """Affine maps of inputs and targets: x = x_shift + x_factor * x_standard, and the same for y.

    Predictions made through a posterior fitted on scaled data come back in the user's units, log densities
    included.
    """

    x_shift: np.ndarray | Array
    x_factor: np.ndarray | Array
    y_shift: np.ndarray | Array | None = None
    y_factor: np.ndarray | Array | None = None

    def transform_x(self, x):
        """Inputs in standard units."""
        return (x - self.x_shift) / self.x_factor

    def transform_y(self, y):
        """Targets in standard units (unchanged where targets are not scaled)."""
        return y if self.y_shift is None else (y - self.y_shift) / self.y_factor


def scaling_of(x: np.ndarray, y: np.ndarray) -> Scaling:
    """Mean and standard deviation per feature (per channel for images), and of real-valued targets.

    >>> s = scaling_of(np.array([[0.0, 5.0], [2.0, 7.0]]), np.array([10.0, 30.0]))
    >>> s.transform_x(np.array([[2.0, 5.0]])).tolist(), float(s.transform_y(np.array(30.0)))
    ([[1.0, -1.0]], 1.0)
    """
    if len(x) < 2:
        raise ValueError(f"x must have at least 2 rows to be standardised, got {len(x)}")
    axes = (0,) if x.ndim == 2 else (0, *range(2, x.ndim))
    x_shift = x.mean(axes, keepdims=True, dtype=np.float64)[0]
    x_factor = x.std(axes, keepdims=True, dtype=np.float64)[0]
    constant = x_factor < 1e-12 * np.maximum(1.0, np.abs(x_shift))
    if constant.any() and x.ndim == 2:
        columns = np.flatnonzero(constant).tolist()
        warnings.warn(f"x has constant columns {columns}: they carry no information", stacklevel=3)
    x_factor = np.where(constant, 1.0, x_factor)
    y_shift = y_factor = None
    if np.issubdtype(y.dtype, np.floating):
        y_shift, y_factor = y.mean(0, dtype=np.float64), y.std(0, dtype=np.float64)
        if np.any(y_factor < 1e-12 * np.maximum(1.0, np.abs(y_shift))):
            raise ValueError("y is constant: there is nothing to learn (remove the target or check the column)")
    if y_shift is not None:
        y_shift, y_factor = np.asarray(y_shift, x.dtype), np.asarray(y_factor, x.dtype)
    return Scaling(np.asarray(x_shift, x.dtype), np.asarray(x_factor, x.dtype), y_shift, y_factor)
