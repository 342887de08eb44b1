"""Likelihoods of labels and counts."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num

from marginax.data.missing import MISSING, describe_missing
from marginax.files import register
from marginax.model import distributions as dist
from marginax.model.likelihoods.abstract import AbstractLikelihood, Unknowns, check_width
from marginax.model.outcome import Outcome


def check_counts(y: np.ndarray, highest: int | None, name: str) -> None:
    """Raise unless y holds whole numbers from 0 to the highest."""
    if np.issubdtype(y.dtype, np.floating) and not np.all(y == np.round(y)):
        raise ValueError(f"y must hold whole numbers for {name}, got {y[y != np.round(y)][0]}")
    if y.min() < 0 or (highest is not None and y.max() > highest):
        limits = ">= 0" if highest is None else f"between 0 and {highest}"
        wrong = y.min() if y.min() < 0 else y.max()
        missing = highest is not None and wrong == MISSING and y.ndim == 1
        raise ValueError(
            f"y must be {limits} for {name}, got {wrong}" + (f": {describe_missing(y)}" if missing else "")
        )


@register("likelihood/bernoulli")
class Bernoulli(AbstractLikelihood):
    """Yes or no: the network gives a logit per target."""

    def num_targets(self, output_size: int) -> int:
        return output_size

    def outcome(self, output_size: int) -> Outcome:
        """Two classes, or several labels."""
        return Outcome.CLASS if output_size == 1 else Outcome.LABELS

    @property
    def has_logits(self) -> bool:
        return True

    def check(self, output_size: int, y: np.ndarray) -> None:
        check_width(output_size, output_size, y)
        check_counts(y, 1, "Bernoulli()")

    def fisher(self, output: Float[Array, "n k"], unknowns: Unknowns) -> Float[Array, "n k k"]:
        """p (1 - p)."""
        p = jax.nn.sigmoid(output)
        return jax.vmap(jnp.diag)(p * (1 - p))

    def fisher_root(self, output: Float[Array, " k"], unknowns: Unknowns) -> Float[Array, "k m"]:
        return jnp.sqrt(self.fisher(output[None], unknowns)[0])

    def distribution(self, output: Float[Array, "*n k"], unknowns: Unknowns) -> dist.Bernoulli:
        return dist.Bernoulli(output)

    def expected_log_prob(
        self,
        mean: Float[Array, "n k"],
        covariance: Float[Array, "n k k"],
        y: Num[Array, "n *d"],
        unknowns: Unknowns,
    ) -> Float[Array, " n"]:
        r"""A lower bound, by Jensen's inequality: $E \log(1 + e^f) \le \log(1 + e^{\mu + v / 2})$."""
        half = 0.5 * jnp.diagonal(covariance, axis1=-2, axis2=-1)
        y = (y[:, None] if y.ndim == 1 else y).astype(mean.dtype)
        return jnp.sum(y * mean - jax.nn.softplus(mean + half), axis=-1)

    def perturbation(
        self, output: Float[Array, "n k"], unknowns: Unknowns, noise: Float[Array, "n k"]
    ) -> Float[Array, " n"]:
        p = jax.nn.sigmoid(jax.lax.stop_gradient(output))
        return jnp.sum(noise * jnp.sqrt(p * (1 - p)) * output, axis=-1)


@register("likelihood/categorical")
class Categorical(AbstractLikelihood):
    """One of K classes: the network gives K logits, the target is a label 0..K-1."""

    def num_targets(self, output_size: int) -> int:
        if output_size < 2:
            raise ValueError(f"network must give at least 2 logits for Categorical(), got {output_size}")
        return 1

    def outcome(self, output_size: int) -> Outcome:
        return Outcome.CLASS

    @property
    def has_logits(self) -> bool:
        return True

    def check(self, output_size: int, y: np.ndarray) -> None:
        self.num_targets(output_size)
        if y.ndim != 1:
            raise ValueError(f"y must be labels of shape (n,) for Categorical(), got {y.shape}")
        check_counts(y, output_size - 1, f"Categorical() with {output_size} logits")

    def fisher(self, output: Float[Array, "n k"], unknowns: Unknowns) -> Float[Array, "n k k"]:
        """diag(p) - p p'."""
        p = jax.nn.softmax(output)
        return jax.vmap(jnp.diag)(p) - p[:, :, None] * p[:, None, :]

    def fisher_root(self, output: Float[Array, " k"], unknowns: Unknowns) -> Float[Array, "k m"]:
        """diag(sqrt(p)) times a basis orthogonal to sqrt(p), by a reflection: one column less than classes."""
        root = jnp.exp(0.5 * jax.nn.log_softmax(output))
        axis = root.at[0].add(1.0)  # the reflection that takes the first axis to -root
        basis = jnp.eye(root.shape[0], dtype=root.dtype)[:, 1:] - jnp.outer(axis, axis[1:]) / axis[0]
        return root[:, None] * basis

    def distribution(self, output: Float[Array, "*n k"], unknowns: Unknowns) -> dist.Categorical:
        return dist.Categorical(output)

    def log_prob(self, output: Float[Array, "n k"], y: Num[Array, " n"], unknowns: Unknowns) -> Float[Array, " n"]:
        """Log softmax at the label."""
        picked = jnp.take_along_axis(output, y.astype(jnp.int32)[:, None], axis=-1, mode="promise_in_bounds")
        return picked[:, 0] - jax.nn.logsumexp(output, axis=-1)

    def expected_log_prob(
        self,
        mean: Float[Array, "n k"],
        covariance: Float[Array, "n k k"],
        y: Num[Array, "n *d"],
        unknowns: Unknowns,
    ) -> Float[Array, " n"]:
        r"""A lower bound, by Jensen's inequality: $E \log\sum_k e^{f_k} \le \log\sum_k e^{\mu_k + v_k / 2}$."""
        half = 0.5 * jnp.diagonal(covariance, axis1=-2, axis2=-1)
        return (
            self.log_prob(mean, y, unknowns) + jax.nn.logsumexp(mean, axis=-1) - jax.nn.logsumexp(mean + half, axis=-1)
        )

    def perturbation(
        self, output: Float[Array, "n k"], unknowns: Unknowns, noise: Float[Array, "n k"]
    ) -> Float[Array, " n"]:
        """Noise with the covariance diag(p) - p p' of a one-hot label."""
        p = jax.nn.softmax(jax.lax.stop_gradient(output))
        part = jnp.sqrt(p) * noise
        return jnp.sum((part - p * jnp.sum(part, axis=-1, keepdims=True)) * output, axis=-1)


@register("likelihood/poisson")
class Poisson(AbstractLikelihood):
    """Counts: the network gives the log rate per target."""

    def num_targets(self, output_size: int) -> int:
        return output_size

    def outcome(self, output_size: int) -> Outcome:
        return Outcome.COUNT

    def check(self, output_size: int, y: np.ndarray) -> None:
        """Whole numbers from 0."""
        check_width(output_size, output_size, y)
        check_counts(y, None, "Poisson()")

    def fisher(self, output: Float[Array, "n k"], unknowns: Unknowns) -> Float[Array, "n k k"]:
        return jax.vmap(jnp.diag)(jnp.exp(output))

    def fisher_root(self, output: Float[Array, " k"], unknowns: Unknowns) -> Float[Array, "k m"]:
        return jnp.diag(jnp.exp(0.5 * output))

    def distribution(self, output: Float[Array, "*n k"], unknowns: Unknowns) -> dist.Poisson:
        """Poisson with the exponential of the output as rate."""
        return dist.Poisson(jnp.exp(output))

    def log_prob(self, output: Float[Array, "n k"], y: Num[Array, "n *d"], unknowns: Unknowns) -> Float[Array, " n"]:
        """Log mass, computed from the log rate."""
        y = (y[:, None] if y.ndim == 1 else y).astype(output.dtype)
        return jnp.sum(y * output - jnp.exp(output) - jax.lax.lgamma(y + 1.0), axis=-1)

    def expected_log_prob(
        self,
        mean: Float[Array, "n k"],
        covariance: Float[Array, "n k k"],
        y: Num[Array, "n *d"],
        unknowns: Unknowns,
    ) -> Float[Array, " n"]:
        r"""Exact: $E\, e^f = e^{\mu + v / 2}$."""
        half = 0.5 * jnp.diagonal(covariance, axis1=-2, axis2=-1)
        rise = jnp.sum(jnp.exp(mean + half) - jnp.exp(mean), axis=-1)
        return self.log_prob(mean, y, unknowns) - rise

    def perturbation(
        self, output: Float[Array, "n k"], unknowns: Unknowns, noise: Float[Array, "n k"]
    ) -> Float[Array, " n"]:
        return jnp.sum(noise * jnp.exp(0.5 * jax.lax.stop_gradient(output)) * output, axis=-1)
