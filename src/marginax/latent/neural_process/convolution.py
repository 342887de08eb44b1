r"""Convolutional conditional neural processes (Gordon et al., 2020): what is said of a function moves with it.

The context becomes a density $\sum_i \psi(t - x_i)$ and a signal $\sum_i y_i \psi(t - x_i) / \sum_i \psi(t - x_i)$ on a
grid of $t$, with $\psi$ a Gaussian bump; a convolutional network follows, and each target reads the grid around it.

The grid is a lattice that goes through the leftmost point of the context, and so moves with it. It is wide enough that
no target sees its ends: what is said at a target depends on the context alone, not on the other targets.
"""

import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from marginax._keys import Key, as_key
from marginax.files import register
from marginax.latent.family import check_positive
from marginax.latent.mixture import check_num
from marginax.latent.neural_process.encoders import AbstractEncoder
from marginax.latent.neural_process.tasks import Points
from marginax.nets import Conv2d, Initialiser

_FIRST_LENGTH = 2.0  # of both bumps, in steps of the grid
_WINDOW = 12  # steps of the grid to each side that a target reads
_LEAST_DENSITY = 1e-5
_MOST_STEPS = 2**14
_ROUND_TO = 16  # few sizes of grids: few compilations


@register("latent/convolutional_encoder")
class ConvolutionalEncoder(AbstractEncoder):
    """A grid, a residual network of convolutions on it, and a reading of the grid at the targets.

    Args:
        y_size: columns of y; x has one.
        width: channels.
        num_layers: convolutions.
        kernel_size: of each, an odd number.
        points_per_unit: of the grid; a unit is the standard deviation of inputs within a task.
        key: seed or JAX key.
    """

    sees_inputs: ClassVar[bool] = False

    inward: Conv2d
    layers: tuple[Conv2d, ...]
    log_lengths: Float[Array, "*stack 2"]
    out_size: int = eqx.field(static=True)
    points_per_unit: float = eqx.field(static=True)
    grid_size: int | None

    def __init__(
        self,
        y_size: int = 1,
        width: int = 32,
        num_layers: int = 6,
        *,
        kernel_size: int = 7,
        points_per_unit: float = 16.0,
        key: Key,
    ):
        for name, value in (("width", width), ("num_layers", num_layers), ("kernel_size", kernel_size)):
            check_num(name, value)
        if kernel_size % 2 == 0:
            raise ValueError(f"kernel_size must be odd, so that a kernel has a middle, got {kernel_size}")
        check_positive("points_per_unit", points_per_unit)
        first, *rest = jax.random.split(as_key(key), num_layers + 1)
        self.inward = Conv2d(y_size + 1, width, 1, key=first)
        kernel, pad, gain = (1, kernel_size), (0, kernel_size // 2), Initialiser(1.0 / math.sqrt(num_layers))
        self.layers = tuple(Conv2d(width, width, kernel, padding=pad, initialiser=gain, key=k) for k in rest)
        self.log_lengths = jnp.zeros(2)
        self.out_size, self.points_per_unit, self.grid_size = width, float(points_per_unit), None

    def check(self, x_size: int) -> None:
        """A grid has one axis here."""
        if x_size != 1:
            raise ValueError(f"x_size must be 1 for convolutions along a line, got {x_size}: use AttentiveNP")

    @property
    def margin(self) -> int:
        """Steps of the grid beyond a target that matter to it."""
        return _WINDOW + sum(layer.weight.shape[-1] // 2 for layer in self.layers)

    def spanning(self, width: float) -> "ConvolutionalEncoder":
        steps = width * self.points_per_unit
        if not steps < _MOST_STEPS:
            raise ValueError(
                f"points_per_unit={self.points_per_unit:g} makes a grid of {steps:.3g} steps for inputs that lie "
                f"{width:.3g} units apart, more than {_MOST_STEPS}: use fewer, or shorter tasks"
            )
        size = math.ceil(steps) + 2 * self.margin + 2
        return eqx.tree_at(
            lambda e: e.grid_size, self, -(-size // _ROUND_TO) * _ROUND_TO, is_leaf=lambda leaf: leaf is None
        )

    def __call__(self, context: Points, x: Float[Array, "b m 1"]) -> Float[Array, "b m r"]:
        grid = self._grid(context, x[..., 0])
        length_in, length_out = _FIRST_LENGTH / self.points_per_unit * jnp.exp(self.log_lengths)
        bumps = jnp.exp(-0.5 * jnp.square((grid[:, :, None] - context.x[:, None, :, 0]) / length_in))
        bumps = bumps * context.mask[:, None]
        density = jnp.sum(bumps, -1, keepdims=True)
        signal = jnp.einsum("bgn,bnd->bgd", bumps, context.y) / (density + _LEAST_DENSITY)
        # bounded, so that many points in one place do not drown the signal
        features = self._convolve(jnp.concatenate([density / (1.0 + density), signal], -1))
        distance = jnp.abs(x - grid[:, None])
        near = distance * self.points_per_unit <= _WINDOW
        reading = jax.nn.softmax(jnp.where(near, -0.5 * jnp.square(distance / length_out), -jnp.inf), axis=-1)
        return jnp.einsum("bmg,bgr->bmr", reading, features)

    def _grid(self, context: Points, x: Float[Array, "b m"]) -> Float[Array, "b g"]:
        if self.grid_size is None:
            raise ValueError("the grid has no size yet: fit the model, or call spanning(width) of its encoder")
        step = 1.0 / self.points_per_unit
        inside = context.mask > 0
        anchor = jnp.min(jnp.where(inside, context.x[..., 0], jnp.inf), 1)
        anchor = jnp.where(jnp.isfinite(anchor), anchor, 0.0)
        lowest = jnp.min(x, 1)
        lowest = jnp.where(inside.any(1), jnp.minimum(anchor, lowest), lowest)
        start = anchor - step * (jnp.ceil((anchor - lowest) / step) + self.margin)
        return start[:, None] + step * jnp.arange(self.grid_size)

    def _convolve(self, values: Float[Array, "b g c"]) -> Float[Array, "b g r"]:
        h = jnp.transpose(values, (2, 1, 0))[:, None]  # an image of one row, with the examples last
        h = self.inward.call_batch_last(h)
        for layer in self.layers:
            h = h + layer.call_batch_last(jax.nn.relu(h))
        return jnp.transpose(h[:, 0], (2, 1, 0))
