r"""Contexts and latents of sets: what bounds are made from, and weights of one example given a set.

Latents of a set stand side by side, the context first and then those of its examples; axes are (draw, set, latent).
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from marginax._kernels.random import derive
from marginax.latent.neural_process.process import divergence
from marginax.latent.neural_statistician.networks import NORMAL, StatisticianNetworks, draw_normal, log_normal
from marginax.latent.vae.entries import log_prob_of_entries
from marginax.latent.vae.inference import AbstractInference, Keys, draw_noise, hold
from marginax.latent.vae.latent_posteriors import Latents, LogProbs
from marginax.latent.vae.latent_priors import StandardNormal
from marginax.model.distributions import Normal
from marginax.model.likelihoods import AbstractLikelihood


class SetInference(AbstractInference):
    """Of some sets.

    Args:
        networks: with their weights.
        likelihood: of entries.
        unknowns: of the likelihood.
        x: examples by set.
        mask: 1 where there is an example.
        keys: of draws: one of all sets, or one of each.
        sizes: of contexts and of latents.
    """

    networks: StatisticianNetworks
    likelihood: AbstractLikelihood
    unknowns: dict[str, Any]
    x: Float[Array, "b n ..."]
    mask: Float[Array, "b n"]
    keys: Keys
    sizes: tuple[int, int] = eqx.field(static=True)
    features: Float[Array, "b n r"]
    output: Float[Array, "b m"]

    def __init__(
        self,
        networks: StatisticianNetworks,
        likelihood: AbstractLikelihood,
        unknowns: dict[str, Any],
        x: Float[Array, "b n ..."],
        mask: Float[Array, "b n"],
        *,
        keys: Keys,
        sizes: tuple[int, int],
    ):
        self.networks, self.likelihood, self.unknowns = networks, likelihood, unknowns
        self.x, self.mask, self.keys, self.sizes = x, mask, keys, sizes
        self.features = networks.features(x)
        self.output = networks.context(self.features, mask)

    def draw(self, num: int) -> tuple[Latents, LogProbs]:
        sets, most = self.mask.shape
        size = self.sizes[0] + most * self.sizes[1]
        c_noise, z_noise = self._split(draw_noise(NORMAL, self.keys, num, sets, size, self.x.dtype))
        c, _ = NORMAL.draw(self.output, c_noise)
        z = draw_normal(self._infer(self.networks, self.features, c), z_noise)
        found = jnp.concatenate([c, z.reshape(num, sets, -1)], axis=-1)
        return found, self._log_posterior(self.networks, self.features, self.output, found)

    def log_likelihood(self, z: Latents) -> LogProbs:
        c, z = self._split(z)
        output = self.networks.decode(self._for_each(c), z)
        entries = self.x.reshape(*self.mask.shape, -1)
        parts = jnp.sum(log_prob_of_entries(self.likelihood, output, entries, self.unknowns), axis=-1)
        return self._total(parts)

    def log_prior(self, z: Latents) -> LogProbs:
        c, z = self._split(z)
        of_context = log_normal(jnp.zeros((*c.shape[:-1], 2 * c.shape[-1]), c.dtype), c)
        return of_context + self._total(log_normal(self.networks.expect(self._for_each(c)), z))

    def held_log_posterior(self, z: Latents) -> LogProbs:
        fixed = hold(self.networks), jax.lax.stop_gradient(self.features), jax.lax.stop_gradient(self.output)
        return self._log_posterior(*fixed, z)

    def kl(self) -> Float[Array, "b d"]:
        """Divergences of each number of the context, and of the latents of each example at one draw of the context.

        Their sum is the divergence of all in expectation.
        """
        c, _ = self._split(self.draw(1)[0])
        of_context = NORMAL.kl(self.output, StandardNormal())
        assert of_context is not None
        belief, before = self._infer(self.networks, self.features, c), self.networks.expect(self._for_each(c))
        of_latents = self.mask * divergence(_as_normal(belief), _as_normal(before))[0]
        return jnp.concatenate([of_context, of_latents], axis=-1)

    def moments(self) -> tuple[Float[Array, "b d"], Float[Array, "b d"]]:
        """Of contexts alone."""
        return NORMAL.moments(self.output)

    def stream(self, i: int) -> "SetInference":
        keys = derive(self.keys, i) if self.keys.ndim == 0 else jax.vmap(lambda k: derive(k, i))(self.keys)
        more = (self.networks, self.likelihood, self.unknowns, self.x, self.mask)
        return SetInference(*more, keys=keys, sizes=self.sizes)

    # ---- parts

    def _split(self, z: Latents) -> tuple[Float[Array, "k b c"], Float[Array, "k b n e"]]:
        c, rest = z[..., : self.sizes[0]], z[..., self.sizes[0] :]
        return c, rest.reshape(*z.shape[:2], self.mask.shape[1], self.sizes[1])

    def _for_each(self, c: Float[Array, "k b d"]) -> Float[Array, "k b n d"]:
        return jnp.broadcast_to(c[:, :, None], (*c.shape[:2], self.mask.shape[1], c.shape[-1]))

    def _infer(self, networks: StatisticianNetworks, features: Array, c: Array) -> Float[Array, "k b n m"]:
        return networks.infer(jnp.broadcast_to(features, (c.shape[0], *features.shape)), self._for_each(c))

    def _log_posterior(self, networks: StatisticianNetworks, features: Array, output: Array, z: Latents) -> LogProbs:
        c, z = self._split(z)
        return NORMAL.log_prob(output, c) + self._total(log_normal(self._infer(networks, features, c), z))

    def _total(self, parts: Float[Array, "k b n"]) -> LogProbs:
        """Over the examples that there are."""
        return jnp.sum(jnp.where(self.mask > 0, parts, 0.0), axis=-1)


class PredictiveWeights(eqx.Module):
    r"""Weights whose mean is the density of a further example given a set, under the belief about its context.

    $w = p(x \mid z, c)\, \frac{p(z \mid c)}{q(z \mid x, c)}\, \frac{q(c \mid S)}{q(c \mid S \cup x)}$ with c from
    $q(c \mid S \cup x)$ and z from $q(z \mid x, c)$

    Rows have "x", one example each, and "given" and "mask", the examples of its set.
    """

    model: Any

    def log_weights(self, params: Any, rows: dict[str, Array], num: int, keys: Keys) -> LogProbs:
        """Log weights of draws, (draw, row)."""
        networks, (size, latent_size) = self.model.networks_of(params), self.model.sizes
        new, given, mask = networks.features(rows["x"][:, None]), networks.features(rows["given"]), rows["mask"]
        both = jnp.concatenate([given, new], axis=1), jnp.concatenate([mask, jnp.ones_like(mask[:, :1])], axis=1)
        before, proposal = networks.context(given, mask), networks.context(*both)
        noise = draw_noise(NORMAL, keys, num, mask.shape[0], size + latent_size, new.dtype)
        c, log_proposal = NORMAL.draw(proposal, noise[..., :size])
        belief = networks.infer(jnp.broadcast_to(new[:, 0], (num, *new[:, 0].shape)), c)
        z = draw_normal(belief, noise[..., size:])
        entries = rows["x"].reshape(mask.shape[0], -1)
        parts = log_prob_of_entries(self.model.likelihood, networks.decode(c, z), entries, params.likelihood)
        odds = NORMAL.log_prob(before, c) - log_proposal + log_normal(networks.expect(c), z) - log_normal(belief, z)
        return jnp.sum(parts, axis=-1) + odds

    def output_size(self, rows: dict[str, Array]) -> int:
        """What the decoder gives for an example."""
        return self.model.output_size({"x": rows["given"], "mask": rows["mask"]})

    @property
    def num_entries(self) -> int:
        """Of an example."""
        return self.model.num_entries


def _as_normal(output: Float[Array, "*n m"]) -> Normal:
    mean, log_scale = jnp.split(output, 2, axis=-1)
    return Normal(mean, jnp.exp(log_scale))
