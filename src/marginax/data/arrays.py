"""Arrays in memory: what users pass, checked once, at the door."""

import contextlib
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num, PyTree

from marginax.data.missing import describe_missing
from marginax.data.scaling import Scaling, scaling_of
from marginax.files import register


@register("data/spec")
class DataSpec(eqx.Module):
    """What a posterior remembers of its data: shapes, size and scaling, never the values."""

    x_shape: tuple[int, ...] = eqx.field(static=True)
    y_shape: tuple[int, ...] = eqx.field(static=True)
    num_examples: int = eqx.field(static=True)
    scaling: Scaling | None = None

    def check_x(self, x: Any, *, name: str = "x") -> np.ndarray:
        """Inputs for prediction as a float array (n, *x_shape), or an error that says what is wrong."""
        x = as_numeric(x, name=name)
        if x.shape[1:] != self.x_shape:
            expected = ", ".join(["n", *map(str, self.x_shape)])
            raise ValueError(f"{name} must have shape ({expected}) as in the training data, got {x.shape}")
        return x


@register("data/arrays")
class Arrays(eqx.Module):
    """A data set in memory, in the units that the model sees, with the scaling that led there.

    Args:
        x: inputs.
        y: targets.
        scaling: how x and y were scaled already; it is only recorded.
        weight: of each row, for `mx.Model`: its log likelihood is multiplied by it. A row with weight 2 counts as two.
        bounds: whether y are pairs (lower, upper) of one target that may be censored.

    >>> Arrays(np.zeros((5, 2)), np.arange(5.0)).spec.x_shape
    (2,)
    """

    x: Float[np.ndarray, "n ..."] | Float[Array, "n ..."]
    y: Num[np.ndarray, "n ..."] | Num[Array, "n ..."]
    scaling: Scaling | None
    weight: Float[np.ndarray, " n"] | Float[Array, " n"] | None = None
    bounds: bool = eqx.field(default=False, static=True)

    def __init__(self, x: Any, y: Any, *, scaling: Scaling | None = None, weight: Any = None, bounds: bool = False):
        """Check and convert."""
        self.x, self.y = check_pair(x, y)
        self.scaling, self.bounds = scaling, bounds
        self.weight = None if weight is None else _check_weight(weight, len(self.x))

    @property
    def tree(self) -> tuple[Any, ...]:
        """Inputs and targets, and weights where there are some."""
        return (self.x, self.y) if self.weight is None else (self.x, self.y, self.weight)

    @property
    def num_examples(self) -> int:
        """N."""
        return self.x.shape[0]

    @property
    def spec(self) -> DataSpec:
        """Shapes, size and scaling."""
        return DataSpec(self.x.shape[1:], () if self.bounds else self.y.shape[1:], self.num_examples, self.scaling)

    def take(self, rows: np.ndarray) -> "Arrays":
        """The data set made of some rows, with the same scaling."""
        weight = None if self.weight is None else self.weight[rows]
        return Arrays(self.x[rows], self.y[rows], scaling=self.scaling, weight=weight, bounds=self.bounds)

    def weighted(self, weight: Any) -> "Arrays":
        """The same rows with these weights."""
        return Arrays(self.x, self.y, scaling=self.scaling, weight=weight, bounds=self.bounds)

    def as_bounds(self) -> "Arrays":
        """The same rows, their targets read as pairs (lower, upper)."""
        if self.bounds or self.scaling is None:
            return Arrays(self.x, self.y, scaling=self.scaling, weight=self.weight, bounds=True)
        raise ValueError("y was standardised column by column, not as bounds: use mx.data.standardise(.., bounds=True)")


@register("data/rows")
class Rows(eqx.Module):
    """Any pytree of arrays with a leading axis of examples: for models that are not about pairs (x, y).

    None stands for no data at all: a density that is what it is.

    Args:
        tree: of arrays.

    >>> Rows({"counts": np.array([3, 1, 2]), "hours": np.array([1.0, 0.5, 2.0])}).num_examples
    3
    """

    tree: PyTree

    def __init__(self, tree: Any):
        """Check and convert."""
        leaves = jax.tree_util.tree_leaves_with_path(tree)
        arrays = [_as_leaf(jax.tree_util.keystr(path) or "data", leaf) for path, leaf in leaves]
        if len({len(array) for array in arrays}) > 1:
            raise ValueError(f"data must have one number of rows in all arrays, got {[len(array) for array in arrays]}")
        self.tree = jax.tree.unflatten(jax.tree.structure(tree), arrays)

    @property
    def num_examples(self) -> int:
        """N; 1 where there are no data."""
        return next((len(leaf) for leaf in jax.tree.leaves(self.tree)), 1)

    @property
    def spec(self) -> DataSpec:
        """The size; there are no inputs to check."""
        return DataSpec((), (), self.num_examples)

    def take(self, rows: np.ndarray) -> "Rows":
        """The data set made of some rows."""
        return Rows(jax.tree.map(lambda leaf: leaf[rows], self.tree))


def _as_leaf(name: str, values: Any) -> np.ndarray:
    array = as_numeric(values, name=name)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        return _whole(array)
    return np.asarray(array, jax.dtypes.canonicalize_dtype(np.float64))


def as_numeric(values: Any, *, name: str) -> np.ndarray:
    """A finite, non-empty array of floats or ints, from NumPy, JAX, pandas or nested lists."""
    array = _as_numeric(values, name=name)
    if jnp.issubdtype(array.dtype, jnp.floating):
        _require(np.isfinite(array), name)
    return array


def as_targets(values: Any) -> np.ndarray:
    """Targets: finite, but for pairs of bounds, of which one may be infinite; the likelihood says if it takes them."""
    array = _as_numeric(values, name="y")
    if jnp.issubdtype(array.dtype, jnp.floating):
        remedy = f": {describe_missing(array)}" if np.isnan(array).any() else ""
        good = ~np.isnan(array) if array.ndim == 2 and array.shape[1] == 2 else np.isfinite(array)
        _require(good, "y", remedy)
    return array


def _require(good: np.ndarray, name: str, remedy: str = "") -> None:
    if not good.all():
        row, count = int(np.argwhere(~good)[0][0]), int((~good).sum())
        raise ValueError(f"{name} has {count} values that are NaN or infinite, the first in row {row}{remedy}")


def _as_numeric(values: Any, *, name: str) -> np.ndarray:
    if hasattr(values, "to_numpy"):
        values = values.to_numpy()
    try:
        array = np.asarray(values)
    except (ValueError, TypeError) as error:
        raise TypeError(f"{name} must be a numeric array, got {type(values).__name__}: {error}") from None
    if array.dtype == object:
        with contextlib.suppress(ValueError, TypeError):
            array = array.astype(np.float64)
    if array.dtype.kind not in "fiub" and not jnp.issubdtype(array.dtype, jnp.floating):
        raise TypeError(f"{name} must be numeric, got dtype {array.dtype}: encode text and dates as numbers first")
    if array.ndim == 0:
        raise ValueError(f"{name} must have one row per example, got a scalar")
    if array.size == 0:
        raise ValueError(f"{name} is empty: shape {array.shape}")
    return array


def check_pair(x: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Inputs as floats and targets as floats or int32 labels, of one length."""
    x, y = as_numeric(x, name="x"), as_targets(y)
    if len(x) != len(y):
        raise ValueError(f"x and y must have the same number of rows, got {len(x)} and {len(y)}")
    if y.ndim > 2:
        raise ValueError(f"y must have shape (n,) or (n, outputs), got {y.shape}")
    real = jax.dtypes.canonicalize_dtype(np.float64)
    for name, values in (("x", x), ("y", y)):
        largest = float(np.max(np.abs(values), initial=0, where=np.isfinite(values)))
        if largest > np.sqrt(float(np.finfo(real).max)):  # no likelihood can do without squares
            raise ValueError(
                f"{name} has values too large for {np.dtype(real).name} ({largest:.3g}): standardise it first"
            )
    x = np.asarray(x, real)
    return x, np.asarray(y, real) if jnp.issubdtype(y.dtype, jnp.floating) else _whole(y)


def _whole(values: np.ndarray) -> np.ndarray:
    """Whole numbers as int32, or as floats where they do not fit."""
    limits = np.iinfo(np.int32)
    fits = limits.min <= values.min() and values.max() <= limits.max
    return np.asarray(values, np.int32 if fits else jax.dtypes.canonicalize_dtype(np.float64))


def _check_weight(weight: Any, num_rows: int) -> np.ndarray:
    weight = as_numeric(weight, name="weight")
    if weight.shape != (num_rows,):
        raise ValueError(f"weight must have one number for each of the {num_rows} rows, got shape {weight.shape}")
    if not (np.all(weight >= 0) and np.any(weight > 0)):
        raise ValueError(f"weight must be >= 0, and > 0 in some row, got values from {weight.min()} to {weight.max()}")
    return np.asarray(weight, jax.dtypes.canonicalize_dtype(np.float64))


def as_arrays(data: Any, *, name: str = "data") -> Arrays:
    """A pair of arrays, or Arrays itself."""
    if isinstance(data, Arrays):
        return data
    if isinstance(data, tuple | list) and len(data) == 2:
        return Arrays(*data)
    raise TypeError(f"{name} must be a pair (x, y) or a source from mx.data, got {type(data).__name__}")


def standardise(data: Any, *, bounds: bool = False) -> Arrays:
    """Give every feature (and a real target) mean 0 and standard deviation 1; predictions are scaled back.

    Args:
        data: a pair (x, y).
        bounds: whether y are pairs (lower, upper) of one target, as `mx.likelihoods.CensoredGaussian` takes them: both
            columns are then scaled alike, by what is finite in them.

    >>> data = standardise((np.array([[0.0], [2.0], [4.0]]), np.array([1.0, 5.0, 9.0])))
    >>> np.round(data.x[:, 0], 3).tolist()
    [-1.225, 0.0, 1.225]
    """
    if isinstance(data, Arrays):
        if data.scaling is not None:
            raise ValueError("data is standardised already")
        x, y, weight = data.x, data.y, data.weight
    elif isinstance(data, tuple | list) and len(data) == 2:
        x, y, weight = as_numeric(data[0], name="x"), as_targets(data[1]), None
        if len(x) != len(y):
            raise ValueError(f"x and y must have the same number of rows, got {len(x)} and {len(y)}")
    else:
        raise TypeError(f"data must be a pair (x, y), got {type(data).__name__}")
    x = np.asarray(x, np.float64)
    scaling = scaling_of(x, np.asarray(y), bounds=bounds)
    y = scaling.transform_y(np.asarray(y))
    return Arrays(scaling.transform_x(x), y, scaling=scaling, weight=weight, bounds=bounds)
