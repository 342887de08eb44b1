"""Operations that make one number of many along axes: sums, extremes, softmax, sorting."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from marginax.nets.torch.operators.elementwise import dtype_of
from marginax.nets.torch.operators.shapes import axes_of

Dims = int | tuple[int, ...] | None


def _mean(x: Array, dims: Dims = None, keepdim: bool = False, dtype: str | None = None) -> Array:
    return jnp.mean(x, axes_of(x, dims), keepdims=keepdim, dtype=dtype_of(dtype))


def _sum(x: Array, dims: Dims = None, keepdim: bool = False, dtype: str | None = None) -> Array:
    return jnp.sum(x, axes_of(x, dims), keepdims=keepdim, dtype=dtype_of(dtype))


def _of_all(reduce: Callable[..., Array]) -> Callable[..., Array]:
    return lambda x, dtype=None: reduce(x, dtype=dtype_of(dtype))


def _extreme(reduce: Callable[..., Array]) -> Callable[..., Array]:
    return lambda x, dims=(), keepdim=False: reduce(x, axes_of(x, dims), keepdims=keepdim)


def _with_place(reduce: Callable[..., Array], place: Callable[..., Array]) -> Callable[..., tuple[Array, Array]]:
    return lambda x, dim, keepdim=False: (reduce(x, dim, keepdims=keepdim), place(x, dim, keepdims=keepdim))


def _place(place: Callable[..., Array]) -> Callable[..., Array]:
    return lambda x, dim=None, keepdim=False: place(x, dim, keepdims=keepdim)


def _logical(reduce: Callable[..., Array]) -> Callable[..., Array]:
    return lambda x, dims=None, keepdim=False: reduce(x, axes_of(x, dims), keepdims=keepdim)


def _variance(x: Array, dims: Dims = None, correction: Any = None, keepdim: bool = False) -> Array:
    return jnp.var(x, axes_of(x, dims), ddof=1 if correction is None else correction, keepdims=keepdim)


def _variance_and_mean(
    x: Array, dims: Dims = None, correction: Any = None, keepdim: bool = False
) -> tuple[Array, Array]:
    return _variance(x, dims, correction, keepdim), _mean(x, dims, keepdim)


def _softmax(x: Array, dim: int, half_to_float: bool = False) -> Array:
    return jax.nn.softmax(x, dim)


def _log_softmax(x: Array, dim: int, half_to_float: bool = False) -> Array:
    return jax.nn.log_softmax(x, dim)


def _norm(x: Array, p: Any, dims: Dims = None, keepdim: bool = False, dtype: str | None = None) -> Array:
    """For p = 2 with a slope of 0 where everything is 0, as PyTorch has it."""
    axes, p = axes_of(x, dims), 2 if p is None else p
    if p == 2:
        squares = jnp.sum(x**2, axes, keepdims=keepdim)
        return jnp.where(squares > 0, jnp.sqrt(jnp.where(squares > 0, squares, 1.0)), 0.0)
    if p in (float("inf"), float("-inf")):
        return (jnp.max if p > 0 else jnp.min)(jnp.abs(x), axes, keepdims=keepdim)
    return jnp.sum(jnp.abs(x) ** p, axes, keepdims=keepdim) ** (1.0 / p)


def _linalg_norm(x: Array, p: Any = 2, dims: Dims = None, keepdim: bool = False, dtype: str | None = None) -> Array:
    return _norm(x, p, dims, keepdim)


def _cumulative(accumulate: Callable[..., Array]) -> Callable[..., Array]:
    return lambda x, dim, dtype=None: accumulate(x, axis=dim, dtype=dtype_of(dtype))


def _topk(x: Array, k: int, dim: int = -1, largest: bool = True, ordered: bool = True) -> tuple[Array, Array]:
    values, places = _sort(x, dim, largest)
    return tuple(jax.lax.slice_in_dim(part, 0, k, axis=dim) for part in (values, places))  # pyright: ignore[reportReturnType]


def _sort(x: Array, dim: int = -1, descending: bool = False) -> tuple[Array, Array]:
    places = jnp.argsort(x, axis=dim, stable=True, descending=descending)
    return jnp.take_along_axis(x, places, axis=dim), places


REDUCTIONS: dict[str, Callable[..., Any]] = {
    "_log_softmax": _log_softmax,
    "_softmax": _softmax,
    "amax": _extreme(jnp.max),
    "amin": _extreme(jnp.min),
    "any": _logical(jnp.any),
    "any.dim": _logical(jnp.any),
    "argmax": _place(jnp.argmax),
    "argmin": _place(jnp.argmin),
    "cumprod": _cumulative(jnp.cumprod),
    "cumsum": _cumulative(jnp.cumsum),
    "linalg_vector_norm": _linalg_norm,
    "logsumexp": lambda x, dims, keepdim=False: jax.nn.logsumexp(x, axes_of(x, dims), keepdims=keepdim),
    "max.dim": _with_place(jnp.max, jnp.argmax),
    "mean": _of_all(jnp.mean),
    "mean.dim": _mean,
    "min.dim": _with_place(jnp.min, jnp.argmin),
    "prod": _of_all(jnp.prod),
    "prod.dim_int": lambda x, dim, keepdim=False, dtype=None: jnp.prod(x, dim, dtype_of(dtype), keepdims=keepdim),
    "sort": _sort,
    "sum": _of_all(jnp.sum),
    "sum.dim_IntList": _sum,
    "topk": _topk,
    "var.correction": _variance,
    "var_mean.correction": _variance_and_mean,
}
