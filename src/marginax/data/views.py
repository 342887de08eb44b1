"""Several transformed views of one example: random ones, or ones that are spread evenly over what may be done."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from marginax._kernels.random import derive
from marginax.data.transforms import (
    AbstractTransform,
    Transforms,
    apply_transforms,
    draw_uniforms,
    num_in_orbit,
    spread_uniforms,
)


def check_num_views(transforms: Transforms, num_views: Any, *, least: int = 1) -> None:
    """Raise unless it is a number of views, or None for all members of a finite orbit."""
    if num_views is None:
        num_in_orbit(transforms)
    elif isinstance(num_views, bool) or not isinstance(num_views, int) or num_views < least:
        raise ValueError(f"num_views must be an int >= {least}, or None for a finite orbit, got {num_views!r}")


def views_of(
    transforms: Sequence[AbstractTransform],
    x: Float[Array, "..."],
    num_views: int | None,
    *,
    key: PRNGKeyArray | None = None,
    fresh: bool = True,
) -> Float[Array, "views ..."]:
    """Views of one example: random ones with a key, evenly spread ones without, all of them of a finite orbit.

    Args:
        transforms: applied in turn.
        x: the example.
        num_views: how many, None for all members of a finite orbit.
        key: for random ones.
        fresh: whether the key draws all of a view; if not, only the noise in it, which cannot be spread evenly.

    >>> from marginax.data.transforms import Flip
    >>> views_of((Flip(),), jnp.arange(3.0), None).tolist()
    [[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]
    """
    transforms = tuple(transforms)
    for transform in transforms:
        transform.check(x.shape)
    uniforms = spread_uniforms(transforms, num_views)
    noise = jax.random.key(0) if key is None else key
    keys = jax.vmap(lambda i: derive(noise, i))(np.arange(len(uniforms)))
    numbers = jnp.asarray(uniforms)
    if key is not None and fresh and num_views is not None:
        numbers, keys = jax.vmap(lambda k: draw_uniforms(transforms, k))(keys)
    return jax.vmap(lambda u, k: apply_transforms(transforms, x, u, k))(numbers, keys)
