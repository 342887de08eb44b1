"""Normalisation without state, for arrays whose features come first and whose examples may come last.

The modules of group and layer normalisation are Equinox's, which hold the weights; their own calls know nothing of an
axis of examples. `normalisation=` of a network takes an `AbstractNormalisation`, which makes such modules.
"""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from marginax.files import register
from marginax.nets.arguments import check_positive_ints


@register("net/filter_response_norm")
class FilterResponseNorm(eqx.Module):
    r"""Filter-response normalisation (Singh & Krishnan, 2020): $\gamma x / \sqrt{\nu^2 + \epsilon} + \beta$ by channel.

    $\nu^2$ is the mean square over the pixels of one channel of one image; no mean is taken off.

    Args:
        channels: of the images.
        eps: $\epsilon$.

    >>> norm = FilterResponseNorm(3)
    >>> norm(jnp.full((3, 4, 4), 2.0))[:, 0, 0].round(3).tolist()
    [1.0, 1.0, 1.0]
    """

    weight: Float[Array, "*stack channels"]
    bias: Float[Array, "*stack channels"]
    eps: float = eqx.field(static=True)

    def __init__(self, channels: int, eps: float = 1e-6):
        check_positive_ints(channels=channels)
        if not eps > 0:
            raise ValueError(f"eps must be > 0, got {eps}")
        self.weight, self.bias, self.eps = jnp.ones(channels), jnp.zeros(channels), float(eps)

    def __call__(self, x: Float[Array, "channels height width *num"]) -> Float[Array, "channels height width *num"]:
        """One image, or many along the last axis."""
        return _affine(self, x * jax.lax.rsqrt((x**2).mean((1, 2), keepdims=True) + self.eps))


@register("net/thresholded_linear")
class ThresholdedLinear(eqx.Module):
    r"""The thresholded linear unit (Singh & Krishnan, 2020): $\max(x, \tau)$, with a threshold for each channel.

    Args:
        channels: of the images; thresholds start at 0, as a ReLU.
    """

    threshold: Float[Array, "*stack channels"]

    def __init__(self, channels: int):
        check_positive_ints(channels=channels)
        self.threshold = jnp.zeros(channels)

    def __call__(self, x: Float[Array, "channels *places"]) -> Float[Array, "channels *places"]:
        """One image, or many along the last axis."""
        return jnp.maximum(x, jnp.expand_dims(self.threshold, tuple(range(1, x.ndim))))


class AbstractNormalisation(eqx.Module):
    """Which normalisation the convolutions of a network have."""

    @abc.abstractmethod
    def layer(self, channels: int) -> Any:
        """The module that normalises images of so many channels."""

    @abc.abstractmethod
    def unit(self, channels: int) -> ThresholdedLinear | None:
        """The activation that belongs to it, if that has weights; None for a ReLU."""

    def check_sizes(self, in_shape: tuple[int, ...], smallest: tuple[int, ...]) -> None:
        """Raise if there are images, of so many rows and columns, that cannot be normalised."""


@register("net/group_normalisation")
class GroupNormalisation(AbstractNormalisation):
    """Group normalisation (Wu & He, 2018).

    Args:
        groups: of channels that are normalised together; each layer's number of channels is a multiple of it.

    >>> GroupNormalisation(4).layer(8).groups
    4
    """

    groups: int = eqx.field(static=True, default=8)

    def __check_init__(self):
        check_positive_ints(groups=self.groups)

    def layer(self, channels: int) -> eqx.nn.GroupNorm:
        if channels % self.groups:
            raise ValueError(f"groups must divide all numbers of channels, here {channels}, got {self.groups}")
        return eqx.nn.GroupNorm(self.groups, channels)

    def unit(self, channels: int) -> None:
        return None


@register("net/filter_response")
class FilterResponse(AbstractNormalisation):
    """Filter-response normalisation (Singh & Krishnan, 2020), with thresholded linear units in place of ReLUs."""

    def layer(self, channels: int) -> FilterResponseNorm:
        return FilterResponseNorm(channels)

    def unit(self, channels: int) -> ThresholdedLinear:
        return ThresholdedLinear(channels)

    def check_sizes(self, in_shape: tuple[int, ...], smallest: tuple[int, ...]) -> None:
        if max(smallest) == 1:
            raise ValueError(
                f"in_shape must be larger for FilterResponse(), got {in_shape}: the last images have one pixel, of "
                "which the sign alone would be left; use GroupNormalisation()"
            )


def check_normalisation(normalisation: Any) -> None:
    """Raise unless this is a normalisation without state, with the remedy for one that has it."""
    if not isinstance(normalisation, AbstractNormalisation):
        raise TypeError(
            "normalisation must be an object such as mx.nets.GroupNormalisation() or mx.nets.FilterResponse(), got "
            f"{type(normalisation).__name__}: batch normalisation mixes the examples of a batch and has running "
            "statistics, so that a draw of the weights would be no function of its input; a module that was trained "
            "with it can be brought by mx.nets.from_torch, its statistics held fixed"
        )


def normalise(norm: Any, x: Float[Array, "channels height width *num"]) -> Float[Array, "channels height width *num"]:
    """By a module that an `AbstractNormalisation` made."""
    return group_norm(norm, x) if isinstance(norm, eqx.nn.GroupNorm) else norm(x)


def activate(unit: Callable[[Array], Array] | None, activation: Callable[[Array], Array], x: Array) -> Array:
    """The unit with weights where there is one, else the activation."""
    return activation(x) if unit is None else unit(x)


def group_norm(
    norm: eqx.nn.GroupNorm, x: Float[Array, "channels height width *num"]
) -> Float[Array, "channels height width *num"]:
    """Group normalisation (Wu & He, 2018): mean 0 and variance 1 over the pixels of each group of channels.

    >>> norm = eqx.nn.GroupNorm(2, 4)
    >>> x = jax.random.normal(jax.random.key(0), (4, 5, 5))
    >>> bool(jnp.allclose(group_norm(norm, x), norm(x), atol=1e-5))
    True
    """

    def mean(x: Array) -> Array:  # by channel first: a reduction over one axis more is many times slower on CPUs
        by_group = x.mean((1, 2)).reshape(norm.groups, -1, *x.shape[3:]).mean(1)
        return jnp.repeat(by_group, x.shape[0] // norm.groups, axis=0)[:, None, None]

    centred = x - mean(x)
    return _affine(norm, centred * jax.lax.rsqrt(mean(centred**2) + norm.eps))


def layer_norm(norm: eqx.nn.LayerNorm, x: Float[Array, "features *places"]) -> Float[Array, "features *places"]:
    """Layer normalisation (Ba, Kiros & Hinton, 2016): mean 0 and variance 1 over the features at each place.

    >>> norm = eqx.nn.LayerNorm(4)
    >>> x = jax.random.normal(jax.random.key(0), (4, 3))
    >>> bool(jnp.allclose(layer_norm(norm, x)[:, 1], norm(x[:, 1]), atol=1e-5))
    True
    """
    return _affine(norm, _standardise(x, (0,), norm.eps))


def _standardise(x: Array, axes: tuple[int, ...], eps: float) -> Array:
    centred = x - x.mean(axes, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(axes, keepdims=True) + eps)


def _affine(norm: Any, x: Array) -> Array:
    after = tuple(range(1, x.ndim))
    if norm.weight is not None:
        x = x * jnp.expand_dims(norm.weight, after)
    return x if norm.bias is None else x + jnp.expand_dims(norm.bias, after)
