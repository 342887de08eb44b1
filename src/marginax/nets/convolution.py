r"""Two-dimensional convolution and pooling that are fast on CPUs, forwards and backwards.

XLA's own convolutions on CPUs are slow where training needs them: the gradient with respect to the weights, the
gradient with respect to the input, and a stack of networks (which becomes a grouped convolution). Here a convolution
is one matrix product over patches, with the examples on the last, contiguous axis, so that cutting patches and adding
them back are plain copies of long rows. The three bilinear maps

    forward        (x, w)  -> y      y = w * x
    weight_grad    (x, dy) -> dw
    input_grad     (w, dy) -> dx

are JAX primitives that are each other's transposes, so forward mode, reverse mode and all higher derivatives work, and
each knows how to take on a `jax.vmap` axis: an axis that both operands have is a batch of matrix products, an axis that
only one has is folded into a free axis of the single matrix product. Hence `jax.grad` of a sum over `jax.vmap`-ed
examples computes the weight gradient jointly for the batch, and `jax.vmap` over networks is a batched matrix product.
On other platforms than CPU the same maps are lowered to XLA's convolutions.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float

from marginax._keys import Key, as_key
from marginax.files import register
from marginax.nets.initialisers import Initialiser, he

Pair = tuple[int, int]
Pads = tuple[Pair, Pair]

__all__ = ["Conv2d", "avg_pool2d", "conv2d", "conv2d_batch", "max_pool2d"]


# ---------------------------------------------------------------------------------------------- the three linear maps
# Axes: x (G, C, H, W, B), w (G, O, C, kh, kw), y (G, O, Ho, Wo, B), where G counts networks and B examples.


def _out_sizes(sizes: Pair, kernel: Pair, stride: Pair, padding: Pads) -> Pair:
    heights = [(n + sum(p) - k) // s + 1 for n, k, s, p in zip(sizes, kernel, stride, padding, strict=True)]
    return heights[0], heights[1]


def _patches(x: Array, kernel: Pair, stride: Pair, padding: Pads) -> Array:
    """All patches of `x` as a matrix per network: (G, C*kh*kw, Ho*Wo*B)."""
    out = _out_sizes(x.shape[2:4], kernel, stride, padding)
    x = jnp.pad(x, ((0, 0), (0, 0), *padding, (0, 0)))
    # One axis at a time: a concatenation of few long slices is much cheaper than one of kh*kw slices.
    for axis, size, k, s in zip((3, 2), reversed(out), reversed(kernel), reversed(stride), strict=True):
        window = [lax.slice_in_dim(x, i, i + s * (size - 1) + 1, s, axis=axis + x.ndim - 5) for i in range(k)]
        x = jnp.stack(window, axis=2)
    return x.reshape(x.shape[0], x.shape[1] * math.prod(kernel), -1)


def _forward(x: Array, w: Array, *, stride: Pair, padding: Pads) -> Array:
    groups, num_out, _, *kernel = w.shape
    out = _out_sizes(x.shape[2:4], (kernel[0], kernel[1]), stride, padding)
    patches = _patches(x, (kernel[0], kernel[1]), stride, padding)
    y = _matmul(w.reshape(groups, num_out, -1), patches, 2, 1)
    return y.reshape(groups, num_out, *out, x.shape[4])


def _weight_grad(x: Array, dy: Array, *, kernel: Pair, stride: Pair, padding: Pads) -> Array:
    groups, num_out = dy.shape[:2]
    patches = _patches(x, kernel, stride, padding)
    dw = _matmul(patches, dy.reshape(groups, num_out, -1), 2, 2)  # the other order is up to 1.5 times slower
    return dw.mT.reshape(groups, num_out, x.shape[1], *kernel)


def _input_grad(w: Array, dy: Array, *, sizes: Pair, stride: Pair, padding: Pads) -> Array:
    groups, num_out, num_in, *kernel = w.shape
    out, num_examples = dy.shape[2:4], dy.shape[4]
    transposed = lax.optimization_barrier(
        w.reshape(groups, num_out, -1).mT
    )  # cheaper than within the product
    columns = _matmul(transposed, dy.reshape(groups, num_out, -1), 2, 1)
    columns = columns.reshape(groups, num_in, *kernel, *out, num_examples)
    total = jnp.zeros((), dy.dtype)
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            # A negative edge crops what fell on the padding, an interior edge undoes the stride.
            edges = [
                (at - p[0], n + p[0] - at - s * (m - 1) - 1, s - 1)
                for at, n, m, s, p in zip((i, j), sizes, out, stride, padding, strict=True)
            ]
            total += lax.pad(
                columns[:, :, i, j], jnp.zeros((), dy.dtype), ((0, 0, 0), (0, 0, 0), *edges, (0, 0, 0))
            )
    return total


def _matmul(a: Array, b: Array, contract_a: int, contract_b: int) -> Array:
    """Contracts one axis each, batched over the leading axis; a lone matrix is faster without the batch axis."""
    if a.shape[0] == 1:
        return lax.dot_general(a[0], b[0], (((contract_a - 1,), (contract_b - 1,)), ((), ())))[None]
    return lax.dot_general(a, b, (((contract_a,), (contract_b,)), ((0,), (0,))))


def _forward_xla(x: Array, w: Array, *, stride: Pair, padding: Pads) -> Array:
    def one(x: Array, w: Array) -> Array:
        return lax.conv_general_dilated(x, w, stride, padding, dimension_numbers=("CHWN", "OIHW", "CHWN"))

    return jax.vmap(one)(x, w)


def _weight_grad_xla(x: Array, dy: Array, *, kernel: Pair, stride: Pair, padding: Pads) -> Array:
    w = jax.ShapeDtypeStruct((*dy.shape[:2], x.shape[1], *kernel), dy.dtype)
    return jax.linear_transpose(lambda w: _forward_xla(x, w, stride=stride, padding=padding), w)(dy)[0]


def _input_grad_xla(w: Array, dy: Array, *, sizes: Pair, stride: Pair, padding: Pads) -> Array:
    x = jax.ShapeDtypeStruct((w.shape[0], w.shape[2], *sizes, dy.shape[4]), dy.dtype)
    return jax.linear_transpose(lambda x: _forward_xla(x, w, stride=stride, padding=padding), x)(dy)[0]


# ------------------------------------------------------------------------------------------------------- as primitives


def _new_primitive(name: str, on_cpu: Callable, elsewhere: Callable, batch: Callable) -> Primitive:
    primitive = Primitive(f"marginax_{name}")

    def evaluate(*operands: Array, **params: Any) -> Array:
        return jax.jit(functools.partial(primitive.bind, **params))(*operands)

    def abstract_evaluate(*operands: Any, **params: Any) -> jax.core.ShapedArray:
        shape = jax.eval_shape(functools.partial(on_cpu, **params), *operands).shape
        return jax.core.ShapedArray(shape, operands[0].dtype)

    primitive.def_impl(evaluate)
    primitive.def_abstract_eval(abstract_evaluate)
    batching.primitive_batchers[primitive] = batch
    mlir.register_lowering(primitive, mlir.lower_fun(elsewhere, multiple_results=False))
    mlir.register_lowering(primitive, mlir.lower_fun(on_cpu, multiple_results=False), platform="cpu")
    return primitive


def _primitive(name: str, on_cpu: Callable, elsewhere: Callable, free: tuple[Pair, Pair | None]) -> Primitive:
    """`free[i]` is the axis of operand i, and of the result, that takes on a vmap axis only operand i has."""

    def batch(operands: Sequence[Array], dims: Sequence[int | None], **params: Any) -> tuple[Array, int]:
        mapped = [i for i in (0, 1) if dims[i] is not None]
        num = operands[mapped[0]].shape[dims[mapped[0]]]
        alone = free[mapped[0]] if len(mapped) == 1 else None
        if alone is None:
            folded = [_fold(x, d, 0, num) for x, d in zip(operands, dims, strict=True)]
            into = 0
        else:
            folded = [
                x if d is None else _fold(x, d, alone[0], num) for x, d in zip(operands, dims, strict=True)
            ]
            into = alone[1]
        result = primitive.bind(*folded, **params)
        return result.reshape(*result.shape[:into], -1, num, *result.shape[into + 1 :]), into + 1

    primitive = _new_primitive(f"conv2d_{name}", on_cpu, elsewhere, batch)
    return primitive


def _fold(x: Array, dim: int | None, into: int, num: int) -> Array:
    """Merges axis `dim` of length `num` into the axis that is number `into` without it."""
    x = jnp.repeat(x[None], num, 0) if dim is None else x
    x = jnp.moveaxis(x, dim or 0, into + 1)
    return x.reshape(*x.shape[:into], -1, *x.shape[into + 2 :])


_forward_p = _primitive("forward", _forward, _forward_xla, ((4, 4), (1, 1)))
_weight_grad_p = _primitive("weight_grad", _weight_grad, _weight_grad_xla, ((1, 2), (1, 1)))
_input_grad_p = _primitive("input_grad", _input_grad, _input_grad_xla, ((2, 1), (4, 4)))


def _to_input(w: Array, dy: Array, x: Any, *, stride: Pair, padding: Pads, **_: Any) -> Array:
    return _input_grad_p.bind(w, dy, sizes=x.aval.shape[2:4], stride=stride, padding=padding)


def _to_weight(x: Array, dy: Array, w: Any, *, stride: Pair, padding: Pads, **_: Any) -> Array:
    return _weight_grad_p.bind(x, dy, kernel=w.aval.shape[3:5], stride=stride, padding=padding)


def _to_output(x: Array, w: Array, *, stride: Pair, padding: Pads, **_: Any) -> Array:
    return _forward_p.bind(x, w, stride=stride, padding=padding)


# Each map's transpose in either operand is one of the other two.
ad.defbilinear(
    _forward_p,
    lambda dy, x, w, **geometry: _to_input(w, dy, x, **geometry),
    lambda dy, x, w, **geometry: _to_weight(x, dy, w, **geometry),
)
ad.defbilinear(
    _weight_grad_p,
    lambda dw, x, dy, **geometry: _to_input(dw, dy, x, **geometry),
    lambda dw, x, dy, **geometry: _to_output(x, dw, **geometry),
)
ad.defbilinear(
    _input_grad_p,
    lambda dx, w, dy, **geometry: _to_weight(dx, dy, w, **geometry),
    lambda dx, w, dy, **geometry: _to_output(dx, w, **geometry),
)


def _shift(y: Array, b: Array) -> Array:
    return y + b[:, :, None, None, None]


def _shift_transpose(dy: Array, y: Any, b: Any) -> list[Array | None]:
    return [
        dy if ad.is_undefined_primal(y) else None,
        dy.sum((2, 3, 4)) if ad.is_undefined_primal(b) else None,
    ]


# Plain addition under vmap would bring the examples to the front, and so cost a transpose on either side.
_shift_p = _primitive("shift", _shift, _shift, ((4, 4), None))
ad.deflinear2(_shift_p, _shift_transpose)


# ------------------------------------------------------------------------------------------------- max-pooling
# Height and width are axes `axis` and `axis + 1`. `_spread` is the transpose of `_pick`.


def _windows(x: Array, size: Pair, axis: int) -> Array:
    """Cuts windows: (..., height // rows, rows, width // columns, columns, ...)."""
    rows, columns = (n // s for n, s in zip(x.shape[axis : axis + 2], size, strict=True))
    x = lax.slice_in_dim(
        lax.slice_in_dim(x, 0, rows * size[0], axis=axis), 0, columns * size[1], axis=axis + 1
    )
    return x.reshape(*x.shape[:axis], rows, size[0], columns, size[1], *x.shape[axis + 2 :])


def _largest(x: Array, *, size: Pair, axis: int) -> Array:
    return _windows(x, size, axis).max((axis + 1, axis + 3))


def _shares(x: Array, size: Pair, axis: int) -> Array:
    windows, places = _windows(x, size, axis), (axis + 1, axis + 3)
    hits = (windows == windows.max(places, keepdims=True)).astype(x.dtype)
    return hits / hits.sum(places, keepdims=True)


def _pick(dx: Array, x: Array, *, size: Pair, axis: int) -> Array:
    return (_windows(dx, size, axis) * _shares(x, size, axis)).sum((axis + 1, axis + 3))


def _spread(dy: Array, x: Array, *, size: Pair, axis: int) -> Array:
    windows = _shares(x, size, axis) * jnp.expand_dims(dy, (axis + 1, axis + 3))
    cropped = [n // s * s for n, s in zip(x.shape[axis : axis + 2], size, strict=True)]
    edges = [(0, n - m) for n, m in zip(x.shape[axis : axis + 2], cropped, strict=True)]
    dx = windows.reshape(*x.shape[:axis], *cropped, *x.shape[axis + 2 :])
    return jnp.pad(dx, (*((0, 0) for _ in range(axis)), *edges, *((0, 0) for _ in x.shape[axis + 2 :])))


def _pooling_primitive(name: str, function: Callable) -> Primitive:
    def batch(
        operands: Sequence[Array], dims: Sequence[int | None], *, axis: int, size: Pair
    ) -> tuple[Array, int]:
        num, dim = next((x.shape[d], d) for x, d in zip(operands, dims, strict=True) if d is not None)
        dim = 0 if dim == axis + 1 else dim  # height and width stay neighbours
        aligned = [
            jnp.repeat(jnp.expand_dims(x, dim), num, dim) if d is None else jnp.moveaxis(x, d, dim)
            for x, d in zip(operands, dims, strict=True)
        ]
        return primitive.bind(*aligned, axis=axis + (dim <= axis), size=size), dim

    primitive = _new_primitive(name, function, function, batch)
    return primitive


_largest_p = _pooling_primitive("max_pool2d", _largest)
_pick_p = _pooling_primitive("max_pool2d_pick", _pick)
_spread_p = _pooling_primitive("max_pool2d_spread", _spread)


def _transpose_into(other: Primitive) -> Callable:
    def transpose(cotangent: Any, linear: Any, x: Array, **params: Any) -> tuple[Any, None]:
        if type(cotangent) is ad.Zero:
            return ad.Zero(linear.aval), None
        return other.bind(cotangent, x, **params), None

    return transpose


ad.defjvp(_largest_p, lambda dx, x, **params: _pick_p.bind(dx, x, **params))
ad.defjvp(_pick_p, lambda dx, _, x, **params: _pick_p.bind(dx, x, **params), None)
ad.defjvp(_spread_p, lambda dy, _, x, **params: _spread_p.bind(dy, x, **params), None)
ad.primitive_transposes[_pick_p] = _transpose_into(_spread_p)
ad.primitive_transposes[_spread_p] = _transpose_into(_pick_p)


# ------------------------------------------------------------------------------------------------------ public functions


def conv2d(
    x: Float[Array, "channels height width"],
    weight: Float[Array, "out_channels channels kernel_height kernel_width"],
    bias: Float[Array, " out_channels"] | None = None,
    *,
    stride: int | Pair = 1,
    padding: int | Pair | Pads = 0,
) -> Float[Array, "out_channels out_height out_width"]:
    """Cross-correlation of one image with a bank of filters; use `jax.vmap` for many images, many filters, or both.

    Args:
        x: the image, channels first.
        weight: the filters.
        bias: added to each output channel.
        stride: step between patches, one number or (vertical, horizontal).
        padding: zeros around the image: one number, (vertical, horizontal), or ((top, bottom), (left, right)).

    Returns:
        An image with one channel per filter.

    >>> conv2d(jnp.ones((1, 4, 4)), jnp.ones((1, 1, 3, 3))).tolist()
    [[[9.0, 9.0], [9.0, 9.0]]]
    """
    return conv2d_batch(x[..., None], weight, bias, stride=stride, padding=padding)[..., 0]


def conv2d_batch(
    x: Float[Array, "channels height width num"],
    weight: Float[Array, "out_channels channels kernel_height kernel_width"],
    bias: Float[Array, " out_channels"] | None = None,
    *,
    stride: int | Pair = 1,
    padding: int | Pair | Pads = 0,
) -> Float[Array, "out_channels out_height out_width num"]:
    """As `conv2d`, for many images that lie along the last axis, the layout in which the work is done."""
    strides, pads = _pair("stride", stride, 1), _pads(padding)
    _check_fit(x.shape, weight.shape, bias, pads)
    dtype = jnp.result_type(x, weight)
    y = _forward_p.bind(x[None].astype(dtype), weight[None].astype(dtype), stride=strides, padding=pads)
    return (y if bias is None else _shift_p.bind(y, bias[None].astype(dtype)))[0]


def max_pool2d(
    x: Float[Array, "channels height width *num"], size: int | Pair
) -> Float[Array, "channels _ _ *num"]:
    """The maximum of each window of `size`, windows side by side; rows and columns left over are ignored.

    The gradient goes to the largest entry of a window, and in equal parts to entries that tie for it.

    >>> max_pool2d(jnp.arange(16.0).reshape(1, 4, 4), 2).tolist()
    [[[5.0, 7.0], [13.0, 15.0]]]
    """
    return _largest_p.bind(x, size=_window(x, size), axis=1)


def avg_pool2d(
    x: Float[Array, "channels height width *num"], size: int | Pair
) -> Float[Array, "channels _ _ *num"]:
    """The mean of each window of `size`, windows side by side; rows and columns left over are ignored.

    >>> avg_pool2d(jnp.arange(16.0).reshape(1, 4, 4), 2).tolist()
    [[[2.5, 4.5], [10.5, 12.5]]]
    """
    return _windows(x, _window(x, size), 1).mean((2, 4))


def _window(x: Array, size: int | Pair) -> Pair:
    pair = _pair("size", size, 1)
    if x.ndim < 3 or pair[0] > x.shape[1] or pair[1] > x.shape[2]:
        raise ValueError(f"size must be at most the height and width of x of shape {x.shape}, got {size!r}")
    return pair


@register
class Conv2d(eqx.Module):
    """A convolutional layer on images of shape (channels, height, width).

    Args:
        in_channels: channels of the image.
        out_channels: number of filters.
        kernel_size: height and width of the filters, one number or a pair.
        stride: step between patches, one number or (vertical, horizontal).
        padding: zeros around the image: one number, (vertical, horizontal), or ((top, bottom), (left, right)).
        use_bias: whether each output channel has an additive constant.
        initialiser: of the weights, by default He's normal. Biases start at 0.
        key: seed or JAX key.

    >>> Conv2d(3, 8, kernel_size=5, padding=2, key=0)(jnp.ones((3, 28, 28))).shape
    (8, 28, 28)
    """

    weight: Float[Array, "out_channels in_channels kernel_height kernel_width"]
    bias: Float[Array, " out_channels"] | None
    stride: Pair = eqx.field(static=True)
    padding: Pads = eqx.field(static=True)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Pair,
        stride: int | Pair = 1,
        padding: int | Pair | Pads = 0,
        *,
        key: Key,
        use_bias: bool = True,
        initialiser: Initialiser | None = None,
    ):
        for name, value in (("in_channels", in_channels), ("out_channels", out_channels)):
            if not _is_int(value, 1):
                raise ValueError(f"{name} must be an int >= 1, got {value!r}")
        shape = (out_channels, in_channels, *_pair("kernel_size", kernel_size, 1))
        self.stride = _pair("stride", stride, 1)
        self.padding = _pads(padding)
        self.weight = (initialiser or he())(shape, key=as_key(key))
        self.bias = jnp.zeros(out_channels) if use_bias else None

    def __call__(
        self, x: Float[Array, "in_channels height width"], *, key: Array | None = None
    ) -> Float[Array, "out_channels out_height out_width"]:
        """The filtered image; `key` is ignored."""
        return conv2d(x, self.weight, self.bias, stride=self.stride, padding=self.padding)

    def batch_last(
        self, xs: Float[Array, "in_channels height width num"]
    ) -> Float[Array, "out_channels out_height out_width num"]:
        """The filtered images, when many images lie along the last axis."""
        return conv2d_batch(xs, self.weight, self.bias, stride=self.stride, padding=self.padding)


# --------------------------------------------------------------------------------------------------------------- checks


def _is_int(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _pair(name: str, value: Any, least: int) -> Pair:
    pair = (value, value) if isinstance(value, int) else value
    if not isinstance(pair, tuple | list) or len(pair) != 2 or not all(_is_int(v, least) for v in pair):
        raise ValueError(f"{name} must be an int >= {least} or a pair of them, got {value!r}")
    return pair[0], pair[1]


def _pads(padding: Any) -> Pads:
    if (
        isinstance(padding, tuple | list)
        and len(padding) == 2
        and not any(isinstance(p, int) for p in padding)
    ):
        return _pair("padding", padding[0], 0), _pair("padding", padding[1], 0)
    vertical, horizontal = _pair("padding", padding, 0)
    return (vertical, vertical), (horizontal, horizontal)


def _check_fit(x: tuple[int, ...], weight: tuple[int, ...], bias: Array | None, padding: Pads) -> None:
    if len(x) != 4 or len(weight) != 4:
        raise ValueError(f"x and weight must have 3 and 4 axes, got shapes {x[:-1]} and {weight}")
    if x[0] != weight[1]:
        raise ValueError(f"x has {x[0]} channels but weight of shape {weight} takes {weight[1]}")
    if bias is not None and bias.shape != (weight[0],):
        raise ValueError(f"bias must have shape {(weight[0],)}, got {bias.shape}")
    if any(n + sum(p) < k for n, k, p in zip(x[1:3], weight[2:], padding, strict=True)):
        raise ValueError(f"weight of shape {weight} is larger than x of shape {x[:3]} with padding {padding}")
