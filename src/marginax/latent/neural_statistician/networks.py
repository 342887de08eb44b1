"""The five networks of a neural statistician, called on many sets."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from marginax._kernels.random import derive
from marginax.files import register
from marginax.latent.neural_process.encoders import masked_mean
from marginax.latent.vae.latent_posteriors import DiagonalNormal
from marginax.latent.vae.networks import call_network
from marginax.nets import reinitialise

NORMAL = DiagonalNormal()


@register("latent/neural_statistician_networks")
class StatisticianNetworks(eqx.Module):
    """What is known about a normal law is its means, then its log standard deviations.

    Called on one set, it gives what the decoder says at the means of context and latents.
    """

    encoder: eqx.Module
    statistic: eqx.Module
    latent_encoder: eqx.Module
    latent_prior: eqx.Module
    decoder: eqx.Module

    def __call__(self, x: Float[Array, "n ..."]) -> Float[Array, "n m"]:
        """Outputs of the decoder for the examples of one set."""
        features = self.features(x[None])
        c, _ = NORMAL.moments(self.context(features, jnp.ones((1, x.shape[0]))))
        each = jnp.broadcast_to(c[:, None], (1, x.shape[0], c.shape[-1]))
        z, _ = jnp.split(self.infer(features, each), 2, axis=-1)
        return self.decode(each, z)[0]

    def features(self, x: Float[Array, "b n ..."]) -> Float[Array, "b n r"]:
        """What the encoder says about each example of each set."""
        flat = x.reshape(-1, *x.shape[2:])
        return call_network(self.encoder, flat, {}, key=None).reshape(*x.shape[:2], -1)

    def context(self, features: Float[Array, "b n r"], mask: Float[Array, "b n"]) -> Float[Array, "b m"]:
        """The belief about the context of each set: a function of the mean over its examples, and of their number."""
        count = jnp.log(jnp.maximum(jnp.sum(mask, 1, keepdims=True), 1.0))
        pooled = jnp.concatenate([masked_mean(features, mask), count], axis=-1)
        return call_network(self.statistic, pooled, {}, key=None)

    def infer(self, features: Float[Array, "*n r"], c: Float[Array, "*n d"]) -> Float[Array, "*n m"]:
        """The belief about latents of examples, given the context."""
        return _call(self.latent_encoder, features, c)

    def expect(self, c: Float[Array, "*n d"]) -> Float[Array, "*n m"]:
        """The law of latents of examples that have not been seen, given the context."""
        return _call(self.latent_prior, c)

    def decode(self, c: Float[Array, "*n d"], z: Float[Array, "*n e"]) -> Float[Array, "*n m"]:
        """What the decoder says about entries of examples."""
        return _call(self.decoder, z, c)

    def reinitialise(self, key: PRNGKeyArray) -> "StatisticianNetworks":
        """The same architecture with fresh weights."""
        parts = (self.encoder, self.statistic, self.latent_encoder, self.latent_prior, self.decoder)
        return StatisticianNetworks(*(reinitialise(part, key=derive(key, i)) for i, part in enumerate(parts)))


def _call(network: eqx.Module, *inputs: Array) -> Array:
    """Of inputs side by side, with any leading axes."""
    joined = jnp.concatenate(inputs, axis=-1)
    return call_network(network, joined.reshape(-1, joined.shape[-1]), {}, key=None).reshape(*joined.shape[:-1], -1)


def log_normal(output: Float[Array, "*n m"], z: Float[Array, "*n d"]) -> Float[Array, "*n"]:
    """Log density of vectors, each under a normal law of its own."""
    flat = NORMAL.log_prob(output.reshape(-1, output.shape[-1]), z.reshape(1, -1, z.shape[-1]))
    return flat.reshape(z.shape[:-1])


def draw_normal(output: Float[Array, "*n m"], noise: Float[Array, "*n d"]) -> Float[Array, "*n d"]:
    """A vector of each of these normal laws."""
    mean, log_scale = jnp.split(output, 2, axis=-1)
    return mean + jnp.exp(log_scale) * noise
