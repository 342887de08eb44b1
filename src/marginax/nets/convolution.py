"""Two-dimensional convolution and pooling of images with the channels first, fast on CPUs.

Everything here takes one image and is meant for `jax.vmap`: over images, over the weights of many networks, or both.
How that is made fast, and why XLA's own convolutions are not used on CPUs, is told in `marginax._kernels.image_maps`.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from marginax._kernels import image_maps
from marginax._kernels.image_maps import Pads, Pair
from marginax._keys import Key, as_key
from marginax.files import register
from marginax.nets.initialisers import Initialiser, he

__all__ = ["Conv2d", "avg_pool2d", "conv2d", "conv2d_batch", "max_pool2d"]


def conv2d(
    x: Float[Array, "channels height width"],
    weight: Float[Array, "out_channels kernel_channels kernel_height kernel_width"],
    bias: Float[Array, " bias_size"] | None = None,
    *,
    stride: int | Pair = 1,
    padding: int | Pair | Pads = 0,
) -> Float[Array, "out_channels out_height out_width"]:
    """Cross-correlation of an image with a bank of filters.

    Args:
        x: the image, channels first.
        weight: the filters.
        bias: added to each output channel.
        stride: step between patches, one number or (vertical, horizontal).
        padding: zeros around the image: one number, (vertical, horizontal) or ((top, bottom), (left, right)).

    Returns:
        An image with one channel per filter.

    >>> conv2d(jnp.ones((1, 4, 4)), jnp.ones((1, 1, 3, 3))).tolist()
    [[[9.0, 9.0], [9.0, 9.0]]]
    """
    strides, pads = _pair("stride", stride, 1), _pads(padding)
    _check_fit(x.shape, weight.shape, bias, pads)
    y = image_maps.convolve(image_maps.frame(x), weight, bias, stride=strides, padding=pads)
    return image_maps.unframe(y)


def conv2d_batch(
    xs: Float[Array, "channels height width num"],
    weight: Float[Array, "out_channels kernel_channels kernel_height kernel_width"],
    bias: Float[Array, " bias_size"] | None = None,
    *,
    stride: int | Pair = 1,
    padding: int | Pair | Pads = 0,
) -> Float[Array, "out_channels out_height out_width num"]:
    """As `conv2d`, for many images that lie along the last axis, the layout in which the work is done.

    >>> conv2d_batch(jnp.ones((1, 4, 4, 7)), jnp.ones((2, 1, 3, 3))).shape
    (2, 2, 2, 7)
    """
    strides, pads = _pair("stride", stride, 1), _pads(padding)
    _check_fit(xs.shape[:-1], weight.shape, bias, pads)
    return image_maps.convolve(xs[None], weight, bias, stride=strides, padding=pads)[0]


def max_pool2d(
    x: Float[Array, "channels height width *num"], size: int | Pair
) -> Float[Array, "channels out_height out_width *num"]:
    """The maximum of each window of `size`, windows side by side; rows and columns left over are ignored.

    The gradient goes to the largest entry of a window, in equal parts if several tie for it (XLA's own rule gives
    all to the first of them). A further axis of examples may follow the width.

    >>> max_pool2d(jnp.arange(16.0).reshape(1, 4, 4), 2).tolist()
    [[[5.0, 7.0], [13.0, 15.0]]]
    """
    return image_maps.max_pool(x, _window(x, size))


def avg_pool2d(
    x: Float[Array, "channels height width *num"], size: int | Pair
) -> Float[Array, "channels out_height out_width *num"]:
    """The mean of each window of `size`, windows side by side; rows and columns left over are ignored.

    >>> avg_pool2d(jnp.arange(16.0).reshape(1, 4, 4), 2).tolist()
    [[[2.5, 4.5], [10.5, 12.5]]]
    """
    return image_maps.windows(x, _window(x, size), 1).mean((2, 4))


@register("net/conv2d")
class Conv2d(eqx.Module):
    """A convolutional layer on images of shape (channels, height, width).

    Args:
        in_channels: channels of the image.
        out_channels: number of filters.
        kernel_size: height and width of the filters, one number or a pair.
        stride: step between patches, one number or (vertical, horizontal).
        padding: zeros around the image: one number, (vertical, horizontal) or ((top, bottom), (left, right)).
        use_bias: whether each output channel has an additive constant.
        initialiser: of the weights, by default He's normal. Biases start at 0.
        key: seed or JAX key.

    >>> Conv2d(3, 8, kernel_size=5, padding=2, key=0)(jnp.ones((3, 28, 28))).shape
    (8, 28, 28)
    """

    weight: Float[Array, "*stack out_channels in_channels kernel_height kernel_width"]
    bias: Float[Array, "*stack out_channels"] | None
    stride: Pair = eqx.field(static=True)
    padding: Pads = eqx.field(static=True)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Pair,
        stride: int | Pair = 1,
        padding: int | Pair | Pads = 0,
        *,
        key: Key,
        use_bias: bool = True,
        initialiser: Initialiser | None = None,
    ):
        for name, value in (("in_channels", in_channels), ("out_channels", out_channels)):
            if not _is_int(value, 1):
                raise ValueError(f"{name} must be an int >= 1, got {value!r}")
        shape = (out_channels, in_channels, *_pair("kernel_size", kernel_size, 1))
        self.stride = _pair("stride", stride, 1)
        self.padding = _pads(padding)
        self.weight = (initialiser or he())(shape, key=as_key(key))
        self.bias = jnp.zeros(out_channels) if use_bias else None

    def __call__(
        self, x: Float[Array, "in_channels height width"], *, key: Array | None = None
    ) -> Float[Array, "out_channels out_height out_width"]:
        """The filtered image; `key` is ignored."""
        return conv2d(x, self.weight, self.bias, stride=self.stride, padding=self.padding)

    def call_batch_last(
        self, xs: Float[Array, "in_channels height width num"]
    ) -> Float[Array, "out_channels out_height out_width num"]:
        """The filtered images, when many images lie along the last axis."""
        return conv2d_batch(xs, self.weight, self.bias, stride=self.stride, padding=self.padding)


# ----------------------------------------------------------------------- checks


def _is_int(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _pair(name: str, value: Any, least: int) -> Pair:
    pair = (value, value) if isinstance(value, int) else value
    if not isinstance(pair, tuple | list) or len(pair) != 2 or not all(_is_int(v, least) for v in pair):
        raise ValueError(f"{name} must be an int >= {least} or a pair of them, got {value!r}")
    return pair[0], pair[1]


def _pads(padding: Any) -> Pads:
    if isinstance(padding, tuple | list) and len(padding) == 2 and not any(isinstance(p, int) for p in padding):
        return _pair("padding", padding[0], 0), _pair("padding", padding[1], 0)
    vertical, horizontal = _pair("padding", padding, 0)
    return (vertical, vertical), (horizontal, horizontal)


def _window(x: Array, size: int | Pair) -> Pair:
    pair = _pair("size", size, 1)
    if pair[0] > x.shape[1] or pair[1] > x.shape[2]:
        raise ValueError(f"size must be at most the height and width of x of shape {x.shape}, got {size!r}")
    return pair


def _check_fit(x: tuple[int, ...], weight: tuple[int, ...], bias: Array | None, padding: Pads) -> None:
    if x[0] != weight[1]:
        raise ValueError(f"x has {x[0]} channels but weight of shape {weight} takes {weight[1]}")
    if bias is not None and bias.shape != (weight[0],):
        raise ValueError(f"bias must have shape {(weight[0],)}, got {bias.shape}")
    if any(n + sum(p) < k for n, k, p in zip(x[1:], weight[2:], padding, strict=True)):
        raise ValueError(f"weight of shape {weight} is larger than x of shape {x} with padding {padding}")
