r"""How gradients of a bound are estimated: the same values, the same expectations, other variances.

With $z = g_\phi(\epsilon)$ and weights $w = p_\theta(x, z) / q_\phi(z \mid x)$, the gradient of $\log w$ for the
encoder is that through z, plus $-\partial_\phi \log q_\phi(z)$ at z held fast, whose expectation is zero, but not its
variance.
"""

import abc
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float

from marginax.files import register


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
