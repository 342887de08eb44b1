"""The layers of a network: what they are, finding them, and putting others in their place.

A layer is a module whose weight multiplies its input, or patches of it. What noise, curvature and variational gradients
must know of a kind of layer is said once, in a `LayerKind`; `register_layer` makes another kind known to all of them.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.extend.core import get_opaque_trace_state
from jaxtyping import Array, Float, PyTree

from marginax.nets.convolution import Conv2d
from marginax.nets.linear import Pointwise
from marginax.nets.temporal import CausalConvolution

Shapes = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class LayerKind:
    """What must be known of a kind of layer; its modules have fields `weight` (out, in, ...) and `bias`.

    Args:
        cls: the class.
        inputs: (layer, input of one example) -> what the rows of the weight are multiplied with, a row for every place
            of the output.
        is_product: whether a layer of the class is the product of its weight with those inputs; if not, its weights are
            differentiated like any others.
        has_one_place: whether the outputs of an example share no weights, so that they can be drawn in place of the
            weights (local reparameterisation).
    """

    cls: type
    inputs: Callable[[Any, Array], Float[Array, "t i"]]
    is_product: Callable[[Any], bool] = lambda layer: True
    has_one_place: bool = False


_kinds: list[LayerKind] = []


def register_layer(kind: LayerKind) -> None:
    """Make a kind of layer known to dropout, variational inference, curvature and features."""
    _kinds.append(kind)


def kind_of(node: Any) -> LayerKind | None:
    """The kind of a layer; None for anything else."""
    return next((kind for kind in _kinds if isinstance(node, kind.cls)), None)


def is_layer(node: Any) -> bool:
    """Whether this is a layer whose weights multiply its input: linear, a convolution, or of a kind made known."""
    return kind_of(node) is not None


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


def layer_paths(network: PyTree) -> list[str]:
    """Names of the layers of a network, such as "layers/0", in the order of its fields.

    >>> layer_paths(eqx.nn.MLP(3, 2, width_size=8, depth=1, key=jax.random.key(0)))
    ['layers/0', 'layers/1']
    """
    nodes = jax.tree_util.tree_leaves_with_path(network, is_leaf=is_layer)
    return [jax.tree_util.keystr(path, simple=True, separator="/") for path, node in nodes if is_layer(node)]


class _Recorder(eqx.Module):
    layer: Any
    trace: Any = eqx.field(static=True)
    calls: list[tuple[Shapes, bool]] = eqx.field(static=True)

    def __call__(self, x: Array, *, key: Any = None) -> Array:
        y = self.layer(x)
        self.calls.append(((x.shape, y.shape), trace_now() == self.trace))
        return y


def trace_now() -> Any:
    """Says whether two places are under the same transformations (scan, vmap, jit)."""
    return get_opaque_trace_state(convention="nnx")


def _calls(network: Any, x_shape: tuple[int, ...], dtype: Any) -> list[list[tuple[Shapes, bool]]]:
    """For each layer, the shapes of its calls, and whether the network itself made them and not a loop inside it."""
    layers = layers_of(network)
    calls: list[list[tuple[Shapes, bool]]] = [[] for _ in layers]

    def record(x: Array) -> Any:
        trace = trace_now()
        recorders = [_Recorder(layer, trace, heard) for layer, heard in zip(layers, calls, strict=True)]
        return replace_layers(network, recorders)(x)

    eqx.filter_eval_shape(record, jax.ShapeDtypeStruct(x_shape, dtype))
    return calls


class _Listener(eqx.Module):
    """A layer that notes what comes in."""

    layer: Any
    heard: list[Array] = eqx.field(static=True)

    def __call__(self, x: Array, *, key: Any = None) -> Array:
        self.heard.append(x)
        return self.layer(x)


def last_layer_inputs(network: Any, xs: Array) -> Float[Array, "n f"]:
    """What comes into the layer that is called last, for a batch: the features that outputs are linear in.

    >>> net = eqx.nn.MLP(3, 2, width_size=8, depth=1, key=jax.random.key(0))
    >>> last_layer_inputs(net, jnp.ones((4, 3))).shape
    (4, 8)
    """

    def one(x: Array) -> Array:
        heard: list[Array] = []
        replace_layers(network, [_Listener(layer, heard) for layer in layers_of(network)])(x)
        return heard[-1].ravel()

    return jax.vmap(one)(xs)


def layer_shapes(network: Any, x_shape: tuple[int, ...], dtype: Any) -> list[Shapes | None]:
    """Shapes of input and output of every layer for one example; None for a layer that is not called exactly once.

    >>> layer_shapes(eqx.nn.MLP(3, 2, width_size=8, depth=1, key=jax.random.key(0)), (3,), float)
    [((3,), (8,)), ((8,), (2,))]
    """
    one = getattr(network, "one_view", network)  # of a network that is averaged over views: they share their noise
    return [heard[0][0] if len(heard) == 1 else None for heard in _calls(one, x_shape, dtype)]


def layers_in_loops(network: Any, x_shape: tuple[int, ...], dtype: Any) -> list[bool]:
    """Which layers are called inside a loop or a map of the network, where one call stands for many, or several times.

    >>> layer = eqx.nn.Linear(3, 2, key=jax.random.key(0))
    >>> layers_in_loops(eqx.nn.Lambda(layer), (3,), float)
    [False]
    """
    return [len(heard) > 1 or not all(here for _, here in heard) for heard in _calls(network, x_shape, dtype)]


# ---- the kinds that are known from the start


def patches(layer: Any, x: Array) -> Float[Array, "t i"]:
    """The patches of an image that a convolution sees, raveled as its weight is."""
    kernel, stride = layer.weight.shape[2:], layer.stride
    dilation = getattr(layer, "dilation", None) or (1,) * len(kernel)
    x = jnp.pad(x, [(0, 0), *layer.padding])
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    out = [(n - span) // s + 1 for n, span, s in zip(x.shape[1:], spans, stride, strict=True)]
    parts: list[Array] = []
    for offset in itertools.product(*(range(k) for k in kernel)):
        corner = [o * d for o, d in zip(offset, dilation, strict=True)]
        ends = [c + (n - 1) * s + 1 for c, n, s in zip(corner, out, stride, strict=True)]
        parts.append(jax.lax.slice(x, (0, *corner), (x.shape[0], *ends), (1, *stride)))
    stacked = jnp.stack(parts, axis=1)  # channels, kernel, places
    return stacked.reshape(x.shape[0] * len(parts), -1).T


def _whole(layer: Any, x: Array) -> Float[Array, "1 i"]:
    return x[None]


def _places(layer: Any, x: Array) -> Float[Array, "t i"]:
    return x.reshape(x.shape[0], -1).T


def _lagged(layer: Any, x: Array) -> Float[Array, "t i"]:
    return layer.lagged(x).T


def _is_vector_map(layer: Any) -> bool:
    return layer.in_features != "scalar" and layer.out_features != "scalar"


def _is_plain_convolution(layer: Any) -> bool:
    return layer.groups == 1 and layer.padding_mode == "ZEROS" and not isinstance(layer.padding, str)


register_layer(LayerKind(eqx.nn.Linear, _whole, _is_vector_map, has_one_place=True))
register_layer(LayerKind(eqx.nn.Conv, patches, _is_plain_convolution))
register_layer(LayerKind(Conv2d, patches))
register_layer(LayerKind(Pointwise, _places, is_product=lambda layer: not layer.ragged))
register_layer(LayerKind(CausalConvolution, _lagged, is_product=lambda layer: not layer.ragged))
