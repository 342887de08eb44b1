"""Normalisation: by running statistics, or by those of one example."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array


def _batch_norm(
    x: Array, weight: Array | None, bias: Array | None, mean: Array, variance: Array, momentum: Any, eps: float
) -> tuple[Array, None, None]:
    """By running statistics, which stay as they are."""
    factor = lax.rsqrt(variance + eps) if weight is None else weight * lax.rsqrt(variance + eps)
    shift = -mean * factor if bias is None else bias - mean * factor
    return x * _at_channels(factor, x) + _at_channels(shift, x), None, None


def _layer_norm(
    x: Array, shape: tuple[int, ...], weight: Array | None, bias: Array | None, eps: float
) -> tuple[Array, None, None]:
    y = _standardise(x, tuple(range(x.ndim - len(shape), x.ndim)), eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias, None, None


def _group_norm(
    x: Array, weight: Array | None, bias: Array | None, num: int, channels: int, size: int, groups: int, eps: float
) -> tuple[Array, None, None]:
    y = _standardise(x.reshape(x.shape[0], groups, -1), (2,), eps).reshape(x.shape)
    y = y if weight is None else y * _at_channels(weight, x)
    return y if bias is None else y + _at_channels(bias, x), None, None


def _instance_norm(
    x: Array,
    weight: Array | None,
    bias: Array | None,
    mean: Array | None,
    variance: Array | None,
    use_input_stats: bool,
    momentum: Any,
    eps: Any,
    cudnn: bool,
) -> Array:
    """Statistics of each example and channel, or running ones."""
    if not use_input_stats:
        assert mean is not None
        assert variance is not None
        return _batch_norm(x, weight, bias, mean, variance, momentum, eps)[0]
    return _group_norm(x, weight, bias, x.shape[0], x.shape[1], 0, x.shape[1], eps)[0]


def _rms_norm(x: Array, shape: tuple[int, ...], weight: Array | None = None, eps: Any = None) -> Array:
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    small = jnp.finfo(x.dtype).eps if eps is None else eps
    y = x * lax.rsqrt(jnp.mean(x**2, axes, keepdims=True) + small)
    return y if weight is None else y * weight


def _standardise(x: Array, axes: tuple[int, ...], eps: Any) -> Array:
    centred = x - x.mean(axes, keepdims=True)
    return centred * lax.rsqrt((centred**2).mean(axes, keepdims=True) + eps)


def _at_channels(values: Array, x: Array) -> Array:
    return values.reshape(-1, *(1 for _ in x.shape[2:]))


NORMALISATION: dict[str, Callable[..., Any]] = {
    "_native_batch_norm_legit_no_training": _batch_norm,
    "instance_norm": _instance_norm,
    "native_group_norm": _group_norm,
    "native_layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
}
