"""What a prediction is: the protocol that all follow, whatever they are made of.

A prediction says what kind of outcome it is about (`prediction.outcome`), and nobody asks for its class. Predictions of
numbers have moments, quantiles and distribution functions; predictions of classes and labels have probabilities and
entropies. What a prediction cannot do, it says, with what to do instead.
"""

import abc
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Num

from marginax._keys import Key
from marginax.model.outcome import Outcome
from marginax.predict.checks import check_level, check_targets


class AbstractPrediction(abc.ABC):
    """What is said about the targets at n inputs. Results are NumPy arrays whose first axis is that of the inputs.

    Attributes:
        num_draws: how many draws of the posterior it averages; 1 for a distribution that was given as arrays.
    """

    num_draws: int

    @property
    @abc.abstractmethod
    def outcome(self) -> Outcome:
        """The kind of target."""

    @abc.abstractmethod
    def __len__(self) -> int:
        """Number of inputs."""

    @abc.abstractmethod
    def __getitem__(self, index: Any) -> Any:
        """The prediction at some of the inputs."""

    def averaged(self, num: int) -> Any:
        """Every `num` inputs as one, whose distribution is the mixture of theirs: one input known in part."""
        raise TypeError(f"{type(self).__name__} cannot be averaged over inputs")

    @abc.abstractmethod
    def check(self, y: Any) -> Num[np.ndarray, "n *d"]:
        """Targets in the shape of the prediction, or an error that says what is wrong with `y`."""

    @abc.abstractmethod
    def log_prob(self, y: Any) -> Float[np.ndarray, " n"]:
        """Log density (or probability) of the targets of each input, jointly."""

    @abc.abstractmethod
    def sample(self, num: int, *, key: Key) -> Num[np.ndarray, "num n *d"]:
        """Draw targets.

        Args:
            num: how many samples.
            key: an int seed or a JAX key.
        """

    @property
    @abc.abstractmethod
    def variance(self) -> Float[np.ndarray, "n *d"]:
        """Total variance of the target; of classes and labels, that of each indicator, p (1 - p)."""

    @property
    def std(self) -> Float[np.ndarray, "n *d"]:
        """Total standard deviation."""
        return np.sqrt(self.variance)

    @property
    def knows_draws(self) -> bool:
        """Whether draws of the posterior are told apart, so that there are epistemic and aleatoric parts."""
        return False

    @property
    def epistemic(self) -> Float[np.ndarray, "n *d"]:
        """What more data would reduce: variance over draws of the mean, or for classes mutual information in nats."""
        raise self._without_draws("epistemic")

    @property
    def aleatoric(self) -> Float[np.ndarray, "n *d"]:
        """What stays: mean over draws of the variance, or for classes of the entropy in nats."""
        raise self._without_draws("aleatoric")

    @property
    def epistemic_variance(self) -> Float[np.ndarray, "n *d"]:
        """Variance over draws of the conditional mean; of classes and labels, of the probabilities."""
        raise self._without_draws("epistemic_variance")

    def _without_draws(self, name: str) -> TypeError:
        remedy = (
            "use std" if self.outcome.is_number else "use entropy, or give probabilities of shape (s, n, k), by draw"
        )
        return TypeError(f"prediction must know its draws to have {name}, got a {type(self).__name__}: {remedy}")


class AbstractNumberPrediction(AbstractPrediction):
    """A prediction of real values or counts; results have shape (n,), or (n, d) if targets have d outputs.

    Attributes:
        y_shape: the shape of one target, () or (d,).
    """

    y_shape: tuple[int, ...]

    @property
    @abc.abstractmethod
    def mean(self) -> Float[np.ndarray, "n *d"]:
        """Expected target."""

    @abc.abstractmethod
    def cdf(self, y: Any) -> Float[np.ndarray, "n *d"]:
        """Probability of a target at most y, for each input (and output, marginally)."""

    @abc.abstractmethod
    def cdf_at(self, rows: Int[np.ndarray, " m"], points: Float[np.ndarray, "m q *d"]) -> Float[np.ndarray, "m q *d"]:
        """Distribution functions of some rows (a row may appear often) at several points each."""

    @abc.abstractmethod
    def _quantiles(self, levels: Float[np.ndarray, "*l"]) -> Float[np.ndarray, "..."]:
        """At one level, or several."""

    @abc.abstractmethod
    def scaled(self, factor: float) -> "AbstractNumberPrediction":
        r"""The distribution of $\mu + s (y - \mu)$: wider or narrower by a factor, around the same mean."""

    def quantile_by_row(self, q: Float[np.ndarray, "n *d"]) -> Float[np.ndarray, "n *d"]:
        """Quantiles at a level of its own for each input (and output), strictly between 0 and 1."""
        raise NotImplementedError(f"{type(self).__name__} has no quantiles by row: use quantile, one level for all")

    def quantile(self, q: float | Sequence[float] | np.ndarray) -> Float[np.ndarray, "..."]:
        """Quantiles (for counts, the smallest count whose probability reaches q).

        Args:
            q: one probability, or several (a leading axis of the result), strictly between 0 and 1.
        """
        levels = np.asarray(q, np.float64)
        if levels.ndim > 1 or not np.all((levels > 0) & (levels < 1)):
            raise ValueError(f"q must be a number, or a list of numbers, strictly between 0 and 1, got {q!r}")
        return self._quantiles(levels)

    def interval(self, level: float = 0.9) -> tuple[Float[np.ndarray, "n *d"], Float[np.ndarray, "n *d"]]:
        """Lower and upper end of the central interval that holds `level` of the probability."""
        level = check_level(level)
        if level not in self._last_interval:
            ends = self.quantile([0.5 - level / 2, 0.5 + level / 2])
            self._last_interval.clear()
            self._last_interval[level] = ends
        lower, upper = self._last_interval[level].copy()
        return lower, upper

    @functools.cached_property
    def _last_interval(self) -> dict[float, np.ndarray]:
        """Several scores ask for the same one in turn, and quantiles take a search."""
        return {}

    def check(self, y: Any) -> Float[np.ndarray, "n *d"]:
        values = self.samples
        hint = "" if values is None else f" (samples have shape (s, n), here {values.shape})"
        return check_targets(y, (len(self), *self.y_shape), hint=hint)

    @property
    def epistemic_variance(self) -> Float[np.ndarray, "n *d"]:
        """The same as `epistemic`."""
        return self.epistemic

    @property
    def means(self) -> Float[np.ndarray, "draws n *d"]:
        """Expected target under each draw: functions drawn from the posterior, at these inputs."""
        raise self._without_draws("means")

    @property
    def centres(self) -> Float[np.ndarray, "components n *d"]:
        """Expected target under each component: a draw, or all that a linearised network may be."""
        raise self._without_draws("centres")

    @property
    def samples(self) -> Float[np.ndarray, "s n *d"] | None:
        """The draws of the target that this prediction consists of; None for all others."""
        return None

    @property
    def has_density(self) -> bool:
        """Whether `log_prob` exists."""
        return True

    @property
    def has_atoms(self) -> bool:
        """Whether single values have probability of their own."""
        return self.outcome is Outcome.COUNT

    @property
    def is_normal(self) -> bool:
        """Whether every target has a single normal distribution, independent of the others."""
        return False

    @property
    def can_scale(self) -> bool:
        """Whether `scaled` makes sense: not for counts, nor for what was recalibrated."""
        return self.outcome is Outcome.REAL

    def cdf_below(self, y: Float[np.ndarray, "n *d"]) -> Float[np.ndarray, "n *d"]:
        """Probability of less than y."""
        return self.cdf(np.ceil(y) - 1) if self.outcome is Outcome.COUNT else self.cdf(y)

    def closed_form_crps(self, y: Float[np.ndarray, "n *d"]) -> Float[np.ndarray, "n *d"] | None:
        """Continuous ranked probability score of each target; None where it has to be integrated."""
        return None

    def sample_by_draw(self, num: int, *, key: Key) -> Float[np.ndarray, "draws num n *d"]:
        """Targets from the distribution of every draw; here there is only one."""
        return self.sample(num, key=key)[None]

    @property
    def weights(self) -> Float[np.ndarray, " draws"]:
        """Of the draws, summing to one."""
        return np.full(self.num_draws, 1 / self.num_draws)


class AbstractClassPrediction(AbstractPrediction):
    """A prediction of one class of k, results (n, k) and (n,), or of d yes-or-no labels, results (n, d).

    Entropies are in nats.

    Attributes:
        log_probs: log probability of each class, or of each label to be 1.
    """

    log_probs: Float[np.ndarray, "n k"]

    @property
    @abc.abstractmethod
    def num_classes(self) -> int:
        """Possible answers to one question: 2 for labels."""

    @property
    @abc.abstractmethod
    def labels(self) -> Int[np.ndarray, "n *d"]:
        """The most probable class, or value of each label."""

    @property
    @abc.abstractmethod
    def confidence(self) -> Float[np.ndarray, "n *d"]:
        """Its probability."""

    @property
    @abc.abstractmethod
    def entropy(self) -> Float[np.ndarray, "n *d"]:
        """Entropy of the averaged probabilities: total uncertainty."""

    @property
    @abc.abstractmethod
    def expected_entropy(self) -> Float[np.ndarray, "n *d"]:
        """Mean over draws of the entropy: what stays uncertain however much data there is."""

    @abc.abstractmethod
    def events(self, y: Any) -> tuple[Float[np.ndarray, "n m"], Bool[np.ndarray, "n m"]]:
        """The yes-or-no questions in it, their probabilities and what happened.

        Class 1 of two, each class against the rest, or each label.
        """

    @property
    def probs(self) -> Float[np.ndarray, "n k"]:
        """Probability of each class, or of each label to be 1."""
        return np.exp(self.log_probs)

    @property
    def variance(self) -> Float[np.ndarray, "n k"]:
        """Of each indicator, p (1 - p)."""
        return self.probs * (1 - self.probs)

    @property
    def mutual_information(self) -> Float[np.ndarray, "n *d"]:
        """What the draws disagree about: `entropy` - `expected_entropy`."""
        return np.maximum(self.entropy - self.expected_entropy, 0.0)

    @property
    def epistemic(self) -> Float[np.ndarray, "n *d"]:
        """The same as `mutual_information`: what more data would reduce."""
        return self.mutual_information

    @property
    def aleatoric(self) -> Float[np.ndarray, "n *d"]:
        """The same as `expected_entropy`."""
        return self.expected_entropy


def entropy_of(log_probs: Float[np.ndarray, "*rest k"]) -> Float[np.ndarray, "*rest"]:
    """Entropy in nats over the last axis; a class of probability zero adds nothing.

    >>> entropy_of(np.log([[0.5, 0.5]])).round(4).tolist()
    [0.6931]
    """
    return -np.sum(np.exp(log_probs) * np.maximum(log_probs, -1e300), axis=-1)
