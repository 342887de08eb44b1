"""Standardisation that is undone in predictions."""

import warnings

import equinox as eqx
import numpy as np
from jaxtyping import Array, Bool, Float

from marginax.files import register

LARGEST = 1e100  # beyond it, and below its inverse, squares are near the end of float64
_SMALL, _LARGE = 1e-5, 1e5  # root mean squares between which data may be meant as they are
_ROWS_LOOKED_AT = 10_000
_FAR = 1e3  # times the width of its middle 80% that a value may lie from the median before it is said to rule a column


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


def scaling_of(x: np.ndarray, y: np.ndarray, *, bounds: bool = False) -> Scaling:
    """Mean and standard deviation per feature (per channel for images), and of real-valued targets.

    >>> s = scaling_of(np.array([[0.0, 5.0], [2.0, 7.0]]), np.array([10.0, 30.0]))
    >>> s.transform_x(np.array([[2.0, 5.0]])).tolist(), float(s.transform_y(np.array(30.0)))
    ([[1.0, -1.0]], 1.0)
    """
    if len(x) < 2:
        raise ValueError(f"x must have at least 2 rows to be standardised, got {len(x)}")
    x_shift, x_factor, constant = moments_of(x, name="x")
    if x.ndim == 2:
        if constant.any():
            columns = np.flatnonzero(constant).tolist()
            warnings.warn(f"x has constant columns {columns}: they carry no information", stacklevel=3)
        for column in range(x.shape[1]):
            warn_of_far_values(x[:, column], f"column {column} of x", stacklevel=4)
    y_shift = y_factor = None
    if np.issubdtype(y.dtype, np.floating):
        y = y[np.isfinite(y)] if bounds else y
        if not np.isfinite(y).all():
            raise ValueError("y has infinite values: if they are bounds of a censored target, pass bounds=True")
        y_shift, y_factor, constant = moments_of(y, name="y")
        if constant.any():
            raise ValueError("y is constant: there is nothing to learn (remove the target or check the column)")
        for column, values in enumerate(y.reshape(len(y), -1).T):
            warn_of_far_values(values, "y" if y.ndim == 1 else f"column {column} of y", stacklevel=4)
    return Scaling(x_shift, x_factor, y_shift, y_factor)


def moments_of(
    values: np.ndarray, *, name: str
) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."], Bool[np.ndarray, "..."]]:
    """Mean and standard deviation in float64 of each column (of each channel, for images), and which are constant.

    A column is constant if its values differ by no more than their rounding; its standard deviation is given as 1.

    >>> moments_of(np.array([[1e-30, 7.0], [3e-30, 7.0]]), name="x")
    (array([2.e-30, 7.e+00]), array([1.e-30, 1.e+00]), array([False,  True]))
    """
    largest = float(np.max(np.abs(values)))
    if largest and not 1.0 / LARGEST < largest < LARGEST:
        row = int(np.argmax(np.abs(values).reshape(len(values), -1).max(axis=1)))
        raise ValueError(
            f"{name} reaches {largest:.3g} (row {row}), whose square cannot be represented: change its unit"
        )
    axes = (0,) if values.ndim <= 2 else (0, *range(2, values.ndim))
    shift = values.mean(axes, keepdims=True, dtype=np.float64)[0]
    factor = values.std(axes, keepdims=True, dtype=np.float64)[0]
    constant = factor <= 1e-12 * np.abs(shift)
    return np.asarray(shift), np.where(constant, 1.0, factor), np.asarray(constant)


def warn_of_unit(values: np.ndarray, name: str, *, stacklevel: int) -> None:
    """Say that values are of another size than the one for which priors and step sizes are made, which is 1."""
    values = values[:_ROWS_LOOKED_AT]
    size = float(np.sqrt(np.mean(np.square(values, dtype=np.float64), where=np.isfinite(values))))
    if size and not _SMALL <= size <= _LARGE:
        warnings.warn(
            f"{name} has values of about {size:.1g}, and priors and step sizes are made for values of about 1: pass "
            "mx.data.standardise((x, y)), with y as floats if it is a number",
            stacklevel=stacklevel,
        )


def warn_of_far_values(values: Float[np.ndarray, " n"], name: str, *, stacklevel: int) -> None:
    """Say which values lie so far out that they alone decide what the mean and the standard deviation are."""
    rows = far_values(values)
    if rows.size:
        shown = ", ".join(f"{values[row]:.3g} in row {row}" for row in rows[:3])
        more = "" if rows.size <= 3 else f" and {rows.size - 3} more"
        warnings.warn(
            f"{name} has values far from all others ({shown}{more}), which alone decide its scale: correct or remove "
            "them, or take logarithms",
            stacklevel=stacklevel,
        )


def far_values(values: Float[np.ndarray, " n"]) -> np.ndarray:
    """Rows of values that are a thousand times as far from the median as the middle 80% are wide, or farther.

    >>> far_values(np.array([0.1, -0.4, 1e12, 0.3, 0.2, -0.1, 0.0, 0.25, -0.2, 0.15, 0.05]))
    array([2])
    """
    known = values[np.isfinite(values)]
    if len(known) < 4:
        return np.zeros(0, int)
    low, middle, high = np.quantile(known, [0.1, 0.5, 0.9])
    return np.flatnonzero(np.abs(values - middle) > _FAR * (high - low)) if high > low else np.zeros(0, int)
