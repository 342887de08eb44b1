"""Normalisation without state, for arrays whose features come first and whose examples may come last.

The modules are Equinox's, which hold the weights; their own calls know nothing of an axis of examples.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def group_norm(
    norm: eqx.nn.GroupNorm, x: Float[Array, "channels height width *num"]
) -> Float[Array, "channels height width *num"]:
    """Group normalisation (Wu & He, 2018): mean 0 and variance 1 over the pixels of each group of channels.

    >>> norm = eqx.nn.GroupNorm(2, 4)
    >>> x = jax.random.normal(jax.random.key(0), (4, 5, 5))
    >>> bool(jnp.allclose(group_norm(norm, x), norm(x), atol=1e-5))
    True
    """
    grouped = x.reshape(norm.groups, -1, *x.shape[1:])
    flat = _standardise(grouped, (1, 2, 3), norm.eps).reshape(x.shape)
    return _affine(norm, flat)


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


def _affine(norm: eqx.nn.GroupNorm | eqx.nn.LayerNorm, x: Array) -> Array:
    after = tuple(range(1, x.ndim))
    if norm.weight is not None:
        x = x * jnp.expand_dims(norm.weight, after)
    return x if norm.bias is None else x + jnp.expand_dims(norm.bias, after)
