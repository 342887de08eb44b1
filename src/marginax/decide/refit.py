"""Fits to data that grow: from where the last one ended, by one program for all sizes where the method allows it."""

from typing import Any

import equinox as eqx
from jaxtyping import PRNGKeyArray

from marginax.data import GrowingMinibatches
from marginax.infer import AbstractMethod, fit
from marginax.model import Model
from marginax.posterior import AbstractPosterior

_LEAST_CAPACITY = 64


def refit(
    model: Model,
    data: tuple[Any, Any],
    method: AbstractMethod,
    *,
    init: AbstractPosterior | None,
    capacity: int,
    key: PRNGKeyArray,
) -> AbstractPosterior:
    """Fit to the rows so far.

    Args:
        model: network, likelihood and prior.
        data: inputs and targets.
        method: how to infer.
        init: the last posterior, to begin where it ended if the method does the same from a given start.
        capacity: rows that there will be in the end.
        key: of the fit.
    """
    source = training_data(method, data, capacity)
    start = init if starts_warm(method) else None
    posterior = fit(model, source, method, init=start, key=key, progress=False)
    if not posterior.record.finished:
        raise KeyboardInterrupt
    return posterior


def starts_warm(method: AbstractMethod) -> bool:
    """Whether the method does the same from a given start; others, such as `mx.infer.Laplace`, would not train then."""
    return bool(eqx.tree_equal(method.warm_started(), method))


def training_data(method: AbstractMethod, data: tuple[Any, Any], capacity: int) -> Any:
    """The rows; in a buffer for all that are to come if one program can serve all sizes.

    While there are fewer rows than the method's batches have, batches are the largest power of two of them, so that few
    sizes are compiled; the buffer has a power of two of rows, so that other runs use the same programs.
    """
    if not method.supports_dynamic_size or method.batch_size is None:
        return data
    num = len(data[0])
    size = method.batch_size if method.batch_size <= num else 1 << (num.bit_length() - 1)
    capacity = max(_LEAST_CAPACITY, 1 << (capacity - 1).bit_length())
    return GrowingMinibatches(data, size, capacity)
