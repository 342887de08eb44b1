"""Logistic regression with two weights, by two-dimensional quadrature."""

from dataclasses import dataclass
from functools import cached_property

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from marginax.model import Model, likelihoods, priors
from marginax.nets import Function
from marginax.testing.linear import dot
from marginax.testing.problem import AbstractProblem, ExactPrediction, log_normal, moments, single


@dataclass(frozen=True, eq=False)
class _Nodes:
    theta: Float[np.ndarray, "k 2"]
    weights: Float[np.ndarray, " k"]
    log_evidence: float


@dataclass(frozen=True, eq=False, repr=False)
class Logistic(AbstractProblem):
    r"""$y \sim \text{Bernoulli}(\sigma(x^\top w))$, $w \sim N(0, \tau^2)$ in two dimensions.

    The sum over a regular grid converges faster than any power of its spacing here, since the density is smooth and
    has died away at the edges.

    Attributes:
        name: of the problem.
        model: a linear network with a Bernoulli likelihood.
        x: inputs.
        y: labels 0 and 1.
        x_new: inputs for predictions.
        prior_scale: $\tau$.
        num_nodes: points per axis of the grid.
        half_width: half of the grid's width, in standard deviations at the mode.
    """

    name: str
    model: Model
    x: Float[np.ndarray, "n 2"]
    y: Int[np.ndarray, " n"]
    x_new: Float[np.ndarray, "m 2"]
    prior_scale: float
    num_nodes: int = 161
    half_width: float = 10.0

    def log_joint(self, theta: Float[np.ndarray, "*s 2"]) -> Float[np.ndarray, "*s"]:
        signed = theta @ (np.where(self.y == 1, 1.0, -1.0)[:, None] * self.x).T
        log_likelihood = -np.logaddexp(0.0, -signed).sum(-1)
        return np.asarray(log_likelihood + log_normal(theta, 0.0, self.prior_scale).sum(-1))

    @cached_property
    def _mode_and_precision(self) -> tuple[np.ndarray, np.ndarray]:
        theta = np.zeros(2)
        precision = np.eye(2)
        for _ in range(50):
            probs = _sigmoid(self.x @ theta)
            gradient = self.x.T @ (self.y - probs) - theta / self.prior_scale**2
            weighted = (probs * (1 - probs))[:, None] * self.x
            precision = weighted.T @ self.x + np.eye(2) / self.prior_scale**2
            theta = theta + np.linalg.solve(precision, gradient)
        return theta, precision

    @property
    def mode(self) -> Float[np.ndarray, " 2"]:
        """By Newton's method."""
        return self._mode_and_precision[0]

    @cached_property
    def _nodes(self) -> _Nodes:
        mode, precision = self._mode_and_precision
        root = np.linalg.cholesky(np.linalg.inv(precision))
        axis = np.linspace(-self.half_width, self.half_width, self.num_nodes)
        grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
        theta = mode + grid @ root.T
        log_density = self.log_joint(theta)
        top = log_density.max()
        density = np.exp(log_density - top)
        cell = (axis[1] - axis[0]) ** 2 * np.linalg.det(root)
        return _Nodes(theta, density / density.sum(), float(top + np.log(density.sum() * cell)))

    @property
    def log_evidence(self) -> float:
        return self._nodes.log_evidence

    @cached_property
    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        return moments(self._nodes.theta, self._nodes.weights)

    @property
    def mean(self) -> Float[np.ndarray, " 2"]:
        return self._moments[0]

    @property
    def covariance(self) -> Float[np.ndarray, "2 2"]:
        return self._moments[1]

    def conditional_mean(self, output: Float[np.ndarray, "*s m k"]) -> Float[np.ndarray, "*s m"]:
        """The probability of label 1."""
        return _sigmoid(output[..., 0])

    def predictive(self, x: Float[np.ndarray, "m 2"]) -> ExactPrediction:
        """The probability of label 1; its variance over the posterior; the variance of the label given it."""
        probs = _sigmoid(self._nodes.theta @ x.T)
        mean, second = self._nodes.weights @ probs, self._nodes.weights @ probs**2
        return ExactPrediction(mean, second - mean**2, mean - second)


def logistic_regression(*, num_examples: int = 40) -> Logistic:
    """Two weights (one of them an intercept), labels that no line separates.

    >>> problem = logistic_regression()
    >>> bool(((problem.predictive(problem.x_new).mean > 0) & (problem.predictive(problem.x_new).mean < 1)).all())
    True
    """
    rng = np.random.default_rng(6)
    x = single(np.stack([np.ones(num_examples), rng.normal(size=num_examples)], axis=1))
    y = (rng.uniform(size=num_examples) < _sigmoid(x @ np.array([-0.5, 1.5]))).astype(np.int32)
    x_new = single(
        np.stack([np.ones(7), np.linspace(-0.5, 2.0, 7)], axis=1)
    )  # beyond, probabilities are too skew to average
    model = Model(Function(jnp.zeros(2), dot), likelihoods.Bernoulli(), priors.Normal(2.0))
    return Logistic("logistic_regression", model, x, y, x_new, 2.0)


def _sigmoid(value: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(0.5 * value))
