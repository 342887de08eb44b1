r"""What is believed of latents given a context alone: $p(z \mid c)$ (Sohn, Lee & Yan, 2015).

A network reads the context, and a family of laws reads the network, as those of encoders do: so a prior is normal,
diagonal or not, or a flow. With contexts and a `StandardNormal()` prior the decoder has to do what differs between
contexts all by itself.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from marginax._kernels.random import derive
from marginax.files import register
from marginax.latent.vae.generative import size_of_output
from marginax.latent.vae.latent_posteriors import AbstractLatentPosterior, DiagonalNormal
from marginax.latent.vae.latent_priors import AbstractLatentPrior, NormalParts
from marginax.latent.vae.networks import call_network
from marginax.nets import as_network, reinitialise

_NO_CONTEXT = 'latent_prior ConditionalPrior() needs contexts: give data {"x": ..., "context": ...}, or context='


@register("latent/conditional_prior")
class ConditionalPrior(AbstractLatentPrior):
    """Latents whose law a network reads off the context; it is trained with the other networks.

    Data have "context" then, and `generate` takes one for each example.

    Args:
        network: from a context to what `family` reads: of `DiagonalNormal()`, means and log standard deviations.
        family: `DiagonalNormal()`, `FullNormal()` or `CouplingFlow()`.

    >>> import marginax as mx
    >>> prior = mx.latent.ConditionalPrior(mx.nets.MLP(3, (8,), 4, key=0))
    >>> encoder, decoder = mx.nets.MLP(5 + 3, (8,), 4, key=1), mx.nets.MLP(2 + 3, (8,), 5, key=2)
    >>> model = mx.latent.VAE(encoder, decoder, latent_size=2, latent_prior=prior)
    >>> data = {"x": jnp.ones((20, 5)), "context": jnp.ones((20, 3))}
    >>> vae = mx.fit(model, data, mx.infer.MAP(num_epochs=1), key=0)
    >>> vae.generate(7, context=jnp.ones((7, 3)), key=1).shape
    (7, 5)
    """

    network: eqx.Module = eqx.field(converter=as_network)
    family: AbstractLatentPosterior = eqx.field(default_factory=DiagonalNormal)

    def __check_init__(self):
        if not isinstance(self.family, AbstractLatentPosterior) or not self.family.is_continuous:
            raise TypeError(f"family must be a law of numbers such as mx.latent.DiagonalNormal(), got {self.family!r}")

    def bound_to(self, latent_size: int) -> "ConditionalPrior":
        return ConditionalPrior(self.network, self.family.bound_to(latent_size))

    def reinitialise(self, key: PRNGKeyArray) -> "ConditionalPrior":
        """Fresh weights."""
        network, family = (
            reinitialise(part, key=derive(key, i))  # pyright: ignore[reportArgumentType]
            for i, part in enumerate((self.network, self.family))
        )
        return ConditionalPrior(network, family)  # pyright: ignore[reportArgumentType]

    def given(self, output: Float[Array, "b m"] | None) -> "GivenContext":
        if output is None:
            raise ValueError(_NO_CONTEXT)
        return GivenContext(self.family, output)

    def example(self, latent_size: int) -> "GivenContext":
        """That of one context about which the network says zeros."""
        return GivenContext(self.family, jnp.zeros((1, self.family.num_outputs(latent_size))))

    def check(self, context: Array | None, latent_size: int) -> None:
        """Raise unless there are contexts, of which the network makes what the family reads."""
        if context is None:
            raise ValueError(_NO_CONTEXT)
        reader = f"{type(self.family).__name__}() of {latent_size} latents"
        network, wanted = eqx.nn.inference_mode(self.network), self.family.num_outputs(latent_size)
        inputs = f"a context of shape {context.shape[1:]}"
        size_of_output("latent_prior", lambda: call_network(network, context, {}, key=None), inputs, wanted, reader)

    def log_prob(self, z: Float[Array, "k b d"], networks: Any) -> Float[Array, "k b"]:
        raise ValueError(_NO_CONTEXT)

    def draw(self, num: int, latent_size: int, networks: Any, *, key: PRNGKeyArray) -> Float[Array, "num d"]:
        raise ValueError(_NO_CONTEXT)


class GivenContext(AbstractLatentPrior):
    """A conditional prior at the contexts of some examples.

    Args:
        family: of laws.
        output: what the network says about the context of each example.
    """

    family: AbstractLatentPosterior
    output: Float[Array, "b m"]

    def log_prob(self, z: Float[Array, "k b d"], networks: Any) -> Float[Array, "k b"]:
        return self.family.log_prob(self.output, z)

    def draw(self, num: int, latent_size: int, networks: Any, *, key: PRNGKeyArray) -> Float[Array, "num d"]:
        return self.draw_each(self.family.noise(key, (1, num, latent_size), self.output.dtype))[0]

    def draw_each(self, noise: Float[Array, "k b d"]) -> Float[Array, "k b d"]:
        """Several draws of the latents of each example, from noise."""
        return self.family.draw(self.output, noise)[0]

    def normal(self) -> NormalParts | None:
        return self.family.normal(self.output)
