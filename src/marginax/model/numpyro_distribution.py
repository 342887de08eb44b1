"""Distributions of NumPyro wherever one of ours can be."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, PRNGKeyArray

from marginax.files import register
from marginax.model.distribution import AbstractDistribution, as_floating
from marginax.model.outcome import Outcome


@register("distribution/numpyro")
class NumPyroDistribution(AbstractDistribution):
    """A distribution of NumPyro, by its class and its parameters.

    Args:
        kind: the class, one of `numpyro.distributions`.
        params: by name.
        shift: of an affine map of the values.
        factor: of that map.

    >>> import numpyro.distributions as dist
    >>> NumPyroDistribution(dist.Gumbel, {"loc": 1.0, "scale": 2.0}).mean.round(3).item()
    2.154...
    """

    kind: Any = eqx.field(static=True)
    params: dict[str, Array]
    shift: Array = eqx.field(default=0.0, converter=as_floating)
    factor: Array = eqx.field(default=1.0, converter=as_floating)

    def __init__(self, kind: Any, params: dict[str, Any], shift: ArrayLike = 0.0, factor: ArrayLike = 1.0):
        self.kind, self.params = kind, {name: as_floating(value) for name, value in params.items()}
        self.shift, self.factor = as_floating(shift), as_floating(factor)

    @property
    def inner(self) -> Any:
        """The distribution itself."""
        return self.kind(**self.params)

    @property
    def outcome(self) -> Outcome:
        return outcome_of(self.kind)

    @property
    def mean(self) -> Array:
        return self.shift + self.factor * self.inner.mean

    @property
    def variance(self) -> Array:
        return self.factor**2 * self.inner.variance

    @property
    def median(self) -> Array:
        try:
            return self.icdf(0.5)
        except NotImplementedError:
            return self.mean

    def log_prob(self, value: ArrayLike) -> Array:
        if self.outcome is not Outcome.REAL:
            return self.inner.log_prob(value)
        return self.inner.log_prob((value - self.shift) / self.factor) - jnp.log(jnp.abs(self.factor))

    def cdf(self, value: ArrayLike) -> Array:
        if self.outcome is Outcome.REAL:
            return self._known("cdf")((value - self.shift) / self.factor)
        floor = jnp.floor(jnp.asarray(value))
        return jnp.where(floor < 0, 0.0, self._known("cdf")(jnp.maximum(floor, 0)))

    def icdf(self, q: ArrayLike) -> Array:
        return self.shift + self.factor * self._known("icdf")(as_floating(q))

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        values = self.inner.sample(key, shape)
        return values if self.outcome is not Outcome.REAL else self.shift + self.factor * values

    def affine(self, shift: ArrayLike, factor: ArrayLike) -> "NumPyroDistribution":
        return NumPyroDistribution(self.kind, self.params, shift + factor * self.shift, factor * self.factor)

    def _known(self, name: str) -> Any:
        def call(value: Array) -> Array:
            try:
                return getattr(self.inner, name)(value)
            except (NotImplementedError, ImportError):  # some quantiles need another library
                raise NotImplementedError(f"{self.kind.__name__} of NumPyro has no {name}") from None

        return call


def is_numpyro(value: Any) -> bool:
    """Whether this is a distribution of NumPyro, which is imported only if it is there already."""
    return any(base.__module__.startswith("numpyro.distributions") for base in type(value).__mro__)


def from_numpyro(value: Any) -> Any:
    """A distribution of NumPyro as one of ours; anything else is returned as it is."""
    if not is_numpyro(value):
        return value
    return NumPyroDistribution(type(value), {name: getattr(value, name) for name in value.arg_constraints})


def outcome_of(kind: Any) -> Outcome:
    """What the values of a class of NumPyro are, by its support."""
    from numpyro.distributions import constraints

    support = kind.support
    if isinstance(support, property):  # it depends on the parameters: those are intervals and counts
        return Outcome.COUNT if getattr(kind, "is_discrete", False) else Outcome.REAL
    if support is constraints.boolean:
        return Outcome.LABELS
    return Outcome.COUNT if getattr(support, "is_discrete", False) else Outcome.REAL
