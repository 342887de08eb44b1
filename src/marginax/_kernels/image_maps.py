r"""Convolution and pooling as JAX primitives that are fast on CPUs, forwards, backwards and under `jax.vmap`.

XLA's own convolutions on CPUs are slow where training needs them: the gradients, and a stack of networks (which
becomes a grouped convolution). Here a convolution is one matrix product over patches, with the examples on the
last, contiguous axis, so that cutting patches and adding them back are copies of long rows. The bilinear maps

    forward      (x, w)  -> y
    weight_grad  (x, dy) -> dw
    input_grad   (w, dy) -> dx

are each other's transposes, so all derivatives exist, forward and reverse. Under `jax.vmap`, an axis that both
operands have becomes a batch of matrix products, an axis that only one has is folded into a free axis of the one
matrix product. Hence the gradient of a sum over examples is computed jointly for the batch, and a stack of networks
is a batched matrix product. Every map here leaves the mapped axis where it finds it: JAX's own rules would bring it
to the front, and so cost a transpose before and after each layer. On other platforms than CPU the convolutions are
lowered to XLA's.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array

Pair = tuple[int, int]
Pads = tuple[Pair, Pair]
Dims = Sequence[int | None]


def convolve(x: Array, w: Array, b: Array | None, *, stride: Pair, padding: Pads) -> Array:
    """Cross-correlation of a batch of images x (1, C, H, W, B) with w (O, C, kh, kw), plus b (O,)."""
    dtype = jnp.result_type(x, w)
    y = _forward_p.bind(x.astype(dtype), w[None].astype(dtype), stride=stride, padding=padding)
    return y if b is None else _shift_p.bind(y, b[None].astype(dtype))


def frame(x: Array) -> Array:
    """One image (C, H, W) as a batch of one (1, C, H, W, 1)."""
    return _frame_p.bind(x)


def unframe(x: Array) -> Array:
    """The inverse of `frame`."""
    return _unframe_p.bind(x)


def max_pool(x: Array, size: Pair) -> Array:
    """The maximum of each window of axes 1 and 2."""
    return _largest_p.bind(x, size=size, axis=1)


def windows(x: Array, size: Pair, axis: int) -> Array:
    """Windows of axes `axis` and `axis + 1`: (..., height // rows, rows, width // columns, columns, ...)."""
    rows, columns = (n // s for n, s in zip(x.shape[axis : axis + 2], size, strict=True))
    x = lax.slice_in_dim(lax.slice_in_dim(x, 0, rows * size[0], axis=axis), 0, columns * size[1], axis=axis + 1)
    return x.reshape(*x.shape[:axis], rows, size[0], columns, size[1], *x.shape[axis + 2 :])


# ----------------------------------------------------------------------- convolution: the maps
# x (G, C, H, W, B), w (G, O, C, kh, kw), y (G, O, Ho, Wo, B), where G counts networks and B examples.


def _patches(x: Array, kernel: Pair, stride: Pair, padding: Pads) -> tuple[Array, Pair]:
    """All patches of `x` as a matrix per network (G, C*kh*kw, Ho*Wo*B), and (Ho, Wo)."""
    x = jnp.pad(x, ((0, 0), (0, 0), *padding, (0, 0)))
    height, width = ((n - k) // s + 1 for n, k, s in zip(x.shape[2:4], kernel, stride, strict=True))
    # One axis at a time: concatenating a few long slices is much cheaper than concatenating kh*kw short ones.
    for axis, size, k, s in ((3, width, kernel[1], stride[1]), (3, height, kernel[0], stride[0])):
        x = jnp.stack([lax.slice_in_dim(x, i, i + s * (size - 1) + 1, s, axis=axis) for i in range(k)], axis=2)
    return x.reshape(x.shape[0], x.shape[1] * math.prod(kernel), -1), (height, width)


def _forward(x: Array, w: Array, *, stride: Pair, padding: Pads) -> Array:
    patches, sizes = _patches(x, (w.shape[3], w.shape[4]), stride, padding)
    y = _matmul(w.reshape(*w.shape[:2], -1), patches, 1)
    return y.reshape(*w.shape[:2], *sizes, x.shape[4])


def _weight_grad(x: Array, dy: Array, *, kernel: Pair, stride: Pair, padding: Pads) -> Array:
    patches, _ = _patches(x, kernel, stride, padding)
    dw = _matmul(patches, dy.reshape(*dy.shape[:2], -1), 2)  # the other order is up to 1.5 times slower
    return dw.mT.reshape(*dy.shape[:2], x.shape[1], *kernel)


def _input_grad(w: Array, dy: Array, *, sizes: Pair, stride: Pair, padding: Pads) -> Array:
    groups, num_out, num_in, *kernel = w.shape
    transposed = lax.optimization_barrier(w.reshape(groups, num_out, -1).mT)  # cheaper than within the product
    columns = _matmul(transposed, dy.reshape(groups, num_out, -1), 1)
    columns = columns.reshape(groups, num_in, *kernel, *dy.shape[2:])
    zero = jnp.zeros((), dy.dtype)
    total = zero
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            # A negative edge crops what fell on the padding, an interior one undoes the stride.
            edges = [
                (at - p[0], n + p[0] - at - s * (m - 1) - 1, s - 1)
                for at, n, m, s, p in zip((i, j), sizes, dy.shape[2:4], stride, padding, strict=True)
            ]
            total += lax.pad(columns[:, :, i, j], zero, ((0, 0, 0), (0, 0, 0), *edges, (0, 0, 0)))
    return total


def _matmul(a: Array, b: Array, contract: int) -> Array:
    """Contracts the last axis of `a` with axis `contract` of `b`, batched over the leading axis."""
    if a.shape[0] == 1:  # a lone product is faster without the batch axis
        return lax.dot_general(a[0], b[0], (((1,), (contract - 1,)), ((), ())))[None]
    return lax.dot_general(a, b, (((2,), (contract,)), ((0,), (0,))))


def _forward_xla(x: Array, w: Array, *, stride: Pair, padding: Pads) -> Array:
    convolution = functools.partial(lax.conv_general_dilated, dimension_numbers=("CHWN", "OIHW", "CHWN"))
    return jax.vmap(lambda x, w: convolution(x, w, stride, padding))(x, w)


def _weight_grad_xla(x: Array, dy: Array, *, kernel: Pair, stride: Pair, padding: Pads) -> Array:
    w = jax.ShapeDtypeStruct((*dy.shape[:2], x.shape[1], *kernel), dy.dtype)
    return jax.linear_transpose(lambda w: _forward_xla(x, w, stride=stride, padding=padding), w)(dy)[0]


def _input_grad_xla(w: Array, dy: Array, *, sizes: Pair, stride: Pair, padding: Pads) -> Array:
    x = jax.ShapeDtypeStruct((w.shape[0], w.shape[2], *sizes, dy.shape[4]), dy.dtype)
    return jax.linear_transpose(lambda x: _forward_xla(x, w, stride=stride, padding=padding), x)(dy)[0]


def _shift(y: Array, b: Array) -> Array:
    return y + b[:, :, None, None, None]


# ----------------------------------------------------------------------- convolution: the primitives


def _primitive(name: str, on_cpu: Callable, elsewhere: Callable, batch: Callable) -> Primitive:
    primitive = Primitive(f"marginax_{name}")

    @functools.cache
    def compiled(**params: Any) -> Callable:
        return jax.jit(functools.partial(primitive.bind, **params))

    def evaluate(*operands: Array, **params: Any) -> Array:
        return compiled(**params)(*operands)

    def abstract_evaluate(*operands: Any, **params: Any) -> ShapedArray:
        shape = jax.eval_shape(functools.partial(on_cpu, **params), *operands).shape
        return ShapedArray(shape, operands[0].dtype)

    primitive.def_impl(evaluate)
    primitive.def_abstract_eval(abstract_evaluate)
    batching.primitive_batchers[primitive] = functools.partial(batch, primitive)
    mlir.register_lowering(primitive, mlir.lower_fun(elsewhere, multiple_results=False))
    mlir.register_lowering(primitive, mlir.lower_fun(on_cpu, multiple_results=False), platform="cpu")
    return primitive


def _folding(*free: Pair | None) -> Callable:
    """`free[i]` is the axis of operand i, and of the result, that takes on a vmap axis which only operand i has."""

    def batch(primitive: Primitive, operands: Sequence[Array], dims: Dims, **params: Any) -> tuple[Array, int]:
        num, _ = _mapped(operands, dims)
        alone = [place for place, d in zip(free, dims, strict=True) if d is not None]
        if len(alone) == 1 and alone[0] is not None:
            into, out = alone[0]
            folded = [x if d is None else _fold(x, d, into) for x, d in zip(operands, dims, strict=True)]
        else:
            out = 0
            folded = [_fold(_align(x, d, 0, num), 0, 0) for x, d in zip(operands, dims, strict=True)]
        result = primitive.bind(*folded, **params)
        return result.reshape(*result.shape[:out], -1, num, *result.shape[out + 1 :]), out + 1

    return batch


def _mapped(operands: Sequence[Array], dims: Dims) -> Pair:
    """Length and place of the mapped axis."""
    return next((x.shape[d], d) for x, d in zip(operands, dims, strict=True) if d is not None)


def _align(x: Array, dim: int | None, to: int, num: int) -> Array:
    return jnp.repeat(jnp.expand_dims(x, to), num, to) if dim is None else jnp.moveaxis(x, dim, to)


def _fold(x: Array, dim: int, into: int) -> Array:
    """Merges axis `dim` into the axis that is number `into` without it."""
    x = jnp.moveaxis(x, dim, into + 1)
    return x.reshape(*x.shape[:into], -1, *x.shape[into + 2 :])


_forward_p = _primitive("conv2d", _forward, _forward_xla, _folding((4, 4), (1, 1)))
_weight_grad_p = _primitive("conv2d_weight_grad", _weight_grad, _weight_grad_xla, _folding((1, 2), (1, 1)))
_input_grad_p = _primitive("conv2d_input_grad", _input_grad, _input_grad_xla, _folding((2, 1), (4, 4)))
_shift_p = _primitive("conv2d_shift", _shift, _shift, _folding((4, 4), None))


def _to_input(w: Array, dy: Array, x: Any, *, stride: Pair, padding: Pads, **_: Any) -> Array:
    return _input_grad_p.bind(w, dy, sizes=x.aval.shape[2:4], stride=stride, padding=padding)


def _to_weight(x: Array, dy: Array, w: Any, *, stride: Pair, padding: Pads, **_: Any) -> Array:
    return _weight_grad_p.bind(x, dy, kernel=w.aval.shape[3:5], stride=stride, padding=padding)


def _to_output(x: Array, w: Array, *, stride: Pair, padding: Pads, **_: Any) -> Array:
    return _forward_p.bind(x, w, stride=stride, padding=padding)


def _shift_transpose(dy: Array, y: Any, b: Any) -> list[Array | None]:
    return [
        dy if ad.is_undefined_primal(y) else None,
        dy.sum((2, 3, 4)) if ad.is_undefined_primal(b) else None,
    ]


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
ad.deflinear2(_shift_p, _shift_transpose)


# ----------------------------------------------------------------------- one image as a batch of one


def _frame(x: Array) -> Array:
    return x[None, ..., None]


def _unframe(x: Array) -> Array:
    return x[0, ..., 0]


def _batch_frame(primitive: Primitive, operands: Sequence[Array], dims: Sequence[int]) -> tuple[Array, int]:
    (x,), (dim,) = operands, dims
    return (x[None, ..., None, :], x.ndim + 1) if dim == x.ndim - 1 else (_frame(x), dim + 1)


def _batch_unframe(primitive: Primitive, operands: Sequence[Array], dims: Sequence[int]) -> tuple[Array, int]:
    (x,), (dim,) = operands, dims
    first, last = (1 if dim == 0 else 0), (x.ndim - 2 if dim == x.ndim - 1 else x.ndim - 1)
    return lax.squeeze(x, (first, last)), dim - (dim > first) - (dim > last)


_frame_p = _primitive("frame", _frame, _frame, _batch_frame)
_unframe_p = _primitive("unframe", _unframe, _unframe, _batch_unframe)
ad.deflinear2(_frame_p, lambda ct, _: [_unframe_p.bind(ct)])
ad.deflinear2(_unframe_p, lambda ct, _: [_frame_p.bind(ct)])


# ----------------------------------------------------------------------- max-pooling
# `_pick` and `_spread` are each other's transposes in the first operand; x says which entries are largest.


def _largest(x: Array, *, size: Pair, axis: int) -> Array:
    return windows(x, size, axis).max((axis + 1, axis + 3))


def _hits(x: Array, size: Pair, axis: int) -> tuple[Array, Array]:
    """Which entries are the largest of their window, as 0 and 1, and how many a window has."""
    entries, places = windows(x, size, axis), (axis + 1, axis + 3)
    hits = (entries == entries.max(places, keepdims=True)).astype(x.dtype)
    return hits, hits.sum(places)


def _pick(dx: Array, x: Array, *, size: Pair, axis: int) -> Array:
    hits, counts = _hits(x, size, axis)
    return (windows(dx, size, axis) * hits).sum((axis + 1, axis + 3)) / counts


def _spread(dy: Array, x: Array, *, size: Pair, axis: int) -> Array:
    hits, counts = _hits(x, size, axis)
    # Divided before it is repeated: XLA then computes dy once, and not again in every place of the window.
    dx = hits * jnp.expand_dims(dy / counts, (axis + 1, axis + 3))
    before, sizes, after = x.shape[:axis], x.shape[axis : axis + 2], x.shape[axis + 2 :]
    cropped = [n // s * s for n, s in zip(sizes, size, strict=True)]
    edges = [(0, n - m) for n, m in zip(sizes, cropped, strict=True)]
    dx = dx.reshape(*before, *cropped, *after)
    return jnp.pad(dx, (*((0, 0) for _ in before), *edges, *((0, 0) for _ in after)))


def _batch_pooling(
    primitive: Primitive, operands: Sequence[Array], dims: Dims, *, size: Pair, axis: int
) -> tuple[Array, int]:
    num, dim = _mapped(operands, dims)
    dim = 0 if dim == axis + 1 else dim  # height and width stay neighbours
    aligned = [_align(x, d, dim, num) for x, d in zip(operands, dims, strict=True)]
    return primitive.bind(*aligned, size=size, axis=axis + (dim <= axis)), dim


def _transpose_into(other: Primitive) -> Callable:
    def transpose(cotangent: Any, linear: Any, x: Array, **params: Any) -> tuple[Any, None]:
        if type(cotangent) is ad.Zero:
            return ad.Zero(linear.aval), None
        return other.bind(cotangent, x, **params), None

    return transpose


_largest_p = _primitive("max_pool2d", _largest, _largest, _batch_pooling)
_pick_p = _primitive("max_pool2d_pick", _pick, _pick, _batch_pooling)
_spread_p = _primitive("max_pool2d_spread", _spread, _spread, _batch_pooling)
ad.defjvp(_largest_p, lambda dx, x, **params: _pick_p.bind(dx, x, **params))
ad.defjvp(_pick_p, lambda dx, _, x, **params: _pick_p.bind(dx, x, **params), None)
ad.defjvp(_spread_p, lambda dy, _, x, **params: _spread_p.bind(dy, x, **params), None)
ad.primitive_transposes[_pick_p] = _transpose_into(_spread_p)
ad.primitive_transposes[_spread_p] = _transpose_into(_pick_p)
