"""Likelihoods made from others, or from any function."""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Num, PRNGKeyArray
from jaxtyping import Key as KeyOf

from marginax.files import register
from marginax.model.likelihoods.abstract import AbstractLikelihood, NormalNoise, Unknowns
from marginax.model.outcome import Outcome
from marginax.model.tabulated import tabulate


class CustomOutput(eqx.Module):
    """The conditional distribution of a custom likelihood: by the user's functions, or by integrating the density."""

    outcome: ClassVar[Outcome] = Outcome.REAL
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
        result = jax.vmap(self.likelihood.log_prob_function)(self._outputs, flat)
        jacobian = jnp.sum(jnp.log(jnp.broadcast_to(jnp.abs(self.factor), standard.shape[-1:])))
        return result.reshape(*dims, 1) - jacobian

    def cdf(self, value: ArrayLike) -> Float[Array, "*n 1"]:
        """Probability of a target at most this large."""
        dims = self.output.shape[:-1]
        standard = jnp.broadcast_to((value - self.shift) / self.factor, (*dims, 1)).reshape(-1)

        def one(each: tuple[Array, Array]) -> Array:
            output, y = each
            return tabulate(self._density(output), y.dtype, self.likelihood.support).below(y)

        below = jax.lax.map(one, (self._outputs, standard)).reshape(*dims, 1)  # tables of all rows would fill memory
        return jnp.where(self.factor > 0, below, 1 - below)

    def sample(self, key: PRNGKeyArray) -> Float[Array, "*n d"]:
        """Draw a target: by the user's function, or by inverting the distribution function."""
        outputs = self._outputs
        given = self.likelihood.sample_function
        if given is not None:
            drawn = jax.vmap(given)(outputs, jax.random.split(key, len(outputs)))
        else:
            uniform = jax.random.uniform(key, (len(outputs),), outputs.dtype)
            support = self.likelihood.support
            drawn = jax.lax.map(
                lambda each: tabulate(self._density(each[0]), each[1].dtype, support).quantile(each[1]),
                (outputs, uniform),
            )
        return self.shift + self.factor * drawn.reshape(*self.output.shape[:-1], -1)

    def affine(self, shift: ArrayLike, factor: ArrayLike) -> "CustomOutput":
        """The distribution of shift + factor * y."""
        factor = jnp.asarray(factor)
        return CustomOutput(
            self.output, jnp.asarray(shift) + factor * self.shift, factor * self.factor, self.likelihood
        )

    @property
    def _outputs(self) -> Float[Array, "m k"]:
        return self.output.reshape(-1, self.output.shape[-1])

    def _density(self, output: Array) -> Callable[[Array], Array]:
        if not self.likelihood.scalar_target:
            raise NotImplementedError(
                "a Custom likelihood of vectors has no distribution function, and samples only with sample_function="
            )
        return jax.vmap(lambda y: self.likelihood.log_prob_function(output, y))

    def _call(self, name: str) -> Array:
        function = getattr(self.likelihood, name)
        if function is None:
            raise AttributeError(f"this likelihood has no {name}: pass {name}= to mx.likelihoods.Custom")
        values = jax.vmap(function)(self._outputs)
        return values.reshape(*self.output.shape[:-1], -1)

    @property
    def mean(self) -> Array:
        """Conditional mean, if the user gave one."""
        return self.shift + self.factor * self._call("mean_function")

    @property
    def variance(self) -> Array:
        """Conditional variance, if the user gave one."""
        return self.factor**2 * self._call("variance_function")


@register("likelihood/custom")
class Custom(AbstractLikelihood):
    """Any log probability: `log_prob_function(output, y)` of one example, with JAX operations.

    Args:
        log_prob_function: (output of shape (k,), y of one example) -> scalar.
        mean_function: output -> mean of y, needed for `prediction.mean`.
        variance_function: output -> variance of y, needed for `prediction.aleatoric`.
        scalar_target: whether y of one example is a scalar (default) or a vector.
        sample_function: (output, key) -> a draw of y. Where there is none, scalars are drawn by integrating the density
            numerically, as are quantiles and distribution functions; vectors are not.
        support: where y can be, in the units of the model; say so where the density jumps to zero, as in (0, jnp.inf).

    >>> cauchy = Custom(lambda f, y: -jnp.log(jnp.pi * (1 + (y - f[0]) ** 2)))
    >>> print(cauchy.log_prob(jnp.zeros((2, 1)), jnp.zeros(2), {}).round(3))
    [-1.145 -1.145]
    >>> print(cauchy.distribution(jnp.zeros((1, 1)), {}).cdf(1.0).round(3))
    [[0.75]]
    """

    log_prob_function: Callable[[Array, Array], Array]
    mean_function: Callable[[Array], Array] | None = None
    variance_function: Callable[[Array], Array] | None = None
    scalar_target: bool = True
    sample_function: Callable[[Array, PRNGKeyArray], Array] | None = None
    support: tuple[float, float] = (-jnp.inf, jnp.inf)

    def __check_init__(self):
        if not self.support[0] < self.support[1]:
            raise ValueError(f"support must be (lowest, highest) with lowest < highest, got {self.support}")

    def num_targets(self, output_size: int) -> int:
        """Unknown in general; only the user's function can tell."""
        return output_size

    def check(self, output_size: int, y: np.ndarray) -> None:
        if (y.ndim == 1) != self.scalar_target:
            raise ValueError(f"y has shape {y.shape}, but Custom has scalar_target={self.scalar_target}")
        example = jax.ShapeDtypeStruct(y.shape[1:], y.dtype)
        result = jax.eval_shape(self.log_prob_function, jax.ShapeDtypeStruct((output_size,), jnp.float32), example)
        if getattr(result, "shape", None) != ():
            raise ValueError(f"log_prob_function must return a scalar for one example, got {result}")

    def distribution(self, output: Float[Array, "*n k"], unknowns: Unknowns) -> CustomOutput:
        """A distribution that knows as much as the user's functions."""
        return CustomOutput(output, jnp.zeros(()), jnp.ones(()), self)

    def log_prob(self, output: Float[Array, "n k"], y: Num[Array, "n *d"], unknowns: Unknowns) -> Float[Array, " n"]:
        return jax.vmap(self.log_prob_function)(output, y)


@register("likelihood/tempered")
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
        return self.likelihood.num_targets(output_size)

    def outcome(self, output_size: int) -> Outcome:
        return self.likelihood.outcome(output_size)

    @property
    def bounds(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.likelihood.bounds

    @property
    def flattens(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.likelihood.flattens

    @property
    def is_estimated(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.likelihood.is_estimated

    @property
    def is_density(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.likelihood.is_density

    @property
    def caveat(self) -> str | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.likelihood.caveat

    @property
    def may_be_wrong(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.likelihood.may_be_wrong

    @property
    def takes_missing(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.likelihood.takes_missing

    @property
    def by_annotators(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.likelihood.by_annotators

    @property
    def compares_views(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.likelihood.compares_views

    @property
    def has_logits(self) -> bool:
        return self.likelihood.has_logits

    def is_judged(self, y: Num[Array, "n *d"]) -> Bool[Array, " n"]:
        return self.likelihood.is_judged(y)

    def check_inputs(self, shape: tuple[int, ...]) -> None:
        self.likelihood.check_inputs(shape)

    def views(self, x: Float[Array, "n ..."], keys: KeyOf[Array, " n"], *, fresh: bool) -> Float[Array, "n views ..."]:
        return self.likelihood.views(x, keys, fresh=fresh)

    def agreement(self, outputs: Float[Array, "n views k"], unknowns: Unknowns) -> Float[Array, " n"]:
        return self.likelihood.agreement(outputs, unknowns) / self.temperature

    def check(self, output_size: int, y: np.ndarray) -> None:
        self.likelihood.check(output_size, y)

    def check_training(self, y: np.ndarray) -> None:
        self.likelihood.check_training(y)

    def observed(self, output: Float[Array, "*n k"], unknowns: Unknowns) -> Any:
        return self.likelihood.observed(output, unknowns)

    def confusion(self, unknowns: Unknowns, output_size: int) -> Float[Array, "*annotators k k"]:
        return self.likelihood.confusion(unknowns, output_size)

    def marginal(self, mean: Float[Array, "n k"], covariance: Float[Array, "n k k"], unknowns: Unknowns) -> Any:
        return self.likelihood.marginal(mean, covariance, unknowns)

    def expected_log_prob(
        self,
        mean: Float[Array, "n k"],
        covariance: Float[Array, "n k k"],
        y: Num[Array, "n *d"],
        unknowns: Unknowns,
    ) -> Float[Array, " n"] | None:
        inner = self.likelihood.expected_log_prob(mean, covariance, y, unknowns)
        return None if inner is None else inner / self.temperature

    def init(self, output_size: int) -> Unknowns:
        return self.likelihood.init(output_size)

    def log_prior(self, unknowns: Unknowns) -> Float[Array, ""]:
        return self.likelihood.log_prior(unknowns)

    def distribution(self, output: Float[Array, "*n k"], unknowns: Unknowns) -> Any:
        """As the likelihood inside: temperature is a choice about inference, not about the noise."""
        return self.likelihood.distribution(output, unknowns)

    def noise(self, unknowns: Unknowns) -> NormalNoise | None:
        """As the likelihood inside; residuals count 1 / temperature."""
        inner = self.likelihood.noise(unknowns)
        return None if inner is None else NormalNoise(inner.log_scale, inner.power / self.temperature)

    def with_noise(self, unknowns: Unknowns, log_scale: Float[Array, " targets"]) -> Unknowns:
        return self.likelihood.with_noise(unknowns, log_scale)

    def fisher(self, output: Float[Array, "n k"], unknowns: Unknowns) -> Float[Array, "n k k"]:
        """As the likelihood inside, divided by the temperature."""
        return self.likelihood.fisher(output, unknowns) / self.temperature

    def fisher_root(self, output: Float[Array, " k"], unknowns: Unknowns) -> Float[Array, "k m"]:
        """As the likelihood inside, divided by the root of the temperature."""
        return self.likelihood.fisher_root(output, unknowns) / jnp.sqrt(self.temperature)

    def fisher_root_given(
        self, output: Float[Array, " k"], y: Num[Array, "*d"], unknowns: Unknowns, key: PRNGKeyArray
    ) -> Float[Array, "k m"]:
        return self.likelihood.fisher_root_given(output, y, unknowns, key) / jnp.sqrt(self.temperature)

    def log_prob(self, output: Float[Array, "n k"], y: Num[Array, "n *d"], unknowns: Unknowns) -> Float[Array, " n"]:
        return self.likelihood.log_prob(output, y, unknowns) / self.temperature

    def estimate_log_prob(
        self, output: Float[Array, "n k"], y: Num[Array, "n *d"], unknowns: Unknowns, keys: KeyOf[Array, " n"]
    ) -> Float[Array, " n"]:
        return self.likelihood.estimate_log_prob(output, y, unknowns, keys) / self.temperature

    def perturbation(
        self, output: Float[Array, "n k"], unknowns: Unknowns, noise: Float[Array, "n k"]
    ) -> Float[Array, " n"]:
        return self.likelihood.perturbation(output, unknowns, noise) / jnp.sqrt(self.temperature)
