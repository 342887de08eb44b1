"""Predictions of a class."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from marginax._keys import Key, as_key
from marginax.model.outcome import Outcome
from marginax.predict.checks import check_count, check_labels, check_size, rows_of
from marginax.predict.prediction import AbstractClassPrediction, entropy_of


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ClassificationPrediction(AbstractClassPrediction):
    r"""What the posterior says about the class of n inputs.

    $p(y = k \mid x, D) = \sum_s w_s \, p(y = k \mid x, \theta_s)$. Entropies are in nats. Memory does not grow with
    draws.

    >>> averages = ClassAverages.empty(num_rows=1, num_classes=2, full=True)
    >>> averages.add(slice(0, 1), summarise(jnp.array([[[0.0, 4.0]], [[4.0, 0.0]]]), jnp.log(jnp.array([0.5, 0.5]))))
    >>> prediction = averages.prediction(num_draws=2, max_bytes=10**6)
    >>> prediction
    ClassificationPrediction(n=1, classes=2, draws=2)
    >>> prediction.probs.round(3).tolist(), prediction.mutual_information.round(3).tolist()
    ([[0.5, 0.5]], [0.603])
    >>> prediction.std.round(3).tolist(), prediction.epistemic_variance.round(3).tolist()
    ([[0.5, 0.5]], [[0.232, 0.232]])

    Attributes:
        log_probs: logarithm of the averaged probabilities.
        num_draws: how many draws of the posterior the prediction averages.
    """

    log_probs: Float[np.ndarray, "n k"]
    _expected_entropy: Float[np.ndarray, " n"] | None = None
    _epistemic_variance: Float[np.ndarray, "n k"] | None = None
    num_draws: int = 1
    max_bytes: int = 256 * 2**20
    _covariance: Float[np.ndarray, "n k k"] | None = None

    @classmethod
    def from_probs(cls, probs: Float[np.ndarray, "n k"]) -> "ClassificationPrediction":
        """Probabilities that do not tell draws apart."""
        return cls(_log(probs))

    @classmethod
    def from_draws(cls, probs: Float[np.ndarray, "s n k"]) -> "ClassificationPrediction":
        """Probabilities under each of s draws, of equal weight.

        >>> draws = np.array([[[0.9, 0.1]], [[0.1, 0.9]]])
        >>> ClassificationPrediction.from_draws(draws).mutual_information.round(3).tolist()
        [0.368]
        """
        expected = entropy_of(_log(probs)).mean(axis=0)
        return cls(_log(probs.mean(axis=0)), expected, probs.var(axis=0), len(probs))

    def __len__(self) -> int:
        return len(self.log_probs)

    def __repr__(self) -> str:
        n, k = self.log_probs.shape
        return f"ClassificationPrediction(n={n}, classes={k}, draws={self.num_draws})"

    def __getitem__(self, index: Any) -> "ClassificationPrediction":
        rows = rows_of(index, len(self))
        names = ("log_probs", "_expected_entropy", "_epistemic_variance", "_covariance")
        kept = {name: getattr(self, name) for name in names}
        return dataclasses.replace(self, **{name: None if v is None else v[rows] for name, v in kept.items()})

    def averaged(self, num: int) -> "ClassificationPrediction":
        probs = self.probs.reshape(-1, num, self.num_classes)
        expected, within = (
            None if each is None else each.reshape(-1, num, *each.shape[1:]).mean(axis=1)
            for each in (self._expected_entropy, self._epistemic_variance)
        )
        between = None if within is None else within + probs.var(axis=1)
        return dataclasses.replace(
            self,
            log_probs=_log(probs.mean(axis=1)),
            _expected_entropy=expected,
            _epistemic_variance=between,
            _covariance=None,
            num_draws=self.num_draws * num,
        )

    @property
    def outcome(self) -> Outcome:
        return Outcome.CLASS

    @property
    def num_classes(self) -> int:
        return self.log_probs.shape[1]

    @property
    def labels(self) -> Int[np.ndarray, " n"]:
        return np.argmax(self.log_probs, axis=-1)

    @property
    def confidence(self) -> Float[np.ndarray, " n"]:
        return np.exp(np.max(self.log_probs, axis=-1))

    @property
    def entropy(self) -> Float[np.ndarray, " n"]:
        return entropy_of(self.log_probs)

    @property
    def knows_draws(self) -> bool:
        return self._expected_entropy is not None

    @property
    def expected_entropy(self) -> Float[np.ndarray, " n"]:
        if self._expected_entropy is None:
            raise self._without_draws("expected_entropy")
        return self._expected_entropy

    @property
    def epistemic_variance(self) -> Float[np.ndarray, "n k"]:
        if self._epistemic_variance is None:
            raise self._without_draws("epistemic_variance")
        return self._epistemic_variance

    @property
    def covariance(self) -> Float[np.ndarray, "n k k"]:
        """Covariance over draws of the probabilities."""
        if self._covariance is None:
            check_size(self.log_probs.shape[1] * self.log_probs.size * 8, "covariance", self.max_bytes)
            raise MemoryError("covariance was not kept: predict fewer inputs at a time")
        return self._covariance

    def check(self, y: Any) -> Int[np.ndarray, " n"]:
        """Labels, integers from 0 to the number of classes - 1."""
        return check_labels(y, (len(self),), self.num_classes)

    def events(self, y: Any) -> tuple[Float[np.ndarray, "n m"], Bool[np.ndarray, "n m"]]:
        first = 1 if self.num_classes == 2 else 0
        return self.probs[:, first:], self.check(y)[:, None] == np.arange(first, self.num_classes)

    def log_prob(self, y: Any) -> Float[np.ndarray, " n"]:
        """Log probability of the labels y, integers from 0 to the number of classes - 1."""
        return self.log_probs[np.arange(len(self)), self.check(y)]

    def sample(self, num: int, *, key: Key) -> Int[np.ndarray, "num n"]:
        check_count(num, "num")
        with jax.enable_x64(True):
            uniform = np.asarray(jax.random.uniform(as_key(key), (num, len(self))))
        edges = np.cumsum(self.probs, axis=-1)
        labels = np.zeros(uniform.shape, int)
        for edge in edges[:, :-1].T:
            labels += uniform > edge / edges[:, -1]
        return labels

    def recalibrated(self, log_probs: Float[np.ndarray, "n k"]) -> "ClassificationPrediction":
        """The same with other probabilities.

        The draws behind them are not known, so of each input the shares are kept: `expected_entropy` is the same
        fraction of the new entropy as it was of the old one, and the variance over draws of a probability p the same
        fraction of p (1 - p).
        """
        if not self.knows_draws:
            return ClassificationPrediction(log_probs)
        old, new = self.probs, np.exp(log_probs)
        share = _ratio(self.expected_entropy, self.entropy, 1.0)
        growth = new * (1 - new) * _ratio(np.ones_like(old), old * (1 - old), 0.0)
        root, covariance = np.sqrt(growth), self._covariance
        return dataclasses.replace(
            self,
            log_probs=log_probs,
            _expected_entropy=np.clip(share, 0.0, 1.0) * entropy_of(log_probs),
            _epistemic_variance=growth * self.epistemic_variance,
            _covariance=None if covariance is None else covariance * root[:, :, None] * root[:, None, :],
        )


def _ratio(part: np.ndarray, whole: np.ndarray, otherwise: float) -> np.ndarray:
    return np.divide(part, whole, out=np.full(part.shape, otherwise), where=whole > 1e-15)


def _log(probs: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(probs)


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
