r"""Lower bounds of $\log p(x)$ of each example, from draws of its latents.

With weights $w_k = p(x, z_k) / q(z_k \mid x)$ of draws:

$\mathrm{ELBO} = E \log w$, $\mathrm{IWAE}_K = E \log \frac1K \sum_k w_k$ (Burda, Grosse & Salakhutdinov, 2016),
$\mathrm{MIWAE}_{M,K} = \frac1M \sum_m \mathrm{IWAE}_K$ (Rainforth et al., 2018),
$\mathrm{Renyi}_\alpha = E \frac{1}{1-\alpha} \log \frac1K \sum_k w_k^{1-\alpha}$ (Li & Turner, 2016)

They are those of `mx.infer.SVI`, by example. Draws are called particles here as there.
"""

import abc
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from marginax.files import register
from marginax.latent.mixture import check_num
from marginax.latent.vae.gradients import (
    AbstractGradient,
    DoublyReparameterised,
    Reparameterised,
    Resampled,
    StickingTheLanding,
)


class AbstractBound(eqx.Module):
    """A number for each example, not more than its log density in expectation."""

    if TYPE_CHECKING:

        @property
        def gradient(self) -> AbstractGradient: ...

    else:
        gradient: eqx.AbstractVar[AbstractGradient]

    @abc.abstractmethod
    def __call__(self, inference: Any) -> Float[Array, " b"]:
        """The bound, estimated by draws of the inference network."""

    @property
    def needs_kl(self) -> bool:
        """Whether the divergence of each latent has to have a formula."""
        return False


def _check_gradient(gradient: Any) -> None:
    if not isinstance(gradient, AbstractGradient):
        raise TypeError(f"gradient must be an object such as mx.latent.Reparameterised(), got {gradient!r}")


@register("latent/elbo")
class ELBO(AbstractBound):
    r"""How well the example is explained, less $\beta$ times the divergence of its latents from their prior.

    To warm up, train with a small `beta` first and go on from there: `mx.fit(..., init=posterior)`; another `beta` is
    not compiled again.

    Args:
        num_particles: draws to average over.
        beta: weight of the divergence (Higgins et al., 2017); 1 is a bound of the evidence, more is a lower one.
        free_bits: nats of each latent, in the mean over a batch, that cost the same as fewer would (Kingma et al.,
            2016); it keeps latents in use. The bound is lower for it.
        analytic_kl: whether to take the formula of the divergence where there is one, and not the draws.
        gradient: `Reparameterised()` or `StickingTheLanding()`, which takes the divergence from draws.
    """

    num_particles: int = eqx.field(default=1, static=True)
    beta: float | Array = 1.0
    free_bits: float | Array = 0.0
    analytic_kl: bool = eqx.field(default=True, static=True)
    gradient: AbstractGradient = eqx.field(default_factory=Reparameterised)

    def __check_init__(self):
        check_num("num_particles", self.num_particles)
        _check_gradient(self.gradient)
        if isinstance(self.gradient, DoublyReparameterised | Resampled):
            raise ValueError(
                f"gradient {type(self.gradient).__name__}() is for IWAE: for ELBO, use Reparameterised() or "
                "StickingTheLanding()"
            )
        for name in ("beta", "free_bits"):
            value = getattr(self, name)
            if isinstance(value, float | int) and not 0 <= value < float("inf"):
                raise ValueError(f"{name} must be >= 0 and finite, got {value}")
        if self.needs_kl and not self._by_formula:
            raise ValueError("free_bits needs the divergence of each latent: analytic_kl=True and Reparameterised()")

    @property
    def _by_formula(self) -> bool:
        return self.analytic_kl and isinstance(self.gradient, Reparameterised)

    @property
    def needs_kl(self) -> bool:
        return not isinstance(self.free_bits, float | int) or self.free_bits > 0

    def __call__(self, inference: Any) -> Float[Array, " b"]:
        kl = inference.kl() if self._by_formula else None
        if kl is None:
            log_likelihood, log_ratio = self.gradient.log_ratio(inference, self.num_particles)
            return jnp.mean(log_likelihood + self.beta * log_ratio, axis=0)
        z, _ = inference.draw(self.num_particles)
        free = jnp.mean(kl, axis=0) < self.free_bits
        cost = jnp.sum(jnp.where(free, self.free_bits, kl), axis=-1)
        return jnp.mean(inference.log_likelihood(z), axis=0) - self.beta * cost


@register("latent/iwae")
class IWAE(AbstractBound):
    """The importance-weighted bound, which rises with the number of draws to the log density.

    Args:
        num_particles: draws.
        gradient: `Reparameterised()`, `DoublyReparameterised()`, or `Resampled(5)`, which is faster with many draws.
    """

    num_particles: int = eqx.field(default=10, static=True)
    gradient: AbstractGradient = eqx.field(default_factory=Reparameterised)

    def __check_init__(self):
        check_num("num_particles", self.num_particles)
        _check_several(self.gradient)

    def __call__(self, inference: Any) -> Float[Array, " b"]:
        log_likelihood, log_ratio = self.gradient.log_ratio(inference, self.num_particles)
        return log_mean_exp(log_likelihood + log_ratio)


@register("latent/miwae")
class MIWAE(AbstractBound):
    """The mean of several importance-weighted bounds, whose gradient for the encoder has more signal than that of one.

    Args:
        num_outer: bounds that are averaged.
        num_inner: draws of each.
        gradient: `Reparameterised()`, `DoublyReparameterised()` or `Resampled()`.
    """

    num_outer: int = eqx.field(default=4, static=True)
    num_inner: int = eqx.field(default=4, static=True)
    gradient: AbstractGradient = eqx.field(default_factory=Reparameterised)

    def __check_init__(self):
        check_num("num_outer", self.num_outer)
        check_num("num_inner", self.num_inner)
        _check_several(self.gradient)

    def __call__(self, inference: Any) -> Float[Array, " b"]:
        if isinstance(self.gradient, Reparameterised):  # all draws at once
            log_likelihood, log_ratio = self.gradient.log_ratio(inference, self.num_outer * self.num_inner)
            log_weights = (log_likelihood + log_ratio).reshape(self.num_outer, self.num_inner, -1)
            return jnp.mean(jax.vmap(log_mean_exp)(log_weights), axis=0)
        parts = [inference.stream(i) for i in range(self.num_outer)]
        return sum(IWAE(self.num_inner, self.gradient)(part) for part in parts) / self.num_outer  # pyright: ignore


@register("latent/renyi")
class Renyi(AbstractBound):
    """The bound by the Renyi divergence: 0 is IWAE, near 1 it is near the ELBO.

    Args:
        alpha: order of the divergence, >= 0 and not 1.
        num_particles: draws.
        gradient: `Reparameterised()`.
    """

    alpha: float | Array = 0.5
    num_particles: int = eqx.field(default=10, static=True)
    gradient: AbstractGradient = eqx.field(default_factory=Reparameterised)

    def __check_init__(self):
        check_num("num_particles", self.num_particles)
        if not isinstance(self.gradient, Reparameterised):
            raise ValueError(f"gradient must be Reparameterised() for Renyi(), got {self.gradient!r}")
        if isinstance(self.alpha, float | int) and (self.alpha < 0 or self.alpha == 1):
            raise ValueError(f"alpha must be >= 0 and not 1, which is ELBO(), got {self.alpha}")

    def __call__(self, inference: Any) -> Float[Array, " b"]:
        log_likelihood, log_ratio = self.gradient.log_ratio(inference, self.num_particles)
        power = 1.0 - self.alpha
        return log_mean_exp(power * (log_likelihood + log_ratio)) / power


def _check_several(gradient: Any) -> None:
    _check_gradient(gradient)
    if isinstance(gradient, StickingTheLanding):
        raise ValueError("gradient StickingTheLanding() is biased with several weights: use DoublyReparameterised()")


def log_mean_exp(log_weights: Float[Array, "k b"]) -> Float[Array, " b"]:
    """Log of the mean weight."""
    return jax.nn.logsumexp(log_weights, axis=0) - jnp.log(log_weights.shape[0])
