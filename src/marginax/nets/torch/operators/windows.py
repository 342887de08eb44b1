"""Operations on windows of images: pooling, and images of other sizes."""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from marginax._kernels import image_maps

Sizes = tuple[int, ...]


def _parts(x: Array, kernel: Sizes, stride: Sizes, dilation: Sizes, out: list[int]) -> list[Array]:
    """For each place of a window, what all windows have there: slices, whose derivatives of all kinds are quick."""
    num, lead = len(kernel), x.ndim - len(kernel)
    found = []
    for offset in itertools.product(*(range(k) for k in kernel)):
        corner = [o * d for o, d in zip(offset, dilation, strict=True)]
        ends = [c + (n - 1) * s + 1 for c, n, s in zip(corner, out, stride, strict=True)]
        limits = (*x.shape[:lead], *ends)
        found.append(lax.slice(x, ((0,) * lead + tuple(corner)), limits, (1,) * lead + tuple(stride)))
    return found if num else [x]


def _framed(
    x: Array, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil: bool, value: float
) -> tuple[Array, list[int]]:
    """The image with a frame of a value, and the number of windows along each axis."""
    lead, out, pads = x.ndim - len(kernel), [], []
    for n, k, s, p, d in zip(x.shape[lead:], kernel, stride, padding, dilation, strict=True):
        span = (k - 1) * d + 1
        number = -(-(n + 2 * p - span) // s) + 1 if ceil else (n + 2 * p - span) // s + 1
        if ceil and (number - 1) * s >= n + p:  # a window that begins in the frame on the right does not count
            number -= 1
        out.append(number)
        pads.append((p, max(p, (number - 1) * s + span - n - p), 0))
    return lax.pad(x, jnp.asarray(value, x.dtype), [(0, 0, 0)] * lead + pads), out


def _spread(value: Sizes, num: int) -> Sizes:
    return tuple(value) * num if len(value) == 1 else tuple(value)


def _max_pool(num: int) -> Callable[..., tuple[Array, None]]:
    def pool(
        x: Array, kernel: Sizes, stride: Sizes = (), padding: Sizes = (0,), dilation: Sizes = (1,), ceil: bool = False
    ) -> tuple[Array, None]:
        kernel, padding, dilation = (_spread(value, num) for value in (kernel, padding, dilation))
        stride = _spread(stride, num) if stride else kernel
        if num == 2 and stride == kernel and padding == (0, 0) and dilation == (1, 1) and not ceil and x.ndim == 4:
            flat = x.reshape(-1, *x.shape[2:])
            return image_maps.max_pool(flat, (kernel[0], kernel[1])).reshape(*x.shape[:2], *_pooled(x, kernel)), None
        framed, out = _framed(x, kernel, stride, padding, dilation, ceil, -jnp.inf)
        return functools.reduce(jnp.maximum, _parts(framed, kernel, stride, dilation, out)), None

    return pool


def _pooled(x: Array, kernel: Sizes) -> tuple[int, ...]:
    return tuple(n // k for n, k in zip(x.shape[2:], kernel, strict=True))


def _avg_pool(num: int) -> Callable[..., Array]:
    def pool(
        x: Array,
        kernel: Sizes,
        stride: Sizes = (),
        padding: Sizes = (0,),
        ceil: bool = False,
        count_include_pad: bool = True,
        divisor: int | None = None,
    ) -> Array:
        kernel, padding = _spread(kernel, num), _spread(padding, num)
        stride, ones = _spread(stride, num) if stride else kernel, (1,) * num
        framed, out = _framed(x, kernel, stride, padding, ones, ceil, 0.0)
        total = sum(_parts(framed, kernel, stride, ones, out), jnp.zeros((), x.dtype))
        if divisor is not None:
            return total / divisor
        counted = np.zeros(framed.shape[x.ndim - num :], x.dtype)  # what is beyond the frame does not count
        frame = (0,) * num if count_include_pad else padding
        image = x.shape[x.ndim - num :]
        counted[tuple(slice(f, n + 2 * p - f) for f, n, p in zip(frame, image, padding, strict=True))] = 1.0
        return total / sum(_parts(jnp.asarray(counted), kernel, stride, ones, out), jnp.zeros((), x.dtype))

    return pool


def _adaptive_avg_pool(x: Array, size: Sizes) -> Array:
    """Means of windows that cover an image in so many steps, along one axis after the other."""
    for i, (n, m) in enumerate(zip(x.shape[x.ndim - len(size) :], size, strict=True)):
        axis = x.ndim - len(size) + i
        if n % m == 0:
            x = x.reshape(*x.shape[:axis], m, n // m, *x.shape[axis + 1 :]).mean(axis + 1)
            continue
        means = [
            lax.slice_in_dim(x, j * n // m, -(-(j + 1) * n // m), axis=axis).mean(axis, keepdims=True) for j in range(m)
        ]
        x = jnp.concatenate(means, axis=axis)
    return x


def _adaptive_max_pool(x: Array, size: Sizes) -> tuple[Array, None]:
    for i, (n, m) in enumerate(zip(x.shape[x.ndim - len(size) :], size, strict=True)):
        axis = x.ndim - len(size) + i
        ends = [lax.slice_in_dim(x, j * n // m, -(-(j + 1) * n // m), axis=axis) for j in range(m)]
        x = jnp.concatenate([part.max(axis, keepdims=True) for part in ends], axis=axis)
    return x, None


# ---- images of other sizes


def _target(x: Array, size: Sizes | None, factors: tuple[Any, ...] | None) -> tuple[int, ...]:
    if size is not None:
        return tuple(size)
    assert factors is not None
    return tuple(int(n * f) for n, f in zip(x.shape[2:], factors, strict=True))


def _nearest(x: Array, size: Sizes | None, factors: tuple[Any, ...] | None) -> Array:
    for i, m in enumerate(_target(x, size, factors)):
        n = x.shape[2 + i]
        x = jnp.take(x, (jnp.arange(m) * (n / m)).astype(jnp.int32), axis=2 + i)
    return x


def _linear(x: Array, size: Sizes | None, corners: bool, factors: tuple[Any, ...] | None) -> Array:
    for i, m in enumerate(_target(x, size, factors)):
        n, axis = x.shape[2 + i], 2 + i
        if corners:
            places = jnp.arange(m) * ((n - 1) / max(m - 1, 1))
        else:
            step = 1.0 / factors[i] if factors is not None else n / m
            places = jnp.maximum((jnp.arange(m) + 0.5) * step - 0.5, 0.0)
        low = jnp.minimum(places.astype(jnp.int32), n - 1)
        share = jnp.expand_dims((places - low).astype(x.dtype), tuple(range(1, x.ndim - axis)))
        below, above = jnp.take(x, low, axis=axis), jnp.take(x, jnp.minimum(low + 1, n - 1), axis=axis)
        x = below + share * (above - below)
    return x


WINDOWS: dict[str, Callable[..., Any]] = {
    "_adaptive_avg_pool2d": _adaptive_avg_pool,
    "_adaptive_avg_pool3d": _adaptive_avg_pool,
    "adaptive_avg_pool1d": _adaptive_avg_pool,
    "adaptive_avg_pool2d": _adaptive_avg_pool,
    "adaptive_avg_pool3d": _adaptive_avg_pool,
    "adaptive_max_pool2d": _adaptive_max_pool,
    "avg_pool1d": _avg_pool(1),
    "avg_pool2d": _avg_pool(2),
    "avg_pool3d": _avg_pool(3),
    "max_pool2d_with_indices": _max_pool(2),
    "max_pool3d_with_indices": _max_pool(3),
    "upsample_bilinear2d.vec": _linear,
    "upsample_linear1d.vec": _linear,
    "upsample_nearest1d.vec": _nearest,
    "upsample_nearest2d.vec": _nearest,
}
