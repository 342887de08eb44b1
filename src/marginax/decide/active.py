"""Active learning: fit, look where the posterior is unsure, ask for labels there, and fit again.

A round draws from the posterior, scores the candidates, asks the oracle about the best of them and adds the labels. It
ends when the pool is empty, the budget is spent, or no score reaches the threshold.
"""

import os
import time
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jaxtyping import Int, PRNGKeyArray

from marginax._keys import Key, as_key
from marginax.data import Arrays, as_arrays
from marginax.decide.acquisition import AbstractAcquisition, Query, Random, generator_of
from marginax.decide.curve import LearningCurve, judge
from marginax.decide.oracle import OneAtATime, Oracle, ask
from marginax.decide.pool import Pool
from marginax.decide.refit import refit
from marginax.decide.study import Plan, StudyState, load_state, save_state, study_directory
from marginax.files import RunDirectory
from marginax.files.disk import well_formed
from marginax.infer import AbstractMethod
from marginax.infer.catalogue import as_method
from marginax.model import Model
from marginax.posterior import AbstractPosterior
from marginax.posterior.storage import stored_model

_FIT, _CANDIDATES, _QUERY = range(3)  # streams of keys at a number of labels


@dataclass(frozen=True, eq=False)
class Learned:
    """What active learning has come to.

    Attributes:
        curve: error by number of labels.
        pool: with all labels so far.
        posterior: of the last round; None if it was interrupted before the first was done.
        reason: why it ended: "pool is empty", "budget is spent", "threshold is reached" or "interrupted".
    """

    curve: LearningCurve
    pool: Pool
    posterior: AbstractPosterior | None
    reason: str


class OracleError(RuntimeError):
    """The oracle failed, or gave labels that cannot be; `learned` has all labels that it gave before."""

    def __init__(self, message: str, learned: Learned):
        super().__init__(message)
        self.learned = learned


def learn_actively(
    model: Model,
    pool: Pool,
    oracle: Oracle,
    method: AbstractMethod | str,
    acquisition: AbstractAcquisition,
    *,
    batch_size: int,
    budget: int,
    key: Key,
    threshold: float | None = None,
    test: Any = None,
    directory: str | os.PathLike[str] | None = None,
    warm_start: bool = True,
    max_pool: int | None = None,
    num_samples: int | None = None,
) -> Learned:
    """Ask for the labels that teach most.

    Methods that train on minibatches (`mx.infer.MAP`, `DeepEnsemble`, `MCDropout` and their relatives) are compiled
    once for all rounds; others compile again in every round.

    Args:
        model: network, likelihood and prior.
        pool: the inputs, with labels for some. If it has none, the first batch is chosen at random.
        oracle: gives the labels of an array of row numbers: a function, `KnownLabels(y)`, or `OneAtATime(function)`.
            Ctrl-C within it ends the session, and nothing is lost.
        method: how to infer, from `mx.infer`; or its name, such as "mc_dropout".
        acquisition: what to ask: `BALD()`, `Random()`, ...
        batch_size: labels to ask for in a round.
        budget: labels to ask for in all.
        key: int seed or JAX key.
        threshold: end when no candidate has a score of at least this.
        test: a pair (x, y) to judge the posterior of every round by.
        directory: where to keep the study, so that `resume_learning(directory, oracle)` can go on with it.
        warm_start: begin each fit where the last one ended, if the method does the same from a given start; methods
            that would then leave training out, such as `mx.infer.Laplace`, always start anew.
        max_pool: candidates in a round, a random part of those without labels; all by default.
        num_samples: draws of the posterior to score and judge with; by default as in `posterior.predict`.

    Returns:
        The learning curve, the pool with its new labels, and the last posterior.

    >>> import marginax as mx
    >>> x = np.linspace(-1, 1, 21)[:, None]
    >>> net = mx.nets.MLP(in_size=1, hidden=(), out_size=1, key=0)
    >>> model = mx.Model(net, likelihood=mx.likelihoods.Gaussian(scale=0.1))
    >>> learned = mx.decide.learn_actively(
    ...     model,
    ...     mx.decide.Pool(x, rows=[10], y=[0.0]),
    ...     mx.decide.KnownLabels(3 * x[:, 0]),
    ...     mx.infer.AnchoredEnsemble(20, num_epochs=500, batch_size=1),
    ...     mx.decide.PredictiveVariance(),
    ...     batch_size=1,
    ...     budget=2,
    ...     key=0,
    ... )
    >>> sorted(learned.pool.labelled.tolist()), learned.reason
    ([0, 10, 20], 'budget is spent')
    """
    chosen: Any = as_method(method)
    for name, value, kind, what in (
        ("model", model, Model, "an mx.Model"),
        ("pool", pool, Pool, "an mx.decide.Pool"),
        ("method", chosen, AbstractMethod, "an object such as mx.infer.MCDropout()"),
        ("acquisition", acquisition, AbstractAcquisition, "an object such as mx.decide.BALD()"),
    ):
        if not isinstance(value, kind):
            raise TypeError(f"{name} must be {what}, got {value!r}")
    if not callable(oracle):
        raise TypeError(f"oracle must be a function of row numbers or KnownLabels(y), got {oracle!r}")
    for name, count, optional in (
        ("batch_size", batch_size, False),
        ("budget", budget, False),
        ("max_pool", max_pool, True),
        ("num_samples", num_samples, True),
    ):
        if not (optional and count is None) and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
            raise ValueError(f"{name} must be an int >= 1{' or None' if optional else ''}, got {count!r}")
    if max_pool is not None and max_pool < batch_size:
        raise ValueError(f"max_pool must be at least batch_size={batch_size}, got {max_pool}")
    if threshold is not None and not acquisition.has_scores:
        raise ValueError(f"threshold must be None for {type(acquisition).__name__}(), which has no scores")
    if threshold is not None and not np.isfinite(threshold):
        raise ValueError(f"threshold must be finite or None, got {threshold}")
    test = _check_data(model, pool, test)
    plan = Plan(
        chosen,
        acquisition,
        batch_size,
        budget,
        None if threshold is None else float(threshold),
        bool(warm_start),
        max_pool,
        num_samples,
    )
    study = _Study(model, plan, oracle, pool, test, as_key(key))
    if directory is not None:
        study.files = study_directory(directory)
        with study.files.owned():
            parts = {"model": model, "study": {"plan": plan, "pool": pool, "test": test}, "key": study.key}
            study.files.create(parts, optional={"model": model.structure})
            return study.execute()
    return study.execute()


def resume_learning(directory: str | os.PathLike[str], oracle: Oracle, *, model: Model | None = None) -> Learned:
    """Go on with a study; what comes out is what an uninterrupted one gives, bit for bit.

    Args:
        directory: that was given to `learn_actively`.
        oracle: who is asked from now on.
        model: needed only if its network is a class or function of yours that is not registered.
    """
    if not callable(oracle):
        raise TypeError(f"oracle must be a function of row numbers or KnownLabels(y), got {oracle!r}")
    files = study_directory(directory)
    files.check_begun()
    with files.owned():
        with well_formed(directory):
            setup = files.read()
            found: Any = stored_model(setup, model)
            parts = setup.get("study", of=dict[str, Plan | Pool | Arrays | None])
            key = setup.get("key", of=PRNGKeyArray)
            study = _Study(found, parts["plan"], oracle, parts["pool"], parts["test"], key, files)
            prepared: Any = study.plan.method.prepare_model(found)
            state, posterior = load_state(files, prepared)
            if state is not None:
                study.restore(state, posterior)
        return study.execute()


@dataclass
class _Study:
    """A study in progress: what `learn_actively` sets up and `resume_learning` restores."""

    model: Model
    plan: Plan
    oracle: Oracle
    pool: Pool
    test: Arrays | None
    key: PRNGKeyArray
    files: RunDirectory | None = None
    posterior: AbstractPosterior | None = None
    pending: Int[np.ndarray, " p"] = field(default_factory=lambda: np.zeros(0, np.int64))
    round: int = 0
    curve: LearningCurve = field(default_factory=LearningCurve)
    reason: str | None = None

    def __post_init__(self):
        self.last = min(len(self.pool), self.pool.num_labelled + self.plan.budget)  # labels in the end

    def restore(self, state: StudyState, posterior: AbstractPosterior | None) -> None:
        """Go to where it was."""
        if state.labels is not None:
            self.pool = Pool(self.pool.x, state.rows, state.labels)
        self.pending, self.round, self.curve = state.pending, state.round, state.curve
        self.reason, self.posterior = state.reason, posterior

    def execute(self) -> Learned:
        """Rounds, until it ends."""
        try:
            while self.reason is None:
                self._ask()
                if self.pool.num_labelled:
                    self._learn()
                else:
                    self._choose(Random())
                    self._save()
        except KeyboardInterrupt:
            return self._learned("interrupted")
        return self._learned(self.reason)

    # ---- pieces of a round

    def _ask(self) -> None:
        """Labels of the rows that were chosen; each answer is on disk before the next question."""
        size = 1 if isinstance(self.oracle, OneAtATime) else len(self.pending)
        while len(self.pending):
            rows = self.pending[:size]
            try:
                labels = ask(self.oracle, rows)
                _check_labels(self.model, self.pool, labels)
                self.pool = self.pool.label(rows, labels)
            except Exception as error:
                message = f"oracle failed on rows {rows.tolist()}: {error}"
                raise OracleError(message, self._learned("interrupted")) from error
            self.pending = self.pending[size:]
            self._save()

    def _learn(self) -> None:
        """Fit, judge, and choose what to ask next."""
        began = time.perf_counter()
        posterior = refit(
            self.model,
            self.pool.data,
            self.plan.method,
            init=self.posterior if self.plan.warm_start else None,
            capacity=self.last,
            key=self._key(_FIT),
        )
        self.posterior = posterior
        scores = {}
        if self.test is not None:
            prediction = posterior.predict(self.test.x, num_samples=self.plan.num_samples)
            scores = judge(prediction, np.asarray(self.test.y))
        best = np.nan
        if self.pool.num_labelled == len(self.pool):
            self.reason = "pool is empty"
        elif self.pool.num_labelled >= self.last:
            self.reason = "budget is spent"
        else:
            best = self._choose(self.plan.acquisition)
        seconds = time.perf_counter() - began
        self.curve = self.curve.add(self.pool.num_labelled, **scores, score=best, seconds=seconds)
        self.round += 1
        self._save(posterior)

    def _choose(self, acquisition: AbstractAcquisition) -> float:
        """Set the rows to ask about; the highest score among the candidates."""
        rows = self.pool.unlabelled
        if self.plan.max_pool is not None and self.plan.max_pool < len(rows):
            rows = np.sort(generator_of(self._key(_CANDIDATES)).choice(rows, self.plan.max_pool, replace=False))
        num = min(self.plan.batch_size, self.last - self.pool.num_labelled, len(rows))
        posterior: Any = self.posterior
        query: Query = acquisition.query(
            posterior, self.pool.x[rows], num, num_samples=self.plan.num_samples, key=self._key(_QUERY)
        )
        if self.plan.threshold is not None and acquisition.has_scores and query.scores[0] < self.plan.threshold:
            self.reason = "threshold is reached"
        else:
            self.pending = rows[query.rows]
        return float(query.scores[0]) if acquisition.has_scores else np.nan

    def _key(self, stream: int) -> PRNGKeyArray:
        return jax.random.fold_in(jax.random.fold_in(self.key, self.pool.num_labelled), stream)

    def _save(self, posterior: AbstractPosterior | None = None) -> None:
        if self.files is not None:
            state = StudyState(self.pool.labelled, self.pool.labels, self.pending, self.round, self.curve, self.reason)
            save_state(self.files, state, posterior)

    def _learned(self, reason: str) -> Learned:
        return Learned(self.curve, self.pool, self.posterior, reason)


def _check_data(model: Model, pool: Pool, test: Any) -> Arrays | None:
    """Refuse data that cannot belong together, before anything is computed."""
    if pool.num_labelled == len(pool):
        raise ValueError(f"pool must have rows without labels to ask about, got {pool!r}")
    if pool.labels is not None:
        _check_labels(model, pool, pool.labels)
    if test is None:
        return None
    test = as_arrays(test, name="test")
    if test.x.shape[1:] != pool.x.shape[1:]:
        raise ValueError(f"test must have inputs of shape {pool.x.shape[1:]} as pool has, got {test.x.shape[1:]}")
    _check_labels(model, pool, np.asarray(test.y))
    return test


def _check_labels(model: Model, pool: Pool, labels: np.ndarray) -> None:
    model.likelihood.check(model.output_size(pool.x.shape[1:], pool.x.dtype), labels)
