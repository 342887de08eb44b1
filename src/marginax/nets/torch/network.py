"""A network that came from PyTorch: its weights by their names, its buffers, and its graph."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num, PRNGKeyArray

from marginax.files import register
from marginax.nets.adapters import FixedState
from marginax.nets.layers import is_layer
from marginax.nets.torch.graph import Graph
from marginax.nets.torch.layers import multiplied_weights
from marginax.nets.torch.operators.elementwise import dtype_of


@register("net/named")
@jax.tree_util.register_pytree_with_keys_class
@dataclasses.dataclass(frozen=True)
class Named:
    """Values in an order and with names, such as "layer1/0/conv1"; the names are the paths of what is inside.

    >>> named = Named(("fc/weight", "fc/bias"), (jnp.ones((1, 2)), jnp.zeros(1)))
    >>> [jax.tree_util.keystr(path, simple=True) for path, _ in jax.tree_util.tree_leaves_with_path(named)]
    ['fc/weight', 'fc/bias']
    """

    names: tuple[str, ...]
    values: tuple[Any, ...]

    def tree_flatten_with_keys(self) -> tuple[tuple[tuple[Any, Any], ...], tuple[str, ...]]:
        """As JAX asks for it."""
        pairs = zip(self.names, self.values, strict=True)
        return tuple((jax.tree_util.GetAttrKey(name), value) for name, value in pairs), self.names

    @classmethod
    def tree_unflatten(cls, names: tuple[str, ...], values: Any) -> "Named":
        """As JAX asks for it."""
        return cls(names, tuple(values))

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __getitem__(self, name: str) -> Any:
        return self.values[self.names.index(name)]

    def replaced(self, new: Mapping[str, Any]) -> "Named":
        """The same with other values under some of the names."""
        return Named(self.names, tuple(new.get(name, value) for name, value in self))

    def __iter__(self) -> Any:
        return iter(zip(self.names, self.values, strict=True))


@register("net/torch_entry")
@dataclasses.dataclass(frozen=True)
class Entry:
    """An entry of a state dict, and where it is in the network.

    Args:
        key: in the state dict.
        name: of the array in the network; two entries that share an array have one name.
        shape: of the array.
        dtype: in PyTorch.
    """

    key: str
    name: str
    shape: tuple[int, ...]
    dtype: str


@register("net/torch")
class TorchNetwork(eqx.Module):
    """A PyTorch module as a network of JAX, made by `mx.nets.from_torch`.

    Called with one example, of the shape that it was made with. With a key, the module's own dropout is on.

    Args:
        module: layers and other weights, by the paths that they have in the module; those that are used last come last.
        buffers: what is no weight: running statistics, constants, parameters that are frozen.
        graph: what is computed.
        entries: of the module's state dict.
    """

    module: Named
    buffers: FixedState
    graph: Graph = eqx.field(static=True)
    entries: tuple[Entry, ...] = eqx.field(static=True)

    def __call__(self, x: Num[Array, "..."], *, key: PRNGKeyArray | None = None) -> Float[Array, "..."]:
        """Outputs of one example."""
        if x.shape != self.graph.x_shape:
            raise ValueError(f"x must be an example of shape {self.graph.x_shape}, as in from_torch, got {x.shape}")
        arrays = [self.array(name) for name in self.graph.inputs[1:]]
        return self.graph.run([self._read(x)[None], *arrays], self._call_layer, key)[0]

    def array(self, name: str) -> Array | np.ndarray:
        """A weight or a buffer by its name, such as "layer1/0/conv1/weight"."""
        for named in (self.module, self.buffers.tree):
            if name in named and not is_layer(named[name]):
                return named[name]
        layer, _, field = name.rpartition("/")
        return getattr(self.module[layer], field)

    @property
    def stochastic(self) -> bool:
        """Whether a key makes a difference."""
        return self.graph.is_random

    @property
    def weights_outside_layers(self) -> tuple[str, ...]:
        """Paths of matrices that multiply something and are in no layer: of recurrences, products of the module's own.

        Methods that need layers cannot see what these are multiplied with, and refuse them.
        """
        multiplied = multiplied_weights(self.graph)
        shapes = {name: jnp.ndim(value) for name, value in self.module if not is_layer(value)}
        return tuple(f"module/{name}" for name, ndim in shapes.items() if ndim > 1 and name in multiplied)

    def _read(self, x: Array) -> Array:
        """The example in the dtype of the graph; of tokens that are no whole numbers, tokens that there are none of."""
        dtype = dtype_of(self.graph.x_dtype)
        if jnp.issubdtype(dtype, jnp.integer) and jnp.issubdtype(x.dtype, jnp.inexact):
            return jnp.where(x == jnp.round(x), x, -1.0).astype(dtype)
        return x.astype(dtype)

    def _call_layer(self, op: str, name: str, x: Array) -> Array:
        """A layer, or what stands in for it, which takes one example with its features first."""
        layer = self.module[name]
        if op == "layer.vector":
            return layer(x.reshape(x.shape[-1])).reshape(*x.shape[:-1], -1)
        if op == "layer.places":
            return jnp.moveaxis(layer(jnp.moveaxis(x, -1, 0)), 0, -1)
        return layer(x[0])[None] if x.shape[0] == 1 else jax.vmap(layer)(x)


# ---- state dicts


def state_dict(network: TorchNetwork) -> dict[str, np.ndarray]:
    """Weights and buffers under the names of the module's state dict, as NumPy arrays of its dtypes.

    `mx.files.write_arrays("model.safetensors", mx.nets.state_dict(network))` writes them to a file.

    Args:
        network: from `mx.nets.from_torch`.
    """
    return {entry.key: _stored(network, entry) for entry in network.entries}


def load_state_dict(network: TorchNetwork, state: Mapping[str, Any]) -> TorchNetwork:
    """The network with the weights and buffers of a state dict, by name.

    Args:
        network: from `mx.nets.from_torch`.
        state: arrays, or tensors of PyTorch, by name; all that the module has, and no others. Of those that share an
            array, one is enough.
    """
    known = {entry.key: entry for entry in network.entries}
    if unknown := sorted(set(state) - set(known)):
        raise ValueError(f"state has {', '.join(unknown[:5])}, which the module has not")
    given = {known[key].name: (known[key], _as_numpy(value)) for key, value in state.items()}
    if missing := [entry.key for entry in network.entries if entry.name not in given]:
        raise ValueError(f"state lacks {', '.join(missing[:5])}, which the module has")
    new: dict[str, Any] = {}
    for name, (entry, value) in given.items():
        if value.shape != entry.shape:
            raise ValueError(f"state must have {entry.key} of shape {entry.shape}, got {value.shape}")
        here = network.array(name)
        new[name] = jnp.asarray(value.astype(here.dtype)).reshape(here.shape)
    layers = {}
    for name, value in network.module:
        if is_layer(value):
            fields = {field: new.get(f"{name}/{field}") for field in ("weight", "bias")}
            layers[name] = _with_fields(value, {field: found for field, found in fields.items() if found is not None})
    buffers = FixedState(network.buffers.tree.replaced(new))
    return TorchNetwork(network.module.replaced(new | layers), buffers, network.graph, network.entries)


def _stored(network: TorchNetwork, entry: Entry) -> np.ndarray:
    value = np.asarray(network.array(entry.name))
    if value.size != int(np.prod(entry.shape)):
        raise ValueError(
            f"network must be one network, but {entry.key} has shape {value.shape} in place of {entry.shape}: of a "
            "stack of draws take one, jax.tree.map(lambda a: a[0], networks)"
        )
    return value.reshape(entry.shape).astype(jnp.dtype(entry.dtype))


def _with_fields(layer: Any, new: dict[str, Array]) -> Any:
    names = list(new)
    return eqx.tree_at(lambda at: [getattr(at, name) for name in names], layer, [new[name] for name in names])


def _as_numpy(value: Any) -> np.ndarray:
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.float() if str(value.dtype) == "torch.bfloat16" else value
    return np.asarray(value)
