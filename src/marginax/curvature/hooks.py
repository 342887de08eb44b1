"""Hooks on the layers of a network: their inputs, and how the outputs of the network depend on theirs.

Each layer is replaced, for one forward pass, by a hook that notes its input and adds a probe of zeros to its output:
the derivative with respect to the probe is that with respect to the layer's output. The network does not have to know.
Where that is not possible (a layer inside a scan, a grouped convolution, weights of a function), the derivative with
respect to the weights themselves is taken instead.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from marginax.curvature.jacobians import Jacobian, Outer, Plain, Zero
from marginax.model import AbstractModel, Model
from marginax.model.abstract import Params
from marginax.nets.layers import LayerKind, kind_of, layer_paths, layers_of, replace_layers, trace_now

Shape = tuple[int, ...]
Columns = Callable[[Array, Any, Any], Float[Array, "k m"]]
"""(outputs, target, key) of one example -> the columns that are pulled back to the weights."""


@dataclass(frozen=True)
class LeafPlan:
    """How one random leaf of the weights is differentiated.

    Args:
        path: its name.
        shape: of the leaf.
        selected: whether it is asked for.
        site: number of the layer that has a hook, or None for the plain derivative.
        is_bias: whether it is that layer's bias.
    """

    path: str
    shape: Shape
    selected: bool
    site: int | None
    is_bias: bool

    @property
    def size(self) -> int:
        """Number of weights."""
        return math.prod(self.shape)

    @property
    def factors(self) -> tuple[int, int]:
        """Outputs and inputs of the layer."""
        return (self.shape[0], 1) if self.is_bias else (self.shape[0], math.prod(self.shape[1:]))


@dataclass(frozen=True)
class Plan:
    """How the random leaves of the weights are differentiated.

    Args:
        leaves: one for each.
        calls: for each layer of the network, the shapes of its outputs in its calls; empty if it has no hook.
        num_rest: unknowns besides the weights, which come after them.
    """

    leaves: tuple[LeafPlan, ...]
    calls: tuple[tuple[Shape, ...], ...] = ()
    num_rest: int = 0

    @property
    def selected(self) -> tuple[LeafPlan, ...]:
        """The leaves that are asked for."""
        return tuple(leaf for leaf in self.leaves if leaf.selected)

    @property
    def flags(self) -> tuple[bool, ...]:
        """For each leaf, whether it is asked for."""
        return tuple(leaf.selected for leaf in self.leaves)

    @property
    def size(self) -> int:
        """Number of weights that are asked for."""
        return sum(leaf.size for leaf in self.selected)

    def places(self, site: int) -> int:
        """In how many places the weights of a layer are used, for one example."""
        return sum(math.prod(shape[1:]) for shape in self.calls[site])

    def slices(self) -> list[slice]:
        """Where the leaves that are asked for are among the raveled weights."""
        ends = itertools.accumulate(leaf.size for leaf in self.leaves)
        found = zip(self.leaves, ends, strict=True)
        return [slice(end - leaf.size, end) for leaf, end in found if leaf.selected]

    def layers(self) -> list[tuple[int, ...]]:
        """Numbers of the leaves that are asked for, by layer: those under one parent, one after the other."""
        leaves = enumerate(self.selected)
        groups = itertools.groupby(leaves, lambda pair: pair[1].path.rpartition("/")[0])
        return [tuple(i for i, _ in group) for _, group in groups]

    def only(self, flags: tuple[bool, ...]) -> "Plan":
        """The same for these leaves."""
        leaves = (replace(leaf, selected=flag) for leaf, flag in zip(self.leaves, flags, strict=True))
        return replace(self, leaves=tuple(leaves))

    def of_weights(self, num: int) -> "Plan":
        """For so many single weights."""
        return Plan((LeafPlan("single weights", (num,), True, None, False),), num_rest=self.num_rest)


def plan_for(
    model: AbstractModel,
    params: Params,
    x_shape: Shape | None,
    dtype: Any = None,
    moves: tuple[bool, ...] | None = None,
) -> Plan:
    """Find out, by tracing alone, how every random leaf can be differentiated.

    Args:
        model: what is differentiated.
        params: of the right shapes.
        x_shape: of one example; None for plain derivatives, without hooks on layers.
        dtype: of the examples.
        moves: which leaves are asked for; all by default.
    """
    named = jax.tree_util.tree_leaves_with_path(model.weights(params))
    paths = [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in named]
    names, calls = ([], []) if x_shape is None else _calls(model, params, jax.ShapeDtypeStruct(x_shape, dtype), paths)
    leaves = []
    for path, (_, value) in zip(paths, named, strict=True):
        parent, _, name = path.rpartition("/")
        site = names.index(parent) if parent in names and calls[names.index(parent)] else None
        leaves.append(LeafPlan(path, value.shape, True, site, site is not None and name == "bias"))
    num_rest = sum(leaf.size for leaf in jax.tree.leaves(params)) - sum(leaf.size for leaf in leaves)
    plan = Plan(tuple(leaves), tuple(calls), num_rest)
    return plan if moves is None else plan.only(moves)


def output_jacobian(
    model: Model, params: Params, x: Array, moves: tuple[bool, ...] | None = None
) -> tuple[Float[Array, "n k"], Jacobian]:
    """Outputs of the network at inputs, and their derivatives with respect to all parameters.

    Args:
        model: whose network it is.
        params: where to differentiate.
        x: inputs.
        moves: which leaves of the weights are asked for, by default all; the others have zeros.
    """
    plan = plan_for(model, params, x.shape[1:], x.dtype, moves)
    return pull_back(model, params, plan, x, None, lambda output, y, key: jnp.eye(output.shape[0], dtype=output.dtype))


def pull_back(
    model: Model, params: Params, plan: Plan, x: Array, y: Any, columns: Columns, key: PRNGKeyArray | None = None
) -> tuple[Float[Array, "n k"], Jacobian]:
    """Outputs at all examples, and the derivatives of columns of them with respect to every leaf.

    Args:
        model: whose network it is.
        params: where to differentiate.
        plan: how.
        x: examples.
        y: their targets, or None.
        columns: (outputs, target, key) of an example -> matrix (k, m) whose columns are pulled back.
        key: for columns that are random.
    """
    network = eqx.nn.inference_mode(model.network_of(params))
    weights = jax.tree.leaves(params.network)
    plain = [i for i, leaf in enumerate(plan.leaves) if leaf.selected and leaf.site is None]
    sites = sorted({leaf.site for leaf in plan.selected if leaf.site is not None})
    layers = layers_of(network)

    def one(x: Array, y: Any, key: Any) -> tuple[Array, list[Array], list[Any], list[Any]]:
        def forward(probes: dict[int, list[Array]], free: list[Array]) -> tuple[Array, list[Array]]:
            inputs: dict[int, list[Array]] = {site: [] for site in sites}
            new = list(weights)
            for i, value in zip(plain, free, strict=True):
                new[i] = value
            whole = eqx.combine(jax.tree.unflatten(jax.tree.structure(params.network), new), network)
            every = enumerate(layers_of(whole))
            hooked = [_ForwardHook(v, inputs[i], probes[i]) if i in inputs else v for i, v in every]
            output = jnp.atleast_1d(replace_layers(whole, hooked)(x))
            return output, [
                jnp.concatenate([_kind(layers[i]).inputs(layers[i], part) for part in inputs[i]]) for i in sites
            ]

        real = x.dtype if jnp.issubdtype(x.dtype, jnp.inexact) else jnp.result_type(float)  # of tokens, which are ints
        probes = {site: [jnp.zeros(shape, real) for shape in plan.calls[site]] for site in sites}
        output, vjp, inputs = jax.vjp(forward, probes, [weights[i] for i in plain], has_aux=True)
        of_probes, free = jax.vmap(vjp)(columns(output, y, key).T)
        by_site = [jnp.concatenate([_by_place(part) for part in of_probes[site]], axis=1) for site in sites]
        return output, inputs, by_site, free

    keys = None if key is None else jax.random.split(key, x.shape[0])
    output, inputs, by_site, free = jax.vmap(one)(x, y, keys)
    jacobian: list[Any] = []
    num_views: int = getattr(network, "num_averaged", 1)  # of a network that is averaged over views of its input
    num, width = x.shape[0], (by_site or free)[0].shape[1]
    for i, leaf in enumerate(plan.leaves):
        if not leaf.selected:
            jacobian.append(Zero(leaf.size, (num, width)))
        elif leaf.site is None:
            jacobian.append(Plain(free[plain.index(i)].reshape(num, width, leaf.size)))
        else:
            at = sites.index(leaf.site)
            jacobian.append(Outer(by_site[at], None if leaf.is_bias else inputs[at], leaf.site, num_views))
    if plan.num_rest:
        jacobian.append(Zero(plan.num_rest, (num, width)))
    return output, tuple(jacobian)


def selected_part(jacobian: Jacobian) -> Jacobian:
    """Without the leaves that are not asked for."""
    return tuple(leaf for leaf in jacobian if not isinstance(leaf, Zero))


class _ForwardHook(eqx.Module):
    """A layer that notes what comes in and adds a probe to what goes out, call by call."""

    layer: Any
    inputs: list[Array] = eqx.field(static=True)
    probes: list[Array]

    def __call__(self, x: Array, *, key: Any = None) -> Array:
        self.inputs.append(x)
        return self.layer(x) + self.probes[len(self.inputs) - 1]


class _ShapeHook(eqx.Module):
    """A layer that notes the shapes of its outputs, and whether it is called where the network is."""

    layer: Any
    trace: Any = eqx.field(static=True)
    shapes: list[tuple[bool, Shape]] = eqx.field(static=True)

    def __call__(self, x: Array, *, key: Any = None) -> Array:
        y = self.layer(x)
        self.shapes.append((trace_now() == self.trace, y.shape))
        return y


def _calls(model: Any, params: Params, x: Any, paths: list[str]) -> tuple[list[str], list[tuple[Shape, ...]]]:
    """Names of all layers, and shapes of their outputs in their calls: none if not called, or in a scan, or odd."""
    names = layer_paths(model.network)
    heard: dict[int, list[tuple[bool, Shape]]] = {
        i: []
        for i, (name, layer) in enumerate(zip(names, layers_of(model.network), strict=True))
        if _kind(layer).is_product(layer) and any(path.startswith(f"{name}/") for path in paths)
    }

    def forward(params: Params, x: Array) -> Array:
        network, trace = eqx.nn.inference_mode(model.network_of(params)), trace_now()
        layers = enumerate(layers_of(network))
        return replace_layers(network, [_ShapeHook(v, trace, heard[i]) if i in heard else v for i, v in layers])(x)

    eqx.filter_eval_shape(forward, params, x)
    seen = [heard.get(i, []) for i in range(len(names))]
    return names, [tuple(shape for _, shape in calls) if all(here for here, _ in calls) else () for calls in seen]


def _by_place(columns: Float[Array, "m o *places"]) -> Float[Array, "m t o"]:
    flat = columns.reshape(*columns.shape[:2], -1)
    return flat.swapaxes(1, 2)


def _kind(layer: Any) -> LayerKind:
    kind = kind_of(layer)
    assert kind is not None
    return kind


def _inputs_of(layer: Any, x: Array) -> Float[Array, "t i"]:
    """What the rows of the layer's weight are multiplied with, for every place of the output."""
    return _kind(layer).inputs(layer, x)
