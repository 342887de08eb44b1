"""Operations that move numbers without changing them: other shapes, parts, and places chosen by index."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

_MOST = 2**31


def axes_of(x: Array, dims: int | tuple[int, ...] | None) -> tuple[int, ...]:
    """Axes counted from the front; all of them where none is named."""
    dims = (dims,) if isinstance(dims, int) else dims
    return tuple(range(x.ndim)) if not dims else tuple(d % max(x.ndim, 1) for d in dims)


def _view(x: Array, size: tuple[int, ...]) -> Array:
    return x.reshape(size)


def _expand(x: Array, size: tuple[int, ...], implicit: bool = False) -> Array:
    own = (1,) * (len(size) - x.ndim) + x.shape
    return jnp.broadcast_to(x, tuple(o if s == -1 else s for s, o in zip(size, own, strict=True)))


def _squeeze(x: Array, dims: int | tuple[int, ...] | None = None) -> Array:
    return jnp.squeeze(x, tuple(d for d in axes_of(x, dims) if x.shape[d] == 1))


def _unsqueeze(x: Array, dim: int) -> Array:
    return jnp.expand_dims(x, dim)


def _repeat(x: Array, repeats: tuple[int, ...]) -> Array:
    return jnp.tile(x.reshape((1,) * (len(repeats) - x.ndim) + x.shape), repeats)


def _slice(x: Array, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Array:
    size = x.shape[dim]
    stop = None if end is None or end >= _MOST else end
    low, high, _ = slice(start, stop).indices(size)
    return lax.slice_in_dim(x, low, max(low, high), step, axis=dim)


def _select(x: Array, dim: int, index: int) -> Array:
    return lax.index_in_dim(x, index, axis=dim, keepdims=False)


def _split_with_sizes(x: Array, sizes: tuple[int, ...], dim: int = 0) -> tuple[Array, ...]:
    return tuple(lax.split(x, sizes, axis=dim % x.ndim))


def _cat(arrays: tuple[Array, ...], dim: int = 0) -> Array:
    return jnp.concatenate(arrays, axis=dim)


def _flip(x: Array, dims: tuple[int, ...]) -> Array:
    return jnp.flip(x, dims)


# ---- padding


def _pairs(x: Array, pad: tuple[int, ...]) -> list[tuple[int, int]]:
    """Of each axis: PyTorch names the last axis first."""
    found = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)][::-1]
    return [(0, 0)] * (x.ndim - len(found)) + found


def _constant_pad(x: Array, pad: tuple[int, ...], value: Any = 0.0) -> Array:
    pairs = [(low, high, 0) for low, high in _pairs(x, pad)]
    return lax.pad(x, jnp.asarray(value, x.dtype), pairs)


# ---- places chosen by arrays


def _index(x: Array, indices: tuple[Array | None, ...]) -> Array:
    return x[tuple(slice(None) if i is None else i for i in indices)]


def _index_put(x: Array, indices: tuple[Array | None, ...], values: Array, accumulate: bool = False) -> Array:
    at = x.at[tuple(slice(None) if i is None else i for i in indices)]
    return at.add(values) if accumulate else at.set(values)


def _index_select(x: Array, dim: int, index: Array) -> Array:
    return jnp.take(x, index, axis=dim)


def _gather(x: Array, dim: int, index: Array, sparse_grad: bool = False) -> Array:
    return x[_places(index, dim)]


def _scatter(x: Array, dim: int, index: Array, source: Any) -> Array:
    values = source if jnp.ndim(source) == 0 else source[tuple(slice(n) for n in index.shape)]  # pyright: ignore[reportIndexIssue]
    return x.at[_places(index, dim)].set(values)


def _scatter_add(x: Array, dim: int, index: Array, source: Array) -> Array:
    return x.at[_places(index, dim)].add(source[tuple(slice(n) for n in index.shape)])


def _places(index: Array, dim: int) -> tuple[Array, ...]:
    grid = list(jnp.meshgrid(*(jnp.arange(n) for n in index.shape), indexing="ij"))
    grid[dim] = index
    return tuple(grid)


def _select_scatter(x: Array, source: Array, dim: int, index: int) -> Array:
    return jnp.moveaxis(jnp.moveaxis(x, dim, 0).at[index].set(source), 0, dim)


def _slice_scatter(
    x: Array, source: Array, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Array:
    low, high, step = slice(start, None if end is None or end >= _MOST else end, step).indices(x.shape[dim])
    front = jnp.moveaxis(x, dim, 0).at[low:high:step].set(jnp.moveaxis(source, dim, 0))
    return jnp.moveaxis(front, 0, dim)


def _embedding(weight: Array, index: Array, padding: int = -1, scale: bool = False, sparse: bool = False) -> Array:
    """A number that is no token gives NaN, not the vector of another token; that of padding is not trained."""
    if padding >= 0:
        weight = jnp.where(jnp.arange(weight.shape[0])[:, None] == padding, lax.stop_gradient(weight), weight)
    is_token = (index >= 0) & (index < weight.shape[0])
    return jnp.where(is_token[..., None], weight[jnp.where(is_token, index, 0)], jnp.nan)


def _unfold(x: Array, dim: int, size: int, step: int) -> Array:
    """Windows along an axis, whose entries come last."""
    last = jnp.moveaxis(x, dim, -1)
    starts = jnp.arange(0, x.shape[dim] - size + 1, step)
    windows = last[..., starts[:, None] + jnp.arange(size)]
    return jnp.moveaxis(windows, -2, dim % x.ndim)


def _diagonal(x: Array, offset: int = 0, first: int = 0, second: int = 1) -> Array:
    return jnp.diagonal(x, offset, first, second)


def _pixel_shuffle(x: Array, factor: int) -> Array:
    *lead, channels, height, width = x.shape
    n = len(lead)
    blocks = x.reshape(*lead, channels // factor**2, factor, factor, height, width)
    moved = jnp.transpose(blocks, (*range(n), n, n + 3, n + 1, n + 4, n + 2))
    return moved.reshape(*lead, channels // factor**2, height * factor, width * factor)


SHAPES: dict[str, Callable[..., Any]] = {
    "cat": _cat,
    "constant_pad_nd": _constant_pad,
    "diagonal": _diagonal,
    "embedding": _embedding,
    "expand": _expand,
    "flip": _flip,
    "gather": _gather,
    "index.Tensor": _index,
    "index_put": _index_put,
    "index_select": _index_select,
    "permute": jnp.transpose,
    "pixel_shuffle": _pixel_shuffle,
    "repeat": _repeat,
    "scatter.src": _scatter,
    "scatter.value": _scatter,
    "scatter_add": _scatter_add,
    "select.int": _select,
    "select_scatter": _select_scatter,
    "slice.Tensor": _slice,
    "slice_scatter": _slice_scatter,
    "split_with_sizes": _split_with_sizes,
    "squeeze": _squeeze,
    "squeeze.dim": _squeeze,
    "squeeze.dims": _squeeze,
    "unfold": _unfold,
    "unsqueeze": _unsqueeze,
    "view": _view,
}
