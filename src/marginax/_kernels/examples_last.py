"""Many examples through a network written for one, with the examples along the last axis.

On CPUs a narrow network runs faster on an array (features, rows) than on (rows, features): loops over rows are long and
contiguous, loops over features are short. `jax.vmap` puts the examples first wherever it can, so we read the network's
program for one example (its jaxpr) and run it on arrays with one more axis at the end. All axis numbers of the program
stay valid there: weight @ x becomes weight @ X, a bias gets a trailing axis of 1, a reduction over features is what it
was. Derivatives are JAX's own, taken through what is run; those that functions bring along (`jax.custom_jvp`) are kept.

A program with a step that is not known here (a convolution, a gather, a loop) goes to `jax.vmap` as a whole, and so do
wide layers on few examples, where `jax.vmap` is faster.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal
from jaxtyping import Array, PyTree

_WIDE = 64
"""Inputs or units from which on a layer is wide."""

_MANY = 64
"""Examples from which on even wide layers do well with the examples last."""


def call_batched(network: Any, xs: Array, *, key: Array | None = None) -> PyTree:
    """Outputs of a network for a batch of inputs, in the layout that is fastest.

    A network's own `call_batch` comes first. A key (for dropout and the like) is split into one per example.

    >>> net = eqx.nn.MLP(3, 2, width_size=8, depth=2, key=jax.random.key(0))
    >>> call_batched(net, jnp.ones((50, 3))).shape
    (50, 2)
    """
    own = getattr(network, "call_batch", None)
    if own is not None and not getattr(network, "is_per_example", False):
        return own(xs, key=key)
    if key is not None:
        return jax.vmap(lambda x, k: network(x, key=k))(xs, jax.random.split(key, xs.shape[0]))
    run = _examples_last(lambda network, x: network(x), network, xs)
    if run is not None:
        return run(xs)
    return jax.vmap(network)(xs) if own is None else own(xs)


def map_examples(function: Callable[..., PyTree], network: PyTree, xs: Array, *noise: PyTree) -> PyTree:
    """`function(network, x, *noise)` for every row x of xs.

    Noise is drawn for all examples at once, with the examples along its LAST axis.

    >>> masks = jax.random.bernoulli(jax.random.key(0), 0.5, (3, 50))
    >>> map_examples(lambda w, x, mask: w @ (mask * x), jnp.ones((1, 3)), jnp.ones((50, 3)), masks).shape
    (50, 1)
    """
    run = _examples_last(function, network, xs, *noise)
    if run is not None:
        return run(xs, *noise)
    return jax.vmap(lambda x, *n: function(network, x, *n), in_axes=(0, *(-1 for _ in noise)))(xs, *noise)


def _examples_last(
    function: Callable[..., PyTree], network: PyTree, xs: Array, *noise: PyTree
) -> Callable[..., PyTree] | None:
    """What maps xs and noise to the outputs of all examples, by arrays with the examples last, where that is faster."""
    weights, rest = eqx.partition(network, eqx.is_array)
    example = (_one(xs, axis=0), *(jax.tree.map(partial(_one, axis=-1), n) for n in noise))
    batched = [False for _ in jax.tree.leaves(weights)] + [True for _ in jax.tree.leaves(example)]
    program = _Program(lambda w, *one: function(eqx.combine(w, rest), *one), (weights, *example), batched, xs.shape[0])

    def run(xs: Array, *noise: PyTree) -> PyTree:
        # barriers, because XLA would make the transpositions part of matmuls that are ten times slower for it
        columns = lax.optimization_barrier(jnp.moveaxis(xs, 0, -1))
        outputs = lax.optimization_barrier(program(weights, columns, *noise))
        return jax.tree.map(lambda a: jnp.moveaxis(a, -1, 0), outputs)

    return run if program.is_faster else None


def _one(array: Array, axis: int) -> jax.ShapeDtypeStruct:
    shape = array.shape[1:] if axis == 0 else array.shape[:-1]
    return jax.ShapeDtypeStruct(shape, array.dtype)


# ---- a function as a program for one example, run on arrays with the examples last


class _UnknownStepError(Exception):
    """A step of a program that we do not know how to run with the examples last."""


class _Program:
    """The program of a function, and whether all of it is known.

    Args:
        function: of one example.
        arguments: pytrees of arrays or shapes, for one example.
        batched: which leaves of the arguments will have the axis of examples.
        size: number of examples.
    """

    def __init__(self, function: Callable[..., PyTree], arguments: tuple, batched: list[bool], size: int):
        self.batched, self.size = batched, size
        self.closed, outputs = jax.make_jaxpr(function, return_shape=True)(*arguments)
        self.tree = jax.tree.structure(outputs)
        self.widths: list[int] = []
        try:
            _check(self.closed, batched, self.widths)
            self.is_known = not self.closed.effects
        except _UnknownStepError:
            self.is_known = False

    @property
    def is_faster(self) -> bool:
        """Whether examples last are worth it: where weights multiply examples, but not wide layers and few examples.

        The rule comes from timing gradients of networks of 16 to 400 units (and 784 inputs) on 4 to 4,096 rows.
        """
        if not self.is_known or not self.widths:
            return False
        widest = max(self.widths)
        return widest < _WIDE or self.size >= min(widest // 2, _MANY)

    def __call__(self, *arguments: PyTree) -> PyTree:
        return jax.tree.unflatten(self.tree, _run(self.closed, jax.tree.leaves(arguments), self.batched, self.size))


def _check(closed: ClosedJaxpr, batched: Sequence[bool], widths: list[int]) -> list[bool]:
    """Which outputs will have the axis of examples; collects the widths of layers, and computes nothing."""
    found = dict(zip(closed.jaxpr.invars, batched, strict=True))
    for eqn in closed.jaxpr.eqns:
        flags = [not isinstance(v, Literal) and found.get(v, False) for v in eqn.invars]
        if not any(flags):
            continue
        name = eqn.primitive.name
        outputs = [True] * len(eqn.outvars)
        if name in _CALLS:
            outputs = _check(_callee(eqn), flags, widths)
        elif name not in _RULES or not _fits(eqn, flags):
            raise _UnknownStepError(name)
        elif name == "custom_jvp_call":
            _check(_callee(eqn), flags, widths)
        elif name == "dot_general":
            widths.append(_width(eqn, flags))
        found.update(zip(eqn.outvars, outputs, strict=True))
    return [not isinstance(v, Literal) and found.get(v, False) for v in closed.jaxpr.outvars]


def _width(eqn: JaxprEqn, batched: list[bool]) -> int:
    """The larger side of the weights in a product of weights and examples."""
    weights = batched.index(False)
    shape, (contracted, paired) = _shape(eqn.invars[weights]), eqn.params["dimension_numbers"]
    inputs = math.prod(shape[i] for i in contracted[weights])
    outputs = math.prod(n for i, n in enumerate(shape) if i not in (*contracted[weights], *paired[weights]))
    return max(inputs, outputs)


def _fits(eqn: JaxprEqn, batched: list[bool]) -> bool:
    """Whether the rule for this primitive covers this use of it."""
    if any(eqn.params.get(name) is not None for name in ("sharding", "out_sharding")):
        return False
    match eqn.primitive.name:
        case "dot_general":
            return sum(batched) == 1
        case "pad":
            return batched == [True, False]
        case "reshape":
            return eqn.params["dimensions"] is None
        case "custom_jvp_call":
            return all(jnp.issubdtype(_dtype(v), jnp.inexact) for v in eqn.invars)
    return True


def _evaluate(
    closed: ClosedJaxpr, values: Sequence[Any], batched: Sequence[bool], size: int
) -> tuple[list[Any], list[bool]]:
    """Values of the outputs and which of them have the axis of examples."""
    jaxpr = closed.jaxpr
    found: dict[Any, tuple[Any, bool]] = {v: (a, False) for v, a in zip(jaxpr.constvars, closed.consts, strict=True)}
    found.update(zip(jaxpr.invars, zip(values, batched, strict=True), strict=True))

    def read(v: Any) -> tuple[Any, bool]:
        return (np.asarray(v.val, _dtype(v)), False) if isinstance(v, Literal) else found[v]

    for eqn in jaxpr.eqns:
        arrays, flags = _unzip(read(v) for v in eqn.invars)
        name = eqn.primitive.name
        if not any(flags):
            outputs = [(a, False) for a in _bind(eqn, *arrays)]
        elif name in _CALLS:
            outputs = zip(*_evaluate(_callee(eqn), arrays, flags, size), strict=True)
        else:
            outputs = [(a, True) for a in _RULES[name](eqn, arrays, flags, size)]
        found.update(zip(eqn.outvars, outputs, strict=True))
    return _unzip(read(v) for v in jaxpr.outvars)


def _run(closed: ClosedJaxpr, values: Sequence[Any], batched: Sequence[bool], size: int) -> list[Array]:
    """Values of the outputs, all with the axis of examples."""
    outputs = zip(*_evaluate(closed, values, batched, size), closed.out_avals, strict=True)
    return [_fill(a, b, aval.shape, size) for a, b, aval in outputs]


def _bind(eqn: JaxprEqn, *arrays: Any) -> list[Any]:
    """The step as it stands in the program, with these operands."""
    bound: Any = eqn.primitive.get_bind_params(eqn.params)
    functions, params = bound if isinstance(bound, tuple) else ((), bound)  # a pair before JAX 0.10.2
    outputs = eqn.primitive.bind(*functions, *arrays, **params)
    return list(outputs) if eqn.primitive.multiple_results else [outputs]


def _callee(eqn: JaxprEqn) -> ClosedJaxpr:
    return eqn.params["jaxpr"] if "jaxpr" in eqn.params else eqn.params["call_jaxpr"]


def _shape(variable: Any) -> tuple[int, ...]:
    return variable.aval.shape


def _dtype(variable: Any) -> Any:
    return variable.aval.dtype


def _unzip(pairs: Iterable[tuple[Any, bool]]) -> tuple[list[Any], list[bool]]:
    pairs = list(pairs)
    return [a for a, _ in pairs], [b for _, b in pairs]


# ---- rules: one step of the program, with the examples last


def _elementwise(eqn: JaxprEqn, arrays: list[Any], batched: list[bool], size: int) -> list[Array]:
    """Operands have one rank and broadcast along axes of size 1, or are scalars."""
    rank = len(_shape(eqn.outvars[0]))

    def align(array: Any, is_batched: bool) -> Any:
        ndim = np.ndim(array) - is_batched
        if is_batched:
            return lax.expand_dims(array, range(rank)) if ndim < rank else array
        return lax.expand_dims(array, (rank,)) if ndim else array

    return _bind(eqn, *map(align, arrays, batched))


def _filled(eqn: JaxprEqn, arrays: list[Any], batched: list[bool], size: int) -> list[Array]:
    """Operands must have the same shape (concatenation apart), or be scalars that all examples share."""
    shapes = [_shape(v) for v in eqn.invars]
    if eqn.primitive.name != "concatenate":
        shapes = [s if not s and not b else _shape(eqn.outvars[0]) for s, b in zip(shapes, batched, strict=True)]
    full = [_fill(a, b, s, size) if s or b else a for a, b, s in zip(arrays, batched, shapes, strict=True)]
    return _bind(eqn, *full)


def _along_axes(eqn: JaxprEqn, arrays: list[Any], batched: list[bool], size: int) -> list[Array]:
    """Axes are counted from the front, so they are what they were."""
    return _bind(eqn, *arrays)


def _dot_general(eqn: JaxprEqn, arrays: list[Any], batched: list[bool], size: int) -> list[Array]:
    """The operand with the examples goes second: its free axes are the last ones of the result."""
    contracted, paired = eqn.params["dimension_numbers"]
    options = {name: eqn.params[name] for name in ("precision", "preferred_element_type")}
    if batched[1]:
        return [lax.dot_general(arrays[0], arrays[1], (contracted, paired), **options)]
    result = lax.dot_general(arrays[1], arrays[0], (contracted[::-1], paired[::-1]), **options)
    num_paired, num_contracted = len(paired[0]), len(contracted[0])
    first, second = (len(_shape(v)) - num_paired - num_contracted for v in eqn.invars)
    if not first or not second:
        return [result]
    start = range(num_paired)
    free = (*range(num_paired + second, num_paired + second + first), *range(num_paired, num_paired + second))
    return [lax.transpose(result, (*start, *free, result.ndim - 1))]


def _broadcast_in_dim(eqn: JaxprEqn, arrays: list[Any], batched: list[bool], size: int) -> list[Array]:
    shape, axes = eqn.params["shape"], eqn.params["broadcast_dimensions"]
    return [lax.broadcast_in_dim(arrays[0], (*shape, size), (*axes, len(shape)))]


def _reshape(eqn: JaxprEqn, arrays: list[Any], batched: list[bool], size: int) -> list[Array]:
    return [lax.reshape(arrays[0], (*eqn.params["new_sizes"], size))]


def _transpose(eqn: JaxprEqn, arrays: list[Any], batched: list[bool], size: int) -> list[Array]:
    return [lax.transpose(arrays[0], (*eqn.params["permutation"], arrays[0].ndim - 1))]


def _slice(eqn: JaxprEqn, arrays: list[Any], batched: list[bool], size: int) -> list[Array]:
    start, limit, strides = (eqn.params[name] for name in ("start_indices", "limit_indices", "strides"))
    return [lax.slice(arrays[0], (*start, 0), (*limit, size), None if strides is None else (*strides, 1))]


def _pad(eqn: JaxprEqn, arrays: list[Any], batched: list[bool], size: int) -> list[Array]:
    return [lax.pad(arrays[0], arrays[1], (*eqn.params["padding_config"], (0, 0, 0)))]


def _custom_jvp(eqn: JaxprEqn, arrays: list[Any], batched: list[bool], size: int) -> list[Array]:
    """A function with its own rule for derivatives: both are run with the examples last."""

    @jax.custom_jvp
    def function(*arrays: Any) -> list[Array]:
        return _run(_callee(eqn), arrays, batched, size)

    # differentiating the step as it stands, for one example, applies the rule that it came with
    def one(primals: tuple, tangents: tuple) -> tuple:
        return jax.jvp(lambda *arrays: _bind(eqn, *arrays), primals, tangents)

    @function.defjvp
    def rule(primals: tuple, tangents: tuple) -> tuple:
        example = tuple(jax.ShapeDtypeStruct(_shape(v), _dtype(v)) for v in eqn.invars)
        program = _Program(one, (example, example), [*batched, *batched], size)
        if program.is_known:
            return program(primals, tangents)
        axes = tuple(-1 if b else None for b in batched)
        return jax.vmap(one, in_axes=(axes, axes), out_axes=-1)(primals, tangents)

    return function(*arrays)


def _custom_vjp(eqn: JaxprEqn, arrays: list[Any], batched: list[bool], size: int) -> list[Array]:
    """Left to `jax.vmap`, which knows how to add up what examples send back to an operand that they share."""
    axes = [-1 if b else None for b in batched]
    return jax.vmap(lambda *arrays: _bind(eqn, *arrays), in_axes=axes, out_axes=-1)(*arrays)


def _fill(array: Any, batched: bool, shape: tuple[int, ...], size: int) -> Array:
    """The array with shape (*shape, size): a scalar and what examples share are repeated."""
    full = (*shape, size)
    if np.shape(array) == full and batched:
        return array
    rank = np.ndim(array) - batched
    axes = tuple(range(rank)) if rank == len(shape) else ()
    return lax.broadcast_in_dim(array, full, (*axes, len(shape)) if batched else axes)


# primitives are told apart by name, since `jax.extend` does not have all of them
_CALLS = frozenset({"jit", "pjit", "closed_call", "core_call"})
_ELEMENTWISE = """
    abs acos acosh add add_any and asin asinh atan atan2 atanh cbrt ceil convert_element_type copy copy_p cos cosh
    digamma div eq erf erf_inv erfc exp exp2 expm1 floor ge gt igamma igammac integer_pow is_finite le lgamma log log1p
    logistic lt max min mul ne neg nextafter not or pow reduce_precision rem round rsqrt sign sin sinh sqrt square
    stop_gradient sub tan tanh xor
"""
_ALONG_AXES = """
    argmax argmin cumlogsumexp cummax cummin cumprod cumsum reduce_and reduce_max reduce_min reduce_or reduce_prod
    reduce_sum reduce_xor rev split squeeze
"""
_Rule = Callable[[JaxprEqn, list[Any], list[bool], int], list[Array]]
_RULES: dict[str, _Rule] = {
    **dict.fromkeys(_ELEMENTWISE.split(), _elementwise),
    **dict.fromkeys(_ALONG_AXES.split(), _along_axes),
    **dict.fromkeys(("clamp", "concatenate", "select_n"), _filled),
    "broadcast_in_dim": _broadcast_in_dim,
    "custom_jvp_call": _custom_jvp,
    "custom_vjp_call": _custom_vjp,
    "dot_general": _dot_general,
    "pad": _pad,
    "reshape": _reshape,
    "slice": _slice,
    "transpose": _transpose,
}
