"""What a decoder says about every entry of x: the likelihoods of `mx.likelihoods`, one site for each entry.

Outputs are flat, (..., k), and so are examples, (..., d). A likelihood of real numbers or counts reads one output for
each entry (two where the width comes from the network); `Categorical` reads K logits for each entry, those of an entry
side by side. `Bernoulli` takes numbers between 0 and 1, too, and is then the usual cross-entropy: no density of grey
values, for which there is `ContinuousBernoulli`.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num, PRNGKeyArray

from marginax.files import register
from marginax.model.likelihoods import AbstractLikelihood
from marginax.model.likelihoods.abstract import Unknowns
from marginax.model.outcome import Outcome

_FLAT = 1e-2  # logits below which series stand for quotients of two small numbers


def num_logits(likelihood: AbstractLikelihood, output_size: int, num_entries: int) -> int:
    """Logits of each entry where entries are classes, 0 where they are numbers; ValueError if the sizes do not fit."""
    if output_size > 1 and likelihood.outcome(output_size) is Outcome.CLASS:
        if output_size % num_entries or output_size < 2 * num_entries:
            raise ValueError(
                f"decoder gives {output_size} outputs, but {_name(likelihood)} needs the same number of logits, at "
                f"least 2, for each of {num_entries} entries of x: change its out_size to a multiple of {num_entries}"
            )
        return output_size // num_entries
    num = 0 if likelihood.bounds else likelihood.num_targets(output_size)
    if num != num_entries:
        wanted = num_entries * output_size // max(num, 1)
        raise ValueError(
            f"decoder gives {output_size} outputs, which describe {num} entries by {_name(likelihood)}, but x has "
            f"{num_entries}: change its out_size to {wanted}"
        )
    return 0


def check_entries(likelihood: AbstractLikelihood, output_size: int, x: Num[np.ndarray, "n d"]) -> None:
    """Raise unless these can be entries of examples; those that are not observed are 0."""
    classes = num_logits(likelihood, output_size, x.shape[1])
    if _is_binary(likelihood, output_size, classes) or isinstance(likelihood, ContinuousBernoulli):
        if x.min() < 0 or x.max() > 1:
            raise ValueError(
                f"x must be in [0, 1] for {_name(likelihood)}, got values from {x.min():g} to {x.max():g}: rescale x, "
                "or use likelihood=mx.likelihoods.Gaussian()"
            )
    elif classes:
        if not np.all(x == np.round(x)) or x.min() < 0 or x.max() >= classes:
            raise ValueError(
                f"x must hold labels from 0 to {classes - 1} for {_name(likelihood)}, got values from {x.min():g} to "
                f"{x.max():g}"
            )
    elif likelihood.outcome(output_size) is Outcome.COUNT and (not np.all(x == np.round(x)) or x.min() < 0):
        raise ValueError(f"x must hold counts, whole numbers >= 0, for {_name(likelihood)}, got {x.min():g} at least")


def log_prob_of_entries(
    likelihood: AbstractLikelihood, output: Float[Array, "*n k"], x: Float[Array, "*m d"], unknowns: Unknowns
) -> Float[Array, "*n d"]:
    """Log probability of every entry."""
    law = law_of_entries(likelihood, output, x.shape[-1], unknowns)
    if _is_binary(likelihood, output.shape[-1], num_logits(likelihood, output.shape[-1], x.shape[-1])):
        return x * law.logits - jax.nn.softplus(law.logits)  # one expression, and the cross-entropy between 0 and 1
    return law.log_prob(x)


def _is_binary(likelihood: AbstractLikelihood, output_size: int, classes: int) -> bool:
    """Whether entries are yes or no, by one logit each."""
    return not classes and likelihood.outcome(output_size).is_class


def law_of_entries(likelihood: AbstractLikelihood, output: Float[Array, "*n k"], size: int, unknowns: Unknowns) -> Any:
    """The distribution of the entries."""
    classes = num_logits(likelihood, output.shape[-1], size)
    if classes:
        output = output.reshape(*output.shape[:-1], size, classes)
    return likelihood.distribution(output, unknowns)


def mean_of_entries(
    likelihood: AbstractLikelihood, output: Float[Array, "*n k"], size: int, unknowns: Unknowns
) -> Float[Array, "*n d"]:
    """The mean of every entry; of classes, the most probable one."""
    law = law_of_entries(likelihood, output, size, unknowns)
    if law.class_logits is not None and size < output.shape[-1]:
        return jnp.argmax(law.class_logits, axis=-1).astype(output.dtype)
    return law.mean


def draw_entries(
    likelihood: AbstractLikelihood, output: Float[Array, "*n k"], size: int, unknowns: Unknowns, *, key: PRNGKeyArray
) -> Float[Array, "*n d"]:
    """Entries with their noise."""
    return law_of_entries(likelihood, output, size, unknowns).sample(key).astype(output.dtype)


def _name(likelihood: AbstractLikelihood) -> str:
    return f"likelihood {type(likelihood).__name__}()"


# ---- likelihoods of images


@register("likelihood/continuous_bernoulli")
class ContinuousBernoulli(AbstractLikelihood):
    r"""Numbers between 0 and 1: $p(x) = C(l)\, \sigma(l)^x \sigma(-l)^{1-x}$ (Loaiza-Ganem & Cunningham, 2019).

    $C(l) = l / \tanh(l/2)$ makes it a density, which the cross-entropy of grey values is not. For entries of a decoder.

    >>> law = ContinuousBernoulli().distribution(jnp.array([3.0]), {})
    >>> grid = jnp.linspace(0, 1, 10_001)
    >>> (
    ...     round(float(jnp.exp(law.log_prob(grid)).mean()), 3),
    ...     round(float((grid * jnp.exp(law.log_prob(grid))).mean()), 3),
    ... )
    (1.0, 0.719)
    """

    def num_targets(self, output_size: int) -> int:
        return output_size

    def check(self, output_size: int, y: np.ndarray) -> None:
        check_entries(self, output_size, np.asarray(y).reshape(len(y), -1))

    def distribution(self, output: Float[Array, "*n k"], unknowns: Unknowns) -> "ContinuousBernoulliLaw":
        return ContinuousBernoulliLaw(output)


class ContinuousBernoulliLaw(eqx.Module):
    """A density on [0, 1], exponential in x, with log odds `logits`."""

    logits: Float[Array, "..."]

    class_logits = None

    def log_prob(self, value: Array) -> Array:
        """Log density."""
        small = jnp.abs(self.logits) < _FLAT
        safe = jnp.where(small, 1.0, self.logits)
        normaliser = jnp.where(small, math.log(2.0) + self.logits**2 / 12, jnp.log(safe / jnp.tanh(0.5 * safe)))
        return value * self.logits - jax.nn.softplus(self.logits) + normaliser

    @property
    def mean(self) -> Array:
        """Expectation."""
        small = jnp.abs(self.logits) < _FLAT
        safe = jnp.where(small, 1.0, self.logits)
        return jnp.where(small, 0.5 + self.logits / 12, jax.nn.sigmoid(safe) / jnp.tanh(0.5 * safe) - 1 / safe)

    def sample(self, key: PRNGKeyArray) -> Array:
        """By the inverse of the distribution function."""
        u = jax.random.uniform(key, self.logits.shape, self.logits.dtype, minval=1e-7, maxval=1 - 1e-6)
        small = jnp.abs(self.logits) < _FLAT
        safe = jnp.where(small, 1.0, self.logits)
        return jnp.where(small, u, jnp.logaddexp(jnp.log1p(-u), jnp.log(u) + safe) / safe)


@register("likelihood/shared_scale")
class SharedScale(AbstractLikelihood):
    """A likelihood whose learned width is one for all entries, as the noise of probabilistic principal components.

    Args:
        likelihood: such as `mx.likelihoods.Gaussian()`.

    >>> from marginax.model.likelihoods import Gaussian
    >>> SharedScale(Gaussian()).init(784)["log_scale"].shape
    (1,)
    """

    likelihood: AbstractLikelihood

    def num_targets(self, output_size: int) -> int:
        return self.likelihood.num_targets(output_size)

    def check(self, output_size: int, y: np.ndarray) -> None:
        self.likelihood.check(output_size, y)

    def init(self, output_size: int) -> Unknowns:
        return self.likelihood.init(1)

    def log_prior(self, unknowns: Unknowns) -> Float[Array, ""]:
        return self.likelihood.log_prior(unknowns)

    def distribution(self, output: Float[Array, "*n k"], unknowns: Unknowns) -> Any:
        return self.likelihood.distribution(output, unknowns)
