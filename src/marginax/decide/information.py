r"""How much labels would tell, from the class probabilities $p(y \mid x, \theta_s)$ of weighted draws $\theta_s$.

- About the parameters: $I(y; \theta) = H[E_s p] - E_s H[p]$, of one input (BALD; Houlsby et al., 2011) or of a batch of
  them jointly (BatchBALD; Kirsch, van Amersfoort & Gal, 2019).
- About other labels: $E_{x_*} I(y; y_*)$ (EPIG; Bickford Smith et al., 2023).

For numbers, of normal distributions: $\frac12 \log\det(I + \Sigma^{-1} K)$ of a batch with the covariance $K$ of means
over draws and the noise $\Sigma$.

All in nats and float64.
"""

import numpy as np
from jaxtyping import Float, Int
from scipy.special import xlogy

_CHUNK = 2**22  # numbers to have in memory at a time


def mutual_information(
    probs: Float[np.ndarray, "s n k"], weights: Float[np.ndarray, " s"] | None = None
) -> Float[np.ndarray, " n"]:
    """What the label of each input would tell about the parameters.

    >>> mutual_information(np.array([[[1.0, 0.0], [0.5, 0.5]], [[0.0, 1.0], [0.5, 0.5]]])).round(3).tolist()
    [0.693, 0.0]
    """
    weights = _weights(probs, weights)
    average = np.einsum("s,snk->nk", weights, probs)
    return np.maximum(_entropy(average) - expected_entropy(probs, weights), 0.0)


def expected_entropy(
    probs: Float[np.ndarray, "s n k"], weights: Float[np.ndarray, " s"] | None = None
) -> Float[np.ndarray, " n"]:
    """Mean over draws of the entropy of each input's label."""
    return np.einsum("s,sn->n", _weights(probs, weights), _entropy(probs))


def target_information(
    probs: Float[np.ndarray, "s n k"],
    targets: Float[np.ndarray, "s m k"],
    weights: Float[np.ndarray, " s"] | None = None,
) -> Float[np.ndarray, " n"]:
    """What the label of each input would tell about the label of a target, on average over the targets.

    >>> probs = np.array([[[0.9, 0.1], [0.5, 0.5]], [[0.1, 0.9], [0.5, 0.5]]])
    >>> target_information(probs, probs[:, :1]).round(3).tolist()
    [0.222, 0.0]
    """
    (s, n, k), m = probs.shape, targets.shape[1]
    weights = _weights(probs, weights)
    weighted = (weights[:, None, None] * probs).transpose(1, 2, 0)
    own, theirs = _entropy(weighted.sum(-1)), _entropy(np.einsum("s,smk->mk", weights, targets))
    flat = targets.reshape(s, -1)
    result = np.empty(n)
    size = max(1, _CHUNK // (k * flat.shape[1]))
    for start in range(0, n, size):
        joint = weighted[start : start + size].reshape(-1, s) @ flat
        result[start : start + size] = -xlogy(joint, joint).reshape(-1, k * flat.shape[1]).sum(-1) / m
    return np.maximum(own + theirs.mean() - result, 0.0)


def greedy_batch(
    probs: Float[np.ndarray, "s n k"],
    num: int,
    *,
    weights: Float[np.ndarray, " s"] | None = None,
    num_configurations: int,
    generator: np.random.Generator,
) -> tuple[Int[np.ndarray, " num"], Float[np.ndarray, " num"]]:
    """Inputs chosen one after the other, each for the joint information of the batch that it completes.

    Labellings of the batch are enumerated while there are at most `num_configurations` of them; then so many are
    drawn, the same ones for all candidates.

    Args:
        probs: of each draw.
        num: inputs to choose.
        weights: of the draws; equal by default.
        num_configurations: most labellings to average over.
        generator: of random numbers, for labellings and ties.

    Returns:
        The inputs in their order, and the information of the batch up to each of them.
    """
    weights = _weights(probs, weights)
    conditional = expected_entropy(probs, weights)
    batch = _Labellings(probs, weights, num_configurations, generator)
    chosen, totals, known = [], [], 0.0
    for _ in range(num):
        total = batch.joint_entropies() - known - conditional
        total[chosen] = -np.inf
        best = int(generator.choice(np.flatnonzero(total == total.max())))
        chosen.append(best)
        totals.append(max(total[best], 0.0))
        known += conditional[best]
        if len(chosen) < num:
            batch.add(best)
    return np.array(chosen), np.array(totals)


class _Labellings:
    """Labellings of the batch so far: their probability under each draw, (c, s)."""

    def __init__(self, probs: np.ndarray, weights: np.ndarray, num_configurations: int, generator: np.random.Generator):
        self.probs, self.weights = probs, weights
        self.num_configurations, self.generator = num_configurations, generator
        self.by_draw = np.ones((1, len(probs)))
        self.rows: list[int] = []
        self.draws: np.ndarray | None = None  # which draw each labelling was drawn from; None while all are there

    def add(self, row: int) -> None:
        """One more input in the batch."""
        self.rows.append(row)
        if self.draws is None and len(self.by_draw) * self.probs.shape[2] <= self.num_configurations:
            longer = self.by_draw[:, None, :] * self.probs[:, row, :].T[None]
            self.by_draw = longer.reshape(-1, len(self.probs))
            return
        new = [row]
        if self.draws is None:
            self.draws = self.generator.choice(len(self.probs), self.num_configurations, p=self.weights)
            self.by_draw, new = np.ones((self.num_configurations, len(self.probs))), self.rows
        for each in new:
            ladder = np.cumsum(self.probs[self.draws, each], axis=-1)
            picks = self.generator.uniform(size=(self.num_configurations, 1)) * ladder[:, -1:]
            self.by_draw = self.by_draw * self.probs[:, each, np.sum(picks >= ladder, axis=-1)].T

    def joint_entropies(self) -> Float[np.ndarray, " n"]:
        """Entropy of the labels of the batch and of each input together."""
        s, n, k = self.probs.shape
        weighted = self.by_draw * self.weights
        # each labelling stands for itself, or for its share of all of them
        share = np.ones(len(weighted)) if self.draws is None else 1 / (len(weighted) * weighted.sum(axis=1))
        result = np.empty(n)
        size = max(1, _CHUNK // (len(weighted) * k))
        for start in range(0, n, size):
            part = self.probs[:, start : start + size]
            joint = weighted @ part.reshape(s, -1)
            result[start : start + size] = -(share @ xlogy(joint, joint)).reshape(-1, k).sum(axis=-1)
        return result


def _entropy(probs: Float[np.ndarray, "*rest k"]) -> Float[np.ndarray, "*rest"]:
    return -xlogy(probs, probs).sum(axis=-1)


def _weights(probs: np.ndarray, weights: np.ndarray | None) -> Float[np.ndarray, " s"]:
    return np.full(len(probs), 1 / len(probs)) if weights is None else weights


def greedy_normal_batch(
    means: Float[np.ndarray, "s n d"],
    noise: Float[np.ndarray, "n d"],
    num: int,
    *,
    weights: Float[np.ndarray, " s"],
) -> tuple[Int[np.ndarray, " num"], Float[np.ndarray, " num"]]:
    """Inputs whose numbers tell most about the function together, each the best beside those before it.

    Args:
        means: under each draw.
        noise: variances of a measurement.
        num: how many to choose.
        weights: of the draws.

    Returns:
        Rows, and the information of the batch up to each of them; outputs are taken as independent.

    >>> means = np.array([[[1.0], [1.0], [0.0]], [[-1.0], [-1.0], [0.5]]])  # the first two move together
    >>> rows, totals = greedy_normal_batch(means, np.full((3, 1), 0.01), 2, weights=np.full(2, 0.5))
    >>> rows.tolist(), totals.round(3).tolist()
    ([0, 1], [2.308, 2.652])
    """
    left = np.sqrt(weights)[:, None, None] * (means - np.einsum("s,snd->nd", weights, means))  # K = left' left
    chosen: list[int] = []
    totals: list[float] = []
    for _ in range(num):
        gain = 0.5 * np.log1p(np.sum(left**2, axis=0) / noise).sum(axis=1)
        gain[chosen] = -np.inf
        best = int(np.argmax(gain))
        chosen.append(best)
        totals.append(float(gain[best]) + (totals[-1] if totals else 0.0))
        column = left[:, best]
        own = np.sum(column**2, axis=0)
        # a noisy measurement leaves K - k k' / (k_best + noise): shrink what lies along its column
        share = (1 - np.sqrt(noise[best] / (own + noise[best]))) / np.where(own > 0, own, 1.0)
        left = left - share * column[:, None] * np.einsum("sd,snd->nd", column, left)
    return np.array(chosen), np.array(totals)
