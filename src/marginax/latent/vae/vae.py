r"""Variational autoencoders (Kingma & Welling, 2014; Rezende, Mohamed & Wierstra, 2014).

$z \sim p(z), \quad x \mid z \sim p(x \mid d_\theta(z)), \quad q_\phi(z \mid x)$ from the encoder

Both networks are trained to maximise a lower bound of $\sum_i \log p(x_i)$. Conditional where data have contexts, which
encoder and decoder see (Sohn, Lee & Yan, 2015); entries that a mask leaves out drop out of the likelihood, and are 0
for the encoder (Mattei & Frellsen, 2019).
"""

from dataclasses import replace
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from marginax.files import register
from marginax.latent.mixture import check_num
from marginax.latent.vae.bounds import ELBO, AbstractBound
from marginax.latent.vae.conditional_prior import ConditionalPrior
from marginax.latent.vae.generative import AbstractGenerative, check_parts, size_of_output
from marginax.latent.vae.inference import Inference, Keys
from marginax.latent.vae.latent_posteriors import AbstractLatentPosterior, DiagonalNormal, StraightThrough
from marginax.latent.vae.latent_priors import AbstractLatentPrior, StandardNormal, UniformClasses, VampPrior
from marginax.latent.vae.networks import Autoencoder, Extras
from marginax.latent.vae.queries import VAEQueries
from marginax.model.abstract import Params
from marginax.model.likelihoods import AbstractLikelihood, Bernoulli
from marginax.model.priors import AbstractPrior, default_prior
from marginax.model.subset import AbstractSubset, All
from marginax.nets import as_network


@register("latent/vae")
class VAE(AbstractGenerative):
    """A decoder from latents to examples, and an encoder back.

    Data are an array of examples, or a dict with "x" and of these what there is: "mask", True where an entry is
    observed, and "context", numbers that encoder and decoder see besides. Posteriors have `encode`, `reconstruct`,
    `generate`, `interpolate`, `traverse`, `log_likelihood`, `complete`, `ood_scores` and `collapse`.

    Args:
        encoder: a network from an example (and its context behind it, or as argument `context`) to what
            `latent_posterior` reads: twice `latent_size` numbers.
        decoder: a network from latents (and the context) to what `likelihood` reads for all entries.
        latent_size: number of latents.
        likelihood: of the entries: of `mx.likelihoods`, or `mx.latent.ContinuousBernoulli()`, or
            `mx.latent.SharedScale(mx.likelihoods.Gaussian())`, whose width is one for all entries.
        bound: `ELBO()`, `IWAE(50)`, `MIWAE()` or `Renyi()`.
        latent_prior: `StandardNormal()`, `MixtureOfNormals(10)`, `VampPrior(500)`, or `ConditionalPrior(network)` for
            latents that depend on the context.
        latent_posterior: `DiagonalNormal()`, `FullNormal()`, `CouplingFlow()` or `StraightThrough(num_classes)`.
        prior: of all weights, as in `mx.Model`.
        subset: which weights are random, as in `mx.Model`: `mx.Paths("decoder/*")` for a Bayesian decoder and an
            encoder that stays as it is.
        x_shape: of an example; known from the data.

    >>> import marginax as mx
    >>> x = np.random.default_rng(0).random((200, 4)) < [0.9, 0.9, 0.1, 0.1]
    >>> encoder, decoder = mx.nets.MLP(4, (16,), 4, key=0), mx.nets.MLP(2, (16,), 4, key=1)
    >>> vae = mx.fit(mx.latent.VAE(encoder, decoder, latent_size=2), x, mx.infer.MAP(num_epochs=1), key=0)
    >>> vae.generate(16, key=1).shape, vae.reconstruct(x).shape, vae.encode(x).mean.shape
    ((16, 4), (200, 4), (200, 2))
    """

    encoder: eqx.Module
    decoder: eqx.Module
    latent_size: int = eqx.field(static=True)
    likelihood: AbstractLikelihood
    bound: AbstractBound
    latent_prior: AbstractLatentPrior
    latent_posterior: AbstractLatentPosterior
    prior: AbstractPrior
    subset: AbstractSubset
    x_shape: tuple[int, ...] | None = eqx.field(static=True)

    queries: ClassVar[type] = VAEQueries

    def __init__(
        self,
        encoder: Any,
        decoder: Any,
        latent_size: int,
        *,
        likelihood: AbstractLikelihood | None = None,
        bound: AbstractBound | None = None,
        latent_prior: AbstractLatentPrior | None = None,
        latent_posterior: AbstractLatentPosterior | None = None,
        prior: AbstractPrior | None = None,
        subset: AbstractSubset | None = None,
        x_shape: tuple[int, ...] | None = None,
    ):
        """Check that the pieces are what they should be; the data are checked when they come."""
        check_num("latent_size", latent_size)
        self.encoder, self.decoder = as_network(encoder), as_network(decoder)
        self.latent_size, self.x_shape = latent_size, x_shape
        self.likelihood = Bernoulli() if likelihood is None else likelihood
        self.bound = ELBO() if bound is None else bound
        latent_prior = StandardNormal() if latent_prior is None else latent_prior
        latent_posterior = DiagonalNormal() if latent_posterior is None else latent_posterior
        self.prior = default_prior() if prior is None else prior
        self.subset = All() if subset is None else subset
        check_parts(
            likelihood=(self.likelihood, AbstractLikelihood),
            bound=(self.bound, AbstractBound),
            latent_prior=(latent_prior, AbstractLatentPrior),
            latent_posterior=(latent_posterior, AbstractLatentPosterior),
        )
        self.latent_prior = latent_prior.bound_to(latent_size)
        self.latent_posterior = latent_posterior.bound_to(latent_size)
        check_latents(self.latent_posterior, self.latent_prior, self.bound, latent_size)
        _ = self.core  # checks prior and subset

    @property
    def networks(self) -> Autoencoder:
        return Autoencoder(self.encoder, self.decoder, self.latent_posterior, self.latent_prior)

    @property
    def has_continuous_latents(self) -> bool:
        return self.latent_posterior.is_continuous

    def networks_of(self, params: Params) -> Any:
        """All networks with these weights."""
        return self.core.network_of(params)

    def inference(self, params: Params, rows: Extras, keys: Keys) -> Inference:
        extras = {name: value for name, value in rows.items() if name != "x"}
        networks, unknowns = self.networks_of(params), params.likelihood
        more = {"latent_size": self.latent_size, "keys": keys}
        return Inference(networks, self.likelihood, unknowns, rows["x"], extras, **more)

    def decode(self, params: Params, z: Float[Array, "n d"], rows: Extras) -> Float[Array, "n k"]:
        extras = {name: value for name, value in rows.items() if name != "x"}
        return eqx.nn.inference_mode(self.networks_of(params)).decode(z, extras)

    def draw_latents(self, params: Params, num: int, rows: Extras, *, key: PRNGKeyArray) -> Float[Array, "num d"]:
        networks = eqx.nn.inference_mode(self.networks_of(params))
        return networks.prior_given(rows).draw(num, self.latent_size, networks, key=key)

    def output_sizes(self, rows: Extras) -> tuple[int, int]:
        networks = eqx.nn.inference_mode(self.networks)
        extras = {name: value for name, value in rows.items() if name != "x"}
        if "context" in extras and isinstance(self.latent_prior, VampPrior):
            raise ValueError(
                "latent_prior VampPrior() has pseudo-inputs without contexts or labels: use MixtureOfNormals(10)"
            )
        wanted, family = self.latent_posterior.num_outputs(self.latent_size), type(self.latent_posterior).__name__
        beside = " and its context" if "context" in extras else ""
        if isinstance(self.latent_prior, ConditionalPrior):
            self.latent_prior.check(extras.get("context"), self.latent_size)
        inputs, reader = f"x of shape {rows['x'].shape[1:]}{beside}", f"{family}() of {self.latent_size} latents"
        first = size_of_output("encoder", lambda: networks.encode(rows["x"], extras), inputs, wanted, reader)
        z = jnp.zeros((rows["x"].shape[0], self.latent_size))
        second = size_of_output("decoder", lambda: networks.decode(z, extras), f"{self.latent_size} latents{beside}")
        return first, second

    def adapted_to_rows(self, rows: dict[str, np.ndarray]) -> "VAE":
        x = np.asarray(rows["x"])
        chosen = np.linspace(0, len(x) - 1, max(self.latent_prior.num_examples, 1)).astype(int)
        return replace(self, x_shape=x.shape[1:], latent_prior=self.latent_prior.bound_to_examples(x[chosen]))


def check_latents(
    posterior: AbstractLatentPosterior, prior: AbstractLatentPrior, bound: AbstractBound, latent_size: int
) -> None:
    """Raise unless prior and posterior are about the same kind of latents, and the bound can be had of them."""
    num_outputs = posterior.num_outputs(latent_size)
    classes = posterior.num_classes if isinstance(posterior, StraightThrough) else None
    expected = prior.num_classes if isinstance(prior, UniformClasses) else None
    if classes != expected:
        raise ValueError(
            f"latent_posterior {type(posterior).__name__}() and latent_prior {type(prior).__name__}() must be about "
            "the same latents: StraightThrough(K) goes with UniformClasses(K), and only with it"
        )
    example = prior.example(latent_size) if isinstance(prior, ConditionalPrior) else prior
    if bound.needs_kl and posterior.kl(jnp.zeros((1, num_outputs)), example) is None:
        raise ValueError(
            f"free_bits needs a formula for the divergence of each latent, which {type(posterior).__name__}() and "
            f"{type(prior).__name__}() have not: use DiagonalNormal() and StandardNormal()"
        )
