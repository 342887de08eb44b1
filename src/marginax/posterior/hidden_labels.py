r"""What is known of targets that may be wrong: how probably each is, what the true label is, who errs and how.

A row of the training data is known to the posterior already, so that what a draw says of its hidden label is averaged,
$\frac1S \sum_s p(z \mid x, \tilde y, \theta_s)$. A new row speaks about the draws as well, which are weighted by
$p(\tilde y \mid x, \theta_s)$.
"""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from marginax._keys import Key
from marginax.data.arrays import as_targets
from marginax.model.conjugate import posterior_draws
from marginax.model.outcome import Outcome
from marginax.predict import MAX_BYTES, ClassificationPrediction, DrawLoop, Prediction
from marginax.predict.checks import check_levels
from marginax.predict.classification import summarise
from marginax.predict.observed import observed
from marginax.predict.predictive import empty_averages


@dataclass(frozen=True)
class Asked:
    """Rows that a posterior is asked about.

    Args:
        loop: over draws and inputs, which give the distribution of targets as they are seen.
        y: targets in the units of the model, with as many axes as those of the distribution.
        shape: of the targets as the user gave them.
    """

    loop: DrawLoop
    y: np.ndarray
    shape: tuple[int, ...]


def ask(posterior: Any, x: Any, y: Any, num_samples: int | None, key: Key | None, max_bytes: int) -> Asked:
    """Check that rows are as in the training data, and that their targets may be wrong."""
    spec, model = posterior.data_spec(), posterior.model
    likelihood = getattr(model, "likelihood", None)
    if likelihood is None or not likelihood.may_be_wrong:
        name = type(model if likelihood is None else likelihood).__name__
        raise TypeError(
            f"{name} takes targets as they are, so none is wrong: fit with mx.likelihoods.NoisyLabels(Categorical()), "
            "Annotators(...) or Outliers(Gaussian())"
        )
    x, y = spec.check_x(x), as_targets(y)
    if y.shape != (len(x), *spec.y_shape):
        raise ValueError(f"y must have shape {(len(x), *spec.y_shape)}, as in the training data, got {y.shape}")
    size = model.output_size(spec.x_shape, jax.dtypes.canonicalize_dtype(np.float64))
    likelihood.check(size, y)
    shape = y.shape
    if likelihood.outcome(size) is not Outcome.CLASS:
        y = np.asarray(y if spec.scaling is None else spec.scaling.transform_y(y)).reshape(len(y), -1)
    return Asked(_loop(posterior, x, num_samples, key, max_bytes), y, shape)


def _loop(posterior: Any, x: np.ndarray, num_samples: int | None, key: Key | None, max_bytes: int) -> DrawLoop:
    """Over draws and inputs, which give the distribution of targets as they are seen."""
    functions = observed(posterior._predicting_functions(num_samples, key))
    return DrawLoop(functions, x, spec=posterior.data_spec(), max_bytes=max_bytes)


def label_errors(
    posterior: Any, x: Any, y: Any, *, new: bool, num_samples: int | None, key: Key | None, max_bytes: int
) -> Float[np.ndarray, "n ..."]:
    """As `posterior.label_errors`."""
    asked = ask(posterior, x, y, num_samples, key, max_bytes)
    wrong, total = np.full(asked.y.shape, -np.inf), np.full(asked.y.shape, -np.inf)
    for _, rows, found in asked.loop.run(_errors_of_new if new else _errors, asked.y):
        num = rows.stop - rows.start
        with np.errstate(invalid="ignore"):  # NaN where there is no target
            for sum_, more in zip((wrong, total), found, strict=True):
                sum_[rows] = np.logaddexp(sum_[rows], np.asarray(more, np.float64)[:num])
    return np.exp(wrong - total).reshape(asked.shape)


def consensus(
    posterior: Any, x: Any, y: Any, *, new: bool, num_samples: int | None, key: Key | None, max_bytes: int
) -> ClassificationPrediction:
    """As `posterior.consensus`."""
    asked = ask(posterior, x, y, num_samples, key, max_bytes)
    if getattr(asked.loop.like, "outcome", None) is not Outcome.CLASS:
        raise TypeError("consensus is about classes: for numbers, posterior.label_errors(x, y)")
    num_classes = _confusion_shape(posterior)[-1]
    if new:
        joint = np.full((len(asked.y), num_classes), -np.inf)
        for _, rows, found in asked.loop.run(_joint, asked.y):
            more = np.asarray(found, np.float64)[: rows.stop - rows.start]
            joint[rows] = np.logaddexp(joint[rows], more)
        return ClassificationPrediction(joint - np.logaddexp.reduce(joint, axis=-1, keepdims=True))
    averages = empty_averages(asked.loop, num_classes)
    for _, rows, summary in asked.loop.run(_hidden_with_covariance if averages.is_full else _hidden, asked.y):
        averages.add(rows, summary)
    return averages.prediction(num_draws=asked.loop.num_draws, max_bytes=max_bytes)


def predict_observed(
    posterior: Any, x: Any, annotator: Any, *, num_samples: int | None, key: Key | None, max_bytes: int
) -> Prediction:
    """As `posterior.predict_observed`."""
    spec = posterior.data_spec()
    x, likelihood = spec.check_x(x), getattr(posterior.model, "likelihood", None)
    if likelihood is not None and likelihood.by_annotators:
        return _predict_answers(posterior, x, annotator, num_samples, key, max_bytes)
    if annotator is not None:
        raise TypeError(f"annotator must be None: targets of {type(likelihood).__name__} are nobody's answers")
    functions = observed(posterior._predicting_functions(num_samples, key))
    return functions.predict(x, spec=spec, max_bytes=max_bytes)


def _predict_answers(
    posterior: Any, x: np.ndarray, annotator: Any, num_samples: int | None, key: Key | None, max_bytes: int
) -> ClassificationPrediction:
    """Of one annotator in each row."""
    num_annotators, _, num_classes = _confusion_shape(posterior)
    who = np.asarray(-1 if annotator is None else annotator)
    if who.dtype.kind not in "iu" or who.shape not in ((), (len(x),)) or who.min() < 0 or who.max() >= num_annotators:
        raise ValueError(
            f"annotator must be a number from 0 to {num_annotators - 1}, or one for each of {len(x)} rows, got "
            f"{annotator!r:.60}: an answer is somebody's, and posterior.predict(x) is of the true label"
        )
    loop = _loop(posterior, x, num_samples, key, max_bytes)
    averages = empty_averages(loop, num_classes)
    work = _answered_with_covariance if averages.is_full else _answered
    for _, rows, summary in loop.run(work, np.broadcast_to(who, (len(x),)).astype(np.int32)):
        averages.add(rows, summary)
    return averages.prediction(num_draws=loop.num_draws, max_bytes=max_bytes)


def _confusion_shape(posterior: Any) -> tuple[int, ...]:
    """Of the matrix of transitions, or of those of all annotators."""
    model, spec = posterior.model, posterior.data_spec()
    size = model.output_size(spec.x_shape, jax.dtypes.canonicalize_dtype(np.float64))
    unknowns = model.likelihood.init(size)
    return jax.eval_shape(lambda: model.likelihood.confusion(unknowns, size)).shape


def _errors(distributions: PyTree, log_weights: Array, y: Array) -> tuple[Array, Array]:
    """Log sums over draws, of the probability to be wrong and of weights."""
    chances = eqx.filter_vmap(lambda d: d.label_errors(y))(distributions)
    return _log_sums(chances, log_weights.reshape(-1, *(1,) * y.ndim))


def _errors_of_new(distributions: PyTree, log_weights: Array, y: Array) -> tuple[Array, Array]:
    """The same with draws weighted by what they say of the row."""

    def one(distribution: Any) -> tuple[Array, Array]:
        log_prob = distribution.log_prob(y).reshape(len(y), -1).sum(axis=-1)
        return distribution.label_errors(y), log_prob.reshape(-1, *(1,) * (y.ndim - 1))

    chances, log_probs = eqx.filter_vmap(one)(distributions)
    return _log_sums(chances, log_weights.reshape(-1, *(1,) * y.ndim) + log_probs)


def _log_sums(chances: Array, log_weights: Array) -> tuple[Array, Array]:
    log_weights = jnp.broadcast_to(log_weights, chances.shape)
    return jax.nn.logsumexp(log_weights + jnp.log(chances), axis=0), jax.nn.logsumexp(log_weights, axis=0)


def _joint(distributions: PyTree, log_weights: Array, y: Array) -> Array:
    joint = eqx.filter_vmap(lambda d: d.hidden_logits(y))(distributions)
    return jax.nn.logsumexp(joint + log_weights[:, None, None], axis=0)


def _hidden(distributions: PyTree, log_weights: Array, y: Array) -> Any:
    return summarise(eqx.filter_vmap(lambda d: d.hidden_logits(y))(distributions), log_weights, full=False)


def _hidden_with_covariance(distributions: PyTree, log_weights: Array, y: Array) -> Any:
    return summarise(eqx.filter_vmap(lambda d: d.hidden_logits(y))(distributions), log_weights, full=True)


def _answered(distributions: PyTree, log_weights: Array, annotator: Array) -> Any:
    return summarise(eqx.filter_vmap(lambda d: d.answer_logits(annotator))(distributions), log_weights, full=False)


def _answered_with_covariance(distributions: PyTree, log_weights: Array, annotator: Array) -> Any:
    return summarise(eqx.filter_vmap(lambda d: d.answer_logits(annotator))(distributions), log_weights, full=True)


@dataclass(frozen=True, eq=False)
class Confusion:
    """Draws of a matrix of transitions, or of one for each annotator; rows are true labels.

    Args:
        draws: axes (draw, [annotator,] true, seen).
        level: of the intervals.

    >>> found = Confusion(np.array([[[0.9, 0.1], [0.2, 0.8]], [[0.8, 0.2], [0.2, 0.8]]]))
    >>> found.mean[0].round(3).tolist(), float(found.accuracy.round(3))
    ([0.85, 0.15], 0.825)
    """

    draws: Float[np.ndarray, "draw *annotators k k"]
    level: float = 0.9

    def __post_init__(self):
        check_levels([self.level], "level")

    def __repr__(self) -> str:
        return f"Confusion(shape={self.draws.shape[1:]}, draws={len(self.draws)}, level={self.level})"

    @property
    def mean(self) -> Float[np.ndarray, "*annotators k k"]:
        """Posterior mean."""
        return self.draws.mean(axis=0)

    @property
    def interval(self) -> tuple[Float[np.ndarray, "*annotators k k"], Float[np.ndarray, "*annotators k k"]]:
        """Lower and upper ends of central intervals."""
        return self._ends(self.draws)

    @property
    def accuracy(self) -> Float[np.ndarray, "*annotators"]:
        """Posterior mean of the diagonal's mean: how often a label is right if all classes are equally frequent."""
        return np.asarray(self._accuracies.mean(axis=0))

    @property
    def accuracy_interval(self) -> tuple[Float[np.ndarray, "*annotators"], Float[np.ndarray, "*annotators"]]:
        """Lower and upper ends of central intervals of it."""
        return self._ends(self._accuracies)

    @property
    def _accuracies(self) -> np.ndarray:
        return np.diagonal(self.draws, axis1=-2, axis2=-1).mean(axis=-1)

    def _ends(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        tail = 50 * (1 - self.level)
        low, high = np.percentile(values, [tail, 100 - tail], axis=0)
        return np.asarray(low), np.asarray(high)


def confusion(posterior: Any, *, level: float, num_samples: int) -> Confusion:
    """As `posterior.confusion`."""
    model, spec = posterior.model, posterior.data_spec()
    if not hasattr(model, "likelihood"):
        raise TypeError(f"{type(model).__name__} has no labels that may be wrong: use an mx.Model with NoisyLabels")
    size = model.output_size(spec.x_shape, jax.dtypes.canonicalize_dtype(np.float64))
    unknowns = jax.tree.map(jnp.asarray, posterior_draws(posterior, num_samples).likelihood)
    if not jax.tree.leaves(unknowns):
        return Confusion(np.asarray(model.likelihood.confusion({}, size))[None], level)
    found = _confusions(model.likelihood, unknowns, size)
    return Confusion(np.asarray(found, np.float64), level)


@eqx.filter_jit
def _confusions(likelihood: Any, unknowns: PyTree, output_size: int) -> Array:
    return jax.lax.map(lambda each: likelihood.confusion(each, output_size), unknowns)


def expected_information(
    posterior: Any, x: Any, y: Any, *, num_samples: int | None, key: Key | None, max_bytes: int = MAX_BYTES
) -> Float[np.ndarray, "n annotators"]:
    """As `posterior.expected_information`."""
    asked = ask(posterior, x, y, num_samples, key, max_bytes)
    if not posterior.model.likelihood.by_annotators:
        raise TypeError("expected_information is about whom to ask: fit with mx.likelihoods.Annotators(...)")
    joint: Any = None
    for _, rows, found in asked.loop.run(_answers, asked.y):
        more = np.asarray(found, np.float64)[: rows.stop - rows.start]
        joint = np.zeros((len(asked.y), *more.shape[1:])) if joint is None else joint
        joint[rows] += more
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = joint.sum(axis=-1, keepdims=True) * joint.sum(axis=-2, keepdims=True)
        terms = np.where(joint > 0, joint * np.log(joint / apart), 0.0)
    return np.where(asked.y >= 0, 0.0, np.maximum(terms.sum(axis=(-2, -1)), 0.0))


def _answers(distributions: PyTree, log_weights: Array, y: Array) -> Float[Array, "n annotators k k"]:
    """Probability of each true label together with each answer of each annotator, given the answers so far."""

    def one(distribution: Any) -> Array:
        hidden = jax.nn.softmax(distribution.hidden_logits(y), axis=-1)
        return hidden[:, None, :, None] * distribution.answer_probs

    return jnp.einsum("s,snakj->nakj", jnp.exp(log_weights), eqx.filter_vmap(one)(distributions))
