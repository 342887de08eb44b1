"""The layers by which a network takes its input in and gives its output."""

from typing import Any

import equinox as eqx
import jax
from jax.extend.core import Jaxpr, Var
from jaxtyping import Array

from marginax.nets.layers import layer_paths, layer_shapes, layers_in_loops, layers_of, replace_layers

_RESHAPES = {"reshape", "squeeze", "broadcast_in_dim", "expand_dims"}


class _Ordered(eqx.Module):
    layer: Any
    index: int = eqx.field(static=True)
    calls: list[int] = eqx.field(static=True)

    def __call__(self, x: Array, *, key: Any = None) -> Array:
        self.calls.append(self.index)
        return self.layer(x)


class _Tap(eqx.Module):
    """Notes what comes in, and gives something else."""

    given: Array
    heard: list[Array] = eqx.field(static=True)

    def __call__(self, x: Array, *, key: Any = None) -> Array:
        self.heard.append(x)
        return self.given


def ends_of(network: Any, x_shape: tuple[int, ...], dtype: Any) -> tuple[int, int]:
    """Numbers of the first and the last layer, or an error: nothing may go past them.

    The first has the whole input, as it is or in another shape, and what it gives is all that the rest of the network
    knows of it; what the last gives is the output.

    >>> ends_of(eqx.nn.Sequential([eqx.nn.Linear(3, 2, key=jax.random.key(i)) for i in (0, 1)][:1]), (3,), float)
    (0, 0)
    """
    layers, calls = layers_of(network), []
    x = jax.ShapeDtypeStruct(x_shape, dtype)
    ordered = [_Ordered(layer, i, calls) for i, layer in enumerate(layers)]
    eqx.filter_eval_shape(lambda x: replace_layers(network, ordered)(x), x)
    if not calls:
        raise ValueError("network has no layers that are known (see mx.nets.register_layer)")
    first, last = calls[0], calls[-1]
    paths, shapes = layer_paths(network), layer_shapes(network, x_shape, dtype)
    loops = layers_in_loops(network, x_shape, dtype)
    for index, words in ((first, "first"), (last, "last")):
        if shapes[index] is None or loops[index]:
            raise ValueError(
                f"network must call its {words} layer exactly once and not in a loop, but not so {paths[index]}"
            )
    (_, given), (_, output) = shapes[first] or ((), ()), shapes[last] or ((), ())

    def past_first(x: Array, given: Array) -> tuple[Array, Array]:
        heard: list[Array] = []
        y = replace_layers(network, [_Tap(given, heard) if i == first else n for i, n in enumerate(layers)])(x)
        return y, heard[0]

    program = jax.make_jaxpr(past_first)(x, jax.ShapeDtypeStruct(given, dtype)).jaxpr
    inside = _behind(program, program.outvars[1])
    if program.invars[0] in _behind(program, program.outvars[0])[1] or not _is_reshaped(program, inside):
        raise ValueError(
            f"network must give its input as it is to its first layer, {paths[first]}, and to nothing else"
        )

    def at_last(x: Array, output: Array) -> Array:
        return replace_layers(network, [_Tap(output, []) if i == last else n for i, n in enumerate(layers)])(x)

    program = jax.make_jaxpr(at_last)(x, jax.ShapeDtypeStruct(output, dtype)).jaxpr
    if program.outvars[0] is not program.invars[1]:
        raise ValueError(f"network must give what its last layer gives, {paths[last]}, and nothing else")
    return first, last


def _behind(program: Jaxpr, result: Any) -> tuple[set[str], set[Any]]:
    """Names of the operations that a result comes from, and the variables among what it depends on."""
    names, needed = set(), {result} if isinstance(result, Var) else set()
    for equation in reversed(program.eqns):
        if needed.intersection(equation.outvars):
            names.add(equation.primitive.name)
            needed.update(var for var in equation.invars if isinstance(var, Var))
    return names, needed


def _is_reshaped(program: Jaxpr, behind: tuple[set[str], set[Any]]) -> bool:
    """Whether the second result is the first argument in another shape."""
    names, needed = behind
    x, heard = program.invars[0], program.outvars[1]
    return x in needed and names <= _RESHAPES and heard.aval.size == x.aval.size  # pyright: ignore
