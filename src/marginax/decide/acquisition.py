r"""What to ask next: rules that score inputs without labels by how much their labels would teach.

| rule | score of an input | for |
|---|---|---|
| `Entropy` | entropy of the label | classes |
| `VariationRatios` | probability that the most probable class is wrong | classes |
| `BALD` | mutual information of label and parameters | classes, numbers |
| `BatchBALD` | the same, of all labels of a batch jointly | classes |
| `EPIG` | mutual information of label and the labels of targets | classes |
| `PredictiveVariance` | variance of the target, summed over outputs | numbers, classes |
| `PredictiveCovariance` | the same as `BatchBALD`, from the covariance over draws | numbers |
| `Random` | none | all |

The last is what the others have to beat (Gal, Islam & Ghahramani, 2017).
"""

import abc
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, Int

from marginax._keys import Key, as_key
from marginax.data.arrays import as_numeric
from marginax.decide.drawn import draw_probs
from marginax.decide.information import greedy_batch, greedy_normal_batch, target_information
from marginax.files import register
from marginax.posterior import AbstractPosterior
from marginax.predict.checks import check_count
from marginax.predict.reading import outcome_of, read_classes, read_draw_probs, read_numbers, read_one_class

_OF_NUMBERS = "numbers have BALD(), PredictiveVariance() and PredictiveCovariance()"


@dataclass(frozen=True, eq=False)
class Query:
    """Which inputs to ask about.

    Attributes:
        rows: their positions among the candidates, the most wanted first.
        scores: of these rows; of a batch that is chosen jointly, the information of the batch up to each of them.
    """

    rows: Int[np.ndarray, " num"]
    scores: Float[np.ndarray, " num"]


class AbstractAcquisition(eqx.Module):
    """A rule that chooses what to ask."""

    @property
    def has_scores(self) -> bool:
        """Whether there are scores that a threshold can be compared with."""
        return True

    @abc.abstractmethod
    def query(
        self, posterior: AbstractPosterior, x: Any, num: int, *, num_samples: int | None = None, key: Key
    ) -> Query:
        """Choose `num` of the inputs.

        Args:
            posterior: what is known so far.
            x: the candidates.
            num: how many to choose, at most len(x).
            num_samples: draws of the posterior to use; by default as in `posterior.predict`.
            key: int seed or JAX key; equal scores are put in random order.
        """


class AbstractPointwise(AbstractAcquisition):
    """A rule that scores each input on its own, and asks about the best."""

    @abc.abstractmethod
    def scores(self, prediction: Any) -> Float[np.ndarray, " n"]:
        """The score of each input, higher to be asked first.

        Args:
            prediction: one of ours, or class probabilities of shape (s, n, k) for each of s draws.
        """

    def query(
        self, posterior: AbstractPosterior, x: Any, num: int, *, num_samples: int | None = None, key: Key
    ) -> Query:
        _check_num(num, len(x))
        return _best(self.scores(posterior.predict(x, num_samples=num_samples)), num, key)


@register("acquisition/entropy")
class Entropy(AbstractPointwise):
    """Entropy of the averaged probabilities: what is unsure for any reason, noise included.

    >>> Entropy().scores([[[0.5, 0.5], [0.9, 0.1]]]).round(3).tolist()
    [0.693, 0.325]
    """

    def scores(self, prediction: Any) -> Float[np.ndarray, " n"]:
        """In nats; of several yes-or-no labels, the sum."""
        return _sum_over_labels(read_classes(prediction, name="Entropy()", by_draw=True, remedy=_OF_NUMBERS).entropy)


@register("acquisition/variation_ratios")
class VariationRatios(AbstractPointwise):
    """One less the probability of the most probable class.

    >>> VariationRatios().scores([[[0.5, 0.5], [0.9, 0.1]]]).round(3).tolist()
    [0.5, 0.1]
    """

    def scores(self, prediction: Any) -> Float[np.ndarray, " n"]:
        """From 0 to 1 - 1/k."""
        return 1 - read_one_class(prediction, name="VariationRatios()", by_draw=True, remedy=_OF_NUMBERS).confidence


@register("acquisition/bald")
class BALD(AbstractPointwise):
    """Mutual information of the label and the parameters: what the draws disagree about (Houlsby et al., 2011).

    For numbers it is that of normal distributions with the prediction's variances: half the log of total variance over
    noise, summed over outputs.

    >>> BALD().scores([[[0.9, 0.1], [0.5, 0.5]], [[0.1, 0.9], [0.5, 0.5]]]).round(3).tolist()
    [0.368, 0.0]
    """

    def scores(self, prediction: Any) -> Float[np.ndarray, " n"]:
        """In nats; of several yes-or-no labels, the sum."""
        if _is_of_numbers(prediction):
            numbers = read_numbers(prediction, name="BALD()")
            return 0.5 * _sum_over_labels(np.log(numbers.variance / numbers.aleatoric))
        return _sum_over_labels(read_classes(prediction, name="BALD()", by_draw=True).mutual_information)


@register("acquisition/predictive_variance")
class PredictiveVariance(AbstractPointwise):
    """Variance of the target, noise included; of several outputs the sum, which is the trace of their covariance.

    For classes it is the epistemic variance, that over draws of the probabilities.

    >>> PredictiveVariance().scores([[[1.0, 0.0], [0.5, 0.5]], [[0.0, 1.0], [0.5, 0.5]]]).tolist()
    [0.5, 0.0]
    """

    def scores(self, prediction: Any) -> Float[np.ndarray, " n"]:
        if _is_of_numbers(prediction):
            return _sum_over_labels(read_numbers(prediction, name="PredictiveVariance()").variance)
        classes = read_classes(prediction, name="PredictiveVariance()", by_draw=True)
        return _sum_over_labels(classes.epistemic_variance)


@register("acquisition/predictive_covariance")
class PredictiveCovariance(AbstractAcquisition):
    """Numbers that tell most about the function together, by their covariance over draws.

    A batch grows by the input that adds most to half the log determinant of covariance over noise, so it does not ask
    the same thing twice. The posterior must have draws.
    """

    def query(
        self, posterior: AbstractPosterior, x: Any, num: int, *, num_samples: int | None = None, key: Key
    ) -> Query:
        """The greedy batch; of equal ones, a random one comes first."""
        _check_num(num, len(x))
        prediction = read_numbers(
            posterior.predict(x, num_samples=num_samples),
            name="PredictiveCovariance()",
            remedy="classes have BatchBALD()",
        )
        order = generator_of(key).permutation(len(x))
        means = prediction.means.reshape(prediction.num_draws, len(x), -1)[:, order]
        noise = prediction.aleatoric.reshape(len(x), -1)[order]
        rows, totals = greedy_normal_batch(means, noise, num, weights=prediction.weights)
        return Query(order[rows], totals)


@register("acquisition/batch_bald")
class BatchBALD(AbstractAcquisition):
    """Mutual information of all labels of a batch and the parameters (Kirsch, van Amersfoort & Gal, 2019).

    The batch grows by the input that adds most, so it does not ask the same thing twice. The posterior must have draws.

    Args:
        num_configurations: most labellings of a batch to average over: all while there are fewer, then a random sample.
    """

    num_configurations: int = 1000

    def __check_init__(self):
        check_count(self.num_configurations, "num_configurations", least=2)

    def choose(self, probs: Any, num: int, *, weights: np.ndarray | None = None, key: Key) -> Query:
        """Choose from class probabilities.

        Args:
            probs: of shape (s, n, k) for each of s draws.
            num: how many to choose.
            weights: of the draws; equal by default.
            key: int seed or JAX key.

        >>> twins = [[[0.9, 0.1], [0.9, 0.1], [0.8, 0.2]], [[0.1, 0.9], [0.1, 0.9], [0.8, 0.2]]]
        >>> BatchBALD().choose(twins, 2, key=0).scores.round(3).tolist()
        [0.368, 0.514]
        """
        probs = read_draw_probs(probs)
        _check_num(num, probs.shape[1])
        rows, totals = greedy_batch(
            probs, num, weights=weights, num_configurations=self.num_configurations, generator=generator_of(key)
        )
        return Query(rows, totals)

    def query(
        self, posterior: AbstractPosterior, x: Any, num: int, *, num_samples: int | None = None, key: Key
    ) -> Query:
        probs, weights = draw_probs(posterior, x, num_samples=num_samples)
        return self.choose(probs, num, weights=weights, key=key)


@register("acquisition/epig")
class EPIG(AbstractAcquisition):
    """Mutual information of the label and the label of a target, on average (Bickford Smith et al., 2023).

    It asks what helps at the inputs that matter, not what is odd elsewhere. The posterior must have draws.

    Args:
        x_target: inputs at which predictions will be needed; some tens to hundreds of them.
    """

    x_target: Float[np.ndarray, "m ..."]

    def __init__(self, x_target: Any):
        self.x_target = np.asarray(as_numeric(x_target, name="x_target"), np.float64)

    def scores(self, probs: Any, targets: Any, *, weights: np.ndarray | None = None) -> Float[np.ndarray, " n"]:
        """The score of each input.

        Args:
            probs: class probabilities of shape (s, n, k) for each of s draws.
            targets: the same of the targets, (s, m, k).
            weights: of the draws; equal by default.
        """
        probs, targets = read_draw_probs(probs), read_draw_probs(targets)
        if probs.shape[::2] != targets.shape[::2]:
            raise ValueError(f"targets must have the draws and classes of probs, got {targets.shape}, {probs.shape}")
        return target_information(probs, targets, weights)

    def query(
        self, posterior: AbstractPosterior, x: Any, num: int, *, num_samples: int | None = None, key: Key
    ) -> Query:
        _check_num(num, len(x))
        if self.x_target.shape[1:] != x.shape[1:]:
            raise ValueError(f"x_target must have rows of shape {x.shape[1:]}, got {self.x_target.shape[1:]}")
        both = np.concatenate([x, self.x_target.astype(x.dtype)])  # at once: the draws must be the same
        probs, weights = draw_probs(posterior, both, num_samples=num_samples)
        return _best(self.scores(probs[:, : len(x)], probs[:, len(x) :], weights=weights), num, key)


@register("acquisition/random")
class Random(AbstractAcquisition):
    """Any input, each with the same probability."""

    @property
    def has_scores(self) -> bool:
        return False

    def query(
        self, posterior: AbstractPosterior | None, x: Any, num: int, *, num_samples: int | None = None, key: Key
    ) -> Query:
        """A random subset; the posterior is not looked at."""
        _check_num(num, len(x))
        return _best(np.zeros(len(x)), num, key)


def generator_of(key: Key) -> np.random.Generator:
    """NumPy's random numbers from a key of ours; JAX would compile a program for every size of the pool."""
    return np.random.default_rng(np.asarray(jax.random.key_data(as_key(key))).tolist())


def _best(scores: Float[np.ndarray, " n"], num: int, key: Key) -> Query:
    if np.isnan(scores).any():
        raise FloatingPointError(f"scores of {int(np.isnan(scores).sum())} inputs are NaN: look at posterior.summary()")
    rows = np.lexsort((generator_of(key).random(len(scores)), -scores))[:num]
    return Query(rows, np.asarray(scores[rows], np.float64))


def _check_num(num: int, most: int) -> None:
    if isinstance(num, bool) or not isinstance(num, int | np.integer) or not 1 <= num <= most:
        raise ValueError(f"num must be an int from 1 to the number of candidates, {most}, got {num!r}")


def _is_of_numbers(prediction: Any) -> bool:
    outcome = outcome_of(prediction)
    return outcome is not None and outcome.is_number


def _sum_over_labels(values: Float[np.ndarray, "n *d"]) -> Float[np.ndarray, " n"]:
    return values.reshape(len(values), -1).sum(axis=1)
