"""Listening in on the layers of a network: their inputs, and how the outputs of the network depend on theirs.

Each layer is replaced, for one forward pass, by a stand-in that notes its input and adds a probe of zeros to its
output; the derivative with respect to the probe is the derivative with respect to the layer's output. The network does
not have to know. Where that is not possible (a layer inside a scan, a grouped convolution, weights of a function), the
derivative with respect to the weights themselves is taken instead.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.extend.core import get_opaque_trace_state
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from marginax.curvature.jacobians import Jacobian, Outer, Plain, Zero
from marginax.model import Model, Params
from marginax.nets.convolution import Conv2d
from marginax.nets.layers import is_layer, layers_of, replace_layers

Shape = tuple[int, ...]
Columns = Callable[[Array, Any, Any], Float[Array, "k m"]]
"""(outputs, target, key) of one example -> the columns that are pulled back to the weights."""


@dataclass(frozen=True)
class LeafPlan:
    """How one random leaf of the network is differentiated.

    Args:
        path: its name.
        shape: of the leaf.
        moves: whether it is asked for.
        site: number of the layer that is listened to, or None for the plain derivative.
        is_bias: whether it is that layer's bias.
    """

    path: str
    shape: Shape
    moves: bool
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
    """How the random leaves of a network are differentiated.

    Args:
        leaves: one for each.
        calls: for each layer of the network, the shapes of its outputs in its calls; empty if it is not listened to.
        num_rest: unknowns besides the weights.
        num_entries: how many single weights are asked for, where it is not whole leaves.
    """

    leaves: tuple[LeafPlan, ...]
    calls: tuple[tuple[Shape, ...], ...]
    num_rest: int
    num_entries: int | None = None

    @property
    def moving(self) -> tuple[LeafPlan, ...]:
        """The leaves that are asked for."""
        return tuple(leaf for leaf in self.leaves if leaf.moves)

    @property
    def size(self) -> int:
        """Number of weights that are asked for."""
        return sum(leaf.size for leaf in self.moving) if self.num_entries is None else self.num_entries

    def places(self, site: int) -> int:
        """In how many places the weights of a layer are used, for one example."""
        return sum(math.prod(shape[1:]) for shape in self.calls[site])

    def index(self) -> list[slice]:
        """Where the leaves that are asked for are among the raveled parameters."""
        ends = list(itertools.accumulate(leaf.size for leaf in self.leaves))
        found = zip(self.leaves, ends, strict=True)
        return [slice(end - leaf.size, end) for leaf, end in found if leaf.moves]


def plan_for(model: Model, params: Params, x_shape: Shape, dtype: Any, moves: tuple[bool, ...] | None = None) -> Plan:
    """Find out, by tracing alone, how every random leaf can be differentiated.

    Args:
        model: whose network it is.
        params: of the right shapes.
        x_shape: of one example.
        dtype: of the examples.
        moves: which of `model.leaves` are asked for; all by default.
    """
    layers = layers_of(model.network)
    nodes = jax.tree_util.tree_leaves_with_path(model.network, is_leaf=is_layer)
    names = [jax.tree_util.keystr(path, simple=True, separator="/") for path, node in nodes if is_layer(node)]
    x = jax.ShapeDtypeStruct(x_shape, dtype)
    known = [leaf.path for leaf in model.leaves]
    calls = [
        _calls(model, params, x, i) if any(p.startswith(f"{n}/") for p in known) and _is_plain(layer) else ()
        for i, (n, layer) in enumerate(zip(names, layers, strict=True))
    ]
    leaves = []
    for leaf, asked in zip(model.leaves, moves or (True,) * len(known), strict=True):
        parent, _, name = leaf.path.rpartition("/")
        site = names.index(parent) if parent in names and calls[names.index(parent)] else None
        leaves.append(LeafPlan(leaf.path, leaf.shape, asked, site, site is not None and name == "bias"))
    rest = sum(leaf.size for leaf in jax.tree.leaves((params.likelihood, params.prior)))
    return Plan(tuple(leaves), tuple(calls), rest)


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
    plain = [i for i, leaf in enumerate(plan.leaves) if leaf.moves and leaf.site is None]
    sites = sorted({leaf.site for leaf in plan.moving if leaf.site is not None})
    layers = layers_of(network)

    def one(x: Array, y: Any, key: Any) -> tuple[Array, list[Array], list[Any], list[Any]]:
        def forward(probes: dict[int, list[Array]], free: list[Array]) -> tuple[Array, list[Array]]:
            tape: dict[int, list[Array]] = {site: [] for site in sites}
            new = list(weights)
            for i, value in zip(plain, free, strict=True):
                new[i] = value
            whole = eqx.combine(jax.tree.unflatten(jax.tree.structure(params.network), new), network)
            taps = [_Tap(layer, i, probes.get(i, []), tape) for i, layer in enumerate(layers_of(whole))]
            output = jnp.atleast_1d(replace_layers(whole, taps)(x))
            return output, [jnp.concatenate([_inputs_of(layers[site], part) for part in tape[site]]) for site in sites]

        probes = {site: [jnp.zeros(shape, x.dtype) for shape in plan.calls[site]] for site in sites}
        output, pull, inputs = jax.vjp(forward, probes, [weights[i] for i in plain], has_aux=True)
        pulled, free = jax.vmap(pull)(columns(output, y, key).T)
        by_site = [jnp.concatenate([_by_place(part) for part in pulled[site]], axis=1) for site in sites]
        return output, inputs, by_site, free

    keys = None if key is None else jax.random.split(key, x.shape[0])
    output, inputs, by_site, free = jax.vmap(one)(x, y, keys)
    jacobian: list[Any] = []
    num, width = x.shape[0], (by_site or free)[0].shape[1]
    for i, leaf in enumerate(plan.leaves):
        if not leaf.moves:
            jacobian.append(Zero(leaf.size, (num, width)))
        elif leaf.site is None:
            jacobian.append(Plain(free[plain.index(i)].reshape(num, width, leaf.size)))
        else:
            at = sites.index(leaf.site)
            jacobian.append(Outer(by_site[at], None if leaf.is_bias else inputs[at], leaf.site))
    if plan.num_rest:
        jacobian.append(Zero(plan.num_rest, (num, width)))
    return output, tuple(jacobian)


def moving_part(jacobian: Jacobian) -> Jacobian:
    """Without the leaves that stay."""
    return tuple(leaf for leaf in jacobian if not isinstance(leaf, Zero))


class _Tap(eqx.Module):
    """A layer that is listened to: it notes what comes in and adds a probe to what goes out."""

    layer: Any
    site: int = eqx.field(static=True)
    probes: list[Array]
    tape: dict[int, list[Array]] = eqx.field(static=True)

    def __call__(self, x: Array, *, key: Any = None) -> Array:
        del key
        y = self.layer(x)
        if self.site not in self.tape:
            return y
        seen = self.tape[self.site]
        seen.append(x)
        return y + self.probes[len(seen) - 1] if self.probes else y


class _Listener(eqx.Module):
    """A layer that notes the shapes of its outputs, and whether it is called where the network is."""

    layer: Any
    trace: Any = eqx.field(static=True)
    heard: list[tuple[bool, Shape]] = eqx.field(static=True)

    def __call__(self, x: Array, *, key: Any = None) -> Array:
        del key
        y = self.layer(x)
        self.heard.append((_trace_now() == self.trace, y.shape))
        return y


def _trace_now() -> Any:
    """Says whether two places are under the same transformations (scan, vmap, jit)."""
    return get_opaque_trace_state(convention="nnx")


def _is_plain(layer: Any) -> bool:
    """Whether the layer is a product of its weight with its input, or with patches of it."""
    if isinstance(layer, eqx.nn.Linear):
        return layer.in_features != "scalar" and layer.out_features != "scalar"
    if isinstance(layer, eqx.nn.Conv):
        return layer.groups == 1 and layer.padding_mode == "ZEROS" and not isinstance(layer.padding, str)
    return isinstance(layer, Conv2d)


def _calls(model: Model, params: Params, x: Any, site: int) -> tuple[Shape, ...]:
    """Shapes of the outputs of a layer in its calls; empty if it is not called, or out of hearing (in a scan)."""
    heard: list[tuple[bool, Shape]] = []

    def forward(params: Params, x: Array) -> Array:
        network = eqx.nn.inference_mode(model.network_of(params))
        layers = list(layers_of(network))
        layers[site] = _Listener(layers[site], _trace_now(), heard)
        return replace_layers(network, layers)(x)

    eqx.filter_eval_shape(forward, params, x)
    return tuple(shape for _, shape in heard) if all(here for here, _ in heard) else ()


def _by_place(columns: Float[Array, "m o *places"]) -> Float[Array, "m t o"]:
    flat = columns.reshape(*columns.shape[:2], -1)
    return flat.swapaxes(1, 2)


def _inputs_of(layer: Any, x: Array) -> Float[Array, "t i"]:
    """What the rows of the layer's weight are multiplied with, for every place of the output."""
    if isinstance(layer, eqx.nn.Linear):
        return x[None]
    return _patches(x, layer.weight.shape[2:], layer.stride, layer.padding, getattr(layer, "dilation", None))


def _patches(x: Array, kernel: Shape, stride: Any, padding: Any, dilation: Any) -> Float[Array, "t i"]:
    """The patches of an image that a convolution sees, raveled as its weight is."""
    dilation = dilation or (1,) * len(kernel)
    x = jnp.pad(x, [(0, 0), *padding])
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    out = [(n - span) // s + 1 for n, span, s in zip(x.shape[1:], spans, stride, strict=True)]
    parts: list[PyTree] = []
    for offset in itertools.product(*(range(k) for k in kernel)):
        corner = [o * d for o, d in zip(offset, dilation, strict=True)]
        ends = [c + (n - 1) * s + 1 for c, n, s in zip(corner, out, stride, strict=True)]
        parts.append(jax.lax.slice(x, (0, *corner), (x.shape[0], *ends), (1, *stride)))
    stacked = jnp.stack(parts, axis=1)  # channels, kernel, places
    return stacked.reshape(x.shape[0] * len(parts), -1).T
