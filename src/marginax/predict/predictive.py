"""Draws of the posterior, at inputs: the way to a prediction."""

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from marginax.data import DataSpec
from marginax.model.outcome import Outcome
from marginax.predict.classification import ClassAverages, ClassificationPrediction, ClassSummary, summarise
from marginax.predict.fresh import FreshFunctions
from marginax.predict.functions import MAX_BYTES, AbstractFunctionSet, ParameterDraws
from marginax.predict.loop import DrawLoop, components
from marginax.predict.mixture import Mixture
from marginax.predict.multilabel import MultiLabelPrediction
from marginax.predict.regression import RegressionPrediction

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
    max_bytes: int = MAX_BYTES,
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
    weights = None if log_weights is None else np.asarray(log_weights, np.float64)
    draws = params if keys is None else (params, keys)
    return average(ParameterDraws(model, draws, weights, keys is not None), x, spec=spec, max_bytes=max_bytes)


def average(functions: AbstractFunctionSet, x: Any, *, spec: DataSpec, max_bytes: int = MAX_BYTES) -> Prediction:
    """The prediction of functions drawn from a posterior.

    Args:
        functions: the draws.
        x: inputs (n, ...) in the user's units.
        spec: shapes and scaling of the training data.
        max_bytes: memory for intermediate results.
    """
    return averaging(functions, x, spec=spec, max_bytes=max_bytes)(x)


def averaging(
    functions: AbstractFunctionSet, x: Any, *, spec: DataSpec, max_bytes: int, keep_draws: bool = False
) -> Callable[[Any], Prediction]:
    """The way from inputs to that prediction; arguments as for `AbstractFunctionSet.averaging`."""
    loop = DrawLoop(functions, x, spec=spec, max_bytes=max_bytes, keep_draws=keep_draws)

    def of_classes(x: Any) -> Prediction:
        at = loop.at(x)
        averages = empty_averages(at, at.num_classes)
        for _, rows, summary in at.run(_summary_with_covariance if averages.is_full else _summary):
            averages.add(rows, summary)
        return averages.prediction(num_draws=at.num_draws, max_bytes=max_bytes)

    def of_numbers(x: Any) -> Prediction:
        return mixture_of(loop.at(x), spec)

    return of_classes if loop.num_classes else of_numbers


def mixture_of(loop: DrawLoop, spec: DataSpec, fresh: FreshFunctions | None = None) -> Prediction:
    """The distributions of all draws at all inputs, as a prediction; `fresh` as in `RegressionPrediction`."""
    leaves = loop.rebuild(loop.collect(components))
    found = from_mixture(Mixture(leaves, loop.row_axes, loop.log_weights, loop.num_rows, loop.max_bytes), spec)
    return dataclasses.replace(found, fresh=fresh) if isinstance(found, RegressionPrediction) else found


def empty_averages(loop: DrawLoop, num_classes: int) -> ClassAverages:
    """Averages over no draws; with covariances where they fit in memory."""
    return ClassAverages.empty(loop.num_rows, num_classes, full=loop.num_rows * num_classes**2 * 8 <= loop.max_bytes)


def from_mixture(mixture: Mixture, spec: DataSpec) -> Prediction:
    """A prediction of labels, or of numbers in the units of the user's targets."""
    outcome = getattr(mixture.components, "outcome", Outcome.REAL)
    if outcome is Outcome.LABELS:
        return MultiLabelPrediction(mixture)
    scaling = spec.scaling
    if scaling is None or scaling.y_shift is None:
        return RegressionPrediction(mixture, spec.y_shape)
    if outcome is Outcome.COUNT:
        kind = type(mixture.components).__name__
        raise ValueError(f"y was standardised, but {kind} is a distribution of counts")
    return RegressionPrediction(mixture, spec.y_shape, scaling.y_shift, scaling.y_factor)


def _summary_with_covariance(distributions: PyTree, log_weights: Array) -> ClassSummary:
    return summarise(jax.vmap(_logits)(distributions), log_weights, full=True)


def _summary(distributions: PyTree, log_weights: Array) -> ClassSummary:
    return summarise(jax.vmap(_logits)(distributions), log_weights, full=False)


def _logits(distribution: Any) -> Array:
    return jnp.asarray(distribution.class_logits)
