"""The interface of a distribution."""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, PRNGKeyArray

from marginax.model.outcome import Outcome


def as_floating(value: ArrayLike) -> Array:
    """Parameters as floating arrays; Python numbers stay weakly typed and do not set the precision."""
    array = jnp.asarray(value)
    return array if jnp.issubdtype(array.dtype, jnp.inexact) else array.astype(float)


def full_shape(shape: tuple[int, ...], *params: Array) -> tuple[int, ...]:
    """The shape of samples: what was asked for, then that of the parameters together."""
    return (*shape, *jnp.broadcast_shapes(*(p.shape for p in params)))


class AbstractDistribution(eqx.Module):
    """What a distribution may offer; only `log_prob` is a must, the rest says so when it is missing."""

    outcome: ClassVar[Outcome] = Outcome.REAL

    @abc.abstractmethod
    def log_prob(self, value: ArrayLike) -> Array:
        """Log density (or log mass) of each element."""

    @property
    def mean(self) -> Array:
        """Expectation."""
        raise self._missing("mean")

    @property
    def variance(self) -> Array:
        """Variance; infinite where the second moment does not exist."""
        raise self._missing("variance")

    @property
    def median(self) -> Array:
        """The value that half of the draws exceed."""
        return self.icdf(0.5)

    def cdf(self, value: ArrayLike) -> Array:
        """Probability of a value at most this large."""
        raise self._missing("cdf")

    def icdf(self, q: ArrayLike) -> Array:
        """Quantile: the inverse of `cdf`."""
        raise self._missing("icdf")

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        """Independent draws of shape `shape + broadcast shape of the parameters`."""
        raise self._missing("sample")

    def affine(self, shift: ArrayLike, factor: ArrayLike) -> Any:
        """The distribution of shift + factor * Y."""
        raise self._missing("affine")

    @property
    def class_logits(self) -> Array | None:
        """Logits of the classes along the last axis, if values are one of several classes."""
        return None

    def hidden_logits(self, value: ArrayLike) -> Array:
        """Where a true label is hidden: log probability of each of its values together with what is seen."""
        raise self._missing("hidden label")

    def label_errors(self, value: ArrayLike) -> Array:
        """Probability that what is seen is wrong, in the shape of the values."""
        raise self._missing("hidden label")

    def _missing(self, name: str) -> NotImplementedError:
        return NotImplementedError(f"{type(self).__name__} has no {name}")
