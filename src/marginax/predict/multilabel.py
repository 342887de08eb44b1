"""Predictions of several yes-or-no labels at a time."""

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from marginax._keys import Key, as_key
from marginax.model.outcome import Outcome
from marginax.predict.checks import check_count, check_labels, check_size, rows_of
from marginax.predict.mixture import Mixture
from marginax.predict.prediction import AbstractClassPrediction, entropy_of


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class MultiLabelPrediction(AbstractClassPrediction):
    """What the posterior says about d yes-or-no labels at n inputs.

    Labels are independent within a draw, unless the likelihood says otherwise (`StochasticSegmentation`). Entropies and
    the like are per label, in nats; `log_prob` and `sample` are joint over labels.

    >>> from marginax.model.distributions import Bernoulli
    >>> draws = Mixture(Bernoulli(jnp.array([[[0.0, 3.0]], [[0.0, -3.0]]])), (True,), np.log([0.5, 0.5]), 1, 10**6)
    >>> prediction = MultiLabelPrediction(draws)
    >>> prediction.probs.round(3).tolist(), prediction.mutual_information.round(3).tolist()
    ([[0.5, 0.5]], [[0.0, 0.502]])

    Attributes:
        mixture: a Bernoulli distribution per draw.
    """

    mixture: Mixture

    def __len__(self) -> int:
        return self.mixture.num_rows

    def __repr__(self) -> str:
        return f"MultiLabelPrediction(n={len(self)}, labels={self.probs.shape[1]}, draws={self.num_draws})"

    def __getitem__(self, index: Any) -> "MultiLabelPrediction":
        return dataclasses.replace(self, mixture=self.mixture.rows(rows_of(index, len(self))))

    @property
    def outcome(self) -> Outcome:
        return Outcome.LABELS

    @property
    def num_draws(self) -> int:
        return self.mixture.num_draws

    @property
    def num_classes(self) -> int:
        return 2

    @property
    def knows_draws(self) -> bool:
        return True

    @property
    def log_probs(self) -> Float[np.ndarray, "n d"]:
        """Log probability that a label is 1."""
        return self._summary[1]

    @property
    def labels(self) -> Int[np.ndarray, "n d"]:
        return (self._summary[1] > self._summary[0]).astype(int)

    @property
    def confidence(self) -> Float[np.ndarray, "n d"]:
        return np.exp(np.maximum(self._summary[0], self._summary[1]))

    @property
    def entropy(self) -> Float[np.ndarray, "n d"]:
        return entropy_of(np.stack(self._summary[:2], axis=-1))

    @property
    def expected_entropy(self) -> Float[np.ndarray, "n d"]:
        return self._summary[2]

    @functools.cached_property
    def epistemic_variance(self) -> Float[np.ndarray, "n d"]:
        return self.mixture.mean()[1]

    @functools.cached_property
    def covariance(self) -> Float[np.ndarray, "n d d"]:
        """Covariance over draws of the labels' probabilities."""
        check_size(self.probs.shape[1] * self.probs.size * 8, "covariance", self.mixture.max_bytes)
        return self.mixture.mean_covariance()

    def check(self, y: Any) -> Int[np.ndarray, "n d"]:
        """Labels, 0 or 1."""
        return check_labels(y, self.probs.shape, 2)

    def events(self, y: Any) -> tuple[Float[np.ndarray, "n d"], Bool[np.ndarray, "n d"]]:
        return self.probs, self.check(y) == 1

    def log_prob(self, y: Any) -> Float[np.ndarray, " n"]:
        """Log probability of all labels of each input together."""
        return self.mixture.log_prob(self.check(y))

    def sample(self, num: int, *, key: Key) -> Int[np.ndarray, "num n d"]:
        """Draw labels: each sample takes one draw of the posterior for all inputs."""
        return self.mixture.sample(check_count(num, "num"), key=as_key(key))

    def sample_masks(self, num: int, *, key: Key) -> Int[np.ndarray, "num n d"]:
        """Draw a network, and logits where the likelihood has a distribution of them; then the more probable labels.

        So it is done for segmentation: masks that differ as a whole, without the noise of single pixels that `sample`
        has.
        """
        components = MoreProbable(self.mixture.components)
        mixture = dataclasses.replace(self.mixture, components=components)
        return mixture.sample(check_count(num, "num"), key=as_key(key))

    @functools.cached_property
    def _summary(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.mixture.by_rows(_summarise)


class MoreProbable(eqx.Module):
    """The labels on whose side logits are."""

    labels: PyTree

    def sample(self, key: PRNGKeyArray) -> Int[Array, "n d"]:
        """Given drawn logits."""
        if not hasattr(type(self.labels), "sample_logits"):
            raise NotImplementedError(f"{type(self.labels).__name__} has no logits to draw: use sample")
        return (self.labels.sample_logits(key) > 0).astype(jnp.int32)


@eqx.filter_jit
def _summarise(components: PyTree, log_weights: Array) -> tuple[Array, Array, Array]:
    """Log of the mean probabilities of 0 and of 1, and the mean entropy."""
    logits = components.logits
    log_zero, log_one = -jax.nn.softplus(logits), -jax.nn.softplus(-logits)
    weights = log_weights[:, None, None]
    entropy = -(jnp.exp(log_zero) * log_zero + jnp.exp(log_one) * log_one)
    return (
        jax.nn.logsumexp(log_zero + weights, axis=0),
        jax.nn.logsumexp(log_one + weights, axis=0),
        jnp.sum(jnp.exp(weights) * entropy, axis=0),
    )
