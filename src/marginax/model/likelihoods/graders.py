"""Several answers to one question: masks by several graders, labels by several people."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num
from jaxtyping import Key as KeyOf

from marginax.files import register
from marginax.model.likelihoods.abstract import AbstractLikelihood, Unknowns
from marginax.model.outcome import Outcome


@register("likelihood/graders")
class Graders(AbstractLikelihood):
    """Targets that several graders gave of each example: their mean log probability, so that an example counts once.

    This is what a grader who is drawn anew in every step gives in expectation. Targets have axes (example, grader, ...)
    and are read as vectors, grader by grader. Predictions are of one more grader's answer.

    Args:
        likelihood: of one grader's answer: `Bernoulli()` for pixels that are independent given the image, or
            `StochasticSegmentation()`.

    >>> import marginax as mx
    >>> likelihood = Graders(mx.likelihoods.Bernoulli())
    >>> answers = jnp.array([[1, 0, 1, 1]])  # two pixels by two graders
    >>> likelihood.log_prob(jnp.array([[0.0, 2.0]]), answers, {}).round(3).tolist()
    [-1.82]
    """

    likelihood: AbstractLikelihood

    flattens: ClassVar[bool] = True

    def __check_init__(self):
        inner = self.likelihood
        if not isinstance(inner, AbstractLikelihood) or inner.bounds or inner.may_be_wrong or not inner.is_density:
            raise TypeError(
                f"likelihood must be one of mx.likelihoods of points that are right, got {inner!r}: for people "
                "who err, mx.likelihoods.Annotators"
            )

    @property
    def is_estimated(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.likelihood.is_estimated

    @property
    def has_logits(self) -> bool:
        return self.likelihood.has_logits

    def num_targets(self, output_size: int) -> int:
        """Of one grader."""
        return self.likelihood.num_targets(output_size)

    def outcome(self, output_size: int) -> Outcome:
        return self.likelihood.outcome(output_size)

    def check(self, output_size: int, y: np.ndarray) -> None:
        num, width = self.num_targets(output_size), 1 if y.ndim == 1 else y.shape[1]
        if width % num:
            raise ValueError(
                f"y must have {num} targets for every grader, as the network's {output_size} outputs say, got {width}: "
                "y has axes (example, grader, ...)"
            )
        answers = y.reshape(-1, num)
        self.likelihood.check(output_size, answers[:, 0] if num == 1 else answers)

    def init(self, output_size: int) -> Unknowns:
        return self.likelihood.init(output_size)

    def log_prior(self, unknowns: Unknowns) -> Float[Array, ""]:
        return self.likelihood.log_prior(unknowns)

    def distribution(self, output: Float[Array, "*n k"], unknowns: Unknowns) -> Any:
        """Of one grader's answer."""
        return self.likelihood.distribution(output, unknowns)

    def marginal(self, mean: Float[Array, "n k"], covariance: Float[Array, "n k k"], unknowns: Unknowns) -> Any:
        return self.likelihood.marginal(mean, covariance, unknowns)

    def fisher(self, output: Float[Array, "n k"], unknowns: Unknowns) -> Float[Array, "n k k"]:
        """That of one: the mean over graders."""
        return self.likelihood.fisher(output, unknowns)

    def fisher_root(self, output: Float[Array, " k"], unknowns: Unknowns) -> Float[Array, "k m"]:
        return self.likelihood.fisher_root(output, unknowns)

    def log_prob(self, output: Float[Array, "n k"], y: Num[Array, "n *d"], unknowns: Unknowns) -> Float[Array, " n"]:
        """Mean over graders."""
        each = jax.vmap(lambda y: self.likelihood.log_prob(output, y, unknowns), in_axes=1)
        return jnp.mean(each(self._answers(output, y)), axis=0)

    def estimate_log_prob(
        self, output: Float[Array, "n k"], y: Num[Array, "n *d"], unknowns: Unknowns, keys: KeyOf[Array, " n"]
    ) -> Float[Array, " n"]:
        """Mean over graders, all by the same draws."""
        each = jax.vmap(lambda y: self.likelihood.estimate_log_prob(output, y, unknowns, keys), in_axes=1)
        return jnp.mean(each(self._answers(output, y)), axis=0)

    def _answers(self, output: Array, y: Array) -> Num[Array, "n graders *d"]:
        num = self.num_targets(output.shape[-1])
        return y.reshape(len(y), -1) if num == 1 else y.reshape(len(y), -1, num)
