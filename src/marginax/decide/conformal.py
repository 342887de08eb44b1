r"""Split conformal prediction: intervals and sets that cover with the level asked for.

With scores $s_1, \dots, s_n$ of held-out rows and $k = \lceil (n+1) \gamma \rceil$, a new target is in
$\{y : s(x, y) \le s_{(k)}\}$ with probability at least $\gamma$ (and at most $\gamma + 1/(n+1)$ where scores do not
tie), if it is exchangeable with the held-out ones: nothing is assumed about the model. Given the held-out rows, the
coverage is a draw from a Beta distribution with parameters $k$ and $n + 1 - k$ (Vovk, 2012).
"""

import math
import warnings
from typing import Any, overload

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Bool, Float, Shaped

from marginax._keys import Key, as_key
from marginax.decide.rules import AbstractIntervalRule, AbstractSetRule, Mondrian, PerClass
from marginax.files import register
from marginax.predict import ClassificationPrediction
from marginax.predict.checks import check_level
from marginax.predict.reading import read_one_class

_ROUNDING = 1 - 1e-12  # (n + 1) * level may be a whole number and a hair


@register("conformal/intervals")
class ConformalIntervals(eqx.Module):
    """Intervals for numbers, from `conformalise`. It keeps the scores, so that any level can be asked for.

    Attributes:
        rule: as it was given.
        scores: of the held-out rows in ascending order, by group (None where there are no groups).
    """

    rule: AbstractIntervalRule | Mondrian
    scores: dict[Any, Float[np.ndarray, "_ *d"]]

    def interval(
        self, prediction: Any, level: float = 0.9, *, groups: Any = None
    ) -> tuple[Float[np.ndarray, "n *d"], Float[np.ndarray, "n *d"]]:
        """Lower and upper ends; they are infinite, with a warning, if there are too few held-out rows for the level.

        With several outputs, the level is that of each on its own.

        Args:
            prediction: at the new inputs, of the same kind as the held-out one.
            level: probability of covering the target.
            groups: of the new inputs, for `Mondrian` rules. A group without held-out rows has infinite intervals.
        """
        rule = self.rule.rule if isinstance(self.rule, Mondrian) else self.rule
        assert isinstance(rule, AbstractIntervalRule)
        labels = _read_groups(self.rule, groups)
        bounds = _bounds(self.scores, level, labels, "the intervals are infinite")
        return rule.interval(prediction, bounds)


@register("conformal/sets")
class ConformalSets(eqx.Module):
    """Sets of classes, from `conformalise`. It keeps the scores, so that any level can be asked for.

    Attributes:
        rule: as it was given.
        scores: of the held-out rows in ascending order, by group or class (None where there are neither).
        num_classes: of the held-out prediction.
    """

    rule: AbstractSetRule | Mondrian | PerClass
    scores: dict[Any, Float[np.ndarray, " _"]]
    num_classes: int

    def sets(
        self, prediction: Any, level: float = 0.9, *, groups: Any = None, key: Key | None = None
    ) -> Bool[np.ndarray, "n k"]:
        """Which classes are in the set of each input; all, with a warning, if there are too few held-out rows.

        A set may be empty: then no class conforms.

        Args:
            prediction: at the new inputs, of classes, or probabilities (n, k), or (n,) for two classes.
            level: probability of covering the label.
            groups: of the new inputs, for `Mondrian` rules. A group without held-out rows has full sets.
            key: an int seed or a JAX key, for `Randomised` rules.
        """
        probs = _read(prediction).probs
        if probs.shape[1] != self.num_classes:
            raise ValueError(
                f"prediction must have {self.num_classes} classes as the held-out one, got {probs.shape[1]}"
            )
        rule = self.rule.rule if isinstance(self.rule, Mondrian | PerClass) else self.rule
        assert isinstance(rule, AbstractSetRule)
        labels = _read_groups(self.rule, groups)
        _check_num_groups(labels, len(probs))
        if isinstance(self.rule, PerClass):
            bounds = _bounds(self.scores, level, np.arange(self.num_classes), "those classes are in every set")
        else:
            bounds = _bounds(self.scores, level, labels, "the sets hold all classes")[:, None]
        return rule.scores(probs, key=_stream(key, 1)) <= bounds


@overload
def conformalise(
    prediction: Any, y: Any, rule: AbstractIntervalRule, *, groups: Any = None, key: Key | None = None
) -> ConformalIntervals: ...
@overload
def conformalise(
    prediction: Any, y: Any, rule: AbstractSetRule | PerClass, *, groups: Any = None, key: Key | None = None
) -> ConformalSets: ...
@overload
def conformalise(prediction: Any, y: Any, rule: Mondrian, *, groups: Any = None, key: Key | None = None) -> Any: ...
def conformalise(prediction: Any, y: Any, rule: Any, *, groups: Any = None, key: Key | None = None) -> Any:
    """Calibrate on held-out rows, which the posterior has not seen, so that intervals or sets cover.

    Args:
        prediction: at the held-out inputs: a `RegressionPrediction` or `ClassificationPrediction`, or arrays: class
            probabilities (n, k), means (n,), or a pair (mean, std) or (lower, upper), whichever the rule takes.
        y: the held-out targets.
        rule: for numbers `AbsoluteResidual()`, `Normalised()` or `CQR()`; for classes `LAC()`, `APS()`, `RAPS()`, the
            latter two also as `Randomised(...)`; `Mondrian(rule)` for coverage in every group, `PerClass(rule)` for
            coverage of every class.
        groups: of the held-out inputs, integers or strings, for `Mondrian` rules.
        key: an int seed or a JAX key, for `Randomised` rules.

    Returns:
        `ConformalIntervals` with `.interval(prediction, level)`, or `ConformalSets` with `.sets(prediction, level)`.

    >>> import marginax as mx
    >>> y = np.arange(19.0)
    >>> calibrated = mx.decide.conformalise((np.zeros(19), np.full(19, 2.0)), y, mx.decide.Normalised())
    >>> lower, upper = calibrated.interval(([5.0], [1.0]), level=0.9)  # the 18th of 19 scores is 8.5
    >>> lower.tolist(), upper.tolist()
    ([-3.5], [13.5])
    """
    inner = rule.rule if isinstance(rule, Mondrian | PerClass) else rule
    if isinstance(inner, AbstractIntervalRule) and not isinstance(rule, PerClass):
        if key is not None:
            raise ValueError("key is of use with Randomised rules only: leave it out")
        scores = inner.scores(prediction, y)
        return ConformalIntervals(rule, _sort_by_group(scores, _read_groups(rule, groups)))
    if not isinstance(inner, AbstractSetRule):
        raise TypeError(f"rule must be one such as mx.decide.Normalised() or mx.decide.LAC(), got {rule!r}")
    classes = _read(prediction)
    labels = classes.check(y)
    scores = inner.scores(classes.probs, key=_stream(key, 0))[np.arange(len(labels)), labels]
    by = _read_groups(rule, groups)
    by = labels if isinstance(rule, PerClass) else by
    return ConformalSets(rule, _sort_by_group(scores, by), classes.num_classes)


def conformal_quantile(scores: Float[np.ndarray, "n *d"], level: float) -> Float[np.ndarray, "*d"]:
    r"""The $\lceil (n+1) \gamma \rceil$-th of n ascending scores, infinite if there are fewer.

    >>> conformal_quantile(np.arange(1.0, 10.0), 0.9).item(), conformal_quantile(np.arange(1.0, 9.0), 0.9).item()
    (9.0, inf)
    """
    num = len(scores)
    rank = math.ceil((num + 1) * level * _ROUNDING)
    return np.asarray(scores[rank - 1] if rank <= num else np.full(scores.shape[1:], np.inf))


def rows_needed(level: float) -> int:
    """How many held-out rows a level needs for its quantile to be finite.

    >>> rows_needed(0.9), rows_needed(0.99)
    (9, 99)
    """
    return math.ceil(level / (1 - level) * _ROUNDING)


def _bounds(
    scores: dict[Any, np.ndarray], level: float, groups: np.ndarray | None, consequence: str
) -> Float[np.ndarray, "rows *d"]:
    """Conformal quantiles: one row without groups, otherwise one for each entry of groups."""
    check_level(level)
    if groups is None:
        names, rows = [None], np.zeros(1, int)
    else:
        unique, rows = np.unique(groups, return_inverse=True)
        names = unique.tolist()
    nothing = np.empty((0, *next(iter(scores.values())).shape[1:]))
    members = [scores.get(name, nothing) for name in names]
    short = [
        (name, len(member)) for name, member in zip(names, members, strict=True) if len(member) < rows_needed(level)
    ]
    if short:
        got = ", ".join(f"{num}" if name is None else f"{num} for {name!r}" for name, num in short[:5])
        more = ", ..." if len(short) > 5 else ""
        warnings.warn(
            f"level={level:g} needs {rows_needed(level)} held-out rows or more, got {got}{more}: {consequence}",
            stacklevel=4,  # the caller of a method of an Equinox module
        )
    return np.stack([conformal_quantile(member, level) for member in members])[rows]


def _sort_by_group(scores: np.ndarray, groups: np.ndarray | None) -> dict[Any, np.ndarray]:
    if groups is None:
        return {None: np.sort(scores, axis=0)}
    _check_num_groups(groups, len(scores))
    return {name: np.sort(scores[groups == name], axis=0) for name in np.unique(groups).tolist()}


def _read_groups(rule: Any, groups: Any) -> Shaped[np.ndarray, " n"] | None:
    """Integers or strings, one for each input."""
    if not isinstance(rule, Mondrian):
        if groups is not None:
            raise ValueError(
                f"groups are of use with Mondrian rules only, got the rule {rule!r}: wrap it, or leave them"
            )
        return None
    if groups is None:
        raise ValueError("groups must be given for a Mondrian rule, one for each input, got None")
    labels = np.asarray(groups)
    if labels.dtype.kind in "OT" and all(isinstance(label, str) for label in labels.ravel().tolist()):
        labels = labels.astype(str)
    if labels.ndim != 1 or labels.dtype.kind not in "biuU":
        raise ValueError(
            f"groups must be integers or strings of shape (n,), got an array of {labels.dtype} of shape {labels.shape}"
        )
    return labels.astype(int) if labels.dtype.kind == "b" else labels


def _check_num_groups(groups: np.ndarray | None, num_rows: int) -> None:
    if groups is not None and len(groups) != num_rows:
        raise ValueError(f"groups must have one entry for each of the {num_rows} inputs, got {len(groups)}")


def _read(prediction: Any) -> ClassificationPrediction:
    return read_one_class(prediction, name="conformal sets", remedy="numbers have Normalised(), CQR() and the like")


def _stream(key: Key | None, number: int) -> Any:
    """Calibration and sets draw different numbers, also from the same seed."""
    return None if key is None else jax.random.fold_in(as_key(key), number)
