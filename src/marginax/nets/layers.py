"""Finding the layers of a network and putting others in their place; the network does not have to know."""

from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, PyTree

from marginax.nets.convolution import Conv2d

Shapes = tuple[tuple[int, ...], tuple[int, ...]]


def is_layer(node: Any) -> bool:
    """Whether this is a layer whose weights multiply its input: linear, or a convolution."""
    return isinstance(node, eqx.nn.Linear | eqx.nn.Conv | Conv2d)


def layers_of(tree: PyTree) -> list[Any]:
    """The layers of a network (or of a tree of its shape), in the order of its fields.

    >>> len(layers_of(eqx.nn.MLP(3, 2, width_size=8, depth=2, key=jax.random.key(0))))
    3
    """
    return [node for node in jax.tree.leaves(tree, is_leaf=is_layer) if is_layer(node)]


def replace_layers(network: PyTree, layers: list[Any]) -> Any:
    """The network with these in the place of its layers."""
    others = iter(layers)
    return jax.tree.map(lambda node: next(others) if is_layer(node) else node, network, is_leaf=is_layer)


class _Recorder(eqx.Module):
    layer: Any
    index: int = eqx.field(static=True)
    tape: list[tuple[int, Shapes]] = eqx.field(static=True)

    def __call__(self, x: Array, *, key: Any = None) -> Array:
        del key
        y = self.layer(x)
        self.tape.append((self.index, (x.shape, y.shape)))
        return y


def layer_shapes(network: Any, x_shape: tuple[int, ...], dtype: Any) -> list[Shapes | None]:
    """Shapes of input and output of every layer for one example; None for a layer that is not called exactly once.

    >>> layer_shapes(eqx.nn.MLP(3, 2, width_size=8, depth=1, key=jax.random.key(0)), (3,), float)
    [((3,), (8,)), ((8,), (2,))]
    """
    layers = layers_of(network)
    tape: list[tuple[int, Shapes]] = []
    listening = replace_layers(network, [_Recorder(layer, i, tape) for i, layer in enumerate(layers)])
    eqx.filter_eval_shape(lambda x: listening(x), jax.ShapeDtypeStruct(x_shape, dtype))
    calls: dict[int, list[Shapes]] = {}
    for index, shapes in tape:
        calls.setdefault(index, []).append(shapes)
    return [calls[i][0] if len(calls.get(i, [])) == 1 else None for i in range(len(layers))]
