"""What labels bought: error and log loss by the number of labels."""

from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int

from marginax.files import register


@register("active/learning_curve")
class LearningCurve(eqx.Module):
    """A point for each round of active learning.

    >>> curve = LearningCurve().add(20, error=0.4, nll=1.3).add(30, error=0.2, nll=0.8)
    >>> curve.num_labels.tolist(), curve.labels_to_reach(0.25), curve.labels_to_reach(0.1)
    ([20, 30], 30, None)

    Attributes:
        num_labels: labels that the posterior of the round was fitted to.
        error: on the test data: fraction of wrong classes, or root mean squared error of numbers.
        nll: mean negative log predictive density of the test data.
        score: the highest score among the candidates, before asking.
        seconds: wall time of the round, without the oracle's.
    """

    num_labels: Int[np.ndarray, " rounds"] = eqx.field(default_factory=lambda: np.zeros(0, np.int64))
    error: Float[np.ndarray, " rounds"] = eqx.field(default_factory=lambda: np.zeros(0))
    nll: Float[np.ndarray, " rounds"] = eqx.field(default_factory=lambda: np.zeros(0))
    score: Float[np.ndarray, " rounds"] = eqx.field(default_factory=lambda: np.zeros(0))
    seconds: Float[np.ndarray, " rounds"] = eqx.field(default_factory=lambda: np.zeros(0))

    def __len__(self) -> int:
        return len(self.num_labels)

    def add(
        self,
        num_labels: int,
        *,
        error: float = np.nan,
        nll: float = np.nan,
        score: float = np.nan,
        seconds: float = np.nan,
    ) -> "LearningCurve":
        """The curve with one more point; what is not known is NaN."""
        numbers = {"error": error, "nll": nll, "score": score, "seconds": seconds}
        return LearningCurve(
            np.append(self.num_labels, num_labels),
            **{name: np.append(getattr(self, name), value) for name, value in numbers.items()},
        )

    def labels_to_reach(self, error: float) -> int | None:
        """Labels of the first round whose error is at most this; None if there is none."""
        reached = np.flatnonzero(self.error <= error)
        return int(self.num_labels[reached[0]]) if len(reached) else None


def judge(prediction: Any, y: np.ndarray) -> dict[str, float]:
    """Error (root mean squared, or fraction of wrong classes) and log loss of a prediction."""
    if prediction.outcome.is_number:
        error = np.sqrt(np.mean(np.square(prediction.mean - y)))
    else:
        error = np.mean(prediction.labels != y)
    return {"error": float(error), "nll": float(-np.mean(prediction.log_prob(y)))}
