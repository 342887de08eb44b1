"""An exported program, read node by node: names of operations, literals, and the numbers of values."""

import operator
from collections.abc import Mapping
from typing import Any

from marginax.nets.torch.graph import Graph, Node, Value, values_in
from marginax.nets.torch.layers import FoundLayer
from marginax.nets.torch.operators import OPERATORS

_WITHOUT_EFFECT = ("_assert_tensor_metadata", "_assert_scalar", "_assert_async.msg", "sym_constrain_range_for_size")
_BATCH_STATISTICS = ("_native_batch_norm_legit", "native_batch_norm", "_batch_norm_with_update")
_RANDOM = ("bernoulli", "exponential", "multinomial", "normal", "rand", "rrelu", "uniform")


class Reading:
    """The graph of an exported program, before layers are found in it.

    Args:
        program: of `torch.export`.
        canonical: for each key of a parameter or buffer the first one that has the same tensor.
    """

    def __init__(self, program: Any, canonical: Mapping[str, str]):
        self.inputs: list[str] = []
        self.shapes: list[tuple[int, ...]] = []
        self.nodes: list[Node] = []
        self._numbers: dict[Any, int] = {}
        specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
        steps = list(program.graph.nodes)
        for step in (step for step in steps if step.op == "placeholder"):
            spec = specs[step.name]
            key = "" if spec.kind.name == "USER_INPUT" else canonical.get(spec.target, spec.target)
            self._number(step, len(self.inputs))
            self.inputs.append(key)
        self._put_example_first()
        _refuse_changes(program.graph_signature)
        calls = [step for step in steps if step.op not in ("placeholder", "output") and not _is_idle(step)]
        _refuse_unknown(calls)
        for step in calls:
            self.nodes.append(Node(_name(step), self._arguments(step), _place(step)))
            self._number(step, len(self.inputs) + len(self.nodes) - 1)
        (output,) = (step for step in steps if step.op == "output")
        found = output.args[0]
        if len(found) != 1 or not hasattr(found[0], "meta"):
            raise ValueError(
                f"module must give one tensor, but it gives {len(found)} values: wrap it in a module that does"
            )
        self.output = Value(self._numbers[found[0]])
        shape = self.shapes[self.output.index]
        if shape[:1] != (1,):
            raise ValueError(
                f"module must give an output for each example, but of one example the outputs have shape {shape}: "
                "squeeze() without an axis also removes that of the examples, squeeze(-1) does not"
            )

    def values_used(self) -> list[Value]:
        """All values that nodes take."""
        return [value for node in self.nodes for value in values_in(node.arguments)]

    def graph(
        self, layers: Mapping[int, FoundLayer], names: Mapping[str, str], x_shape: tuple[int, ...], x_dtype: str
    ) -> Graph:
        """The graph that calls layers, without inputs that nobody needs any more.

        Args:
            layers: by number of the node that calls them.
            names: of inputs, by key.
            x_shape: of an example.
            x_dtype: of an example.
        """
        nodes = [
            Node(layers[i].op, (layers[i].name, node.arguments[0]), node.place) if i in layers else node
            for i, node in enumerate(self.nodes)
        ]
        needed = {value.index for node in nodes for value in values_in(node.arguments)} | {0, self.output.index}
        kept = [i for i in range(len(self.inputs)) if i in needed]
        total = len(self.inputs)
        new = {old: i for i, old in enumerate([*kept, *range(total, total + len(nodes))])}
        return Graph(
            tuple("" if i == 0 else names[self.inputs[i]] for i in kept),
            tuple(Node(node.op, _renumbered(node.arguments, new), node.place) for node in nodes),
            Value(new[self.output.index]),
            x_shape,
            x_dtype,
        )

    def _number(self, step: Any, number: int) -> None:
        self._numbers[step] = number
        value = step.meta.get("val")
        self.shapes.append(tuple(value.shape) if hasattr(value, "shape") else ())

    def _put_example_first(self) -> None:
        """The example is the last placeholder of a program; here it is the first input."""
        at = self.inputs.index("")
        order = [at, *(i for i in range(len(self.inputs)) if i != at)]
        place = {old: new for new, old in enumerate(order)}
        self.inputs = [self.inputs[i] for i in order]
        self.shapes = [self.shapes[i] for i in order]
        self._numbers = {step: place[number] for step, number in self._numbers.items()}

    def _arguments(self, step: Any) -> tuple[Any, ...]:
        """All arguments of the schema, in its order; those that were left out have their defaults."""
        if step.target is operator.getitem:
            return tuple(map(self._literal, step.args))
        found = []
        for i, argument in enumerate(step.target._schema.arguments):
            if i < len(step.args):
                value = step.args[i]
            else:
                value = step.kwargs.get(argument.name, argument.default_value)
            found.append(self._literal(value))
        return tuple(found)

    def _literal(self, value: Any) -> Any:
        if value in self._numbers if hasattr(value, "meta") else False:
            return Value(self._numbers[value])
        if isinstance(value, list | tuple):
            return tuple(map(self._literal, value))
        if value is None or isinstance(value, bool | int | float | str):
            return value
        kind = type(value).__name__
        if kind == "dtype":
            return str(value).removeprefix("torch.")
        if kind in ("device", "layout", "memory_format"):
            return None
        raise ValueError(f"module has an argument of type {kind} in its graph, {value!r:.80}, which is not known")


def _name(step: Any) -> str:
    """The name of an operation in the table, without the overload `default`."""
    if step.target is operator.getitem:
        return "getitem"
    schema = getattr(step.target, "_schema", None)
    if schema is None:
        return getattr(step.target, "__name__", str(step.target))
    name = schema.name.removeprefix("aten::")
    return f"{name}.{schema.overload_name}" if schema.overload_name else name


def _place(step: Any) -> str:
    """Path of the module that asked for it."""
    stack = list(step.meta.get("nn_module_stack", {}).values())
    return stack[-1][0] if stack else ""


def _is_idle(step: Any) -> bool:
    return step.op == "call_function" and _name(step) in _WITHOUT_EFFECT


def _refuse_unknown(steps: list[Any]) -> None:
    """One error for all operations that are not in the table, with the modules where they are."""
    unknown: dict[str, list[str]] = {}
    for step in steps:
        name = _name(step) if step.op == "call_function" else f"{step.op} {step.target}"
        if name not in OPERATORS:
            unknown.setdefault(name, []).append(_place(step) or "the module itself")
    for name, places in unknown.items():
        if name.startswith(_BATCH_STATISTICS):
            raise ValueError(
                f"module normalises by the statistics of a batch at {places[0]}, which mixes its examples: use running "
                "statistics there (training=False), or torch.nn.GroupNorm"
            )
        if name.startswith(_RANDOM):
            raise ValueError(
                f"module is random at {places[0]} by {name}, and only dropout can be switched on and off by a key: use "
                "dropout=False, which takes the module in evaluation mode"
            )
    if unknown:
        listed = "; ".join(f"{name} at {', '.join(dict.fromkeys(places))}" for name, places in unknown.items())
        raise ValueError(f"module needs operations that are not known: {listed}")


def _refuse_changes(signature: Any) -> None:
    changed = [*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()]
    if changed:
        raise ValueError(
            f"module changes {', '.join(changed)} when it is called, and a network has no memory: use dropout=False, "
            "which takes the module in evaluation mode, or a module that changes nothing"
        )


def _renumbered(argument: Any, new: Mapping[int, int]) -> Any:
    if isinstance(argument, tuple):
        return tuple(_renumbered(each, new) for each in argument)
    return Value(new[argument.index]) if isinstance(argument, Value) else argument
