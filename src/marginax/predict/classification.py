"""Predictions of a class."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from marginax._keys import Key, as_key
from marginax.predict.labels import check_labels, entropy_of
from marginax.predict.regression import check_size, rows_of


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ClassificationPrediction:
    r"""What the posterior says about the class of n inputs.

    $p(y = k \mid x, D) = \sum_s w_s \, p(y = k \mid x, \theta_s)$. Entropies are in nats. Results are
    NumPy arrays; `prediction[3:7]` is the prediction at some of the inputs. Memory does not grow with draws.

    >>> averages = ClassAverages.empty(num_rows=1, num_classes=2, full=True)
    >>> averages.add(slice(0, 1), summarise(jnp.array([[[0.0, 4.0]], [[4.0, 0.0]]]), jnp.log(jnp.array([0.5, 0.5]))))
    >>> prediction = averages.prediction(num_draws=2, max_bytes=10**6)
    >>> prediction
    ClassificationPrediction(n=1, classes=2, draws=2)
    >>> prediction.probs.round(3).tolist(), prediction.mutual_information.round(3).tolist()
    ([[0.5, 0.5]], [0.603])

    Attributes:
        log_probs: logarithm of the averaged probabilities.
        expected_entropy: mean over draws of the entropy: what stays uncertain however much data there is.
        variance: variance over draws of the probabilities.
        num_draws: how many draws of the posterior the prediction averages.
    """

    log_probs: Float[np.ndarray, "n k"]
    expected_entropy: Float[np.ndarray, " n"]
    variance: Float[np.ndarray, "n k"]
    num_draws: int
    max_bytes: int
    _covariance: Float[np.ndarray, "n k k"] | None = None

    def __len__(self) -> int:
        return len(self.log_probs)

    def __repr__(self) -> str:
        n, k = self.log_probs.shape
        return f"ClassificationPrediction(n={n}, classes={k}, draws={self.num_draws})"

    def __getitem__(self, index: Any) -> "ClassificationPrediction":
        rows = rows_of(index, len(self))
        return dataclasses.replace(
            self,
            log_probs=self.log_probs[rows],
            expected_entropy=self.expected_entropy[rows],
            variance=self.variance[rows],
            _covariance=None if self._covariance is None else self._covariance[rows],
        )

    @property
    def probs(self) -> Float[np.ndarray, "n k"]:
        """Probability of each class."""
        return np.exp(self.log_probs)

    @property
    def labels(self) -> Int[np.ndarray, " n"]:
        """The most probable class."""
        return np.argmax(self.log_probs, axis=-1)

    @property
    def confidence(self) -> Float[np.ndarray, " n"]:
        """Probability of the most probable class."""
        return np.exp(np.max(self.log_probs, axis=-1))

    @property
    def entropy(self) -> Float[np.ndarray, " n"]:
        """Entropy of the averaged probabilities: total uncertainty."""
        return entropy_of(self.log_probs)

    @property
    def mutual_information(self) -> Float[np.ndarray, " n"]:
        """What the draws disagree about: `entropy` - `expected_entropy`."""
        return np.maximum(self.entropy - self.expected_entropy, 0.0)

    @property
    def epistemic(self) -> Float[np.ndarray, " n"]:
        """The same as `mutual_information`: what more data would reduce."""
        return self.mutual_information

    @property
    def aleatoric(self) -> Float[np.ndarray, " n"]:
        """The same as `expected_entropy`."""
        return self.expected_entropy

    @property
    def std(self) -> Float[np.ndarray, "n k"]:
        """Standard deviation over draws of the probabilities."""
        return np.sqrt(self.variance)

    @property
    def covariance(self) -> Float[np.ndarray, "n k k"]:
        """Covariance over draws of the probabilities."""
        if self._covariance is None:
            check_size(self.log_probs.shape[1] * self.log_probs.size * 8, "covariance", self.max_bytes)
            raise MemoryError("covariance was not kept: predict fewer inputs at a time")
        return self._covariance

    def log_prob(self, y: Any) -> Float[np.ndarray, " n"]:
        """Log probability of the labels y, integers from 0 to the number of classes - 1."""
        n, k = self.log_probs.shape
        return self.log_probs[np.arange(n), check_labels(y, (n,), k)]

    def sample(self, num: int, *, key: Key) -> Int[np.ndarray, "num n"]:
        """Draw labels, independently for each input.

        Args:
            num: how many samples.
            key: an int seed or a JAX key.
        """
        if num < 1:
            raise ValueError(f"num must be >= 1, got {num}")
        with jax.enable_x64(True):
            uniform = np.asarray(jax.random.uniform(as_key(key), (num, len(self))))
        edges = np.cumsum(self.probs, axis=-1)
        labels = np.zeros(uniform.shape, int)
        for edge in edges[:, :-1].T:
            labels += uniform > edge / edges[:, -1]
        return labels


class ClassSummary(eqx.Module):
    """Weighted sums over a chunk of draws; second moments are about the chunk's own mean."""

    weight: Float[Array, ""]
    log_probs: Float[Array, "n k"]
    entropy: Float[Array, " n"]
    mean: Float[Array, "n k"]
    variance: Float[Array, "n k"]
    covariance: Float[Array, "n k k"] | None


def summarise(logits: Float[Array, "s n k"], log_weights: Float[Array, " s"], *, full: bool = True) -> ClassSummary:
    """Reduce a chunk of draws to what a prediction needs; with the full covariance or its diagonal."""
    log_probs = jax.nn.log_softmax(logits, axis=-1)
    probs, weights = jnp.exp(log_probs), jnp.exp(log_weights)
    weight = jnp.sum(weights)
    mean = jnp.einsum("s,snk->nk", weights, probs) / jnp.where(weight > 0, weight, 1)
    centred = probs - mean
    finite = jnp.maximum(log_probs, jnp.finfo(log_probs.dtype).min)
    return ClassSummary(
        weight,
        jax.nn.logsumexp(log_probs + log_weights[:, None, None], axis=0),
        -jnp.einsum("s,snk,snk->n", weights, probs, finite),
        mean,
        jnp.einsum("s,snk->nk", weights, jnp.square(centred)),
        jnp.einsum("s,snk,snj->nkj", weights, centred, centred) if full else None,
    )


@dataclasses.dataclass(eq=False)
class ClassAverages:
    """Running averages over chunks of draws, in float64; second moments merge without cancellation."""

    weight: Float[np.ndarray, " n"]
    log_probs: Float[np.ndarray, "n k"]
    entropy: Float[np.ndarray, " n"]
    mean: Float[np.ndarray, "n k"]
    variance: Float[np.ndarray, "n k"]
    covariance: Float[np.ndarray, "n k k"] | None

    @classmethod
    def empty(cls, num_rows: int, num_classes: int, *, full: bool) -> "ClassAverages":
        """No draws yet."""
        shape = (num_rows, num_classes)
        covariance = np.zeros((*shape, num_classes)) if full else None
        return cls(
            np.zeros(num_rows),
            np.full(shape, -np.inf),
            np.zeros(num_rows),
            np.zeros(shape),
            np.zeros(shape),
            covariance,
        )

    @property
    def is_full(self) -> bool:
        """Whether there are covariances."""
        return self.covariance is not None

    def add(self, rows: slice, chunk: ClassSummary) -> None:
        """Take in a chunk of draws at some of the rows; rows of the chunk beyond those are padding."""
        num = rows.stop - rows.start
        new = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), chunk)
        if not new.weight > 0:
            return
        before = self.weight[rows][0]
        total = before + new.weight
        delta = new.mean[:num] - self.mean[rows]
        between = before * new.weight / total
        self.weight[rows] = total
        self.log_probs[rows] = np.logaddexp(self.log_probs[rows], new.log_probs[:num])
        self.entropy[rows] += new.entropy[:num]
        self.mean[rows] += delta * (new.weight / total)
        self.variance[rows] += new.variance[:num] + between * delta**2
        if self.covariance is not None:
            self.covariance[rows] += new.covariance[:num] + between * delta[:, :, None] * delta[:, None, :]

    def prediction(self, *, num_draws: int, max_bytes: int) -> ClassificationPrediction:
        """The averages of all draws taken in."""
        weight = self.weight[:, None]
        return ClassificationPrediction(
            self.log_probs - np.logaddexp.reduce(self.log_probs, axis=-1, keepdims=True),
            self.entropy / self.weight,
            self.variance / weight,
            num_draws,
            max_bytes,
            None if self.covariance is None else self.covariance / weight[..., None],
        )
