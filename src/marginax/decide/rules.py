r"""Rules of conformal prediction: how little a target conforms to its prediction.

A rule gives each target a nonconformity score $s(x, y)$. The set of all targets whose score is at most the
conformal quantile of held-out scores covers a new target with the level asked for, whatever the rule and the
prediction; a better rule gives smaller sets.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from marginax.files import register
from marginax.predict.checks import check_array, check_level, check_targets
from marginax.predict.reading import outcome_of, read_numbers

_OF_CLASSES = "classes have LAC(), APS() and RAPS()"


class AbstractIntervalRule(eqx.Module):
    """Scores of numbers, and the interval of all numbers whose score is within a bound."""

    @abc.abstractmethod
    def scores(self, prediction: Any, y: Any) -> Float[np.ndarray, "n *d"]:
        """The nonconformity of each target."""

    @abc.abstractmethod
    def interval(
        self, prediction: Any, bound: Float[np.ndarray, "..."]
    ) -> tuple[Float[np.ndarray, "n *d"], Float[np.ndarray, "n *d"]]:
        """Ends of the interval; the bound has one row for all inputs or one for each, and may be infinite."""


class AbstractSetRule(eqx.Module):
    """Scores of classes."""

    @abc.abstractmethod
    def scores(self, probs: Float[np.ndarray, "n k"], *, key: PRNGKeyArray | None) -> Float[np.ndarray, "n k"]:
        """The nonconformity of each class; a key for rules that draw random numbers, None for others."""


@register("conformal_rule/absolute_residual")
class AbsoluteResidual(AbstractIntervalRule):
    r"""$|y - \mu(x)|$: intervals of one width for all inputs (Papadopoulos et al., 2002; Lei et al., 2018).

    Takes a `RegressionPrediction` or an array of means.

    >>> AbsoluteResidual().scores([1.0, 2.0], [1.5, 0.0]).tolist()
    [0.5, 2.0]
    """

    def scores(self, prediction: Any, y: Any) -> Float[np.ndarray, "n *d"]:
        mean = read_mean(prediction)
        return np.abs(check_targets(y, mean.shape) - mean)

    def interval(
        self, prediction: Any, bound: Float[np.ndarray, "..."]
    ) -> tuple[Float[np.ndarray, "n *d"], Float[np.ndarray, "n *d"]]:
        mean = read_mean(prediction)
        check_bound(bound, mean.shape)
        return mean - bound, mean + bound


@register("conformal_rule/normalised")
class Normalised(AbstractIntervalRule):
    r"""$|y - \mu(x)| / \sigma(x)$: intervals in proportion to the predictive standard deviation (Lei et al., 2018).

    Takes a `RegressionPrediction` or a pair of arrays (mean, std).

    >>> Normalised().scores(([1.0, 2.0], [0.5, 4.0]), [1.5, 0.0]).tolist()
    [1.0, 0.5]
    """

    def scores(self, prediction: Any, y: Any) -> Float[np.ndarray, "n *d"]:
        mean, std = read_mean_and_std(prediction)
        residual = np.abs(check_targets(y, mean.shape) - mean)
        return np.divide(residual, std, out=np.where(residual == 0, 0.0, np.inf), where=std > 0)

    def interval(
        self, prediction: Any, bound: Float[np.ndarray, "..."]
    ) -> tuple[Float[np.ndarray, "n *d"], Float[np.ndarray, "n *d"]]:
        mean, std = read_mean_and_std(prediction)
        check_bound(bound, mean.shape)
        half = np.full(mean.shape, np.inf)
        np.multiply(bound, std, out=half, where=np.isfinite(bound))
        return mean - half, mean + half


@register("conformal_rule/cqr")
class CQR(AbstractIntervalRule):
    r"""$\max(l(x) - y,\ y - u(x))$: a predicted interval made wider or narrower (Romano et al., 2019).

    Takes a `RegressionPrediction`, whose central interval is used, or a pair of arrays (lower, upper). For intervals
    with one end, give -inf or inf as the other. An interval that would shrink to nothing is its midpoint.

    Args:
        level: of the central interval of a `RegressionPrediction`. It is a starting point: whatever it is, the result
            covers with the level asked for.

    >>> CQR().scores(([0.0, 0.0], [1.0, 1.0]), [3.0, 0.75]).tolist()
    [2.0, -0.25]
    """

    level: float = 0.9

    def __check_init__(self):
        check_level(self.level)

    def scores(self, prediction: Any, y: Any) -> Float[np.ndarray, "n *d"]:
        lower, upper = self._ends(prediction)
        targets = check_targets(y, lower.shape)
        return np.maximum(lower - targets, targets - upper)

    def interval(
        self, prediction: Any, bound: Float[np.ndarray, "..."]
    ) -> tuple[Float[np.ndarray, "n *d"], Float[np.ndarray, "n *d"]]:
        lower, upper = self._ends(prediction)
        check_bound(bound, lower.shape)
        low = np.where(np.isinf(lower), lower, lower - bound)
        high = np.where(np.isinf(upper), upper, upper + bound)
        middle = np.where(low > high, lower, 0) / 2 + np.where(low > high, upper, 0) / 2
        return np.where(low > high, middle, low), np.where(low > high, middle, high)

    def _ends(self, prediction: Any) -> tuple[np.ndarray, np.ndarray]:
        if outcome_of(prediction) is None or isinstance(prediction, tuple):
            lower, upper = _read_ends(prediction)
        else:
            lower, upper = read_numbers(prediction, name="CQR()", remedy=_OF_CLASSES).interval(self.level)
        if np.isposinf(lower).any() or np.isneginf(upper).any():
            raise ValueError("prediction must have lower ends below inf and upper ends above -inf")
        return lower, upper


@register("conformal_rule/lac")
class LAC(AbstractSetRule):
    r"""$1 - p(y \mid x)$: classes above one threshold, the smallest sets on average (Sadinle et al., 2019).

    Sets may be empty, where no class is probable enough.

    >>> LAC().scores(np.array([[0.75, 0.25]])).tolist()
    [[0.25, 0.75]]
    """

    def scores(self, probs: Float[np.ndarray, "n k"], *, key: PRNGKeyArray | None = None) -> Float[np.ndarray, "n k"]:
        _refuse_key(key)
        return 1 - probs


@register("conformal_rule/aps")
class APS(AbstractSetRule):
    r"""The probability of the class and of all more probable ones: adaptive sets (Romano et al., 2020).

    They are larger where the prediction is less sure, and cover more evenly than those of `LAC`. Least probable classes
    all have a score of 1, so that with few classes coverage is above the level; `Randomised(APS())`, the rule of the
    paper, is exact.

    >>> APS().scores(np.array([[0.25, 0.625, 0.125]])).tolist()
    [[0.875, 0.625, 1.0]]
    """

    def scores(self, probs: Float[np.ndarray, "n k"], *, key: PRNGKeyArray | None = None) -> Float[np.ndarray, "n k"]:
        _refuse_key(key)
        order = np.argsort(-probs, axis=1, kind="stable")
        cumulative = np.cumsum(np.take_along_axis(probs, order, axis=1), axis=1)
        cumulative[:, -1] = 1.0  # exactly, so that the least probable classes of all inputs have the same score
        return _put_back(cumulative, order)


@register("conformal_rule/raps")
class RAPS(AbstractSetRule):
    r"""`APS` with a price for every class beyond the first few: smaller sets (Angelopoulos et al., 2021).

    Args:
        penalty: $\lambda$, added to the score for each rank beyond `num_free`.
        num_free: $k_{reg}$, how many of the most probable classes cost nothing.

    >>> RAPS(penalty=0.5, num_free=1).scores(np.array([[0.25, 0.625, 0.125]])).tolist()
    [[1.375, 0.625, 2.0]]
    """

    penalty: float | int = 0.01
    num_free: int = 5

    def __check_init__(self):
        if not 0 <= self.penalty < np.inf:
            raise ValueError(f"penalty must be >= 0 and finite, got {self.penalty}")
        if self.num_free < 0:
            raise ValueError(f"num_free must be >= 0, got {self.num_free}")

    def scores(self, probs: Float[np.ndarray, "n k"], *, key: PRNGKeyArray | None = None) -> Float[np.ndarray, "n k"]:
        order = np.argsort(-probs, axis=1, kind="stable")
        beyond = np.maximum(np.arange(1, probs.shape[1] + 1) - self.num_free, 0)
        return APS().scores(probs, key=key) + _put_back(self.penalty * np.broadcast_to(beyond, probs.shape), order)


@register("conformal_rule/randomised")
class Randomised(AbstractSetRule):
    r"""A random part of the class's own probability does not count: coverage is exact, not only at least the level.

    $s(x, y) - U \, p(y \mid x)$ with $U$ uniform, one for each input. Needs a key, to calibrate and to make sets.

    Args:
        rule: `APS` or `RAPS`.

    >>> scores = Randomised(APS()).scores(np.array([[0.25, 0.75]]), key=jax.random.key(0))
    >>> bool(0 < scores[0, 1] < 0.75 < scores[0, 0] < 1)
    True
    """

    rule: APS | RAPS

    def __check_init__(self):
        if not isinstance(self.rule, APS | RAPS):
            raise TypeError(f"rule of Randomised must be APS or RAPS, got {self.rule!r}")

    def scores(self, probs: Float[np.ndarray, "n k"], *, key: PRNGKeyArray | None = None) -> Float[np.ndarray, "n k"]:
        if key is None:
            raise TypeError("key must be an int seed or a JAX key for a Randomised rule, got None")
        return self.rule.scores(probs) - draw_uniform(key, len(probs))[:, None] * probs


@register("conformal_rule/mondrian")
class Mondrian(eqx.Module):
    """A quantile for each group, so that coverage holds within every group (Vovk et al., 2005).

    Groups are of the inputs: a region, a kind of device, the predicted label. Give `groups=` to `conformalise`, and to
    the interval or the sets.

    Args:
        rule: any of the others.
    """

    rule: AbstractIntervalRule | AbstractSetRule

    def __check_init__(self):
        if not isinstance(self.rule, AbstractIntervalRule | AbstractSetRule):
            raise TypeError(f"rule of Mondrian must be a rule such as Normalised() or LAC(), got {self.rule!r}")


@register("conformal_rule/per_class")
class PerClass(eqx.Module):
    """A quantile for each class, so that coverage holds for the inputs of every class (Vovk et al., 2005).

    Args:
        rule: one of classes.
    """

    rule: AbstractSetRule

    def __check_init__(self):
        if not isinstance(self.rule, AbstractSetRule):
            raise TypeError(f"rule of PerClass must be one of classes such as LAC(), got {self.rule!r}")


def read_mean(prediction: Any) -> Float[np.ndarray, "n *d"]:
    """Means of a prediction of numbers, or an array of them.

    >>> read_mean([1, 2]).tolist()
    [1.0, 2.0]
    """
    if isinstance(prediction, tuple):
        raise TypeError("prediction must be one of numbers or an array of means, got a tuple")
    given = outcome_of(prediction) is None
    mean = prediction if given else read_numbers(prediction, name="AbsoluteResidual()", remedy=_OF_CLASSES).mean
    return _check_shape(check_array(mean, "the mean of prediction"), "the mean of prediction")


def read_mean_and_std(prediction: Any) -> tuple[Float[np.ndarray, "n *d"], Float[np.ndarray, "n *d"]]:
    """Means and standard deviations, which may be 0, of a prediction of numbers or a pair of arrays.

    >>> [part.tolist() for part in read_mean_and_std(([1, 2], [1, 0]))]
    [[1.0, 2.0], [1.0, 0.0]]
    """
    numbers = read_numbers(prediction, name="Normalised()", allow_point=True, remedy=_OF_CLASSES)
    mean, std = numbers.mean, numbers.std
    if not (np.isfinite(mean).all() and np.isfinite(std).all()):
        raise ValueError("prediction must have finite means and standard deviations; for heavy tails, use CQR()")
    return mean, std


def _read_ends(prediction: Any) -> tuple[Float[np.ndarray, "n *d"], Float[np.ndarray, "n *d"]]:
    """A pair of arrays of one shape, which may hold infinite numbers."""
    if not isinstance(prediction, tuple | list) or len(prediction) != 2:
        raise TypeError(f"prediction must be one of numbers or a pair (lower, upper), got {type(prediction).__name__}")
    names = ("the lower ends of prediction", "the upper ends of prediction")
    lower, upper = (
        _check_shape(check_array(part, name, infinite=True), name) for part, name in zip(prediction, names, strict=True)
    )
    if lower.shape != upper.shape:
        raise ValueError(f"prediction must be a pair of arrays of one shape, got {lower.shape} and {upper.shape}")
    return lower, upper


def _check_shape(array: np.ndarray, name: str) -> np.ndarray:
    if array.ndim > 2:
        raise ValueError(f"{name} must have shape (n,) or (n, d), got {array.shape}")
    return array


def check_bound(bound: Float[np.ndarray, "..."], shape: tuple[int, ...]) -> None:
    """Refuse a prediction of a given shape that does not fit what was calibrated."""
    if bound.shape[1:] != shape[1:]:
        raise ValueError(
            f"prediction must have targets of shape {bound.shape[1:]} as the held-out ones, got {shape[1:]}"
        )
    if len(bound) not in (1, shape[0]):
        raise ValueError(f"groups must have one entry for each of the {shape[0]} inputs, got {len(bound)}")


def draw_uniform(key: PRNGKeyArray, num: int) -> Float[np.ndarray, " num"]:
    """Uniform numbers with all the digits of float64, so that scores do not tie."""
    with jax.enable_x64(True):
        return np.asarray(jax.random.uniform(key, (num,)))


def _refuse_key(key: PRNGKeyArray | None) -> None:
    if key is not None:
        raise ValueError("key is of use with Randomised rules only: leave it out")


def _put_back(ranked: np.ndarray, order: np.ndarray) -> np.ndarray:
    """From the order of ranks to that of classes."""
    result = np.empty(order.shape)
    np.put_along_axis(result, order, ranked, axis=1)
    return result
