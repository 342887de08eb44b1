"""A PyTorch module as data: operations of a table, literals, and the numbers of the values that they take.

Nothing here needs PyTorch, and a graph can be written to a file as it is.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from jaxtyping import Array, PRNGKeyArray

from marginax._kernels.random import derive
from marginax.files import register
from marginax.nets.torch.operators import OPERATORS, RANDOM

LAYERS = ("layer.vector", "layer.places", "layer.image")
"""Operations that call a layer of the network; their arguments are its name and the input: a vector, vectors at several
places (features last), or images (channels first)."""


@register("net/torch_value")
@dataclasses.dataclass(frozen=True)
class Value:
    """One of the values that came before: an input of the graph, or what a node gave.

    Args:
        index: inputs are counted first, then nodes.
    """

    index: int


@register("net/torch_node")
@dataclasses.dataclass(frozen=True)
class Node:
    """One operation.

    Args:
        op: its name in the table of operations, which is that of ATen, or one of `LAYERS`.
        arguments: in the order of ATen's schema: literals, values, and tuples of these.
        place: path of the module that asked for it.
    """

    op: str
    arguments: tuple[Any, ...]
    place: str

    def __post_init__(self):
        self.__check_init__()

    def __check_init__(self):
        if self.op not in LAYERS and self.op not in OPERATORS:
            raise ValueError(f"op must be one of the table of operations, got {self.op!r:.80}")
        if not _is_plain(self.arguments):
            raise ValueError(f"arguments must be literals and values, got {self.arguments!r:.80}")
        if self.op in LAYERS and not (len(self.arguments) == 2 and isinstance(self.arguments[0], str)):
            raise ValueError(f"arguments of a layer must be its name and the input, got {self.arguments!r:.80}")


@register("net/torch_graph")
@dataclasses.dataclass(frozen=True)
class Graph:
    """Operations one after the other, for a batch of one example.

    Args:
        inputs: names of the arrays that come before the nodes; the example itself is the first and has the name "".
        nodes: in the order in which they are computed.
        output: which value the network gives.
        x_shape: of an example.
        x_dtype: of an example, by name.
    """

    inputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    output: Value
    x_shape: tuple[int, ...]
    x_dtype: str

    def __post_init__(self):
        self.__check_init__()

    def __check_init__(self):
        if not self.inputs or self.inputs[0] != "":
            raise ValueError("inputs must begin with the example")
        for i, node in enumerate(self.nodes):
            known = len(self.inputs) + i
            if any(not 0 <= value.index < known for value in values_in(node.arguments)):
                raise ValueError(f"arguments of node {i} must be values that came before, got {node.arguments!r:.80}")
        if not 0 <= self.output.index < len(self.inputs) + len(self.nodes):
            raise ValueError(f"output must be one of the values, got {self.output}")

    @property
    def is_random(self) -> bool:
        """Whether a key makes a difference."""
        return any(node.op in RANDOM and RANDOM[node.op](*node.arguments) for node in self.nodes)

    def run(
        self, inputs: Sequence[Any], call_layer: Callable[[str, str, Array], Array], key: PRNGKeyArray | None = None
    ) -> Any:
        """The output of the graph.

        Args:
            inputs: the example as a batch of one, then the arrays that `inputs` names.
            call_layer: (operation, name, input) -> output of a layer.
            key: for dropout, which without one is off.
        """
        found = list(inputs)

        def read(argument: Any) -> Any:
            if isinstance(argument, Value):
                return found[argument.index]
            return tuple(map(read, argument)) if isinstance(argument, tuple) else argument

        for i, node in enumerate(self.nodes):
            arguments = read(node.arguments)
            if node.op in LAYERS:
                found.append(call_layer(node.op, *arguments))
            elif node.op in RANDOM:
                own = None if key is None else derive(key, i)
                found.append(OPERATORS[node.op](*arguments, key=own))
            else:
                found.append(OPERATORS[node.op](*arguments))
        return found[self.output.index]


def values_in(argument: Any) -> list[Value]:
    """The values among arguments."""
    if isinstance(argument, tuple):
        return [value for each in argument for value in values_in(each)]
    return [argument] if isinstance(argument, Value) else []


def _is_plain(argument: Any) -> bool:
    if isinstance(argument, tuple):
        return all(map(_is_plain, argument))
    return argument is None or isinstance(argument, bool | int | float | str | Value)
