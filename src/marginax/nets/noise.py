r"""Noise inside a network: one mechanism for dropout in all its forms, and for weights drawn anew for every example.

Each layer of a network may have a rule that says how it is disturbed: by a factor on its inputs (dropout, Gaussian
dropout), by a normal law of its outputs (local reparameterisation) or by weights with random signs (flipout). Noise is
drawn for a whole batch at once, with the examples last, and each layer is replaced by a stand-in that has its share.
"""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PRNGKeyArray, PyTree

from marginax._kernels.examples_last import call_batched, map_examples
from marginax._kernels.random import bits, derive, normal
from marginax.files import register
from marginax.nets.layers import Shapes, kind_of, layer_paths, layer_shapes, layers_of, replace_layers

_TINY = 1e-12


class AbstractNoise(eqx.Module):
    """How one layer is disturbed."""

    is_of_weights: ClassVar[bool] = False
    """Whether it is the weights that differ, whatever comes in: a layer may then be called any number of times."""

    @abc.abstractmethod
    def draw(self, layer: Any, shapes: Shapes, batch: tuple[int, ...], dtype: Any, *, key: PRNGKeyArray) -> PyTree:
        """Noise for a layer with these shapes of input and output; the examples, if there are several, come last."""

    @abc.abstractmethod
    def call(self, layer: Any, x: Array, noise: PyTree) -> Array:
        """The disturbed output of the layer for one example."""


class _StandIn(eqx.Module):
    layer: Any
    rule: AbstractNoise
    noise: PyTree

    def __call__(self, x: Array, *, key: Any = None) -> Array:
        return self.rule.call(self.layer, x, self.noise)

    def call_batch_last(self, xs: Array) -> Array:
        return jax.vmap(self, in_axes=-1, out_axes=-1)(xs)


class Perturbed(eqx.Module):
    """A network with noise in its layers; with a `key` of its own it is one network, drawn once and for all.

    Args:
        network: called per example.
        rules: one for each layer (see `layers_of`), None where nothing is disturbed; () leaves the noise to the
            network itself, which is then called with a key.
        key: if there is one, all examples share the noise that it gives: this is a function that can be drawn.

    >>> net = eqx.nn.MLP(3, 2, width_size=8, depth=1, key=jax.random.key(0))
    >>> noisy = Perturbed(net, (None, Dropout(0.5)), key=jax.random.key(1))
    >>> bool(jnp.all(noisy(jnp.ones(3)) == noisy(jnp.ones(3)))), bool(jnp.all(noisy(jnp.ones(3)) == net(jnp.ones(3))))
    (True, False)
    """

    network: Any
    rules: tuple[AbstractNoise | None, ...]
    key: Key[Array, "*stack"] | None = None

    def __check_init__(self):
        if self.rules and len(self.rules) != len(layers_of(self.network)):
            raise ValueError(f"rules must be one per layer ({len(layers_of(self.network))}), got {len(self.rules)}")

    def __call__(self, x: Array, *, key: PRNGKeyArray | None = None) -> Array:
        """Outputs of one example; without any key, of the undisturbed network."""
        key = self.key if key is None else key
        if key is None:
            return self.network(x)
        return self._fixed(x.shape, x.dtype, key)(x)

    def call_batch(self, xs: Array, *, key: PRNGKeyArray | None = None) -> Array:
        """Outputs of many examples: with a key, each with noise of its own; without, all with that of `self.key`."""
        if key is None:
            return call_batched(self.network if self.key is None else self._fixed(xs.shape[1:], xs.dtype, self.key), xs)
        if not self.rules:
            return call_batched(self.network, xs, key=key)
        noise = self._draw(xs.shape[1:], xs.dtype, xs.shape[:1], key)
        return map_examples(_call, (self.network, self.rules), xs, noise)

    def _fixed(self, x_shape: tuple[int, ...], dtype: Any, key: PRNGKeyArray) -> Any:
        if not self.rules:
            return _Keyed(self.network, key)
        return _disturb(self.network, self.rules, self._draw(x_shape, dtype, (), key))

    def _draw(self, x_shape: tuple[int, ...], dtype: Any, batch: tuple[int, ...], key: PRNGKeyArray) -> list[PyTree]:
        noise = []
        found = zip(self.rules, layers_of(self.network), layer_shapes(self.network, x_shape, dtype), strict=True)
        real = dtype if jnp.issubdtype(dtype, jnp.inexact) else jnp.result_type(float)  # of tokens, which are ints
        for i, (rule, layer, shapes) in enumerate(found):
            if rule is None:
                noise.append(None)
                continue
            if shapes is None and not rule.is_of_weights:
                path = layer_paths(self.network)[i]
                raise ValueError(
                    f"network must call each layer that is disturbed exactly once, but not so {path} (a layer "
                    "that is used twice, or never): give the network dropout of its own, or choose VI()"
                )
            noise.append(rule.draw(layer, shapes or ((), ()), batch, real, key=derive(key, i)))
        return noise


class _Keyed(eqx.Module):
    """A network that is random itself, with its key."""

    network: Any
    key: PRNGKeyArray

    def __call__(self, x: Array) -> Array:
        return self.network(x, key=self.key)


def _call(parts: tuple[Any, Any], x: Array, noise: list[PyTree]) -> Array:
    network, rules = parts
    return _disturb(network, rules, noise)(x)


def _disturb(network: Any, rules: tuple[AbstractNoise | None, ...], noise: list[PyTree]) -> Any:
    parts = zip(layers_of(network), rules, noise, strict=True)
    return replace_layers(network, [layer if rule is None else _StandIn(layer, rule, n) for layer, rule, n in parts])


# ---- factors on the inputs of a layer


@register("noise/dropout")
class Dropout(AbstractNoise):
    """Inputs are dropped with a probability, and the others grow so that the mean stays.

    Args:
        rate: probability of being dropped, in [0, 1).
    """

    rate: float | Array

    def draw(self, layer: Any, shapes: Shapes, batch: tuple[int, ...], dtype: Any, *, key: PRNGKeyArray) -> Array:
        return _kept(key, (*shapes[0], *batch), self.rate)

    def call(self, layer: Any, x: Array, noise: Array) -> Array:
        return layer(jnp.where(noise, x / (1.0 - self.rate), 0.0))


@register("noise/gaussian")
class GaussianFactor(AbstractNoise):
    r"""Inputs are multiplied by $N(m, s^2)$.

    Args:
        scale: $s$, a number or one per input (per channel of images).
        mean: $m$.
    """

    scale: float | Array
    mean: float | Array = 1.0

    def draw(self, layer: Any, shapes: Shapes, batch: tuple[int, ...], dtype: Any, *, key: PRNGKeyArray) -> Array:
        return normal(key, (*shapes[0], *batch), dtype)

    def call(self, layer: Any, x: Array, noise: Array) -> Array:
        """The layer on inputs that are too large or too small."""
        return layer(x * (per_channel(self.mean, x) + per_channel(self.scale, x) * noise))


@register("noise/concrete")
class ConcreteFactor(AbstractNoise):
    r"""Dropout by a relaxed coin, so that the rate can be learned (Gal, Hron & Kendall, 2017).

    Args:
        logit: of the probability of being dropped.
        temperature: of the relaxation; 0 would be a coin.
    """

    logit: Float[Array, "..."]
    temperature: float | Array = 0.1

    def draw(self, layer: Any, shapes: Shapes, batch: tuple[int, ...], dtype: Any, *, key: PRNGKeyArray) -> Array:
        first, _ = bits(key, (*shapes[0], *batch))
        u = ((first >> 8).astype(dtype) + 0.5) * np.float32(2.0**-24)
        return jnp.log(u) - jnp.log1p(-u)

    def call(self, layer: Any, x: Array, noise: Array) -> Array:
        """The layer on what is mostly kept or mostly dropped."""
        kept = jax.nn.sigmoid(-(self.logit + noise) / self.temperature)
        return layer(x * kept / jax.nn.sigmoid(-self.logit))


def _kept(key: PRNGKeyArray, shape: tuple[int, ...], rate: float | Array) -> Array:
    first, _ = bits(key, shape)
    return (first >> 8).astype(jnp.float32) >= jnp.asarray(rate * np.float32(2.0**24))


def per_channel(value: Any, x: Array) -> Any:
    """One value per input of a linear layer, per channel of an image."""
    return jnp.reshape(value, (-1,) + (1,) * (x.ndim - 1)) if jnp.ndim(value) else value


# ---- weights that are there or not


@register("noise/dropconnect")
class WeightDropout(AbstractNoise):
    """Weights are dropped with a probability, and the others grow so that the mean stays (DropConnect).

    One mask serves all examples.

    Args:
        rate: probability of being dropped, in [0, 1).
    """

    rate: float | Array

    def draw(self, layer: Any, shapes: Shapes, batch: tuple[int, ...], dtype: Any, *, key: PRNGKeyArray) -> Array:
        if batch:
            raise ValueError("WeightDropout has one mask for all examples: give the network a key of its own")
        return _kept(key, layer.weight.shape, self.rate)

    def call(self, layer: Any, x: Array, noise: Array) -> Array:
        """The layer with the weights that are kept."""
        weight = jnp.where(noise, layer.weight / (1.0 - self.rate), 0.0)
        return eqx.tree_at(lambda at: at.weight, layer, weight)(x)


# ---- independent weights for every example


class LocalNormal(AbstractNoise):
    r"""Outputs of a linear layer with independent normal weights (Kingma, Salimans & Welling, 2015).

    Given its input, an output has the law $N(\mu x + \mu_b, \; s^2 x^2 + s_b^2)$: one normal number per output
    stands for one per weight and example.

    Args:
        scale: a layer that holds standard deviations; None for weights that are fixed.
    """

    scale: Any

    def draw(self, layer: Any, shapes: Shapes, batch: tuple[int, ...], dtype: Any, *, key: PRNGKeyArray) -> Array:
        return normal(key, (*shapes[1], *batch), dtype)

    def call(self, layer: Any, x: Array, noise: Array) -> Array:
        variance = jnp.full((), _TINY, x.dtype)
        kind = kind_of(layer)
        assert kind is not None
        if self.scale.weight is not None:
            variance = variance + self.scale.weight**2 @ kind.inputs(layer, x)[0] ** 2
        if self.scale.bias is not None:
            variance = variance + self.scale.bias**2
        return layer(x) + jnp.sqrt(variance) * noise


class FlipoutPerturbation(AbstractNoise):
    r"""Flipout (Wen et al., 2018): one shift of the weights for all examples, each with random signs of its own.

    $y = \mu x + r \odot \Delta (s \odot x)$ with signs $s, r$ for inputs and outputs (channels of images): for each
    example the shift has the right law, and those of different examples are uncorrelated.

    Args:
        shift: a layer that holds the shift; None for weights that are fixed.
    """

    shift: Any

    def draw(
        self, layer: Any, shapes: Shapes, batch: tuple[int, ...], dtype: Any, *, key: PRNGKeyArray
    ) -> tuple[Array, Array]:
        signs = []
        for i, shape in enumerate(shapes):
            first, _ = bits(key, (*shape[:1], *(1 for _ in shape[1:]), *batch), stream=i)
            signs.append(jnp.where(first >> 31, 1.0, -1.0).astype(dtype))
        return signs[0], signs[1]

    def call(self, layer: Any, x: Array, noise: tuple[Array, Array]) -> Array:
        """The layer, and the shift with its signs."""
        signs, other = noise
        zeros = eqx.tree_at(
            lambda at: (at.weight, at.bias),
            layer,
            (
                jnp.zeros_like(layer.weight) if self.shift.weight is None else self.shift.weight,
                None if layer.bias is None else jnp.zeros_like(layer.bias),
            ),
            is_leaf=lambda node: node is None,
        )
        y = layer(x) + other * zeros(signs * x)
        return y if self.shift.bias is None else y + other * per_channel(self.shift.bias.ravel(), y)
