"""A U-Net that sees latents before its last convolutions: the decoder of a probabilistic U-Net."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from marginax._keys import Key, as_key
from marginax.files import register
from marginax.nets import UNet
from marginax.nets.arguments import check_positive_ints
from marginax.nets.convolution import Conv2d
from marginax.nets.initialisers import default_initialiser, lecun
from marginax.nets.linear import Pointwise


@register("latent/latent_unet")
class LatentUNet(eqx.Module):
    """Latents, broadcast to maps, join the last feature maps of a U-Net of an image; convolutions of 1x1 follow.

    The first of these is linear in features and latents: what it makes of features is the output of the U-Net, and what
    it makes of latents is one number for each map. So the U-Net runs once for all latents of an image.

    Args:
        in_shape: (channels, height, width) of an image, as for `UNet`.
        channels: of each level, from the largest images to the smallest.
        latent_size: number of latents.
        num_convolutions: of 1x1, at least 2, the last of which gives the outputs.
        out_channels: of the outputs.
        activation: jax.nn.relu, gelu, tanh or another elementwise function.
        groups: of channels that are normalised together, as for `UNet`.
        first_output: where the biases of the outputs start.
        key: seed or JAX key.

    >>> net = LatentUNet((1, 16, 16), (8, 16), latent_size=3, key=0)
    >>> net(jnp.ones(3), jnp.ones((1, 16, 16))).shape
    (1, 16, 16)
    """

    unet: UNet
    latents: Pointwise
    convolutions: tuple[Conv2d, ...]
    activation: Callable[[Array], Array] = eqx.field(static=True)
    first_output: float = eqx.field(static=True)

    def __init__(
        self,
        in_shape: tuple[int, int, int],
        channels: Sequence[int],
        latent_size: int,
        *,
        num_convolutions: int = 3,
        out_channels: int = 1,
        activation: Callable[[Array], Array] = jax.nn.relu,
        groups: int | None = 8,
        first_output: float = 0.0,
        key: Key,
    ):
        check_positive_ints(latent_size=latent_size, num_convolutions=num_convolutions)
        if num_convolutions < 2:
            raise ValueError(f"num_convolutions must be >= 2, as the first sees latents, got {num_convolutions}")
        first, second, *keys = jax.random.split(as_key(key), num_convolutions + 1)
        width, initialiser = next(iter(channels)), default_initialiser(activation)
        self.unet = UNet(in_shape, channels, width, activation=activation, groups=groups, key=first)
        self.latents = Pointwise(latent_size, width, use_bias=False, key=second)
        inner = [Conv2d(width, width, 1, initialiser=initialiser, key=each) for each in keys[:-1]]
        last = Conv2d(width, out_channels, 1, initialiser=lecun(), key=keys[-1])
        last = eqx.tree_at(lambda layer: layer.bias, last, jnp.full(out_channels, float(first_output)))
        self.convolutions = (*inner, last)
        self.activation, self.first_output = activation, float(first_output)

    def __call__(self, z: Float[Array, " d"], context: Float[Array, "..."]) -> Float[Array, "out _ _"]:
        """Outputs for one image at latents."""
        return self.combine(z[None], self.features(context[None]))[0]

    def features(self, context: Float[Array, "n ..."], *, key: Any = None) -> Float[Array, "n width _ _"]:
        """What the first convolution of 1x1 makes of the feature maps of images."""
        return self.unet.call_batch(context.reshape(-1, *self.unet.in_shape))

    def combine(self, z: Float[Array, "n d"], features: Float[Array, "n width _ _"]) -> Float[Array, "n out _ _"]:
        """Outputs for images with these features at latents."""
        h = jnp.moveaxis(features, 0, -1) + self.latents(z.T)[:, None, None]
        for layer in self.convolutions:
            h = layer.call_batch_last(self.activation(h))
        return jnp.moveaxis(h, -1, 0)

    def reinitialise(self, key: Key) -> "LatentUNet":
        """The same architecture with fresh weights."""
        return LatentUNet(
            self.unet.in_shape,
            tuple(level.convolutions[0].weight.shape[0] for level in self.unet.down),
            self.latents.weight.shape[1],
            num_convolutions=len(self.convolutions) + 1,
            out_channels=self.convolutions[-1].weight.shape[0],
            activation=self.activation,
            groups=self.unet.groups,
            first_output=self.first_output,
            key=key,
        )
