r"""The ladder autoencoder (Sønderby et al., 2016): several layers of latents, inferred from the top down.

$p(z) = p(z_L) \prod_{l<L} N(z_l \mid p_l(z_{l+1})), \quad x \mid z_1 \sim p(x \mid d(z_1))$

The encoder goes up, $h_l = e_l(h_{l-1})$, and gives a normal guess at every layer; on the way down the guess is
multiplied with the prior of the layer, precisions adding up, so that a layer has to say only what the layers above do
not know. Latents of all layers stand side by side, the lowest first.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from marginax._kernels.random import derive, normal
from marginax.files import register
from marginax.latent.mixture import check_num
from marginax.latent.vae.bounds import ELBO, AbstractBound
from marginax.latent.vae.generative import AbstractGenerative, check_parts, size_of_output
from marginax.latent.vae.inference import AbstractInference, Keys, draw_noise, hold, observed_log_prob
from marginax.latent.vae.latent_posteriors import DiagonalNormal, Latents, LogProbs
from marginax.latent.vae.networks import Extras, call_network
from marginax.latent.vae.queries import VAEQueries
from marginax.model.abstract import Params
from marginax.model.likelihoods import AbstractLikelihood, Bernoulli
from marginax.model.priors import AbstractPrior, default_prior
from marginax.model.subset import AbstractSubset, All
from marginax.nets import as_network, reinitialise

_NORMAL = DiagonalNormal()


@register("latent/ladder")
class Ladder(eqx.Module):
    """Networks up and down."""

    encoders: tuple[eqx.Module, ...]
    decoders: tuple[eqx.Module, ...]
    latent_sizes: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, x: Float[Array, "..."]) -> Float[Array, " k"]:
        """Outputs of the decoder for one example, at means of its latents."""
        z, _ = self.infer(self.climb(x[None]), jnp.zeros((1, 1, sum(self.latent_sizes))))
        return self.decode(z[0])[0]

    def climb(self, x: Float[Array, "b ..."]) -> list[Float[Array, "b m"]]:
        """Means and log scales that the encoder guesses for every layer."""
        guesses, h = [], x
        for encoder, size in zip(self.encoders, self.latent_sizes, strict=True):
            h = call_network(encoder, h, {}, key=None)
            guesses.append(h[:, : 2 * size])
        return guesses

    def split(self, z: Latents) -> list[Array]:
        """Latents by layer."""
        return jnp.split(z, np.cumsum(self.latent_sizes)[:-1].tolist(), axis=-1)

    def prior_of(self, layer: int, above: Array | None, like: Array) -> Float[Array, "k b m"]:
        """Means and log scales of a layer given the one above it; of the highest, those of a standard normal."""
        if above is None:
            return jnp.zeros((*like.shape[:-1], 2 * self.latent_sizes[layer]), like.dtype)
        found = call_network(self.decoders[layer + 1], above.reshape(-1, above.shape[-1]), {}, key=None)
        return found.reshape(*above.shape[:-1], -1)

    def infer(self, guesses: list[Array], noise: Latents) -> tuple[Latents, LogProbs]:
        """Latents from the highest layer down, and their log densities."""
        return self._down(guesses, noise, drawing=True)

    def log_posterior(self, guesses: list[Array], z: Latents) -> LogProbs:
        """Log density of latents under what is inferred."""
        return self._down(guesses, z, drawing=False)[1]

    def _down(self, guesses: list[Array], given: Latents, *, drawing: bool) -> tuple[Latents, LogProbs]:
        parts, total, above, found = self.split(given), 0.0, None, []
        for layer in reversed(range(len(parts))):
            output = combine(guesses[layer], self.prior_of(layer, above, given))
            flat, values = output.reshape(-1, output.shape[-1]), parts[layer].reshape(1, -1, parts[layer].shape[-1])
            z, log_prob = _NORMAL.draw(flat, values) if drawing else (values, _NORMAL.log_prob(flat, values))
            above, total = z.reshape(parts[layer].shape), total + log_prob.reshape(given.shape[:-1])
            found.append(above)
        return jnp.concatenate(found[::-1], axis=-1), jnp.asarray(total)

    def log_prior(self, z: Latents) -> LogProbs:
        """Log density of latents of all layers."""
        parts, total = self.split(z), jnp.zeros(z.shape[:-1], z.dtype)
        for layer in range(len(parts)):
            above = parts[layer + 1] if layer + 1 < len(parts) else None
            output = self.prior_of(layer, above, z)
            values = parts[layer].reshape(1, -1, parts[layer].shape[-1])
            log_prob = _NORMAL.log_prob(output.reshape(-1, output.shape[-1]), values)
            total = total + log_prob.reshape(z.shape[:-1])
        return total

    def generate(self, noise: Float[Array, "n d"]) -> Float[Array, "n d"]:
        """Latents of all layers from their prior."""
        parts, above, found = self.split(noise[None]), None, []
        for layer in reversed(range(len(parts))):
            mean, log_scale = jnp.split(self.prior_of(layer, above, noise[None]), 2, axis=-1)
            above = mean + jnp.exp(log_scale) * parts[layer]
            found.append(above)
        return jnp.concatenate(found[::-1], axis=-1)[0]

    def decode(self, z: Float[Array, "n d"]) -> Float[Array, "n k"]:
        """What the decoder says about entries: it sees the lowest layer."""
        return call_network(self.decoders[0], z[:, : self.latent_sizes[0]], {}, key=None)

    def reinitialise(self, key: PRNGKeyArray) -> "Ladder":
        """The same architecture with fresh weights."""
        up = tuple(reinitialise(net, key=derive(key, i)) for i, net in enumerate(self.encoders))
        down = tuple(reinitialise(net, key=derive(key, i, stream=1)) for i, net in enumerate(self.decoders))
        return Ladder(up, down, self.latent_sizes)


def combine(guess: Float[Array, "b m"], prior: Float[Array, "k b m"]) -> Float[Array, "k b m"]:
    """The normal law whose density is the product of two: precisions add up, means are weighed by them."""
    (mean, log_scale), (prior_mean, prior_log_scale) = jnp.split(guess, 2, axis=-1), jnp.split(prior, 2, axis=-1)
    # the share of the guess, by log scales, so that neither a wide nor a narrow one overflows
    share = jax.nn.sigmoid(2 * (prior_log_scale - log_scale))
    middle = share * mean + (1 - share) * prior_mean
    return jnp.concatenate([middle, log_scale + 0.5 * jnp.log(share)], axis=-1)


class LadderInference(AbstractInference):
    """Latents of all layers of some examples."""

    ladder: Ladder
    likelihood: AbstractLikelihood
    unknowns: dict[str, Any]
    x: Float[Array, "b ..."]
    extras: Extras
    keys: Keys

    @property
    def _guesses(self) -> list[Array]:
        return self.ladder.climb(self.x)

    def _noise(self, num: int) -> Latents:
        size = sum(self.ladder.latent_sizes)
        return draw_noise(_NORMAL, self.keys, num, self.x.shape[0], size, self.x.dtype)

    def draw(self, num: int) -> tuple[Latents, LogProbs]:
        return self.ladder.infer(self._guesses, self._noise(num))

    def log_likelihood(self, z: Latents) -> LogProbs:
        output = self.ladder.decode(z.reshape(-1, z.shape[-1])).reshape(*z.shape[:-1], -1)
        return observed_log_prob(self.likelihood, output, self.x, self.extras, self.unknowns)

    def log_prior(self, z: Latents) -> LogProbs:
        return self.ladder.log_prior(z)

    def held_log_posterior(self, z: Latents) -> LogProbs:
        return hold(self.ladder).log_posterior(jax.lax.stop_gradient(self._guesses), z)

    def kl(self) -> None:
        """Without a formula, as layers depend on draws of those above."""

    def moments(self) -> tuple[Float[Array, "b d"], Float[Array, "b d"]]:
        """Means, those of lower layers at the means of the ones above; scales over draws."""
        mean, _ = self.ladder.infer(self._guesses, jnp.zeros((1, self.x.shape[0], sum(self.ladder.latent_sizes))))
        return mean[0], jnp.std(self.draw(50)[0], axis=0)

    def stream(self, i: int) -> "LadderInference":
        keys = derive(self.keys, i) if self.keys.ndim == 0 else jax.vmap(lambda k: derive(k, i))(self.keys)
        return LadderInference(self.ladder, self.likelihood, self.unknowns, self.x, self.extras, keys)


@register("latent/ladder_vae")
class LadderVAE(AbstractGenerative):
    """A VAE with several layers of latents.

    Posteriors have what those of a `VAE` have. Networks are called without dropout.

    Args:
        encoders: networks upwards, one for each layer: the first from an example, every other from all outputs of the
            one before it. The first 2 x latent_size outputs of each are the mean and log scale that it guesses.
        decoders: networks downwards, one for each layer: the first from the lowest latents to what `likelihood` reads,
            every other from the latents of its layer to mean and log scale of those of the layer below.
        latent_sizes: of the layers, the lowest first.
        likelihood: of the entries, as for `VAE`.
        bound: as for `VAE`; divergences come from draws.
        prior: of all weights, as in `mx.Model`.
        subset: which weights are random.
        x_shape: of an example; known from the data.

    >>> import marginax as mx
    >>> up = mx.nets.MLP(4, (8,), 12, key=0), mx.nets.MLP(12, (8,), 2, key=1)
    >>> down = mx.nets.MLP(2, (8,), 4, key=2), mx.nets.MLP(1, (8,), 4, key=3)
    >>> x = np.random.default_rng(0).random((100, 4)) < [0.9, 0.9, 0.1, 0.1]
    >>> ladder = mx.fit(mx.latent.LadderVAE(up, down, (2, 1)), x, mx.infer.MAP(num_epochs=1), key=0)
    >>> ladder.generate(3, key=0).shape, ladder.encode(x).mean.shape
    ((3, 4), (100, 3))
    """

    encoders: tuple[eqx.Module, ...]
    decoders: tuple[eqx.Module, ...]
    latent_sizes: tuple[int, ...] = eqx.field(static=True)
    likelihood: AbstractLikelihood
    bound: AbstractBound
    prior: AbstractPrior
    subset: AbstractSubset
    x_shape: tuple[int, ...] | None = eqx.field(static=True)

    queries: ClassVar[type] = VAEQueries
    names: ClassVar[tuple[str, ...]] = ("x", "mask")
    has_continuous_latents: ClassVar[bool] = True

    def __init__(
        self,
        encoders: Sequence[Any],
        decoders: Sequence[Any],
        latent_sizes: Sequence[int],
        *,
        likelihood: AbstractLikelihood | None = None,
        bound: AbstractBound | None = None,
        prior: AbstractPrior | None = None,
        subset: AbstractSubset | None = None,
        x_shape: tuple[int, ...] | None = None,
    ):
        """Check that the pieces are what they should be; the data are checked when they come."""
        for size in latent_sizes:
            check_num("latent_sizes", size)
        if not len(encoders) == len(decoders) == len(latent_sizes) >= 1:
            raise ValueError(
                "encoders, decoders and latent_sizes must have one of each layer, got "
                f"{len(encoders)}, {len(decoders)} and {len(latent_sizes)}"
            )
        self.encoders, self.decoders = tuple(map(as_network, encoders)), tuple(map(as_network, decoders))
        self.latent_sizes, self.x_shape = tuple(latent_sizes), x_shape
        self.likelihood = Bernoulli() if likelihood is None else likelihood
        self.bound = ELBO() if bound is None else bound
        self.prior = default_prior() if prior is None else prior
        self.subset = All() if subset is None else subset
        check_parts(likelihood=(self.likelihood, AbstractLikelihood), bound=(self.bound, AbstractBound))
        if self.bound.needs_kl:
            raise ValueError("free_bits needs a formula for the divergence of each latent, which a ladder has not")

    @property
    def networks(self) -> Ladder:
        return Ladder(self.encoders, self.decoders, self.latent_sizes)

    def _ladder(self, params: Params) -> Any:
        return eqx.nn.inference_mode(self.core.network_of(params))

    def inference(self, params: Params, rows: Extras, keys: Keys) -> LadderInference:
        extras = {name: value for name, value in rows.items() if name == "mask"}
        return LadderInference(self._ladder(params), self.likelihood, params.likelihood, rows["x"], extras, keys)

    def decode(self, params: Params, z: Float[Array, "n d"], rows: Extras) -> Float[Array, "n k"]:
        return self._ladder(params).decode(z)

    def draw_latents(self, params: Params, num: int, rows: Extras, *, key: PRNGKeyArray) -> Float[Array, "num d"]:
        return self._ladder(params).generate(normal(key, (num, sum(self.latent_sizes))))

    def output_sizes(self, rows: Extras) -> tuple[int, int]:
        x, sizes = rows["x"], self.latent_sizes
        for i, (net, size) in enumerate(zip(self.encoders, sizes, strict=True)):
            inputs = f"x of shape {x.shape[1:]}" if i == 0 else f"{x.shape[-1]} outputs of encoders[{i - 1}]"
            found = size_of_output(f"encoders[{i}]", partial(call_network, net, x, {}, key=None), inputs)
            if found < 2 * size:
                raise ValueError(f"encoders[{i}] gives {found} outputs, but {size} latents need at least {2 * size}")
            x = jnp.zeros((x.shape[0], found))
        last = 0
        for i, (net, size) in enumerate(zip(self.decoders, sizes, strict=True)):
            call = partial(call_network, net, jnp.zeros((2, size)), {}, key=None)
            if i == 0:
                last = size_of_output("decoders[0]", call, f"{size} latents")
            else:
                reader = f"mean and log scale of {sizes[i - 1]} latents"
                size_of_output(f"decoders[{i}]", call, f"{size} latents", 2 * sizes[i - 1], reader)
        return 2 * sizes[0], last

    def adapted_to_rows(self, rows: dict[str, np.ndarray]) -> "LadderVAE":
        return replace(self, x_shape=np.asarray(rows["x"]).shape[1:])
