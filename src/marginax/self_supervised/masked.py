r"""Masked reconstruction (denoising autoencoders, Vincent et al., 2008; He et al., 2022): what is behind the mask?

$\sum_{j \in M} \log N(x_j \mid f(x_{\setminus M})_j, s^2)$ with a random set M of entries or patches. Every such term
is the log density of a part of a row given the rest of it, a composite likelihood: a sum over masks of conditional
densities that need not be those of any one distribution of the row.
"""

import math
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from jaxtyping import Key as KeyOf

from marginax._kernels.random import derive
from marginax.files import register
from marginax.model.distributions import Normal
from marginax.self_supervised.objective import AbstractObjective, check_number


@register("self_supervised/masked_reconstruction")
class MaskedReconstruction(AbstractObjective):
    """Some entries of a row are set to zero, and the network, with an output for each entry, says what they were.

    Args:
        fraction: of entries or patches that are hidden, in (0, 1): a fixed number of them, at random places.
        patch: height and width of square patches of an image (..., height, width), None for single entries.
        scale: standard deviation of an entry, in the units of the inputs.

    >>> keys = jax.random.split(jax.random.key(0), 3)
    >>> inputs = MaskedReconstruction(0.5).inputs(jnp.ones((3, 4)), keys)
    >>> inputs.sum((1, 2)).tolist()
    [2.0, 2.0, 2.0]
    """

    fraction: float = eqx.field(static=True, default=0.5)
    patch: int | None = eqx.field(static=True, default=None)
    scale: Any = 1.0

    compares_rows: ClassVar[bool] = False

    def __check_init__(self):
        if not 0 < self.fraction < 1:
            raise ValueError(f"fraction must be in (0, 1), got {self.fraction}")
        if self.patch is not None and (
            isinstance(self.patch, bool) or not isinstance(self.patch, int) or self.patch < 1
        ):
            raise ValueError(f"patch must be an int >= 1, or None for single entries, got {self.patch!r}")
        check_number("scale", self.scale, positive=True)

    def check(self, shape: tuple[int, ...], output_size: int) -> None:
        size, patch = math.prod(shape), self.patch
        if output_size != size:
            raise ValueError(
                f"network must give an output for each of the {size} entries of a row to reconstruct it, "
                f"got {output_size}"
            )
        if patch is not None and (len(shape) < 2 or shape[-2] % patch or shape[-1] % patch):
            raise ValueError(f"x must hold images whose sides are multiples of patch={patch}, got examples of {shape}")
        if np.prod(self._grid(shape)) < 2:
            raise ValueError(
                f"x must have two entries or patches in a row to hide one of them, got examples of {shape}"
            )

    def inputs(self, x: Float[Array, "b ..."], keys: KeyOf[Array, " b"]) -> Float[Array, "b views ..."]:
        return jnp.where(self.hidden(x.shape[1:], keys), 0.0, x)[:, None]

    def terms(
        self, outputs: Float[Array, "b views k"], x: Float[Array, "b ..."], keys: KeyOf[Array, " b"]
    ) -> Float[Array, " b"]:
        num = x.shape[0]
        hidden = self.hidden(x.shape[1:], keys).reshape(num, -1)
        each = Normal(outputs[:, 0], self.scale).log_prob(x.reshape(num, -1))
        return jnp.sum(jnp.where(hidden, each, 0.0), axis=1)

    def hidden(self, shape: tuple[int, ...], keys: KeyOf[Array, " b"]) -> Bool[Array, "b ..."]:
        """Which entries of each row are."""
        grid, patch = self._grid(shape), self.patch
        total = int(np.prod(grid))
        num = min(max(round(self.fraction * total), 1), total - 1)

        def one(key: Array) -> Array:
            order = jax.random.permutation(derive(key, 0), total)
            mask = (order < num).reshape(grid)
            if patch is not None:
                mask = jnp.repeat(jnp.repeat(mask, patch, axis=0), patch, axis=1)
            return jnp.broadcast_to(mask, shape)

        return jax.vmap(one)(keys)

    def _grid(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Of the things that are hidden or not; channels of an image are hidden together."""
        return shape if self.patch is None else (shape[-2] // self.patch, shape[-1] // self.patch)
