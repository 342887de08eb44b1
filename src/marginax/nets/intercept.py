"""Outputs that do not depend on inputs."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from marginax.files import register


@register("net/intercept")
class Intercept(eqx.Module):
    """The same outputs for every example: class frequencies, a mean. Without inputs, x may be `np.zeros((n, 1))`.

    Args:
        out_size: number of outputs; they start at 0.

    >>> Intercept(3)(jnp.ones(1)).tolist()
    [0.0, 0.0, 0.0]
    """

    bias: Float[Array, " k"]

    def __init__(self, out_size: int):
        if isinstance(out_size, bool) or not isinstance(out_size, int) or out_size < 1:
            raise ValueError(f"out_size must be an int >= 1, got {out_size!r}")
        self.bias = jnp.zeros(out_size)

    def __call__(self, x: Any) -> Float[Array, " k"]:
        return self.bias
