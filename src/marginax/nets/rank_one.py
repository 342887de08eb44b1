r"""Layers that share their weights and differ by vectors (Wen, Tran & Ba, 2020; Dusenberry et al., 2020).

Each member of an ensemble has weights $W \circ s r^\top$: all share $W$, and each has factors $r$ of the inputs and
$s$ of the outputs (channels of images) of its own, so that $y = s \circ (W (r \circ x)) + b$. Examples of a batch may
belong to different members, and go through $W$ in one product all the same.
"""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from marginax._kernels.random import normal
from marginax.files import register
from marginax.nets.layers import Shapes, layer_paths, layers_of
from marginax.nets.noise import AbstractNoise, per_channel


@register("noise/rank_one")
class RankOneFactors(AbstractNoise):
    r"""A layer with factors on its inputs and outputs, known or normal, and a bias of its own.

    With an axis (member,) the examples of a batch belong to the members in turn; without, there is one member.

    Args:
        inputs: $r$, the mean of the factors of the inputs.
        outputs: $s$, the mean of the factors of the outputs.
        bias: in place of the layer's; None leaves that.
        input_scale: standard deviations of the factors of the inputs; None if those are known.
        output_scale: standard deviations of the factors of the outputs; None if those are known.
        first: the member that the first example of a batch belongs to; None for the first.

    >>> layer = eqx.nn.Linear(2, 1, key=jax.random.key(0))
    >>> factors = RankOneFactors(jnp.array([2.0, 0.5]), jnp.ones(1), jnp.array([3.0]))
    >>> bool(jnp.allclose(factors.applied_to(layer)(jnp.ones(2)), factors.call(layer, jnp.ones(2), factors.means())))
    True
    """

    inputs: Float[Array, "*member in"]
    outputs: Float[Array, "*member out"]
    bias: Float[Array, "*member out"] | None = None
    input_scale: Float[Array, "*member in"] | None = None
    output_scale: Float[Array, "*member out"] | None = None
    first: Int[Array, ""] | None = None

    is_of_weights: ClassVar[bool] = True

    def means(self) -> tuple[Array, Array, Array | None]:
        """What `draw` gives where the factors are known, for one member and one example."""
        return self.inputs, self.outputs, self.bias

    def draw(self, layer: Any, shapes: Shapes, batch: tuple[int, ...], dtype: Any, *, key: PRNGKeyArray) -> PyTree:
        """Factors of inputs, factors of outputs and bias, with the examples last."""
        member = self._members(batch, dtype) if batch else None

        def at(value: Array | None) -> Array | None:
            return value if value is None or member is None else value.T @ member

        def drawn(mean: Array, scale: Array | None, stream: int) -> Array | None:
            mean, scale = at(mean), at(scale)  # pyright: ignore[reportAssignmentType]
            return mean if scale is None else mean + scale * normal(key, mean.shape, dtype, stream=stream)

        return drawn(self.inputs, self.input_scale, 0), drawn(self.outputs, self.output_scale, 1), at(self.bias)

    def _members(self, batch: tuple[int, ...], dtype: Any) -> Float[Array, "member b"]:
        """Which member each example belongs to, as columns with a single 1: gathering is slow to differentiate."""
        num = self.inputs.shape[0]
        first = 0 if self.first is None else self.first
        return jax.nn.one_hot((first + jnp.arange(batch[0])) % num, num, axis=0, dtype=dtype)

    def call(self, layer: Any, x: Array, noise: tuple[Array, Array, Array | None]) -> Array:
        inputs, outputs, bias = noise
        if inputs.size == 1:  # as well a factor of all outputs, and then nobody asks how these depend on an image
            outputs = inputs * outputs
        else:
            x = per_channel(inputs, x) * x
        y = _without_bias(layer)(x)
        y, own = per_channel(outputs, y) * y, layer.bias if bias is None else bias
        return y if own is None else y + per_channel(own.ravel(), y)

    def applied_to(self, layer: Any) -> Any:
        """The layer with the weights and the bias of the member, at the mean of its factors."""
        inputs = self.inputs.reshape(1, -1, *(1 for _ in layer.weight.shape[2:]))
        layer = eqx.tree_at(
            lambda at: at.weight, layer, layer.weight * per_channel(self.outputs, layer.weight) * inputs
        )
        return self.with_bias(layer)

    def with_bias(self, layer: Any) -> Any:
        """The layer with the bias of the member alone."""
        if self.bias is None:
            return layer
        return eqx.tree_at(lambda at: at.bias, layer, self.bias.reshape(layer.bias.shape))


def _without_bias(layer: Any) -> Any:
    if layer.bias is None:
        return layer
    return eqx.tree_at(lambda at: at.bias, layer, jnp.zeros_like(layer.bias))


def rank_one_layers(network: Any, weights: PyTree) -> list[bool]:
    """Which layers get factors: those whose weight is random; an error that names a layer that cannot have them.

    Args:
        network: any.
        weights: its tree with None where weights are not random.

    >>> net = eqx.nn.MLP(3, 2, width_size=8, depth=1, key=jax.random.key(0))
    >>> rank_one_layers(net, eqx.filter(net, eqx.is_inexact_array))
    [True, True]
    """
    found = []
    for path, layer, random in zip(layer_paths(network), layers_of(network), layers_of(weights), strict=True):
        found.append(random.weight is not None)
        if found[-1] and not _has_channels(layer):
            raise ValueError(
                f"network must have layers with a weight for every pair of input and output, but {path} has "
                f"{_why_not(layer)}: fix its weights with mx.Model(subset=...), or choose DeepEnsemble()"
            )
    if not any(found):
        raise ValueError(
            "network has no layers with random weights that are known (eqx.nn.Linear, eqx.nn.Conv, mx.nets.Conv2d, "
            "mx.nets.Pointwise): make them known by mx.nets.register_layer, or choose DeepEnsemble()"
        )
    return found


def _has_channels(layer: Any) -> bool:
    return getattr(layer, "groups", 1) == 1 and "scalar" not in (_size(layer, "in"), _size(layer, "out"))


def _why_not(layer: Any) -> str:
    return "groups" if getattr(layer, "groups", 1) != 1 else "scalars"


def _size(layer: Any, side: str) -> Any:
    return getattr(layer, f"{side}_features", None)
