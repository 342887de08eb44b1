"""Operations on one number at a time: arithmetic, comparisons, activations, and making arrays of a number."""

import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

Number = Array | float | int
Table = dict[str, Callable[..., Any]]


def dtype_of(name: str | None) -> Any:
    """A dtype by its name, or the one that stands for it without 64-bit mode."""
    return None if name is None else jax.dtypes.canonicalize_dtype(jnp.dtype(name))


def _add(a: Number, b: Number, alpha: Number = 1) -> Array:
    return jnp.add(a, b if alpha == 1 else alpha * b)


def _subtract(a: Number, b: Number, alpha: Number = 1) -> Array:
    return jnp.subtract(a, b if alpha == 1 else alpha * b)


def _divide(a: Number, b: Number, rounding_mode: str | None = None) -> Array:
    if rounding_mode == "floor":
        return jnp.floor_divide(a, b)
    quotient = jnp.true_divide(a, b)
    return quotient if rounding_mode is None else jnp.trunc(quotient).astype(jnp.result_type(a, b))


def _power(a: Number, b: Number) -> Array:
    return jnp.power(a, b) if not isinstance(b, int) else jax.lax.integer_pow(jnp.asarray(a), b)


def _clamp(x: Array, low: Number | None = None, high: Number | None = None) -> Array:
    return jnp.clip(x, low, high)


def _where(condition: Array, a: Number, b: Number) -> Array:
    return jnp.where(condition, a, b)


def _gelu(x: Array, approximate: str = "none") -> Array:
    return jax.nn.gelu(x, approximate=approximate == "tanh")


def _elu(x: Array, alpha: Any = 1.0, scale: Any = 1.0, input_scale: Any = 1.0) -> Array:
    negative = alpha * jnp.expm1(jnp.where(x > 0, 0.0, x) * input_scale)
    return scale * jnp.where(x > 0, x, negative)


def _leaky_relu(x: Array, slope: Any = 0.01) -> Array:
    return jax.nn.leaky_relu(x, slope)


def _softplus(x: Array, beta: Any = 1.0, threshold: Any = 20.0) -> Array:
    return jnp.where(x * beta > threshold, x, jax.nn.softplus(x * beta) / beta)


# ---- new arrays, and other dtypes


def _full(size: tuple[int, ...], value: Number, dtype: str | None = None, *_: Any) -> Array:
    return jnp.full(size, value, dtype_of(dtype))


def _full_like(x: Array, value: Number, dtype: str | None = None, *_: Any) -> Array:
    return jnp.full_like(x, value, dtype_of(dtype))


def _scalar(value: Number, dtype: str | None = None, *_: Any) -> Array:
    return jnp.asarray(value, dtype_of(dtype))


def _arange(start: Number, end: Number, step: Number = 1, dtype: str | None = None, *_: Any) -> Array:
    return jnp.arange(start, end, step, dtype_of(dtype))


def _convert(x: Array, dtype: str | None = None, *_: Any) -> Array:
    return x if dtype is None else x.astype(dtype_of(dtype))


def _same(x: Array, *_: Any) -> Array:
    return x


def _with_overloads(
    functions: dict[str, Callable[..., Any]], suffixes: tuple[str, ...]
) -> dict[str, Callable[..., Any]]:
    return {f"{name}.{suffix}": function for name, function in functions.items() for suffix in suffixes}


_ONE = {
    "abs": jnp.abs,
    "acos": jnp.arccos,
    "acosh": jnp.arccosh,
    "asin": jnp.arcsin,
    "asinh": jnp.arcsinh,
    "atan": jnp.arctan,
    "atanh": jnp.arctanh,
    "bitwise_not": jnp.bitwise_not,
    "ceil": jnp.ceil,
    "cos": jnp.cos,
    "cosh": jnp.cosh,
    "elu": _elu,
    "erf": jax.scipy.special.erf,
    "exp": jnp.exp,
    "expm1": jnp.expm1,
    "floor": jnp.floor,
    "gelu": _gelu,
    "hardtanh": lambda x, low=-1.0, high=1.0: jnp.clip(x, low, high),
    "hardsigmoid": jax.nn.hard_sigmoid,
    "hardswish": jax.nn.hard_swish,
    "isinf": jnp.isinf,
    "isnan": jnp.isnan,
    "leaky_relu": _leaky_relu,
    "log": jnp.log,
    "log10": jnp.log10,
    "log1p": jnp.log1p,
    "log2": jnp.log2,
    "logical_not": jnp.logical_not,
    "mish": jax.nn.mish,
    "neg": jnp.negative,
    "reciprocal": jnp.reciprocal,
    "relu": jax.nn.relu,
    "round": jnp.round,
    "rsqrt": jax.lax.rsqrt,
    "sigmoid": jax.nn.sigmoid,
    "sign": jnp.sign,
    "sin": jnp.sin,
    "sinh": jnp.sinh,
    "softplus": _softplus,
    "sqrt": jnp.sqrt,
    "tan": jnp.tan,
    "tanh": jnp.tanh,
    "trunc": jnp.trunc,
}

_TWO = {
    "add": _add,
    "bitwise_and": jnp.bitwise_and,
    "bitwise_or": jnp.bitwise_or,
    "bitwise_xor": jnp.bitwise_xor,
    "div": _divide,
    "eq": jnp.equal,
    "fmod": jnp.fmod,
    "ge": jnp.greater_equal,
    "gt": jnp.greater,
    "le": jnp.less_equal,
    "lt": jnp.less,
    "mul": jnp.multiply,
    "ne": jnp.not_equal,
    "remainder": jnp.remainder,
    "sub": _subtract,
}

ELEMENTWISE: Table = {
    **_ONE,
    **_with_overloads(_TWO, ("Tensor", "Scalar")),
    "_to_copy": _convert,
    "alias": _same,
    "arange.start_step": _arange,
    "atan2": jnp.arctan2,
    "clamp": _clamp,
    "clamp.Tensor": _clamp,
    "clone": _same,
    "copy": lambda x, source, *_: jnp.broadcast_to(source, x.shape).astype(x.dtype),
    "detach": jax.lax.stop_gradient,
    "div.Scalar_mode": _divide,
    "div.Tensor_mode": _divide,
    "fill.Scalar": lambda x, value: jnp.full_like(x, value),
    "full": _full,
    "full_like": _full_like,
    "getitem": operator.getitem,
    "lift_fresh_copy": _same,
    "logical_and": jnp.logical_and,
    "logical_or": jnp.logical_or,
    "logical_xor": jnp.logical_xor,
    "maximum": jnp.maximum,
    "minimum": jnp.minimum,
    "pow.Scalar": _power,
    "pow.Tensor_Scalar": _power,
    "pow.Tensor_Tensor": _power,
    "scalar_tensor": _scalar,
    "where.self": _where,
}
