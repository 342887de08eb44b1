r"""Labels that may be wrong: $p(\tilde y \mid x) = \sum_k p(y = k \mid x)\, T_{k \tilde y}$, the truth summed out."""

from typing import Any, ClassVar

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


@register("distribution/noisy_classes")
class NoisyClasses(AbstractDistribution):
    """Labels as they are seen; the last axis of `logits` runs over true classes.

    Args:
        logits: of the true label.
        log_transition: a row for each true label.

    >>> seen = NoisyClasses(jnp.array([[50.0, 0.0]]), jnp.log(jnp.array([[0.9, 0.1], [0.2, 0.8]])))
    >>> seen.label_errors(jnp.array([1])).round(3).item()  # 1 is surely wrong
    1.0
    """

    outcome: ClassVar[Outcome] = Outcome.CLASS
    logits: Array = eqx.field(converter=as_floating)
    log_transition: Array = eqx.field(converter=as_floating)

    @property
    def class_logits(self) -> Array:
        """Log probabilities of the label that is seen."""
        joint = jax.nn.log_softmax(self.logits, axis=-1)[..., :, None] + self.log_transition
        return jax.nn.logsumexp(joint, axis=-2)

    def log_prob(self, value: ArrayLike) -> Array:
        return Categorical(self.class_logits).log_prob(value)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        return Categorical(self.class_logits).sample(key, shape)

    def hidden_logits(self, value: ArrayLike) -> Array:
        labels = jnp.asarray(value).astype(int).reshape(self.logits.shape[:-1])
        columns = jnp.take(self.log_transition.T, labels, axis=0)
        return jax.nn.log_softmax(self.logits, axis=-1) + columns

    def label_errors(self, value: ArrayLike) -> Array:
        chances = jax.nn.softmax(self.hidden_logits(value), axis=-1)
        wrong = jnp.arange(chances.shape[-1]) != jnp.asarray(value).reshape(*chances.shape[:-1], 1)
        return jnp.sum(jnp.where(wrong, chances, 0.0), axis=-1).reshape(jnp.shape(value))


@register("likelihood/noisy_labels")
class NoisyLabels(AbstractLikelihood):
    r"""Labels that went through a matrix of transitions: $p(\tilde y \mid x) = \sum_k p(k \mid x)\, T_{k \tilde y}$.

    Predictions are of the true label, `posterior.predict_observed(x)` is of the label as it would be seen, and
    `posterior.label_errors(x, y)` says of each row how probable it is that its label is wrong. A learned matrix is in
    `posterior.confusion()`. From labels alone classes are known up to their names, so the prior of a learned matrix
    leans to the diagonal, and inference starts there.

    Args:
        likelihood: of the true label: `Categorical()`, `Bernoulli()` with one output, `Ordinal()`.
        transition: an array (rows are true labels and sum to 1) if it is known, else what is believed about it:
            `FullTransition()`, `PerClassTransition()` or `SymmetricTransition()`.

    >>> import marginax as mx
    >>> likelihood = NoisyLabels(mx.likelihoods.Categorical(), transition=[[0.9, 0.1], [0.2, 0.8]])
    >>> logits, labels = jnp.log(jnp.array([[0.5, 0.5]])), jnp.array([1])
    >>> jnp.exp(likelihood.log_prob(logits, labels, {})).round(3).tolist()  # 0.5 * 0.1 + 0.5 * 0.8
    [0.45...]
    """

    likelihood: AbstractLikelihood
    transition: AbstractTransition = eqx.field(default_factory=FullTransition, converter=as_transition)

    may_be_wrong: ClassVar[bool] = True

    def __check_init__(self):
        inner = self.likelihood
        if not isinstance(inner, AbstractLikelihood) or inner.bounds or inner.flattens or inner.may_be_wrong:
            raise TypeError(f"likelihood must be one of classes, such as mx.likelihoods.Categorical(), got {inner!r}")
        if not inner.is_density:
            raise TypeError(f"likelihood must be one of data, without a term of its own for missing labels: {inner!r}")
        check_transition(self.transition)

    @property
    def has_logits(self) -> bool:
        """As the likelihood inside, since predictions are of the true label."""
        return self.likelihood.has_logits

    def num_targets(self, output_size: int) -> int:
        return self.likelihood.num_targets(output_size)

    def outcome(self, output_size: int) -> Outcome:
        return self.likelihood.outcome(output_size)

    def num_classes(self, output_size: int) -> int:
        """Of outputs of this size."""
        if self.likelihood.outcome(output_size) is not Outcome.CLASS:
            raise ValueError(f"likelihood of NoisyLabels must be one of classes, got {self.likelihood!r}")
        output = jax.ShapeDtypeStruct((1, output_size), jnp.zeros(()).dtype)
        return jax.eval_shape(lambda f: self._true_logits(f, self.likelihood.init(output_size)), output).shape[-1]

    def check(self, output_size: int, y: np.ndarray) -> None:
        self.likelihood.check(output_size, y)
        self.transition.check(self.num_classes(output_size))

    def init(self, output_size: int) -> Unknowns:
        return {**self.likelihood.init(output_size), **self.transition.init(self.num_classes(output_size))}

    def log_prior(self, unknowns: Unknowns) -> Float[Array, ""]:
        return self.likelihood.log_prior(unknowns) + self.transition.log_prior(unknowns)

    def distribution(self, output: Float[Array, "*n k"], unknowns: Unknowns) -> Any:
        """Of the true label."""
        return self.likelihood.distribution(output, unknowns)

    def marginal(self, mean: Float[Array, "n k"], covariance: Float[Array, "n k k"], unknowns: Unknowns) -> Any:
        """Of the true label."""
        return self.likelihood.marginal(mean, covariance, unknowns)

    def observed(self, output: Float[Array, "*n k"], unknowns: Unknowns) -> NoisyClasses:
        logits = self._true_logits(output, unknowns)
        return NoisyClasses(logits, self.transition.log_matrix(unknowns, logits.shape[-1]))

    def confusion(self, unknowns: Unknowns, output_size: int) -> Float[Array, "k k"]:
        return jnp.exp(self.transition.log_matrix(unknowns, self.num_classes(output_size)))

    def log_prob(self, output: Float[Array, "n k"], y: Num[Array, "n *d"], unknowns: Unknowns) -> Float[Array, " n"]:
        """The true label summed out in log space."""
        labels: Int[Array, " n"] = y.reshape(len(y)).astype(jnp.int32)
        return jax.nn.logsumexp(self.observed(output, unknowns).hidden_logits(labels), axis=-1)

    def fisher(self, output: Float[Array, "n k"], unknowns: Unknowns) -> Float[Array, "n k k"]:
        """Of the label that is seen."""
        root = jax.vmap(lambda f: self.fisher_root(f, unknowns))(output)
        return root @ root.swapaxes(1, 2)

    def fisher_root(self, output: Float[Array, " k"], unknowns: Unknowns) -> Float[Array, "k m"]:
        r"""A column $\nabla p_j / \sqrt{p_j}$ for each label that can be seen."""

        def root(f: Array) -> Float[Array, " m"]:
            return jnp.exp(0.5 * self.observed(f, unknowns).class_logits)

        columns = 2 * jax.jacobian(root)(output).T
        wide = columns.shape[1] > columns.shape[0]  # no more columns than outputs are needed
        return jnp.linalg.qr(columns.T, mode="r").T if wide else columns

    def _true_logits(self, output: Float[Array, "*n k"], unknowns: Unknowns) -> Float[Array, "*n classes"]:
        return self.likelihood.distribution(output, unknowns).class_logits
