"""The networks of a model with an encoder and a decoder, called on batches."""

import inspect
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from marginax._kernels.examples_last import call_batched
from marginax._kernels.random import derive
from marginax.files import register
from marginax.latent.vae.latent_posteriors import AbstractLatentPosterior
from marginax.latent.vae.latent_priors import AbstractLatentPrior
from marginax.nets import reinitialise, takes_key

Extras = dict[str, Array]  # what networks may see besides: "context", "mask"


@register("latent/autoencoder")
class Autoencoder(eqx.Module):
    """Encoder, decoder, and what is trained of the distributions of latents.

    Called on one example, it gives what the decoder says at the mean of its latents.
    """

    encoder: eqx.Module
    decoder: eqx.Module
    latent_posterior: AbstractLatentPosterior
    latent_prior: AbstractLatentPrior

    def __call__(self, x: Float[Array, "..."]) -> Float[Array, " k"]:
        """Outputs of the decoder for one example."""
        mean, _ = self.latent_posterior.moments(self.encode(x[None]))
        return self.decode(mean)[0]

    def encode(
        self, x: Float[Array, "b ..."], extras: Extras | None = None, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "b m"]:
        """What the encoder says about examples."""
        seen = {name: value for name, value in (extras or {}).items() if name in ("context", "mask")}
        return call_network(self.encoder, x, seen, key=key)

    def condition(self, extras: Extras, *, key: PRNGKeyArray | None = None) -> Extras:
        """Extras, and what networks make of contexts alone, once for all latents that are drawn.

        "latent_prior" is what the network of a conditional prior says, "features" what the decoder makes of a context
        before it combines it with latents, if it has methods `features` and `combine`.
        """
        found = {"latent_prior": self._prior_output(extras, key), "features": self._features(extras, key)}
        return extras | {name: value for name, value in found.items() if value is not None}

    def prior_given(self, extras: Extras) -> AbstractLatentPrior:
        """That of latents, given contexts."""
        return self.latent_prior.given(self._prior_output(extras, None))

    def decode(
        self, z: Float[Array, "n d"], extras: Extras | None = None, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "n k"]:
        """What the decoder says about entries, given latents."""
        extras = extras or {}
        features = self._features(extras, key)
        if features is not None:
            return self.decoder.combine(z, features).reshape(z.shape[0], -1)  # pyright: ignore
        return call_network(self.decoder, z, {k: v for k, v in extras.items() if k == "context"}, key=key)

    def _prior_output(self, extras: Extras, key: PRNGKeyArray | None) -> Array | None:
        network = getattr(self.latent_prior, "network", None)
        if "latent_prior" in extras or network is None or "context" not in extras:
            return extras.get("latent_prior")
        return call_network(network, extras["context"], {}, key=key)

    def _features(self, extras: Extras, key: PRNGKeyArray | None) -> Array | None:
        if "features" in extras or not hasattr(self.decoder, "combine") or "context" not in extras:
            return extras.get("features")
        return self.decoder.features(extras["context"], key=key)  # pyright: ignore

    def reinitialise(self, key: PRNGKeyArray) -> "Autoencoder":
        """The same architecture with fresh weights."""
        parts = (self.encoder, self.decoder, self.latent_posterior, self.latent_prior)
        return Autoencoder(*(reinitialise(part, key=derive(key, i)) for i, part in enumerate(parts)))  # pyright: ignore


def call_network(network: Any, inputs: Array, extras: Extras, *, key: PRNGKeyArray | None) -> Float[Array, "n k"]:
    """Outputs of a network for many inputs, a vector for each.

    A network whose call has an argument `context` or `mask` is given it; else a context is put behind the input.
    """
    asked = inspect.signature(type(network).__call__).parameters
    passed = {name: value for name, value in extras.items() if name in asked}
    if "context" in extras and "context" not in passed:
        parts = [part.reshape(part.shape[0], -1) for part in (inputs, extras["context"])]
        inputs = jnp.concatenate(parts, axis=1)
    keyed = key is not None and takes_key(network) and getattr(network, "stochastic", True)
    if passed:
        keys = jax.random.split(key, inputs.shape[0]) if keyed and key is not None else None

        def call(x: Array, more: Extras, key: Any) -> Array:
            return network(x, **more) if key is None else network(x, **more, key=key)

        output = jax.vmap(call, in_axes=(0, 0, None if keys is None else 0))(inputs, passed, keys)
    else:
        output = call_batched(network, inputs, key=key if keyed else None)
    return output.reshape(output.shape[0], -1)
