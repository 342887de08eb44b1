"""Likelihoods of real targets: a location from the network, and a scale from one of three sources."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num

from marginax.files import register
from marginax.model import distributions as dist
from marginax.model.distributions import LogNormal
from marginax.model.likelihoods.abstract import AbstractLikelihood, NormalNoise, Unknowns, check_width
from marginax.model.normal_outputs import NormalOutputs
from marginax.model.numpyro_distribution import from_numpyro
from marginax.model.scale import FromNetwork, Positive, check_scale, initial_log_scale, log_prior_of_log

Scale = float | Positive | FromNetwork | Array


def default_scale() -> Positive:
    """A learned noise scale for standardised targets: 95% between 0.05 and 2.6."""
    return LogNormal(-1.0, 1.0)


class AbstractLocationScale(AbstractLikelihood):
    """What Gaussian, Student t and Laplace noise share: a location per target and a scale from three sources."""

    scale: eqx.AbstractVar[Scale]

    def num_targets(self, output_size: int) -> int:
        if not isinstance(self.scale, FromNetwork):
            return output_size
        if output_size % 2:
            raise ValueError(
                f"network gives {output_size} outputs, but a scale FromNetwork() needs two per target: mean and scale"
            )
        return output_size // 2

    def check(self, output_size: int, y: np.ndarray) -> None:
        check_width(output_size, self.num_targets(output_size), y)

    def init(self, output_size: int) -> Unknowns:
        """The log scale of each output, where it is learned."""
        if isinstance(self.scale, Positive):
            return {"log_scale": initial_log_scale(self.scale, (output_size,))}
        return {}

    def log_prior(self, unknowns: Unknowns) -> Float[Array, ""]:
        if isinstance(self.scale, Positive):
            return log_prior_of_log(self.scale, unknowns["log_scale"])
        return jnp.zeros(())

    def fisher_of(self, output: Array, unknowns: Unknowns, location: Any, log_scale: Any) -> Float[Array, "n k k"]:
        """Diagonal information from that of a standard location and of a log scale."""
        loc, scale = self.location_and_scale(output, unknowns)
        diagonal = location / scale**2
        if isinstance(self.scale, FromNetwork):
            slope = self.scale.slope(output[..., loc.shape[-1] :])
            diagonal = jnp.concatenate([diagonal, log_scale * (slope / scale) ** 2], axis=-1)
        return jax.vmap(jnp.diag)(diagonal)

    def fisher_root(self, output: Float[Array, " k"], unknowns: Unknowns) -> Float[Array, "k m"]:
        """The information is diagonal."""
        return jnp.sqrt(self.fisher(output[None], unknowns)[0])

    def location_and_scale(self, output: Float[Array, "*n k"], unknowns: Unknowns) -> tuple[Array, Array]:
        """Split the output, or take the scale from where it is."""
        if isinstance(self.scale, FromNetwork):
            loc, raw = jnp.split(output, 2, axis=-1)
            return loc, self.scale.of(raw)
        if isinstance(self.scale, Positive):
            return output, jnp.broadcast_to(jnp.exp(unknowns["log_scale"]), output.shape)
        return output, jnp.full_like(output, self.scale)


@register("likelihood/gaussian")
class Gaussian(AbstractLocationScale):
    r"""$y \sim N(f(x), s^2)$, independently per output.

    Args:
        scale: the noise standard deviation $s$: a number if it is known, a distribution if it is to be learned
            (one per output; the default suits standardised targets), `FromNetwork()` if it depends on x.

    >>> Gaussian(scale=0.1).num_targets(3), Gaussian(scale=FromNetwork()).num_targets(4)
    (3, 2)
    """

    scale: Scale = eqx.field(default_factory=default_scale, converter=from_numpyro)

    def __check_init__(self):
        check_scale(self.scale)

    def fisher(self, output: Float[Array, "n k"], unknowns: Unknowns) -> Float[Array, "n k k"]:
        """1 / s^2 for the mean; for a scale from the network also that of the raw scale."""
        return self.fisher_of(output, unknowns, 1.0, 2.0)

    def noise(self, unknowns: Unknowns) -> NormalNoise | None:
        return NormalNoise(unknowns["log_scale"]) if isinstance(self.scale, Positive) else None

    def with_noise(self, unknowns: Unknowns, log_scale: Float[Array, " targets"]) -> Unknowns:
        return {**unknowns, "log_scale": log_scale}

    def distribution(self, output: Float[Array, "*n k"], unknowns: Unknowns) -> dist.Normal:
        return dist.Normal(*self.location_and_scale(output, unknowns))

    def marginal(
        self, mean: Float[Array, "n k"], covariance: Float[Array, "n k k"], unknowns: Unknowns
    ) -> NormalOutputs | None:
        """Normal too, unless the network gives the scale."""
        if isinstance(self.scale, FromNetwork):
            return None
        return NormalOutputs(mean, covariance, self.location_and_scale(mean, unknowns)[1])

    def expected_log_prob(
        self,
        mean: Float[Array, "n k"],
        covariance: Float[Array, "n k k"],
        y: Num[Array, "n *d"],
        unknowns: Unknowns,
    ) -> Float[Array, " n"] | None:
        """Exact: at the mean, less half of the variances in units of the noise; none if the network gives the scale."""
        if isinstance(self.scale, FromNetwork):
            return None
        variances = jnp.diagonal(covariance, axis1=-2, axis2=-1)
        scale = self.location_and_scale(mean, unknowns)[1]
        return self.log_prob(mean, y, unknowns) - 0.5 * jnp.sum(variances / scale**2, axis=-1)

    def perturbation(
        self, output: Float[Array, "n k"], unknowns: Unknowns, noise: Float[Array, "n k"]
    ) -> Float[Array, " n"]:
        """Targets with fresh Gaussian noise: f times noise over scale."""
        loc, scale = self.location_and_scale(output, unknowns)
        return jnp.sum(noise[:, : loc.shape[1]] * loc / jax.lax.stop_gradient(scale), axis=-1)


@register("likelihood/student_t")
class StudentT(AbstractLocationScale):
    """Student's t noise: like Gaussian, with outliers.

    Args:
        df: degrees of freedom, > 0 (the variance is finite above 2).
        scale: as in `Gaussian`.
    """

    df: float = 4.0
    scale: Scale = eqx.field(default_factory=default_scale, converter=from_numpyro)

    def __check_init__(self):
        if not self.df > 0:
            raise ValueError(f"df must be > 0, got {self.df}")
        check_scale(self.scale)

    def fisher(self, output: Float[Array, "n k"], unknowns: Unknowns) -> Float[Array, "n k k"]:
        """(df + 1) / (df + 3) of the Gaussian one for the location."""
        return self.fisher_of(output, unknowns, (self.df + 1) / (self.df + 3), 2 * self.df / (self.df + 3))

    def distribution(self, output: Float[Array, "*n k"], unknowns: Unknowns) -> dist.StudentT:
        loc, scale = self.location_and_scale(output, unknowns)
        return dist.StudentT(jnp.full_like(loc, self.df), loc, scale)


@register("likelihood/laplace")
class Laplace(AbstractLocationScale):
    """Double-exponential noise: the median is fitted rather than the mean.

    Args:
        scale: as in `Gaussian` (the standard deviation is sqrt(2) times it).
    """

    scale: Scale = eqx.field(default_factory=default_scale, converter=from_numpyro)

    def __check_init__(self):
        check_scale(self.scale)

    def fisher(self, output: Float[Array, "n k"], unknowns: Unknowns) -> Float[Array, "n k k"]:
        """1 / b^2 for both location and scale."""
        return self.fisher_of(output, unknowns, 1.0, 1.0)

    def distribution(self, output: Float[Array, "*n k"], unknowns: Unknowns) -> dist.Laplace:
        return dist.Laplace(*self.location_and_scale(output, unknowns))
