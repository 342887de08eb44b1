r"""Low-rank adapters (LoRA; Hu et al., 2022): a trained network, and a small change of its linear maps to be inferred.

$y = W x + b + \alpha\, B A x$ with A of r rows and B of r columns; W and b stay as they are. A and B are linear layers
one after the other, which methods know: a Laplace approximation has Kronecker factors of each (Yang et al., 2024,
"Bayesian low-rank adaptation"), variational inference draws their outputs.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from marginax._kernels.examples_last import call_batched
from marginax._kernels.random import derive
from marginax._keys import Key, as_key
from marginax.files import register
from marginax.nets.adapters import as_network
from marginax.nets.arguments import check_positive_ints
from marginax.nets.initialisers import lecun
from marginax.nets.layers import is_layer, layer_paths
from marginax.nets.linear import Pointwise, linear_batch_last


@register("net/low_rank_layer")
class LowRankLayer(eqx.Module):
    """A linear map that stays as it is, and a change of low rank.

    Args:
        adapter_in: A.
        adapter_out: B; zero at the start.
        layer: as it was.
        scale: alpha.
    """

    adapter_in: Any
    adapter_out: Any
    layer: Any
    scale: float = eqx.field(static=True)

    stands_for: ClassVar[tuple[type, ...]] = (eqx.nn.Linear, Pointwise)

    @classmethod
    def of(cls, layer: Any, rank: int, scale: float, key: PRNGKeyArray) -> "LowRankLayer":
        """With A at random."""
        num_out, num_in = layer.weight.shape
        first = _like(layer, lecun()((rank, num_in), key=key))
        return cls(first, _like(layer, jnp.zeros((num_out, rank))), layer, scale)

    def __call__(self, x: Float[Array, "in *places"], *, key: Array | None = None) -> Float[Array, "out *places"]:
        """The output for one example; `key` is ignored."""
        change = self.adapter_out(self.adapter_in(x))
        return self.layer(x) + self.scale * change  # last, so that its inputs are the features of the network

    def call_batch_last(self, xs: Float[Array, "in *places num"]) -> Float[Array, "out *places num"]:
        """The same for many examples along the last axis."""
        change = linear_batch_last(self.adapter_out, linear_batch_last(self.adapter_in, xs))
        return linear_batch_last(self.layer, xs) + self.scale * change

    @property
    def weight(self) -> Float[Array, "*stack out in"]:
        """The weight that the two make together."""
        return self.layer.weight + self.scale * (self.adapter_out.weight @ self.adapter_in.weight)

    @property
    def bias(self) -> Float[Array, "*stack out"] | None:
        """As it was."""
        return self.layer.bias

    @property
    def merged(self) -> Any:
        """One layer with that weight."""
        return eqx.tree_at(lambda layer: layer.weight, self.layer, self.weight)


def _like(layer: Any, weight: Float[Array, "out in"]) -> Any:
    """A layer of the same kind with this weight and without a bias."""
    num_out, num_in = weight.shape
    if isinstance(layer, Pointwise):
        make = lambda: Pointwise(num_in, num_out, use_bias=False, ragged=layer.ragged, key=0)  # noqa: E731
    else:
        make = lambda: eqx.nn.Linear(num_in, num_out, use_bias=False, key=jax.random.key(0))  # noqa: E731
    return eqx.tree_at(lambda at: at.weight, eqx.filter_eval_shape(make), weight)


def _can_be_adapted(node: Any) -> bool:
    if isinstance(node, eqx.nn.Linear):
        return node.in_features != "scalar" and node.out_features != "scalar"
    return isinstance(node, Pointwise)


def _is_adapted(node: Any) -> bool:
    return isinstance(node, LowRankLayer)


@register("net/low_rank_adapted")
class LowRankAdapted(eqx.Module):
    """A trained network whose only weights are low-rank changes of its linear maps; every other array stays.

    The prior is one of A and B: under the default prior a draw of the change of a weight has a standard deviation of
    about 7.8 times `scale` over the root of the number of inputs, where initial weights have 1 or 1.4.

    Args:
        network: any, such as a `Transformer`, an `MLP` or one of `mx.nets.from_torch`.
        rank: of each change.
        layers: patterns of the paths of layers to adapt (see `mx.nets.layer_paths`); by default every linear map.
        also: patterns of the paths of other weights that are inferred too, such as those of a new last layer.
        scale: alpha.
        key: seed or JAX key.

    >>> import marginax as mx
    >>> net = LowRankAdapted(mx.nets.MLP(4, (8,), 2, key=0), rank=2, key=1)
    >>> model = mx.Model(net, mx.likelihoods.Categorical())
    >>> [(leaf.path, leaf.shape) for leaf in model.leaves][:2]
    [('network/layers/0/adapter_in/weight', (2, 4)), ('network/layers/0/adapter_out/weight', (8, 2))]
    """

    network: Any
    also: tuple[str, ...] = eqx.field(static=True)

    def __init__(
        self,
        network: Any,
        rank: int,
        *,
        layers: Sequence[str] = ("*",),
        also: Sequence[str] = (),
        scale: float = 0.1,
        key: Key,
    ):
        check_positive_ints(rank=rank)
        if not scale > 0:
            raise ValueError(f"scale must be > 0, got {scale}")
        network, (layers, self.also) = as_network(network), (_patterns("layers", layers), _patterns("also", also))
        nodes = [node for node in jax.tree.leaves(network, is_leaf=is_layer) if is_layer(node)]
        paths = layer_paths(network)
        for pattern in layers:
            if not any(fnmatchcase(path, pattern) for path in paths):
                raise ValueError(f"layers pattern {pattern!r} matches no layer of the network; its layers are {paths}")
        chosen = [any(fnmatchcase(path, pattern) for pattern in layers) for path in paths]
        able = [_can_be_adapted(node) for node in nodes]
        for path, node, is_in, can in zip(paths, nodes, chosen, able, strict=True):
            if is_in and not can and layers != ("*",):
                raise ValueError(f"layers must be linear maps, but {path} is {type(node).__name__}")
        if not any(is_in and can for is_in, can in zip(chosen, able, strict=True)):
            raise ValueError(f"network has no linear map among its layers {paths}")
        new, start = [], as_key(key)
        for i, (node, is_in, can) in enumerate(zip(nodes, chosen, able, strict=True)):
            new.append(LowRankLayer.of(node, rank, float(scale), derive(start, i)) if is_in and can else node)
        others = iter(new)
        self.network = jax.tree.map(lambda node: next(others) if is_layer(node) else node, network, is_leaf=is_layer)
        for pattern, found in zip(self.also, self._found(), strict=True):
            if not found:
                raise ValueError(f"also pattern {pattern!r} matches no weight of the network")

    def __call__(self, x: Any, *, key: PRNGKeyArray | None = None) -> Array:
        """Outputs of one example."""
        return self.network(x) if key is None else self.network(x, key=key)

    def call_batch(self, xs: Any, *, key: PRNGKeyArray | None = None) -> Array:
        """Outputs of many examples."""
        return call_batched(self.network, xs, key=key)

    @property
    def stochastic(self) -> bool:
        """Whether a key makes a difference."""
        return getattr(self.network, "stochastic", False)

    def weight_flags(self) -> PyTree:
        """The tree with True at what is inferred: A, B, and what `also` names."""
        return jax.tree_util.tree_map_with_path(
            lambda path, leaf: eqx.is_inexact_array(leaf) and self._is_inferred(_name(path)), self
        )

    def merged(self) -> Any:
        """The network without adapters, their product added to its weights; of a stack of draws, a stack."""
        return jax.tree.map(lambda node: node.merged if _is_adapted(node) else node, self.network, is_leaf=_is_adapted)

    def reinitialise(self, key: PRNGKeyArray) -> "LowRankAdapted":
        """Fresh A, and B of zeros; the network stays."""
        nodes = [node for node in jax.tree.leaves(self.network, is_leaf=_is_adapted) if _is_adapted(node)]
        fresh = iter(
            LowRankLayer.of(node.layer, node.adapter_in.weight.shape[0], node.scale, derive(key, i))
            for i, node in enumerate(nodes)
        )
        new = jax.tree.map(lambda node: next(fresh) if _is_adapted(node) else node, self.network, is_leaf=_is_adapted)
        return eqx.tree_at(lambda net: net.network, self, new)

    def _is_inferred(self, path: str) -> bool:
        parts = path.split("/")
        adapter = len(parts) > 1 and parts[-2] in ("adapter_in", "adapter_out")
        return adapter or any(fnmatchcase(path.removeprefix("network/"), pattern) for pattern in self.also)

    def _found(self) -> list[bool]:
        leaves = jax.tree_util.tree_leaves_with_path(self.network)
        names = [_name(path) for path, leaf in leaves if eqx.is_inexact_array(leaf)]
        return [any(fnmatchcase(name, pattern) for name in names) for pattern in self.also]


def _patterns(argument: str, patterns: Any) -> tuple[str, ...]:
    if isinstance(patterns, str) or not all(isinstance(pattern, str) for pattern in patterns):
        raise TypeError(f"{argument} must be a sequence of glob patterns, got {patterns!r}")
    return tuple(patterns)


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")
