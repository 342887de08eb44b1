"""Latents of some examples, as the encoder sees them: draws, densities and divergences, from which bounds are made."""

import abc
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from jaxtyping import Key as KeyOf

from marginax._kernels.random import derive
from marginax.latent.vae.entries import log_prob_of_entries
from marginax.latent.vae.latent_posteriors import Latents, LogProbs
from marginax.latent.vae.latent_priors import AbstractLatentPrior
from marginax.latent.vae.networks import Autoencoder, Extras
from marginax.model.likelihoods import AbstractLikelihood

Keys = KeyOf[Array, ""] | KeyOf[Array, " b"]  # one of all examples, which is cheap, or one of each
_DECODER, _ENCODER, _CONTEXT = 1, 2, 3  # streams of random numbers


class AbstractInference(eqx.Module):
    """What a bound is made from. Latents have axes (draw, example, latent)."""

    if TYPE_CHECKING:

        @property
        def keys(self) -> Keys: ...

    else:
        keys: eqx.AbstractVar[Keys]

    @abc.abstractmethod
    def draw(self, num: int) -> tuple[Latents, LogProbs]:
        """Latents of each example from the inference network, and their log densities under it."""

    @abc.abstractmethod
    def log_likelihood(self, z: Latents) -> LogProbs:
        """Log probability of what is observed of each example, given latents."""

    @abc.abstractmethod
    def log_prior(self, z: Latents) -> LogProbs:
        """Log density of latents before the example is seen."""

    @abc.abstractmethod
    def held_log_posterior(self, z: Latents) -> LogProbs:
        """Log density of latents under the inference network, whose weights are held fast in gradients."""

    @abc.abstractmethod
    def kl(self) -> Float[Array, "b d"] | None:
        """Divergence of latents from their prior, where there is a formula."""

    @abc.abstractmethod
    def moments(self) -> tuple[Float[Array, "b d"], Float[Array, "b d"]]:
        """Mean and standard deviation of latents."""

    def shifts(self) -> Float[Array, "b d"]:
        """Means of latents, from those of a prior that has a context and in units of its scales."""
        return self.moments()[0]

    @abc.abstractmethod
    def stream(self, i: int) -> "AbstractInference":
        """The same with other draws."""

    def log_weights(self, num: int) -> LogProbs:
        """Log weights of draws, whose mean weight is the density of the example in expectation."""
        z, log_prob = self.draw(num)
        return self.log_likelihood(z) + self.log_prior(z) - log_prob


class Inference(AbstractInference):
    """Of one layer of latents.

    Args:
        networks: with their weights.
        likelihood: of entries.
        unknowns: of the likelihood.
        x: examples, 0 where they are not observed.
        extras: "mask" and "context", where there are some, and what networks have made of contexts already.
        latent_size: number of latents.
        keys: of draws: one of all examples, or one of each.
    """

    networks: Autoencoder
    likelihood: AbstractLikelihood
    unknowns: dict[str, Any]
    x: Float[Array, "b ..."]
    extras: Extras
    latent_size: int = eqx.field(static=True)
    keys: Keys
    output: Float[Array, "b m"]
    latent_prior: AbstractLatentPrior

    def __init__(
        self,
        networks: Autoencoder,
        likelihood: AbstractLikelihood,
        unknowns: dict[str, Any],
        x: Float[Array, "b ..."],
        extras: Extras,
        *,
        latent_size: int,
        keys: Keys,
        output: Float[Array, "b m"] | None = None,
    ):
        self.networks = networks if keys.ndim == 0 else eqx.nn.inference_mode(networks)
        self.likelihood, self.unknowns, self.x = likelihood, unknowns, x
        self.latent_size, self.keys = latent_size, keys
        first, second = (None if keys.ndim else derive(keys, 0, stream=stream) for stream in (_ENCODER, _CONTEXT))
        self.output = self.networks.encode(x, extras, key=first) if output is None else output
        self.extras = self.networks.condition(extras, key=second)
        self.latent_prior = self.networks.prior_given(self.extras)

    def draw(self, num: int) -> tuple[Latents, LogProbs]:
        noise = draw_noise(
            self.networks.latent_posterior, self.keys, num, self.x.shape[0], self.latent_size, self.x.dtype
        )
        return self.networks.latent_posterior.draw(self.output, noise)

    def log_likelihood(self, z: Latents) -> LogProbs:
        num, size = z.shape[:2]
        seen = {name: self.extras[name] for name in ("context", "features") if name in self.extras}
        tiled = {name: jnp.broadcast_to(value, (num, *value.shape)) for name, value in seen.items()}
        flat = {name: value.reshape(num * size, *value.shape[2:]) for name, value in tiled.items()}
        key = None if self.keys.ndim else derive(self.keys, 0, stream=_DECODER)
        output = self.networks.decode(z.reshape(num * size, -1), flat, key=key)
        return observed_log_prob(self.likelihood, output.reshape(num, size, -1), self.x, self.extras, self.unknowns)

    def log_prior(self, z: Latents) -> LogProbs:
        return self.latent_prior.log_prob(z, self.networks)

    def held_log_posterior(self, z: Latents) -> LogProbs:
        family, output = hold(self.networks.latent_posterior), jax.lax.stop_gradient(self.output)
        return family.log_prob(output, z)

    def kl(self) -> Float[Array, "b d"] | None:
        return self.networks.latent_posterior.kl(self.output, self.latent_prior)

    def moments(self) -> tuple[Float[Array, "b d"], Float[Array, "b d"]]:
        return self.networks.latent_posterior.moments(self.output)

    def shifts(self) -> Float[Array, "b d"]:
        mean, before = self.moments()[0], self.latent_prior.normal()
        return mean if before is None else before.whiten(mean - before.mean)

    def stream(self, i: int) -> "Inference":
        keys = derive(self.keys, i) if self.keys.ndim == 0 else jax.vmap(lambda k: derive(k, i))(self.keys)
        more = (self.networks, self.likelihood, self.unknowns, self.x, self.extras)
        return Inference(*more, latent_size=self.latent_size, keys=keys, output=self.output)


def draw_noise(family: Any, keys: Keys, num: int, num_rows: int, size: int, dtype: Any) -> Latents:
    """What draws of latents are made from: a function of the key alone, or of the key of each example alone."""
    if keys.ndim == 0:
        return family.noise(keys, (num, num_rows, size), dtype)
    return jnp.swapaxes(jax.vmap(lambda key: family.noise(key, (num, size), dtype))(keys), 0, 1)


def observed_log_prob(
    likelihood: AbstractLikelihood, output: Float[Array, "k b m"], x: Array, extras: Extras, unknowns: dict[str, Any]
) -> LogProbs:
    """Log probability of the entries that are observed."""
    parts = log_prob_of_entries(likelihood, output, x.reshape(x.shape[0], -1), unknowns)
    if "mask" in extras:
        parts = jnp.where(extras["mask"].reshape(x.shape[0], -1) > 0, parts, 0.0)
    return jnp.sum(parts, axis=-1)


def hold(tree: Any) -> Any:
    """The same, held fast in gradients."""
    return jax.tree.map(lambda leaf: jax.lax.stop_gradient(leaf) if eqx.is_inexact_array(leaf) else leaf, tree)
