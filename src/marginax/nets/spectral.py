r"""Layers that stretch no distance by more than a bound, and a network that keeps distances.

$W \mapsto W \min\big(1, c / \sigma(W)\big)$ with $\sigma$ the largest singular value. A residual block $h + g(h)$ whose
g is a contraction, $c < 1$, then moves no two points together: $(1 - c)\,|h - h'| \le |h + g(h) - h' - g(h')| \le
(1 + c)\,|h - h'|$, so that what is far from the data stays far in the features (SNGP; Liu et al., 2020).

The paper rescales the weights after every step of training, by one power iteration whose vector is carried along. Here
the norm is a function of the weights themselves, found anew in every pass by the equivalent of 200 power iterations:
there is no state, every method runs, and a draw of a sampler or a saved network obeys the bound like the trained one.
It costs less than a step of training on a batch of 128, once for a whole batch. Where the largest values nearly
tie, the norm may be found too small, by less than 1% for up to a thousand units.
"""

import math
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float, PRNGKeyArray

from marginax._kernels.examples_last import call_batched
from marginax._keys import Key, as_key
from marginax.files import register
from marginax.nets.adapters import reinitialise
from marginax.nets.arguments import check_activation, check_positive_ints
from marginax.nets.convolution import Conv2d, conv2d, conv2d_batch
from marginax.nets.initialisers import he
from marginax.nets.layers import is_layer
from marginax.nets.linear import Pointwise, linear

_NUM_SQUARINGS, _NUM_PRODUCTS = 2, 50  # 50 products with the fourth power of the Gram matrix


def spectral_norm(matrix: Float[Array, "rows columns"]) -> Float[Array, ""]:
    """The largest singular value, with its derivative where that is defined.

    >>> spectral_norm(jnp.diag(jnp.array([3.0, -4.0]))).round(4).item()
    4.0
    """
    fixed = stop_gradient(matrix)
    wide = matrix.shape[0] < matrix.shape[1]
    tiny = jnp.finfo(matrix.dtype).tiny

    def normalised(values: Array, size: Array) -> Array:
        return values / jnp.maximum(size, tiny)

    gram = fixed @ fixed.T if wide else fixed.T @ fixed
    for _ in range(_NUM_SQUARINGS):
        gram = normalised(gram, jnp.trace(gram))
        gram = gram @ gram
    gram = normalised(gram, jnp.trace(gram))
    start = gram[:, jnp.argmax(jnp.diag(gram))]  # a part of at least 1/n of it is what is sought

    def product(_: Any, vector: Array) -> Array:
        vector = gram @ vector
        return normalised(vector, jnp.linalg.norm(vector))

    one = jax.lax.fori_loop(0, _NUM_PRODUCTS, product, normalised(start, jnp.linalg.norm(start)))
    other = fixed.T @ one if wide else fixed @ one
    other = normalised(other, jnp.linalg.norm(other))
    return one @ matrix @ other if wide else other @ matrix @ one


@register("net/spectral_layer")
class SpectralLayer(eqx.Module):
    """A linear map or a convolution whose weight is scaled down to a norm of at most `bound`.

    Its weights are not those that multiply the inputs, so methods that look into layers treat them one by one, as
    weights that are in none.

    Args:
        weight: before it is scaled.
        bias: added to each output, or None.
        bound: c.
        window: stride and padding of a convolution; None for a linear map.
    """

    weight: Float[Array, "..."]
    bias: Float[Array, "..."] | None
    bound: float = eqx.field(static=True)
    window: Any = eqx.field(static=True, default=None)

    stands_for: ClassVar[tuple[type, ...]] = (eqx.nn.Linear, Pointwise, Conv2d)

    @classmethod
    def of(cls, layer: Any, bound: float) -> "SpectralLayer":
        """Of a layer that is known."""
        window = (layer.stride, layer.padding) if isinstance(layer, Conv2d) else None
        return cls(layer.weight, layer.bias, bound, window)

    @property
    def stretch(self) -> Float[Array, ""]:
        r"""No less than the norm of the map: exact for a linear one.

        For a convolution the norm of the matrix of its filters times the root of the number of patches that a pixel is
        in, $\\sqrt{\\lceil k_h / s_h \\rceil \\lceil k_w / s_w \\rceil}$.
        """
        norm = spectral_norm(self.weight.reshape(self.weight.shape[0], -1))
        if self.window is None:
            return norm
        kernel, stride = self.weight.shape[2:], self.window[0]
        return norm * math.sqrt(math.prod(-(-k // s) for k, s in zip(kernel, stride, strict=True)))

    @property
    def scaled(self) -> Float[Array, "out in *kernel"]:
        """The weight that multiplies inputs."""
        return self.weight * (self.bound / jnp.maximum(self.bound, self.stretch))

    def __call__(self, x: Float[Array, "in ..."], *, key: Array | None = None) -> Float[Array, "out ..."]:
        """The output for one example; `key` is ignored."""
        if self.window is not None:
            return conv2d(x, self.scaled, self.bias, stride=self.window[0], padding=self.window[1])
        y = jnp.tensordot(self.scaled, x, 1)
        return y if self.bias is None else y + jnp.expand_dims(self.bias, tuple(range(1, y.ndim)))

    def call_batch_last(self, xs: Float[Array, "in ... num"]) -> Float[Array, "out ... num"]:
        """The same for many examples along the last axis."""
        if self.window is not None:
            return conv2d_batch(xs, self.scaled, self.bias, stride=self.window[0], padding=self.window[1])
        return self(xs)


def _can_be_bounded(node: Any) -> bool:
    return isinstance(node, eqx.nn.Linear | Pointwise | Conv2d)


@register("net/spectral_normalised")
class SpectralNormalised(eqx.Module):
    """A network whose layers stretch no distance by more than a bound each. Give it the body, without the last layer.

    Args:
        network: its linear maps and convolutions (`Conv2d`) are bounded; others are refused by name.
        bound: c; below 1, the blocks of a `ResidualMLP` keep distances.

    >>> net = SpectralNormalised(ResidualMLP(2, 16, 3, key=0))
    >>> bool(max(layer.stretch * layer.bound / jnp.maximum(layer.bound, layer.stretch) for layer in net.layers) < 0.951)
    True
    """

    network: Any

    def __init__(self, network: Any, bound: float = 0.95):
        if not bound > 0:
            raise ValueError(f"bound must be > 0, got {bound}")
        nodes = jax.tree_util.tree_leaves_with_path(network, is_leaf=is_layer)
        for path, node in nodes:
            if is_layer(node) and not _can_be_bounded(node):
                name = jax.tree_util.keystr(path, simple=True, separator="/")
                raise ValueError(
                    f"network has {type(node).__name__} at {name}, whose norm is not known here: "
                    "use eqx.nn.Linear, mx.nets.Pointwise or mx.nets.Conv2d"
                )
        if not any(is_layer(node) for _, node in nodes):
            raise ValueError("network must have linear maps or convolutions, got none")
        self.network = jax.tree.map(
            lambda node: SpectralLayer.of(node, float(bound)) if is_layer(node) else node, network, is_leaf=is_layer
        )

    @property
    def layers(self) -> list[SpectralLayer]:
        """Those that are bounded, in the order of the network's fields."""
        nodes = jax.tree.leaves(self.network, is_leaf=lambda node: isinstance(node, SpectralLayer))
        return [node for node in nodes if isinstance(node, SpectralLayer)]

    def __call__(self, x: Float[Array, "..."], *, key: PRNGKeyArray | None = None) -> Float[Array, "..."]:
        """Outputs of one example."""
        return self.network(x) if key is None else self.network(x, key=key)

    def call_batch(self, xs: Float[Array, "n ..."], *, key: PRNGKeyArray | None = None) -> Float[Array, "n ..."]:
        """Outputs of many examples."""
        return call_batched(self.network, xs, key=key)

    @property
    def stochastic(self) -> bool:
        """Whether a key makes a difference."""
        return getattr(self.network, "stochastic", False)

    def reinitialise(self, key: PRNGKeyArray) -> "SpectralNormalised":
        """Fresh weights, each with the spread of those before; biases stay."""
        fresh: Any = reinitialise(_Plain(self.network), key=key)
        return eqx.tree_at(lambda net: net.network, self, fresh.tree)


class _Plain(eqx.Module):
    """A network without a `reinitialise` of its own, which would give other layers."""

    tree: Any


@register("net/residual_mlp")
class ResidualMLP(eqx.Module):
    r"""A linear map of the inputs, then blocks $h + a(W h + b)$ of one width.

    Args:
        in_size: number of inputs.
        width: of all blocks.
        depth: how many blocks.
        out_size: number of outputs, or None for the features after the last block.
        activation: jax.nn.relu, tanh or another elementwise function whose slope is at most 1.
        key: seed or JAX key.

    >>> ResidualMLP(2, 16, 3, out_size=1, key=0)(jnp.ones(2)).shape
    (1,)
    """

    inputs: eqx.nn.Linear
    blocks: tuple[eqx.nn.Linear, ...]
    output: eqx.nn.Linear | None
    activation: Callable[[Array], Array] = eqx.field(static=True)

    def __init__(
        self,
        in_size: int,
        width: int,
        depth: int,
        out_size: int | None = None,
        *,
        activation: Callable[[Array], Array] = jax.nn.relu,
        key: Key,
    ):
        check_positive_ints(in_size=in_size, width=width, depth=depth, out_size=1 if out_size is None else out_size)
        check_activation(activation)
        first, last, *keys = jax.random.split(as_key(key), depth + 2)
        self.activation = activation
        self.inputs = linear(he(), in_size, width, first)
        self.blocks = tuple(linear(he(), width, width, k) for k in keys)
        self.output = None if out_size is None else linear(he(), width, out_size, last)

    def __call__(self, x: Float[Array, " in_size"], *, key: Array | None = None) -> Float[Array, " out"]:
        """Outputs of one example; `key` is ignored."""
        h = self.inputs(x)
        for block in self.blocks:
            h = h + self.activation(block(h))
        return h if self.output is None else self.output(h)

    @property
    def stochastic(self) -> bool:
        """Never."""
        return False

    def reinitialise(self, key: Key) -> "ResidualMLP":
        """The same architecture with fresh weights."""
        width, in_size = self.inputs.weight.shape
        out_size = None if self.output is None else self.output.weight.shape[0]
        return ResidualMLP(in_size, width, len(self.blocks), out_size, activation=self.activation, key=key)
