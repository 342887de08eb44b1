"""Networks of the user: Equinox as it is, a Flax NNX module, or a pair (params, apply_fn)."""

import inspect
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from marginax._kernels.random import normal
from marginax.data.transforms import AbstractTransform
from marginax.files import register


@register("net/function")
class Function(eqx.Module):
    """A network made of parameters and a function `apply_fn(params, x)`.

    Args:
        params: any pytree of arrays, or a single array.
        apply_fn: (params, x) -> outputs, where x is one example, or a batch if `batched`.
        batched: whether apply_fn wants inputs with a leading batch axis (as Flax Linen's apply often does).

    >>> net = Function({"w": jnp.ones((2, 3))}, lambda p, x: x @ p["w"])
    >>> net(jnp.ones(2)).tolist()
    [2.0, 2.0, 2.0]
    """

    params: PyTree
    apply_fn: Callable[[Any, Array], Array] = eqx.field(static=True)
    batched: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        if not callable(self.apply_fn):
            raise TypeError(f"apply_fn must be a function (params, x) -> outputs, got {self.apply_fn!r}")

    @property
    def is_per_example(self) -> bool:
        """Whether `call_batch` only maps a function of one example, so that another layout may be tried."""
        return not self.batched

    def __call__(self, x: Array) -> Array:
        """Outputs of one example."""
        if self.batched:
            return self.apply_fn(self.params, x[None])[0]
        return self.apply_fn(self.params, x)

    def call_batch(self, xs: Array, *, key: Array | None = None) -> Array:
        """Outputs of a batch."""
        if self.batched:
            return self.apply_fn(self.params, xs)
        return jax.vmap(lambda x: self.apply_fn(self.params, x))(xs)


@register("net/fixed_state")
class FixedState(eqx.Module):
    """Arrays that belong to a network and are no weights: statistics of normalisation, counters. They stay as they are.

    Args:
        tree: of arrays.
    """

    tree: PyTree


def is_weight(network: PyTree) -> PyTree:
    """The network's tree with True at its floating-point weights and False elsewhere.

    >>> is_weight({"weight": jnp.ones(2), "statistics": FixedState(jnp.ones(2)), "size": 3})
    {'size': False, 'statistics': FixedState(tree=False), 'weight': True}
    """
    fixed = FixedState | AbstractTransform  # strengths of transforms are no weights

    def mark(node: Any) -> Any:
        if isinstance(node, fixed):
            return jax.tree.map(lambda _: False, node)
        if hasattr(node, "weight_flags"):  # a network of which some arrays are not to be inferred
            return node.weight_flags()
        return eqx.is_inexact_array(node)

    return jax.tree.map(mark, network, is_leaf=lambda node: isinstance(node, fixed) or hasattr(node, "weight_flags"))


class FlaxNetwork(eqx.Module):
    """A Flax NNX module in evaluation mode, its parameters as plain arrays.

    Statistics of batch normalisation are those that the module has, as in its own evaluation mode.
    """

    params: PyTree
    rest: FixedState
    graph: Any = eqx.field(static=True)

    def __init__(self, module: Any):
        """Split the module into parameters, other state, and structure."""
        from flax import nnx

        for path, part in nnx.iter_graph(module):
            if isinstance(part, nnx.Dropout) and part.rate > 0:
                raise ValueError(
                    f"network has Dropout at {'/'.join(map(str, path))}, whose randomness is inside the module: "
                    "use mx.nets.MLP(dropout=...) or an Equinox network that takes a key"
                )
        module.eval()
        self.graph, params, rest = nnx.split(module, nnx.Param, ...)
        self.rest = FixedState(rest)
        self.params = nnx.to_pure_dict(params)

    def _module(self) -> Any:
        from flax import nnx

        flat = {path: nnx.Param(value) for path, value in nnx.to_flat_state(nnx.State(self.params))}
        return nnx.merge(self.graph, nnx.from_flat_state(flat), self.rest.tree)

    @property
    def is_per_example(self) -> bool:
        """As any module."""
        return True

    def __call__(self, x: Array) -> Array:
        """Outputs of one example."""
        return self._module()(x[None])[0]

    def call_batch(self, xs: Array, *, key: Array | None = None) -> Array:
        """Outputs of a batch."""
        return self._module()(xs)


def as_network(network: Any) -> eqx.Module:
    """An Equinox module that can be called, from any of the forms that users have."""
    if isinstance(network, tuple) and len(network) == 2 and callable(network[1]):
        return Function(*network)
    if isinstance(network, eqx.Module):
        if not callable(network):
            raise TypeError(f"network must be callable on one example, but {type(network).__name__} has no __call__")
        _refuse_state(network)
        return network
    if type(network).__module__ != "builtins" and _is_nnx(network):
        return FlaxNetwork(network)
    raise TypeError(
        "network must be an Equinox module, a Flax NNX module, or a pair (params, apply_fn), "
        f"got {type(network).__name__}"
    )


def _refuse_state(network: eqx.Module) -> None:
    """Raise if a call needs a state, as of batch normalisation in Equinox."""
    needed = inspect.signature(type(network).__call__).parameters.get("state")
    if needed is None or needed.default is not inspect.Parameter.empty:
        return
    nodes = jax.tree_util.tree_leaves_with_path(network, is_leaf=lambda node: isinstance(node, eqx.nn.StatefulLayer))
    stateful = [
        f"{type(node).__name__} at {jax.tree_util.keystr(path, simple=True, separator='/') or 'the top'}"
        for path, node in nodes
        if isinstance(node, eqx.nn.StatefulLayer)
    ]
    raise ValueError(
        f"network must be a function of one example, but {type(network).__name__} is called with a state"
        f"{' of ' + ', '.join(stateful) if stateful else ''}: normalise without state (mx.nets.GroupNormalisation(), "
        "mx.nets.FilterResponse(), eqx.nn.GroupNorm), or hold it fixed in a module that calls the network with it"
    )


def _is_nnx(network: Any) -> bool:
    # looked up by name first, so that Flax is imported only when one of its modules is here
    if not any(base.__module__.startswith("flax.nnx") for base in type(network).__mro__):
        return False
    from flax import nnx

    return isinstance(network, nnx.Module)


def takes_key(network: eqx.Module) -> bool:
    """Whether the network's call accepts `key=`, and so can be random."""
    return "key" in inspect.signature(type(network).__call__).parameters


def is_random(network: eqx.Module) -> bool:
    """Whether a key makes a difference to the network's call."""
    return takes_key(network) and getattr(network, "stochastic", True)


def fan_in(network: eqx.Module, shape: tuple[int, ...]) -> int | None:
    """Inputs per unit of a weight array: Equinox stores (out, in, ...), functions and Flax store (..., in, out)."""
    if len(shape) < 2:
        return None
    return math.prod(shape[:-1] if isinstance(network, Function | FlaxNetwork) else shape[1:])


def network_at(network: Any, path: tuple[Any, ...]) -> Any:
    """The part of a network that a leaf belongs to: the outermost that was a function or is of Flax, else the whole.

    >>> net = {"decoder": Function(jnp.ones((2, 3)), lambda p, x: x @ p)}
    >>> [(path, _)] = jax.tree_util.tree_leaves_with_path(net)
    >>> fan_in(network_at(net, path), (2, 3))
    2
    """
    part = network
    for entry in path:
        if isinstance(part, Function | FlaxNetwork):
            return part
        if isinstance(part, eqx.Module):
            part = getattr(part, entry.name)
        elif isinstance(part, dict | list | tuple) and not hasattr(part, "_fields"):
            part = part[entry.key if isinstance(part, dict) else entry.idx]
        else:
            return network
    return network


def reinitialise(network: eqx.Module, *, key: Array) -> eqx.Module:
    """Fresh weights: by the network's own `reinitialise(key)`, or normal ones with each weight array's own spread.

    Vectors (biases, normalisation) keep their values, since they usually start at a constant.
    """
    if hasattr(network, "reinitialise"):
        return network.reinitialise(key)  # pyright: ignore[reportAttributeAccessIssue]
    leaves, treedef = jax.tree.flatten(network)
    fresh = [
        leaf
        if not weight or leaf.ndim < 2
        else jnp.mean(leaf) + jnp.std(leaf) * normal(key, leaf.shape, leaf.dtype, stream=i)
        for i, (leaf, weight) in enumerate(zip(leaves, jax.tree.leaves(is_weight(network)), strict=True))
    ]
    return jax.tree.unflatten(treedef, fresh)
