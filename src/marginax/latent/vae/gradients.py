r"""How gradients of a bound are estimated: the same values, the same expectations, other variances.

With $z = g_\phi(\epsilon)$ and weights $w = p_\theta(x, z) / q_\phi(z \mid x)$, the gradient of $\log w$ for the
encoder is that through z, plus $-\partial_\phi \log q_\phi(z)$ at z held fast, whose expectation is zero, but not its
variance.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int
from jaxtyping import Key as KeyOf

from marginax._kernels.random import derive
from marginax.files import register
from marginax.infer.dropout.noisy_training import has_own_noise
from marginax.latent.mixture import check_num
from marginax.latent.vae.inference import hold

_CHOICE = 4  # a stream of random numbers


class AbstractGradient(eqx.Module):
    """Log weights whose gradient is an estimate."""

    @abc.abstractmethod
    def log_ratio(self, inference: Any, num: int) -> tuple[Float[Array, "k b"], Float[Array, "k b"]]:
        """Log likelihood of draws of latents, and log prior less log posterior of them."""


@register("latent/reparameterised")
class Reparameterised(AbstractGradient):
    """The whole gradient of the log weights (Kingma & Welling, 2014)."""

    def log_ratio(self, inference: Any, num: int) -> tuple[Float[Array, "k b"], Float[Array, "k b"]]:
        z, log_prob = inference.draw(num)
        return inference.log_likelihood(z), inference.log_prior(z) - log_prob


@register("latent/sticking_the_landing")
class StickingTheLanding(AbstractGradient):
    r"""Without the term of expectation zero (Roeder, Wu & Duvenaud, 2017): no variance where q is exact. For `ELBO`.

    With several weights under a logarithm, as in IWAE, what is left out is not zero in expectation any more.
    """

    def log_ratio(self, inference: Any, num: int) -> tuple[Float[Array, "k b"], Float[Array, "k b"]]:
        z, _ = inference.draw(num)
        return inference.log_likelihood(z), inference.log_prior(z) - inference.held_log_posterior(z)


@register("latent/doubly_reparameterised")
class DoublyReparameterised(AbstractGradient):
    r"""The term of the encoder reparameterised once more (Tucker, Lawson, Gu & Maddison, 2019). For `IWAE`.

    $\nabla_\phi = E \sum_i \tilde w_i^2\, \partial_z \log w_i\, \partial_\phi z_i$ with $\tilde w$ the weights over
    their sum; for the decoder $E \sum_i \tilde w_i \nabla_\theta \log w_i$ as ever. Its signal does not drown in noise
    as K grows. $\tilde w_i$ comes from the logarithm of the mean; the other one is put on the way back through z.
    """

    def log_ratio(self, inference: Any, num: int) -> tuple[Float[Array, "k b"], Float[Array, "k b"]]:
        z, _ = inference.draw(num)
        held = jax.lax.stop_gradient(z)
        log_weights = inference.log_likelihood(held) + inference.log_prior(held) - inference.held_log_posterior(held)
        share = jax.lax.stop_gradient(jax.nn.softmax(log_weights, axis=0))[..., None]
        z = held + share * (z - held)
        return inference.log_likelihood(z), inference.log_prior(z) - inference.held_log_posterior(z)


@register("latent/resampled")
class Resampled(AbstractGradient):
    r"""A few of the draws stand for all on the way back: with 50 draws, some three times faster. For `IWAE`.

    $\nabla \log \frac1K \sum_k w_k = E_j \nabla \log w_j$ with $j$ chosen by the weights over their sum (Burda
    et al., 2016, name it for one draw). The value is that of all draws, the gradient an unbiased estimate of theirs.

    Args:
        num_kept: draws that are differentiated, chosen by systematic resampling.
    """

    num_kept: int = eqx.field(default=1, static=True)

    def __check_init__(self):
        check_num("num_kept", self.num_kept)

    def log_ratio(self, inference: Any, num: int) -> tuple[Float[Array, "k b"], Float[Array, "k b"]]:
        if inference.keys.ndim == 0 and has_own_noise(inference):
            raise ValueError("gradient Resampled() needs networks without dropout: use Reparameterised()")
        z, log_prob = inference.draw(num)
        held, still = hold(inference), jax.lax.stop_gradient(z)
        log_likelihood, log_ratio = held.log_likelihood(still), held.log_prior(still) - jax.lax.stop_gradient(log_prob)
        chosen = systematic(jax.nn.softmax(log_likelihood + log_ratio, axis=0), self.num_kept, inference.keys)
        z, log_prob = jnp.take_along_axis(z, chosen[..., None], axis=0), jnp.take_along_axis(log_prob, chosen, axis=0)
        on_the_way_back = jnp.mean(inference.log_likelihood(z) + inference.log_prior(z) - log_prob, axis=0)
        return log_likelihood, log_ratio + (on_the_way_back - jax.lax.stop_gradient(on_the_way_back))


def systematic(
    shares: Float[Array, "k b"], num: int, keys: KeyOf[Array, ""] | KeyOf[Array, " b"]
) -> Int[Array, "num b"]:
    """Indices chosen by shares, each `num` times its share in expectation, and at most one more or less than that."""
    if keys.ndim == 0:
        start = jax.random.uniform(derive(keys, 0, stream=_CHOICE), shares.shape[1:], shares.dtype)
    else:
        start = jax.vmap(lambda key: jax.random.uniform(derive(key, 0, stream=_CHOICE), (), shares.dtype))(keys)
    points = (start + jnp.arange(num)[:, None]) / num
    passed = jnp.cumsum(shares, axis=0)[:, None] < points
    return jnp.minimum(jnp.sum(passed, axis=0), shares.shape[0] - 1)
