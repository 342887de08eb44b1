"""Active relabelling: fit, look whose answer about which item says most about its true label, ask, and fit again.

Where `learn_actively` asks for one label of a row, annotators err, so that an item is worth more than one answer, and
an answer of one annotator more than that of another. The answers so far are all that a study needs to go on.
"""

import abc
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from marginax._keys import Key, as_key
from marginax.data.arrays import as_numeric
from marginax.data.missing import MISSING
from marginax.decide.acquisition import generator_of
from marginax.decide.curve import LearningCurve, judge
from marginax.decide.refit import refit
from marginax.infer import AbstractMethod
from marginax.infer.catalogue import as_method
from marginax.model import Model
from marginax.posterior import AbstractPosterior

_FIT, _QUERY, _TIES = range(3)  # streams of keys at a number of answers

Answers = Int[np.ndarray, "n annotators"]
AnswerOracle = Callable[[np.ndarray, np.ndarray], Any]


class AbstractQuestions(eqx.Module):
    """What to ask whom."""

    has_scores: eqx.AbstractClassVar[bool]

    @abc.abstractmethod
    def scores(
        self,
        posterior: AbstractPosterior,
        x: np.ndarray,
        answers: Answers,
        *,
        num_samples: int | None,
        key: PRNGKeyArray,
    ) -> Float[np.ndarray, "n annotators"]:
        """Of every question; the highest are asked."""


class ExpectedInformation(AbstractQuestions):
    """The mutual information of answer and true label, given the answers so far: `posterior.expected_information`."""

    has_scores: ClassVar[bool] = True

    def scores(
        self,
        posterior: AbstractPosterior,
        x: np.ndarray,
        answers: Answers,
        *,
        num_samples: int | None,
        key: PRNGKeyArray,
    ) -> Float[np.ndarray, "n annotators"]:
        return posterior.expected_information(x, answers, num_samples=num_samples, key=key)


class RandomQuestions(AbstractQuestions):
    """Anybody about anything: what others are measured by."""

    has_scores: ClassVar[bool] = False

    def scores(
        self,
        posterior: AbstractPosterior,
        x: np.ndarray,
        answers: Answers,
        *,
        num_samples: int | None,
        key: PRNGKeyArray,
    ) -> Float[np.ndarray, "n annotators"]:
        return generator_of(key).uniform(size=answers.shape)


class KnownAnswers(eqx.Module):
    """An oracle for experiments: the answers are there, and given when asked for.

    >>> KnownAnswers([[0, 1], [1, 1]])(np.array([0, 1]), np.array([1, 0])).tolist()
    [1, 1]

    Args:
        answers: (item, annotator), -1 where there is none to be had.
    """

    answers: Int[np.ndarray, "n annotators"]

    def __init__(self, answers: Any):
        given = as_numeric(answers, name="answers")
        if given.ndim != 2 or not np.all((given == np.round(given)) & (given >= MISSING)):
            raise ValueError(f"answers must be whole numbers >= {MISSING}, (item, annotator), got {answers!r:.80}")
        self.answers = given.astype(np.int32)

    @property
    def available(self) -> Bool[np.ndarray, "n annotators"]:
        """Which questions can be asked."""
        return self.answers != MISSING

    def __call__(self, items: Int[np.ndarray, " m"], annotators: Int[np.ndarray, " m"]) -> Int[np.ndarray, " m"]:
        return self.answers[items, annotators]


@dataclass(frozen=True, eq=False)
class Relabelled:
    """What active relabelling has come to.

    Attributes:
        answers: so far, -1 where nobody was asked: `relabel_actively` goes on from them.
        posterior: of the last round; None if it was interrupted before the first was done.
        curve: error of the consensus of all items by number of answers, where the truth was given.
        reason: why it ended: "everybody was asked", "budget is spent", "threshold is reached" or "interrupted".
    """

    answers: Answers
    posterior: AbstractPosterior | None
    curve: LearningCurve
    reason: str


def relabel_actively(
    model: Model,
    x: Any,
    answers: Any,
    oracle: AnswerOracle,
    method: AbstractMethod | str,
    questions: AbstractQuestions | None = None,
    *,
    batch_size: int,
    budget: int,
    key: Key,
    available: Any = None,
    threshold: float | None = None,
    truth: Any = None,
    warm_start: bool = False,
    num_samples: int | None = None,
    callback: Callable[[Answers], None] | None = None,
) -> Relabelled:
    """Ask the annotators whose answers say most, about the items whose labels are least known.

    A round fits the answers so far, scores every question that was not asked yet, and asks the best of them, at most
    one about an item: after its answer others say less. Randomness depends on the key and the number of answers alone,
    so that with `warm_start=False` a study that ended goes on, from its answers, as if it had not.

    Args:
        model: with `mx.likelihoods.Annotators`; its network may be `mx.nets.Intercept(num_classes)`.
        x: inputs of the items; anything of their number for an intercept.
        answers: (item, annotator) so far, -1 where nobody was asked. Items without any are no part of fits until they
            have one, and can be asked about.
        oracle: gives the answers of arrays of items and of annotators: a function, or `KnownAnswers(answers)`. Ctrl-C
            within it ends the session, and nothing before is lost.
        method: how to infer, from `mx.infer`; or its name.
        questions: `ExpectedInformation()`, the default, or `RandomQuestions()`.
        batch_size: answers to ask for in a round.
        budget: answers to ask for in all.
        key: int seed or JAX key.
        available: which questions can be asked, (item, annotator); by default all, or those that `oracle` says.
        threshold: end when no question has a score of at least this, in nats.
        truth: true labels of the items, to judge the consensus of every round by.
        warm_start: begin each fit where the last one ended, if the method does the same from a given start.
        num_samples: draws of the posterior to score and judge with; by default as in `posterior.predict`.
        callback: is given the answers after each round of them, to keep them.

    >>> import marginax as mx
    >>> everything = np.array([[0, 0, 1], [1, 1, 0], [0, 0, 0], [1, 1, 1]])
    >>> first = np.where([[1, 1, 0]] * 3 + [[1, 0, 0]], everything, -1)
    >>> found = mx.decide.relabel_actively(
    ...     mx.Model(mx.nets.Intercept(2), mx.likelihoods.Annotators(2, 3)),
    ...     np.zeros((4, 1)),
    ...     first,
    ...     mx.decide.KnownAnswers(everything),
    ...     mx.infer.MAP(num_epochs=200, batch_size=None),
    ...     batch_size=1,
    ...     budget=1,
    ...     key=0,
    ... )
    >>> found.answers[3].tolist(), found.reason  # the item of which least is known, and who agreed with the other
    ([1, 1, -1], 'budget is spent')
    """
    questions = ExpectedInformation() if questions is None else questions
    chosen: Any = as_method(method)
    answers, x, possible = _check(model, x, answers, oracle, questions, available)
    for name, count, optional in (
        ("batch_size", batch_size, 0),
        ("budget", budget, 0),
        ("num_samples", num_samples, 1),
    ):
        if not (optional and count is None) and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
            raise ValueError(f"{name} must be an int >= 1{' or None' if optional else ''}, got {count!r}")
    if threshold is not None and not (questions.has_scores and np.isfinite(threshold)):
        raise ValueError(f"threshold must be None for {type(questions).__name__}(), or finite nats, got {threshold}")
    gold = None if truth is None else as_numeric(truth, name="truth")
    if gold is not None and gold.shape != (len(x),):
        raise ValueError(f"truth must be a label for each of {len(x)} items, got shape {gold.shape}")
    size = model.output_size(x.shape[1:], x.dtype)
    if gold is not None and not np.isin(gold, np.arange(size)).all():
        wrong = gold[~np.isin(gold, np.arange(size))][0]
        raise ValueError(f"truth must hold labels from 0 to {size - 1} of all items, got {wrong:g}")
    base, last = as_key(key), int((answers != MISSING).sum()) + budget
    posterior, curve, reason = None, LearningCurve(), None
    while reason is None:
        try:
            began, num = time.perf_counter(), int((answers != MISSING).sum())
            asked = (answers != MISSING).any(axis=1)
            seeds = [jax.random.fold_in(jax.random.fold_in(base, num), stream) for stream in range(3)]
            init = posterior if warm_start else None
            data = (x[asked], answers[asked])
            posterior = refit(model, data, chosen, init=init, capacity=len(x), key=seeds[_FIT])
            judged = {} if gold is None else judge(posterior.consensus(x, answers, num_samples=num_samples), gold)
            best, items, who = np.nan, np.zeros(0, int), np.zeros(0, int)
            if num >= last:
                reason = "budget is spent"
            elif not (possible & (answers == MISSING)).any():
                reason = "everybody was asked"
            else:
                scores = questions.scores(posterior, x, answers, num_samples=num_samples, key=seeds[_QUERY])
                scores = np.where(possible & (answers == MISSING), scores, -np.inf)
                items, who = _best(scores, min(batch_size, last - num), seeds[_TIES])
                best = float(scores[items[0], who[0]]) if questions.has_scores else np.nan
                if threshold is not None and best < threshold:
                    reason = "threshold is reached"
            curve = curve.add(num, **judged, score=best, seconds=time.perf_counter() - began)
            if reason is None:
                answers = _answered(model, size, answers, items, who, oracle(items.copy(), who.copy()))
                if callback is not None:
                    callback(answers.copy())
        except KeyboardInterrupt:
            reason = "interrupted"
    return Relabelled(answers, posterior, curve, reason)


def _best(scores: Float[np.ndarray, "n annotators"], num: int, key: Key) -> tuple[np.ndarray, np.ndarray]:
    """The questions with the highest scores, one about an item, the best first; ties in random order.

    >>> [places.tolist() for places in _best(np.array([[3.0, 2.0], [0.0, 1.0], [-np.inf, -np.inf]]), 3, 0)]
    [[0, 1], [0, 1]]
    """
    rng = generator_of(key)
    rows, columns = rng.permutation(scores.shape[0]), rng.permutation(scores.shape[1])
    mixed = scores[rows][:, columns]
    who, highest = mixed.argmax(axis=1), mixed.max(axis=1)
    first = np.argsort(-highest, kind="stable")[:num]
    first = first[np.isfinite(highest[first])]
    return rows[first], columns[who[first]]


def _answered(
    model: Model, output_size: int, answers: Answers, items: np.ndarray, who: np.ndarray, given: Any
) -> Answers:
    """The answers with new ones, checked."""
    given = as_numeric(given, name="answers from the oracle")
    if given.shape != items.shape:
        raise ValueError(f"oracle must give an answer to each of {len(items)} questions, got shape {given.shape}")
    new = answers.copy()
    new[items, who] = given
    if (given == MISSING).any() or (new[items, who] != given).any():
        place = int(np.argmax((given == MISSING) | (new[items, who] != given)))
        raise ValueError(
            f"oracle must give labels, got {given[place]} of annotator {who[place]} about item {items[place]}: "
            "say by available= which questions can be asked"
        )
    model.likelihood.check(output_size, new)
    return new


def _check(
    model: Any, x: Any, answers: Any, oracle: Any, questions: Any, available: Any
) -> tuple[Answers, np.ndarray, np.ndarray]:
    """Refuse what cannot belong together, before anything is computed."""
    likelihood = getattr(model, "likelihood", None)
    if likelihood is None or not likelihood.by_annotators:
        raise TypeError(f"model must be an mx.Model with mx.likelihoods.Annotators(...), got {model!r:.80}")
    if not isinstance(questions, AbstractQuestions):
        raise TypeError(f"questions must be an object such as mx.decide.ExpectedInformation(), got {questions!r}")
    if not callable(oracle):
        raise TypeError(f"oracle must be a function of items and annotators, or KnownAnswers(answers), got {oracle!r}")
    x, answers = as_numeric(x, name="x"), as_numeric(answers, name="answers")
    model.likelihood.check(model.output_size(x.shape[1:], x.dtype), answers)
    if len(x) != len(answers):
        raise ValueError(f"x and answers must have the same number of items, got {len(x)} and {len(answers)}")
    if not (answers != MISSING).any():
        raise ValueError("answers must have one at least to begin with, got none: ask a few at random")
    if available is None:
        available = getattr(oracle, "available", np.ones(answers.shape, bool))
    possible = np.asarray(available)
    if possible.dtype != bool or possible.shape != answers.shape:
        raise ValueError(f"available must be boolean of shape {answers.shape} as answers, got {possible.shape}")
    return answers.astype(np.int32), x, possible
