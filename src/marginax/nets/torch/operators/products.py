"""Products of arrays, convolutions among them, where they are not those of a layer of the network."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

Number = float | int


def _linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    y = x @ weight.T
    return y if bias is None else y + bias


def _addmm(base: Array, a: Array, b: Array, beta: Number = 1, alpha: Number = 1) -> Array:
    product = a @ b if alpha == 1 else alpha * (a @ b)
    return product + (base if beta == 1 else beta * base)


def _bilinear(a: Array, b: Array, weight: Array, bias: Array | None = None) -> Array:
    y = jnp.einsum("...i,oij,...j->...o", a, weight, b)
    return y if bias is None else y + bias


def _convolution(
    x: Array,
    weight: Array,
    bias: Array | None,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    transposed: bool,
    output_padding: tuple[int, ...],
    groups: int,
) -> Array:
    num = x.ndim - 2
    stride, padding, dilation = (_full(value, num) for value in (stride, padding, dilation))
    options: dict[str, Any] = {"rhs_dilation": dilation, "feature_group_count": groups}
    if transposed:
        spans = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
        extra = _full(output_padding, num)
        pads = [(s - p, s - p + e) for s, p, e in zip(spans, padding, extra, strict=True)]
        kernel = _flipped(weight, groups)
        y = lax.conv_general_dilated(x, kernel, (1,) * num, pads, lhs_dilation=stride, **options)
    else:
        y = lax.conv_general_dilated(x, weight, stride, [(p, p) for p in padding], **options)
    return y if bias is None else y + bias.reshape(-1, *(1,) * num)


def _full(value: tuple[int, ...], num: int) -> tuple[int, ...]:
    return tuple(value) * num if len(value) == 1 else tuple(value)


def _flipped(weight: Array, groups: int) -> Array:
    """Filters of a transposed convolution (in, out / groups, ...) as those of a convolution (out, in / groups, ...)."""
    num_in, num_out, *kernel = weight.shape
    by_group = weight.reshape(groups, num_in // groups, num_out, *kernel)
    kernels = jnp.moveaxis(by_group, 1, 2).reshape(groups * num_out, num_in // groups, *kernel)
    return jnp.flip(kernels, tuple(range(2, kernels.ndim)))


PRODUCTS: dict[str, Callable[..., Any]] = {
    "addmm": _addmm,
    "bilinear": _bilinear,
    "bmm": jnp.matmul,
    "convolution": _convolution,
    "linear": _linear,
    "matmul": jnp.matmul,
    "mm": jnp.matmul,
}
