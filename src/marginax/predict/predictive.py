"""Draws of the posterior, at inputs: the one way to a prediction."""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from marginax.data import DataSpec
from marginax.model.distributions import Bernoulli, Categorical
from marginax.predict.classification import ClassAverages, ClassificationPrediction, ClassSummary, summarise
from marginax.predict.mixture import Mixture
from marginax.predict.multilabel import MultiLabelPrediction
from marginax.predict.regression import RegressionPrediction
from marginax.predict.workload import Workload, chunk_sizes, measure_workload

Prediction = RegressionPrediction | ClassificationPrediction | MultiLabelPrediction


@runtime_checkable
class HasPredictive(Protocol):
    """A model: it gives the distribution of the targets under one setting of the parameters."""

    def predictive(self, params: Any, x: Any, *, key: Any = None) -> Any:
        """The distribution at inputs x, in the units of the model."""
        ...


def predict(
    model: HasPredictive,
    params: PyTree,
    x: Any,
    *,
    spec: DataSpec,
    log_weights: Any = None,
    keys: Any = None,
    max_bytes: int = 256 * 2**20,
) -> Prediction:
    """Average the model's predictive distribution over draws of its parameters.

    Draws and inputs are taken in chunks, so memory stays bounded whatever their numbers: for classes, the
    result does not grow with the number of draws; for numbers, it keeps a few values per draw and target.

    Args:
        model: what the draws are parameters of.
        params: parameters whose leaves (NumPy, JAX or memory-mapped) have a leading axis of draws.
        x: inputs (n, ...) in the user's units.
        spec: shapes and scaling of the training data.
        log_weights: unnormalised log weight of each draw; by default all count the same.
        keys: a key per draw, for networks that are random themselves. All chunks of inputs share it.
        max_bytes: memory for intermediate results.

    Returns:
        A `RegressionPrediction`, a `ClassificationPrediction`, or for several yes-or-no targets a
        `MultiLabelPrediction`.

    >>> from marginax.data import DataSpec
    >>> from marginax.model.distributions import Normal
    >>> class Slope:
    ...     def predictive(self, params, x, *, key=None):
    ...         return Normal(params * x, 0.5)
    >>> spec = DataSpec(x_shape=(1,), y_shape=(), num_examples=10)
    >>> prediction = predict(Slope(), np.array([2.9, 3.0, 3.1]), np.array([[0.0], [7.0]]), spec=spec)
    >>> prediction
    RegressionPrediction(n=2, outputs=1, draws=3)
    >>> prediction.mean.round(3).tolist(), prediction.std.round(3).tolist()
    ([0.0, 21.0], [0.5, 0.759])
    """
    num_draws = _num_draws(params, keys)
    log_weights = _normalise(log_weights, num_draws)
    if len(x) == 0:
        raise ValueError("x must have at least one row, got none")
    scaling = spec.scaling

    def standardise(start: int, stop: int) -> np.ndarray | Array:
        chunk = x[start:stop]
        return chunk if scaling is None else scaling.transform_x(chunk)

    first = jax.eval_shape(lambda: jnp.asarray(standardise(0, 1)))
    workload = measure_workload(model, params, first, keys)
    job = _Job(model, params, keys, standardise, num_draws, len(x), workload, max_bytes)
    outcome = workload.outcome
    if isinstance(outcome, Categorical) or (isinstance(outcome, Bernoulli) and outcome.logits.shape[-1] == 1):
        return _classify(job, log_weights)
    mixture = _collect(job, log_weights)
    if isinstance(outcome, Bernoulli):
        return MultiLabelPrediction(mixture)
    return predict_numbers(mixture, spec)


def predict_numbers(mixture: Mixture, spec: DataSpec) -> RegressionPrediction:
    """The mixture in the units of the user's targets."""
    scaling = spec.scaling
    if scaling is None or scaling.y_shift is None:
        return RegressionPrediction(mixture, spec.y_shape)
    if mixture.discrete:
        kind = type(mixture.components).__name__
        raise ValueError(f"y was standardised, but {kind} is a distribution of counts")
    return RegressionPrediction(mixture, spec.y_shape, scaling.y_shift, scaling.y_factor)


@dataclasses.dataclass(frozen=True, eq=False)
class _Job:
    """The work to do, cut in chunks of draws (outer, so that each draw is read once) and rows (inner)."""

    model: HasPredictive
    params: PyTree
    keys: Any
    standardise: Callable[[int, int], Any]
    num_draws: int
    num_rows: int
    workload: Workload
    max_bytes: int

    @functools.cached_property
    def sizes(self) -> tuple[int, int]:
        """Draws and rows per chunk."""
        return chunk_sizes(self.num_draws, self.num_rows, self.workload, self.max_bytes)

    def chunks(self) -> Iterator[tuple[slice, slice, PyTree, Any, Any]]:
        """Draws, rows, parameters, keys and inputs; all chunks have the same shapes, padded at the end."""
        draw_size, row_size = self.sizes
        x_chunks: dict[int, Any] = {}
        for draw in range(0, self.num_draws, draw_size):
            draws = slice(draw, min(draw + draw_size, self.num_draws))
            params = jax.tree.map(lambda leaf, at=draws: _pad(leaf[at], draw_size), self.params)
            keys = None if self.keys is None else _pad(self.keys[draws], draw_size)
            for row in range(0, self.num_rows, row_size):
                rows = slice(row, min(row + row_size, self.num_rows))
                x = x_chunks.get(row)
                if x is None:
                    x = jnp.asarray(_pad(self.standardise(rows.start, rows.stop), row_size))
                    if x.nbytes * (self.num_rows / row_size) <= self.max_bytes:
                        x_chunks[row] = x
                yield draws, rows, params, keys, x


def _pad(array: Any, size: int) -> Any:
    """Repeat the last entry until the first axis has the given size."""
    length = array.shape[0]
    return array if length == size else array[np.minimum(np.arange(size), length - 1)]


def _num_draws(params: PyTree, keys: Any) -> int:
    sizes = {leaf.shape[0] if leaf.ndim else None for leaf in jax.tree.leaves(params)}
    if keys is not None:
        sizes.add(keys.shape[0])
    if len(sizes) != 1 or None in sizes or 0 in sizes:
        raise ValueError(f"params must have one leading axis of draws in every leaf, got sizes {sizes}")
    return sizes.pop()  # type: ignore[return-value]


def _normalise(log_weights: Any, num_draws: int) -> Float[np.ndarray, " draws"]:
    if log_weights is None:
        return np.full(num_draws, -np.log(num_draws))
    weights = np.asarray(log_weights, np.float64)
    if weights.shape != (num_draws,):
        raise ValueError(f"log_weights must have shape ({num_draws},), one per draw, got {weights.shape}")
    if np.isnan(weights).any() or not np.isfinite(weights.max()):
        raise ValueError("log_weights must be finite (or -inf for a weight of zero, but not all of them)")
    return weights - np.logaddexp.reduce(weights)


def _over_draws(model: HasPredictive, params: PyTree, keys: Any, x: Array) -> PyTree:
    if keys is None:
        return eqx.filter_vmap(lambda p: model.predictive(p, x, key=None))(params)
    return eqx.filter_vmap(lambda p, key: model.predictive(p, x, key=key))(params, keys)


@eqx.filter_jit
def _components(model: HasPredictive, params: PyTree, keys: Any, x: Array) -> PyTree:
    return eqx.filter(_over_draws(model, params, keys, x), eqx.is_array)


@eqx.filter_jit
def _class_summary(
    model: HasPredictive, params: PyTree, keys: Any, x: Array, log_weights: Array, full: bool
) -> ClassSummary:
    distribution = _over_draws(model, params, keys, x)
    logits = distribution.logits
    if isinstance(distribution, Bernoulli):
        logits = jnp.concatenate([jnp.zeros_like(logits), logits], axis=-1)
    return summarise(logits, log_weights, full=full)


def _collect(job: _Job, log_weights: np.ndarray) -> Mixture:
    """The components of all draws at all rows, on the host."""
    shapes, static = eqx.partition(job.workload.outcome, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
    leaves, treedef = jax.tree.flatten(shapes)
    row_axes = job.workload.row_axes
    results = [
        np.empty((job.num_draws, *((job.num_rows, *leaf.shape[1:]) if rows else leaf.shape)), leaf.dtype)
        for leaf, rows in zip(leaves, row_axes, strict=True)
    ]
    for draws, rows, params, keys, x in job.chunks():
        num_draws, num_rows = draws.stop - draws.start, rows.stop - rows.start
        chunk = jax.tree.leaves(_components(job.model, params, keys, x))
        for result, leaf, has_rows in zip(results, chunk, row_axes, strict=True):
            if has_rows:
                result[draws, rows] = np.asarray(leaf)[:num_draws, :num_rows]
            else:
                result[draws] = np.asarray(leaf)[:num_draws]
    components = eqx.combine(jax.tree.unflatten(treedef, results), static)
    return Mixture(components, row_axes, log_weights, job.num_rows, job.max_bytes)


def _classify(job: _Job, log_weights: np.ndarray) -> ClassificationPrediction:
    """Averages over the draws, one chunk at a time."""
    num_logits = job.workload.outcome.logits.shape[-1]
    num_classes = max(2, num_logits)
    full = job.num_rows * num_classes**2 * 8 <= job.max_bytes
    averages = ClassAverages.empty(job.num_rows, num_classes, full=full)
    for draws, rows, params, keys, x in job.chunks():
        weights = np.full(job.sizes[0], -np.inf, np.float32)
        weights[: draws.stop - draws.start] = log_weights[draws]
        averages.add(rows, _class_summary(job.model, params, keys, x, jnp.asarray(weights), full))
    return averages.prediction(num_draws=job.num_draws, max_bytes=job.max_bytes)
