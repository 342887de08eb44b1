"""Which operations of a graph are layers that methods know: linear maps and convolutions with weights of their own."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array

from marginax.nets.convolution import Conv2d
from marginax.nets.linear import Pointwise
from marginax.nets.torch.graph import Graph, Node, Value, values_in
from marginax.nets.torch.operators import RANDOM
from marginax.nets.torch.operators.products import PRODUCTS
from marginax.nets.torch.operators.shapes import SHAPES

Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class FoundLayer:
    """A layer, and what its fields are called in the module.

    Args:
        name: in the network, such as "layer1/0/conv1".
        op: the operation that calls it.
        weight: key of its weight in the state dict.
        bias: key of its bias, or None.
        settings: of a convolution: stride, padding, dilation, groups.
    """

    name: str
    op: str
    weight: str
    bias: str | None
    settings: tuple[Any, ...] = ()

    @property
    def keys(self) -> dict[str, str]:
        """Keys in the state dict by field."""
        return {"weight": self.weight} | ({} if self.bias is None else {"bias": self.bias})

    def build(self, arrays: Mapping[str, Array]) -> eqx.Module:
        """The layer with its weights."""
        weight = arrays["weight"]
        num_out, num_in, *kernel = weight.shape
        layer = eqx.filter_eval_shape(self._empty, num_in, num_out, tuple(kernel))
        fields = [field for field in ("weight", "bias") if field in arrays]
        values = [arrays[field].reshape(getattr(layer, field).shape) for field in fields]
        return eqx.tree_at(lambda at: [getattr(at, field) for field in fields], layer, values)

    def _empty(self, num_in: int, num_out: int, kernel: Shape) -> eqx.Module:
        key, use_bias = jax.random.key(0), self.bias is not None
        if self.op == "layer.vector":
            return eqx.nn.Linear(num_in, num_out, use_bias=use_bias, key=key)
        if self.op == "layer.places":
            return Pointwise(num_in, num_out, use_bias=use_bias, key=key)
        stride, padding, dilation, groups = self.settings
        if len(kernel) == 2 and groups == 1 and set(dilation) == {1}:
            options = {"stride": _spread(stride, 2), "padding": _spread(padding, 2), "use_bias": use_bias}
            return Conv2d(num_in, num_out, (kernel[0], kernel[1]), **options, key=key)
        num, pads = len(kernel), tuple((p, p) for p in _spread(padding, len(kernel)))
        return eqx.nn.Conv(
            num,
            num_in * groups,
            num_out,
            kernel,
            _spread(stride, num),
            pads,
            _spread(dilation, num),
            groups,
            use_bias=use_bias,
            key=key,
        )


def find_layers(
    nodes: Sequence[Node], inputs: Sequence[str], shapes: Sequence[Shape], trainable: set[str]
) -> dict[int, FoundLayer]:
    """The layer that a node calls, by its number: those whose weights are used in this way alone.

    Args:
        nodes: of the graph.
        inputs: keys of what comes before them.
        shapes: of all values.
        trainable: keys of what may be weights of layers.
    """
    uses: dict[str, int] = {}
    for node in nodes:
        for value in values_in(node.arguments):
            if value.index < len(inputs):
                uses[inputs[value.index]] = uses.get(inputs[value.index], 0) + 1
    calls: dict[tuple[Any, ...], list[int]] = {}
    for i, node in enumerate(nodes):
        keys = _weights_of(node, inputs)
        if keys is not None and all(key is None or key in trainable for key in keys):
            settings = () if node.op == "linear" else (*node.arguments[3:6], node.arguments[8])
            calls.setdefault((node.op, *keys, settings), []).append(i)
    found: dict[int, FoundLayer] = {}
    for (op, weight, bias, settings), where in calls.items():
        if any(uses[key] != len(where) for key in (weight, bias) if key is not None):
            continue
        name = weight.removesuffix("weight").rstrip("._").replace(".", "/")
        if op == "linear":
            places = [shapes[value_of(nodes[i].arguments[0]).index][:-1] for i in where]
            kind = "layer.vector" if all(set(place) <= {1} for place in places) else "layer.places"
        else:
            kind = "layer.image"
        found |= dict.fromkeys(where, FoundLayer(name, kind, weight, bias, settings))
    return found


def multiplied_weights(graph: Graph) -> set[str]:
    """Names of arrays that go, as they are or in another shape, into a product that is none of a layer."""
    names: dict[int, set[str]] = {i: {name} for i, name in enumerate(graph.inputs) if name}
    found: set[str] = set()
    for i, node in enumerate(graph.nodes, start=len(graph.inputs)):
        inside = set().union(*(names.get(value.index, set()) for value in values_in(node.arguments)))
        if node.op in PRODUCTS or node.op in RANDOM:
            found |= inside
        elif node.op in SHAPES and node.op != "embedding":
            names[i] = inside
    return found


def value_of(argument: Any) -> Value:
    """An argument that is a value."""
    assert isinstance(argument, Value)
    return argument


def _weights_of(node: Node, inputs: Sequence[str]) -> tuple[str, str | None] | None:
    """Keys of weight and bias, if this may be a layer: both inputs, named alike."""
    if node.op not in ("linear", "convolution") or (node.op == "convolution" and node.arguments[6]):
        return None
    weight, bias = (_key(argument, inputs) for argument in node.arguments[1:3])
    if weight is None or not weight.endswith("weight") or (bias is None) != (node.arguments[2] is None):
        return None
    if bias is not None and bias != weight.removesuffix("weight") + "bias":
        return None
    return None if weight in ("weight", "_weight") else (weight, bias)


def _key(argument: Any, inputs: Sequence[str]) -> str | None:
    is_input = isinstance(argument, Value) and argument.index < len(inputs)
    return inputs[argument.index] if is_input else None


def _spread(value: tuple[int, ...], num: int) -> tuple[Any, ...]:
    return tuple(value) * num if len(value) == 1 else tuple(value)
