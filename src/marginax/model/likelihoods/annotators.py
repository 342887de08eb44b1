r"""Labels by several people who err, each in their own way (Dawid & Skene, 1979; Raykar et al., 2010).

$p(\tilde y_{1..A} \mid x) = \sum_k p(k \mid x) \prod_{a \text{ asked}} C^a_{k \tilde y_a}$, the true label summed out.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int, Num, PRNGKeyArray

from marginax.files import register
from marginax.model.distribution import AbstractDistribution, as_floating
from marginax.model.distributions import Categorical
from marginax.model.likelihoods.abstract import AbstractLikelihood, Unknowns
from marginax.model.outcome import Outcome
from marginax.model.transitions import AbstractTransition, FullTransition, as_transition, check_transition

NOT_ASKED = -1
_NUM_ANSWERS = 64  # draws of all answers to a question that its Fisher information is averaged over


@register("distribution/answers")
class Answers(AbstractDistribution):
    """Answers of all annotators, which are independent given the true label.

    Args:
        logits: of the true label, along the last axis.
        log_confusion: axes (annotator, true, answer).
    """

    outcome: ClassVar[Outcome] = Outcome.CLASS
    logits: Array = eqx.field(converter=as_floating)
    log_confusion: Array = eqx.field(converter=as_floating)

    @property
    def answer_probs(self) -> Float[Array, "annotators k k"]:
        """Of each annotator's answers, a row for each true label."""
        return jnp.exp(self.log_confusion)

    def hidden_logits(self, value: ArrayLike) -> Array:
        """Answers of -1 were not given, and say nothing."""
        answers = jax.nn.one_hot(jnp.asarray(value).astype(int), self.logits.shape[-1], dtype=self.logits.dtype)
        return jax.nn.log_softmax(self.logits, axis=-1) + jnp.einsum("...aj,akj->...k", answers, self.log_confusion)

    def answer_logits(self, annotator: ArrayLike) -> Array:
        """Log probabilities of the answer of one annotator to each question."""
        rows = jnp.take(self.log_confusion, jnp.asarray(annotator), axis=0)
        return jax.nn.logsumexp(jax.nn.log_softmax(self.logits, axis=-1)[..., :, None] + rows, axis=-2)

    def log_prob(self, value: ArrayLike) -> Array:
        return jax.nn.logsumexp(self.hidden_logits(value), axis=-1)

    def label_errors(self, value: ArrayLike) -> Array:
        """Of each answer; NaN where there is none."""
        answers = jnp.asarray(value).astype(int)
        chances = jax.nn.softmax(self.hidden_logits(value), axis=-1)[..., None, :]
        wrong = jnp.arange(chances.shape[-1]) != answers[..., None]
        return jnp.where(answers < 0, jnp.nan, jnp.sum(jnp.where(wrong, chances, 0.0), axis=-1))

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Int[Array, "..."]:
        """Of everybody."""
        for_truth, for_answers = jax.random.split(key)
        truth = Categorical(self.logits).sample(for_truth, shape)
        rows = jnp.take(jnp.moveaxis(self.log_confusion, 1, 0), truth, axis=0)
        return jax.random.categorical(for_answers, rows)


@register("likelihood/annotators")
class Annotators(AbstractLikelihood):
    r"""Labels of each example by some of several annotators, each with a matrix of confusions that is learned.

    Targets have shape (n, annotators): labels 0..K-1, and -1 where an annotator was not asked; see
    `mx.data.as_answers` for lists of (item, annotator, label). The network gives K logits of the true label; without
    inputs, `mx.nets.Intercept(K)` learns how frequent the classes are, which is the model of Dawid and Skene.
    Predictions are of the true label. `posterior.consensus(x, y)` is the true label given the answers,
    `posterior.confusion()` how good the annotators are, `posterior.label_errors(x, y)` which answers are wrong, and
    `posterior.expected_information(x, y)` whom to ask next.

    The GGN averages over answers that those who were asked might have given, by draws.

    Args:
        num_classes: K.
        num_annotators: A.
        confusion: what is believed about each annotator's matrix: `FullTransition()`, `PerClassTransition()`,
            `SymmetricTransition()`, or the matrices themselves (A, K, K) if they are known. The prior leans to answers
            that are right, without which classes would be known up to their names.

    >>> one = np.array([[0.9, 0.1], [0.2, 0.8]])
    >>> crowd = Annotators(2, 2, confusion=np.stack([one, one]))
    >>> answers = jnp.array([[1, 1], [1, -1]])
    >>> found = jnp.exp(crowd.log_prob(jnp.zeros((2, 2)), answers, {}))
    >>> [round(float(each), 3) for each in found]  # 0.5 (0.1^2 + 0.8^2), 0.5 (0.1 + 0.8)
    [0.325, 0.45]
    """

    num_classes: int = eqx.field(static=True)
    num_annotators: int = eqx.field(static=True)
    confusions: AbstractTransition = eqx.field(converter=as_transition)

    may_be_wrong: ClassVar[bool] = True
    by_annotators: ClassVar[bool] = True
    takes_missing: ClassVar[bool] = True

    def __init__(self, num_classes: int, num_annotators: int, confusion: object = None):
        """Check the numbers; data are checked when they come."""
        self.num_classes, self.num_annotators = num_classes, num_annotators
        self.confusions = FullTransition(0.7) if confusion is None else as_transition(confusion)
        for name, least in (("num_classes", 2), ("num_annotators", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be an int >= {least}, got {value!r}")
        check_transition(self.confusions, "confusion")
        self.confusions.check(num_classes, (num_annotators,))

    @property
    def has_logits(self) -> bool:
        """Predictions are of the true label."""
        return True

    def num_targets(self, output_size: int) -> int:
        if output_size != self.num_classes:
            raise ValueError(
                f"network must give {self.num_classes} logits for Annotators(num_classes={self.num_classes}), "
                f"got {output_size}: set its out_size"
            )
        return self.num_annotators

    def outcome(self, output_size: int) -> Outcome:
        return Outcome.CLASS

    def check(self, output_size: int, y: np.ndarray) -> None:
        self.num_targets(output_size)
        if y.ndim != 2 or y.shape[1] != self.num_annotators:
            raise ValueError(
                f"y must have shape (n, {self.num_annotators}), a column for each annotator and {NOT_ASKED} where one "
                f"was not asked, got {y.shape}: of (item, annotator, label), mx.data.as_answers makes it"
            )
        if np.issubdtype(y.dtype, np.floating) and not np.all(y == np.round(y)):
            raise ValueError(f"y must hold whole numbers for Annotators(), got {y[y != np.round(y)][0]}")
        bad = (y < NOT_ASKED) | (y >= self.num_classes)
        if bad.any():
            row, column = np.argwhere(bad)[0]
            raise ValueError(
                f"y must hold labels from 0 to {self.num_classes - 1}, or {NOT_ASKED} where one was not asked, "
                f"got {y[row, column]} in row {row}, column {column}"
            )

    def check_training(self, y: np.ndarray) -> None:
        """Refuse rows that nobody answered, from which there is nothing to learn."""
        empty = np.flatnonzero((y == NOT_ASKED).all(axis=1))
        if len(empty):
            raise ValueError(
                f"y has {len(empty)} rows without any answer, the first is row {empty[0]}: leave them out, "
                "asked = (y >= 0).any(axis=1); x[asked], y[asked]"
            )

    def init(self, output_size: int) -> Unknowns:
        return self.confusions.init(self.num_classes, (self.num_annotators,))

    def log_prior(self, unknowns: Unknowns) -> Float[Array, ""]:
        return self.confusions.log_prior(unknowns)

    def distribution(self, output: Float[Array, "*n k"], unknowns: Unknowns) -> Categorical:
        """Of the true label."""
        return Categorical(output)

    def observed(self, output: Float[Array, "*n k"], unknowns: Unknowns) -> Answers:
        return Answers(output, self._log_confusion(unknowns))

    def confusion(self, unknowns: Unknowns, output_size: int) -> Float[Array, "annotators k k"]:
        return jnp.exp(self._log_confusion(unknowns))

    def log_prob(self, output: Float[Array, "n k"], y: Num[Array, "n a"], unknowns: Unknowns) -> Float[Array, " n"]:
        """The true label summed out in log space."""
        return self.observed(output, unknowns).log_prob(y)

    def fisher(self, output: Float[Array, "n k"], unknowns: Unknowns) -> Float[Array, "n k k"]:
        raise NotImplementedError("the Fisher information of Annotators() depends on who was asked: fisher_root_given")

    def fisher_root_given(
        self, output: Float[Array, " k"], y: Num[Array, " a"], unknowns: Unknowns, key: PRNGKeyArray
    ) -> Float[Array, "k m"]:
        """The mean of squared scores, over draws of the answers of those who were asked."""
        seen = self.observed(output, unknowns)
        answers = jnp.where(y < 0, NOT_ASKED, seen.sample(key, (_NUM_ANSWERS,)))
        scores = jax.nn.softmax(seen.hidden_logits(answers), axis=-1) - jax.nn.softmax(output)
        values, vectors = jnp.linalg.eigh(scores.T @ scores / _NUM_ANSWERS)
        return vectors * jnp.sqrt(jnp.maximum(values, 0))

    def _log_confusion(self, unknowns: Unknowns) -> Float[Array, "annotators k k"]:
        found = self.confusions.log_matrix(unknowns, self.num_classes)
        return jnp.broadcast_to(found, (self.num_annotators, self.num_classes, self.num_classes))
