"""Starting values for weights of shape (out, in, ...)."""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from marginax._kernels.random import normal
from marginax.files import register


@register("net/initialiser")
class Initialiser(eqx.Module):
    r"""Normal weights with variance gain^2 / fan, where fan is the fan-in, or its mean with the fan-out.

    Args:
        gain: sqrt(2) keeps variances through ReLU (He et al., 2015), 1 through linear and tanh units.
        use_fan_out: average fan-in and fan-out (Glorot & Bengio, 2010).
    """

    gain: float = 1.0
    use_fan_out: bool = False

    def __check_init__(self):
        if not self.gain > 0:
            raise ValueError(f"gain must be > 0, got {self.gain}")

    def scale(self, shape: tuple[int, ...]) -> float:
        """Standard deviation of the weights."""
        receptive = math.prod(shape[2:])
        fan = shape[1] * receptive
        if self.use_fan_out:
            fan = (fan + shape[0] * receptive) / 2
        return self.gain / math.sqrt(fan)

    def __call__(self, shape: tuple[int, ...], *, key: PRNGKeyArray) -> Float[Array, "..."]:
        """A weight array."""
        return self.scale(shape) * normal(key, shape)


def he() -> Initialiser:
    """For ReLU and its smooth relatives."""
    return Initialiser(math.sqrt(2.0))


def glorot() -> Initialiser:
    """For tanh and logistic units."""
    return Initialiser(1.0, use_fan_out=True)


def lecun() -> Initialiser:
    """Unit gain on the fan-in."""
    return Initialiser(1.0)


def default_initialiser(activation: Callable[[Array], Array]) -> Initialiser:
    """The initialiser that suits an activation: Glorot's for tanh and logistic units, He's for others."""
    return glorot() if activation in (jnp.tanh, jax.nn.tanh, jax.nn.sigmoid) else he()
