"""Likelihoods: what a network's output says about the target.

A likelihood reads raw outputs of shape (n, output_size) and gives, per example, a log probability, and for
prediction a distribution. Its own unknowns (a noise scale) are unconstrained parameters that are inferred with the
weights. Scales are a number (known), a distribution (learned, with that prior) or `FromNetwork()`.
"""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num

from marginax.files import register
from marginax.model import distributions as dist
from marginax.model.distributions import LogNormal
from marginax.model.scale import FromNetwork, Positive, check_scale, initial_log_scale, log_prior_of_log

Unknowns = dict[str, Array]
Scale = float | Positive | FromNetwork | Array

__all__ = [
    "AbstractLikelihood",
    "Bernoulli",
    "Categorical",
    "Custom",
    "FromNetwork",
    "Gaussian",
    "Laplace",
    "LogNormal",
    "Poisson",
    "StudentT",
    "Tempered",
]


class AbstractLikelihood(eqx.Module):
    """p(y | output of the network, unknowns)."""

    @abc.abstractmethod
    def num_targets(self, output_size: int) -> int:
        """How many targets an output of this size describes; ValueError if it fits none."""

    @abc.abstractmethod
    def check(self, output_size: int, y: np.ndarray) -> None:
        """Raise a ValueError that names `y` or `network` if the two cannot belong together."""

    @abc.abstractmethod
    def distribution(self, output: Float[Array, "*n k"], unknowns: Unknowns) -> Any:
        """The distribution of the target given the output."""

    def init(self, output_size: int) -> Unknowns:
        """Starting values of the unconstrained unknowns."""
        del output_size
        return {}

    def log_prior(self, unknowns: Unknowns) -> Float[Array, ""]:
        """Log prior density of the unknowns, in their unconstrained coordinates."""
        del unknowns
        return jnp.zeros(())

    def log_prob(self, output: Float[Array, "n k"], y: Num[Array, "n *d"], unknowns: Unknowns) -> Float[Array, " n"]:
        """Log probability of each target, summed over its outputs."""
        y = y[:, None] if y.ndim == 1 else y
        return jnp.sum(self.distribution(output, unknowns).log_prob(y), axis=-1)

    def perturb(
        self,
        output: Float[Array, "n k"],
        y: Num[Array, "n *d"],
        unknowns: Unknowns,
        noise: Float[Array, "n *d"],
    ) -> Num[Array, "n *d"]:
        """Targets with fresh noise added, for randomise-then-optimise sampling; unchanged where undefined."""
        del output, unknowns, noise
        return y


def _check_width(output_size: int, num_targets: int, y: np.ndarray) -> None:
    width = 1 if y.ndim == 1 else y.shape[1]
    if width != num_targets:
        raise ValueError(
            f"network gives {output_size} outputs, which describe {num_targets} targets, but y has {width}: "
            f"change the network's out_size or y (shape {y.shape})"
        )


def _default_scale() -> Positive:
    """A learned noise scale for standardised targets: 95% between 0.05 and 2.6."""
    return LogNormal(-1.0, 1.0)


class AbstractLocationScale(AbstractLikelihood):
    """What Gaussian, Student t and Laplace noise share: a location per target and a scale from three sources."""

    scale: eqx.AbstractVar[Scale]

    def num_targets(self, output_size: int) -> int:
        """One target per location."""
        if not isinstance(self.scale, FromNetwork):
            return output_size
        if output_size % 2:
            raise ValueError(
                f"network gives {output_size} outputs, but a scale FromNetwork() needs two per target: mean and scale"
            )
        return output_size // 2

    def check(self, output_size: int, y: np.ndarray) -> None:
        """Real targets, as many as locations."""
        _check_width(output_size, self.num_targets(output_size), y)

    def init(self, output_size: int) -> Unknowns:
        """The log scale of each output, where it is learned."""
        if isinstance(self.scale, Positive):
            return {"log_scale": initial_log_scale(self.scale, (output_size,))}
        return {}

    def log_prior(self, unknowns: Unknowns) -> Float[Array, ""]:
        """Prior of the log scale."""
        if isinstance(self.scale, Positive):
            return log_prior_of_log(self.scale, unknowns["log_scale"])
        return jnp.zeros(())

    def location_and_scale(self, output: Float[Array, "*n k"], unknowns: Unknowns) -> tuple[Array, Array]:
        """Split the output, or take the scale from where it is."""
        if isinstance(self.scale, FromNetwork):
            loc, raw = jnp.split(output, 2, axis=-1)
            return loc, jax.nn.softplus(raw) + self.scale.min_scale
        if isinstance(self.scale, Positive):
            return output, jnp.broadcast_to(jnp.exp(unknowns["log_scale"]), output.shape)
        return output, jnp.full_like(output, self.scale)


@register
class Gaussian(AbstractLocationScale):
    r"""$y \sim N(f(x), s^2)$, independently per output.

    Args:
        scale: the noise standard deviation $s$: a number if it is known, a distribution if it is to be learned
            (one per output; the default suits standardised targets), `FromNetwork()` if it depends on x.

    >>> Gaussian(scale=0.1).num_targets(3), Gaussian(scale=FromNetwork()).num_targets(4)
    (3, 2)
    """

    scale: Scale = eqx.field(default_factory=_default_scale)

    def __check_init__(self):
        check_scale(self.scale)

    def distribution(self, output: Float[Array, "*n k"], unknowns: Unknowns) -> dist.Normal:
        """Normal with the network's mean."""
        return dist.Normal(*self.location_and_scale(output, unknowns))

    def perturb(self, output, y, unknowns, noise):
        """Y plus Gaussian noise of the present scale."""
        _, scale = self.location_and_scale(output, unknowns)
        return y + jax.lax.stop_gradient(scale).reshape(y.shape) * noise


@register
class StudentT(AbstractLocationScale):
    """Student's t noise: like Gaussian, with outliers.

    Args:
        df: degrees of freedom, > 0 (the variance is finite above 2).
        scale: as in `Gaussian`.
    """

    df: float = 4.0
    scale: Scale = eqx.field(default_factory=_default_scale)

    def __check_init__(self):
        if not self.df > 0:
            raise ValueError(f"df must be > 0, got {self.df}")
        check_scale(self.scale)

    def distribution(self, output: Float[Array, "*n k"], unknowns: Unknowns) -> dist.StudentT:
        """Student t around the network's output."""
        loc, scale = self.location_and_scale(output, unknowns)
        return dist.StudentT(jnp.full_like(loc, self.df), loc, scale)


@register
class Laplace(AbstractLocationScale):
    """Double-exponential noise: the median is fitted rather than the mean.

    Args:
        scale: as in `Gaussian` (the standard deviation is sqrt(2) times it).
    """

    scale: Scale = eqx.field(default_factory=_default_scale)

    def __check_init__(self):
        check_scale(self.scale)

    def distribution(self, output: Float[Array, "*n k"], unknowns: Unknowns) -> dist.Laplace:
        """Laplace around the network's output."""
        return dist.Laplace(*self.location_and_scale(output, unknowns))


def _check_counts(y: np.ndarray, highest: int | None, name: str) -> None:
    if np.issubdtype(y.dtype, np.floating) and not np.all(y == np.round(y)):
        raise ValueError(f"y must hold whole numbers for {name}, got {y[y != np.round(y)][0]}")
    if y.min() < 0 or (highest is not None and y.max() > highest):
        limits = ">= 0" if highest is None else f"between 0 and {highest}"
        wrong = y.min() if y.min() < 0 else y.max()
        raise ValueError(f"y must be {limits} for {name}, got {wrong}")


@register
class Bernoulli(AbstractLikelihood):
    """Yes or no: the network gives a logit per target."""

    def num_targets(self, output_size: int) -> int:
        """One target per logit."""
        return output_size

    def check(self, output_size: int, y: np.ndarray) -> None:
        """Zeros and ones."""
        _check_width(output_size, output_size, y)
        _check_counts(y, 1, "Bernoulli()")

    def distribution(self, output: Float[Array, "*n k"], unknowns: Unknowns) -> dist.Bernoulli:
        """Bernoulli with the network's logits."""
        del unknowns
        return dist.Bernoulli(output)


@register
class Categorical(AbstractLikelihood):
    """One of K classes: the network gives K logits, the target is a label 0..K-1."""

    def num_targets(self, output_size: int) -> int:
        """A single label."""
        if output_size < 2:
            raise ValueError(f"network must give at least 2 logits for Categorical(), got {output_size}")
        return 1

    def check(self, output_size: int, y: np.ndarray) -> None:
        """Labels in range."""
        self.num_targets(output_size)
        if y.ndim != 1:
            raise ValueError(f"y must be labels of shape (n,) for Categorical(), got {y.shape}")
        _check_counts(y, output_size - 1, f"Categorical() with {output_size} logits")

    def distribution(self, output: Float[Array, "*n k"], unknowns: Unknowns) -> dist.Categorical:
        """Categorical with the network's logits."""
        del unknowns
        return dist.Categorical(output)

    def log_prob(self, output: Float[Array, "n k"], y: Num[Array, " n"], unknowns: Unknowns) -> Float[Array, " n"]:
        """Log softmax at the label."""
        del unknowns
        picked = jnp.take_along_axis(output, y.astype(jnp.int32)[:, None], axis=-1, mode="promise_in_bounds")
        return picked[:, 0] - jax.nn.logsumexp(output, axis=-1)


@register
class Poisson(AbstractLikelihood):
    """Counts: the network gives the log rate per target."""

    def num_targets(self, output_size: int) -> int:
        """One count per log rate."""
        return output_size

    def check(self, output_size: int, y: np.ndarray) -> None:
        """Whole numbers from 0."""
        _check_width(output_size, output_size, y)
        _check_counts(y, None, "Poisson()")

    def distribution(self, output: Float[Array, "*n k"], unknowns: Unknowns) -> dist.Poisson:
        """Poisson with the exponential of the output as rate."""
        del unknowns
        return dist.Poisson(jnp.exp(output))

    def log_prob(self, output: Float[Array, "n k"], y: Num[Array, "n *d"], unknowns: Unknowns) -> Float[Array, " n"]:
        """Log mass, computed from the log rate."""
        del unknowns
        y = (y[:, None] if y.ndim == 1 else y).astype(output.dtype)
        return jnp.sum(y * output - jnp.exp(output) - jax.lax.lgamma(y + 1.0), axis=-1)


class CustomOutput(eqx.Module):
    """The conditional distribution of a custom likelihood: it can do what the user's functions can."""

    output: Float[Array, "*n k"]
    shift: Array
    factor: Array
    likelihood: "Custom"

    def log_prob(self, value: Array) -> Float[Array, "*n 1"]:
        """Log density in the user's units, joint over outputs."""
        standard = (value - self.shift) / self.factor
        dims = self.output.shape[:-1]
        flat = jnp.broadcast_to(standard, (*dims, standard.shape[-1])).reshape(-1, standard.shape[-1])
        if self.likelihood.scalar_target:
            flat = flat[:, 0]
        result = jax.vmap(self.likelihood.log_prob_function)(self.output.reshape(-1, self.output.shape[-1]), flat)
        jacobian = jnp.sum(jnp.log(jnp.broadcast_to(jnp.abs(self.factor), standard.shape[-1:])))
        return result.reshape(*dims, 1) - jacobian

    def affine(self, shift: Array, factor: Array) -> "CustomOutput":
        """The distribution of shift + factor * y."""
        return CustomOutput(self.output, shift + factor * self.shift, factor * self.factor, self.likelihood)

    def _call(self, name: str) -> Array:
        function = getattr(self.likelihood, name)
        if function is None:
            raise AttributeError(f"this likelihood has no {name}: pass {name}= to mx.likelihoods.Custom")
        dims = self.output.shape[:-1]
        values = jax.vmap(function)(self.output.reshape(-1, self.output.shape[-1]))
        return values.reshape(*dims, -1)

    @property
    def mean(self) -> Array:
        """Conditional mean, if the user gave one."""
        return self.shift + self.factor * self._call("mean_function")

    @property
    def variance(self) -> Array:
        """Conditional variance, if the user gave one."""
        return self.factor**2 * self._call("variance_function")


@register
class Custom(AbstractLikelihood):
    """Any log probability: `log_prob_function(output, y)` of one example, with JAX operations.

    Args:
        log_prob_function: (output of shape (k,), y of one example) -> scalar.
        mean_function: output -> mean of y, needed for `prediction.mean`.
        variance_function: output -> variance of y, needed for `prediction.aleatoric`.
        scalar_target: whether y of one example is a scalar (default) or a vector.

    >>> cauchy = Custom(lambda f, y: -jnp.log(jnp.pi * (1 + (y - f[0]) ** 2)))
    >>> cauchy.log_prob(jnp.zeros((2, 1)), jnp.zeros(2), {}).round(3).tolist()
    [-1.1449999809265137, -1.1449999809265137]
    """

    log_prob_function: Callable[[Array, Array], Array]
    mean_function: Callable[[Array], Array] | None = None
    variance_function: Callable[[Array], Array] | None = None
    scalar_target: bool = True

    def num_targets(self, output_size: int) -> int:
        """Unknown in general; only the user's function can tell."""
        return output_size

    def check(self, output_size: int, y: np.ndarray) -> None:
        """The function must give a scalar."""
        if (y.ndim == 1) != self.scalar_target:
            raise ValueError(f"y has shape {y.shape}, but Custom has scalar_target={self.scalar_target}")
        example = jax.ShapeDtypeStruct(y.shape[1:], y.dtype)
        result = jax.eval_shape(self.log_prob_function, jax.ShapeDtypeStruct((output_size,), jnp.float32), example)
        if getattr(result, "shape", None) != ():
            raise ValueError(f"log_prob_function must return a scalar for one example, got {result}")

    def distribution(self, output: Float[Array, "*n k"], unknowns: Unknowns) -> CustomOutput:
        """A distribution that knows as much as the user's functions."""
        del unknowns
        return CustomOutput(output, jnp.zeros(()), jnp.ones(()), self)

    def log_prob(self, output: Float[Array, "n k"], y: Num[Array, "n *d"], unknowns: Unknowns) -> Float[Array, " n"]:
        """The user's function, per example."""
        del unknowns
        return jax.vmap(self.log_prob_function)(output, y)


@register
class Tempered(AbstractLikelihood):
    """A likelihood raised to the power 1/temperature in the posterior; predictions use it untempered.

    Args:
        likelihood: what is tempered.
        temperature: > 0; below 1 the data count for more (a cold posterior), above 1 for less.
    """

    likelihood: AbstractLikelihood
    temperature: float = 1.0

    def __check_init__(self):
        if not self.temperature > 0:
            raise ValueError(f"temperature must be > 0, got {self.temperature}")

    def num_targets(self, output_size: int) -> int:
        """As the likelihood inside."""
        return self.likelihood.num_targets(output_size)

    def check(self, output_size: int, y: np.ndarray) -> None:
        """As the likelihood inside."""
        self.likelihood.check(output_size, y)

    def init(self, output_size: int) -> Unknowns:
        """As the likelihood inside."""
        return self.likelihood.init(output_size)

    def log_prior(self, unknowns: Unknowns) -> Float[Array, ""]:
        """As the likelihood inside."""
        return self.likelihood.log_prior(unknowns)

    def distribution(self, output: Float[Array, "*n k"], unknowns: Unknowns) -> Any:
        """As the likelihood inside: temperature is a choice about inference, not about the noise."""
        return self.likelihood.distribution(output, unknowns)

    def log_prob(self, output: Float[Array, "n k"], y: Num[Array, "n *d"], unknowns: Unknowns) -> Float[Array, " n"]:
        """Log probability divided by the temperature."""
        return self.likelihood.log_prob(output, y, unknowns) / self.temperature

    def perturb(
        self,
        output: Float[Array, "n k"],
        y: Num[Array, "n *d"],
        unknowns: Unknowns,
        noise: Float[Array, "n *d"],
    ) -> Num[Array, "n *d"]:
        """Noise of the tempered scale."""
        return self.likelihood.perturb(output, y, unknowns, jnp.sqrt(self.temperature) * noise)
