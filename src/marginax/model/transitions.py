r"""How true labels become those that are seen: a matrix T with $T_{kj} = p(\text{seen} = j \mid \text{true} = k)$.

It is known, or learned with a Dirichlet prior of each row. Without any belief that labels are more often right than
wrong, the data would say the same of a matrix with its rows permuted: classes would be known up to their names. So
priors lean to the diagonal, and learned matrices start at the mean of their prior.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.scipy.special import betaln, gammaln
from jaxtyping import Array, Float

from marginax.files import register

Unknowns = dict[str, Any]
_NAME = "transition"


class AbstractTransition(eqx.Module):
    """What is known of a matrix of transitions, or of several of them at once."""

    @abc.abstractmethod
    def init(self, num_classes: int, shape: tuple[int, ...] = ()) -> Unknowns:
        """Starting values of the unconstrained unknowns, of as many matrices as `shape` says."""

    @abc.abstractmethod
    def log_prior(self, unknowns: Unknowns) -> Float[Array, ""]:
        """Log prior density in the unconstrained coordinates."""

    @abc.abstractmethod
    def log_matrix(self, unknowns: Unknowns, num_classes: int) -> Float[Array, "*shape k k"]:
        """Logarithms of the matrices; rows are true labels."""

    def check(self, num_classes: int, shape: tuple[int, ...] = ()) -> None:
        """Raise a ValueError if it is not about as many classes."""


@register("transition/known")
class KnownTransition(AbstractTransition):
    """A matrix that is known.

    Args:
        matrix: a row for each true label, which sums to 1; or a stack of such matrices.

    >>> KnownTransition([[0.9, 0.1], [0.2, 0.8]]).matrix.shape
    (2, 2)
    >>> KnownTransition([[0.9, 0.2], [0.2, 0.8]])
    Traceback (most recent call last):
    ValueError: transition must have rows that sum to 1, got 1.1 in row 0
    """

    matrix: Float[Array, "*shape k k"] = eqx.field(converter=jnp.asarray)

    def __check_init__(self):
        if isinstance(self.matrix, Tracer):
            return
        matrix = np.asarray(self.matrix, np.float64)
        if matrix.ndim < 2 or matrix.shape[-1] != matrix.shape[-2] or matrix.shape[-1] < 2:
            raise ValueError(f"transition must be a square matrix, a row for each true label, got shape {matrix.shape}")
        if not (np.isfinite(matrix).all() and matrix.min() >= 0):
            raise ValueError(f"transition must hold probabilities, got {matrix.min()}")
        sums = matrix.sum(axis=-1)
        if not np.allclose(sums, 1, rtol=0, atol=1e-5):
            worst = np.unravel_index(int(np.argmax(np.abs(sums - 1))), sums.shape)
            raise ValueError(f"transition must have rows that sum to 1, got {sums[worst]:.6g} in row {worst[-1]}")

    def check(self, num_classes: int, shape: tuple[int, ...] = ()) -> None:
        found = self.matrix.shape
        if found[-1] != num_classes or found[:-2] not in ((), shape):
            expected = (*shape, num_classes, num_classes)
            raise ValueError(f"transition must have shape {expected} for {num_classes} classes, got {found}")

    def init(self, num_classes: int, shape: tuple[int, ...] = ()) -> Unknowns:
        return {}

    def log_prior(self, unknowns: Unknowns) -> Float[Array, ""]:
        return jnp.zeros(())

    def log_matrix(self, unknowns: Unknowns, num_classes: int) -> Float[Array, "*shape k k"]:
        """What is impossible has a logarithm that is finite: its product with an answer nobody gave is zero."""
        return jnp.log(jnp.maximum(self.matrix, jnp.finfo(self.matrix.dtype).tiny))


@register("transition/full")
class FullTransition(AbstractTransition):
    r"""A learned matrix, each row with a Dirichlet prior: every class has its own confusions.

    The prior of row k has concentration $s a$ at k and $s (1 - a) / (K - 1)$ elsewhere.

    Args:
        accuracy: $a$, the prior mean of the diagonal, between 0 and 1.
        strength: $s$, how many labels the prior is worth in each row, > 0.

    >>> FullTransition(accuracy=0.7).log_matrix(FullTransition(accuracy=0.7).init(3), 3).shape
    (3, 3)
    """

    accuracy: float = 0.8
    strength: float = 10.0

    def __check_init__(self):
        check_belief(self.accuracy, self.strength)

    def init(self, num_classes: int, shape: tuple[int, ...] = ()) -> Unknowns:
        """Log ratios of the entries off the diagonal to the one on it, in order."""
        wrong = (1 - self.accuracy) / (num_classes - 1)
        ratio = jnp.log(jnp.asarray(wrong / self.accuracy, float))
        return {_NAME: jnp.broadcast_to(ratio, (*shape, num_classes, num_classes - 1))}

    def log_matrix(self, unknowns: Unknowns, num_classes: int) -> Float[Array, "*shape k k"]:
        ratios = unknowns[_NAME]
        columns, rows = np.arange(num_classes)[None, :], np.arange(num_classes)[:, None]
        place = np.clip(
            columns - (columns > rows), 0, num_classes - 2
        )  # where an entry is among those off the diagonal
        spread = jnp.take_along_axis(ratios, jnp.broadcast_to(place, (*ratios.shape[:-1], num_classes)), axis=-1)
        return jax.nn.log_softmax(jnp.where(columns == rows, 0.0, spread), axis=-1)

    def log_prior(self, unknowns: Unknowns) -> Float[Array, ""]:
        """Of the log ratios: the density of the row times the product of its entries."""
        ratios = unknowns[_NAME]
        others = ratios.shape[-1]
        right = self.strength * self.accuracy
        wrong = self.strength * (1 - self.accuracy) / others
        total = jnp.logaddexp(0.0, jax.nn.logsumexp(ratios, axis=-1))  # minus the log of the diagonal
        constant = gammaln(self.strength) - gammaln(right) - others * gammaln(wrong)
        return jnp.sum(constant + wrong * jnp.sum(ratios, axis=-1) - self.strength * total)


class AbstractEvenTransition(AbstractTransition):
    """A rate of errors for each row or for all, spread evenly over the other classes."""

    accuracy: eqx.AbstractVar[float]
    strength: eqx.AbstractVar[float]

    @abc.abstractmethod
    def num_rates(self, num_classes: int) -> int:
        """One, or one for each class."""

    def init(self, num_classes: int, shape: tuple[int, ...] = ()) -> Unknowns:
        logit = jnp.log(jnp.asarray((1 - self.accuracy) / self.accuracy, float))
        return {_NAME: jnp.broadcast_to(logit, (*shape, self.num_rates(num_classes)))}

    def log_matrix(self, unknowns: Unknowns, num_classes: int) -> Float[Array, "*shape k k"]:
        logits = jnp.broadcast_to(unknowns[_NAME], (*unknowns[_NAME].shape[:-1], num_classes))[..., None]
        wrong = jax.nn.log_sigmoid(logits) - np.log(num_classes - 1)
        return jnp.where(np.eye(num_classes, dtype=bool), jax.nn.log_sigmoid(-logits), wrong)

    def log_prior(self, unknowns: Unknowns) -> Float[Array, ""]:
        """Of the logits: the density of the rate times r (1 - r)."""
        logits = unknowns[_NAME]
        wrong, right = self.strength * (1 - self.accuracy), self.strength * self.accuracy
        each = wrong * jax.nn.log_sigmoid(logits) + right * jax.nn.log_sigmoid(-logits)
        return jnp.sum(each - betaln(wrong, right))


@register("transition/symmetric")
class SymmetricTransition(AbstractEvenTransition):
    r"""One rate of errors for all classes, wrong labels being equally frequent: $r \sim \text{Beta}(s (1 - a), s a)$.

    Args:
        accuracy: $a$, the prior mean of $1 - r$, between 0 and 1.
        strength: $s$, how many labels the prior is worth, > 0.

    >>> noise = SymmetricTransition(accuracy=0.8)
    >>> print(jnp.exp(noise.log_matrix(noise.init(3), 3)).round(2)[0])
    [0.8 0.1 0.1]
    """

    accuracy: float = 0.8
    strength: float = 10.0

    def __check_init__(self):
        check_belief(self.accuracy, self.strength)

    def num_rates(self, num_classes: int) -> int:
        return 1


@register("transition/per_class")
class PerClassTransition(AbstractEvenTransition):
    r"""A rate of errors for each class, wrong labels being equally frequent: $r_k \sim \text{Beta}(s (1 - a), s a)$.

    Args:
        accuracy: $a$, the prior mean of the diagonal, between 0 and 1.
        strength: $s$, how many labels the prior is worth in each row, > 0.

    >>> PerClassTransition().init(3)["transition"].shape
    (3,)
    """

    accuracy: float = 0.8
    strength: float = 10.0

    def __check_init__(self):
        check_belief(self.accuracy, self.strength)

    def num_rates(self, num_classes: int) -> int:
        return num_classes


def as_transition(value: Any) -> Any:
    """Arrays and nested lists as known matrices; objects as they are."""
    return value if isinstance(value, AbstractTransition) or value is None else KnownTransition(value)


def check_transition(value: Any, name: str = "transition") -> None:
    """Refuse what is no transition."""
    if not isinstance(value, AbstractTransition):
        raise TypeError(
            f"{name} must be a matrix, or one of mx.likelihoods.FullTransition(), PerClassTransition() and "
            f"SymmetricTransition(), got {value!r}"
        )


def check_belief(accuracy: Any, strength: Any) -> None:
    """Refuse means that are no probabilities, and strengths that are not positive."""
    if isinstance(accuracy, Tracer) or isinstance(strength, Tracer):
        return
    if not 0 < accuracy < 1:
        raise ValueError(f"accuracy must be > 0 and < 1, got {accuracy}")
    if not 0 < strength < float("inf"):
        raise ValueError(f"strength must be > 0 and finite, got {strength}")
