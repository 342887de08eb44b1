"""Linear models with normal noise of known scale: the posterior is a normal distribution, the evidence too."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from marginax.files import register_function
from marginax.model import Model, likelihoods, priors
from marginax.nets import MLP, Function
from marginax.testing.problem import LOG_2PI, AbstractProblem, ExactPrediction, log_normal, single


def dot(w: Any, x: Any) -> Any:
    """The network of all linear problems: inputs times weights."""
    return x @ w


def _constant(mean: Any, x: Any) -> Any:
    return mean


# Networks made of these can be stored, so that runs on these problems can be saved and resumed.
register_function("testing.dot", dot)
register_function("testing.constant", _constant)


def _ones(x: np.ndarray) -> np.ndarray:
    return np.ones((len(x), 1))


def _inputs(x: np.ndarray) -> np.ndarray:
    return x


def _inputs_and_one(x: np.ndarray) -> np.ndarray:
    return np.concatenate([x, _ones(x)], axis=1)


@dataclass(frozen=True, eq=False, repr=False)
class LinearGaussian(AbstractProblem):
    r"""$y \sim N(\Phi w, s^2)$ with $w \sim N(0, \tau^2)$, or flat: a normal posterior in closed form.

    Attributes:
        name: of the problem.
        model: a network that is linear in its weights.
        x: inputs.
        y: targets.
        x_new: inputs for predictions.
        features: inputs -> $\Phi$, one column per weight.
        noise_scale: $s$.
        prior_scale: $\tau$; infinite for a flat prior, whose density is taken as 1.
    """

    name: str
    model: Model
    x: Float[np.ndarray, "n k"]
    y: Float[np.ndarray, " n"]
    x_new: Float[np.ndarray, "m k"]
    features: Callable[[np.ndarray], np.ndarray]
    noise_scale: float
    prior_scale: float

    @cached_property
    def precision(self) -> Float[np.ndarray, "d d"]:
        """Inverse of the posterior covariance."""
        design = self.features(self.x)
        return design.T @ design / self.noise_scale**2 + np.eye(design.shape[1]) / self.prior_scale**2

    @cached_property
    def mean(self) -> Float[np.ndarray, " d"]:
        """Posterior mean: ridge regression."""
        return np.linalg.solve(self.precision, self.features(self.x).T @ self.y / self.noise_scale**2)

    @cached_property
    def covariance(self) -> Float[np.ndarray, "d d"]:
        return np.linalg.inv(self.precision)

    @property
    def mode(self) -> Float[np.ndarray, " d"]:
        return self.mean

    @cached_property
    def least_squares(self) -> Float[np.ndarray, " d"]:
        """The maximum of the likelihood alone."""
        return np.linalg.lstsq(self.features(self.x), self.y, rcond=None)[0]

    def log_joint(self, theta: Float[np.ndarray, "*s d"]) -> Float[np.ndarray, "*s"]:
        total = log_normal(self.y, theta @ self.features(self.x).T, self.noise_scale).sum(-1)
        if np.isfinite(self.prior_scale):
            total = total + log_normal(theta, 0.0, self.prior_scale).sum(-1)
        return np.asarray(total)

    @cached_property
    def log_evidence(self) -> float:
        """The joint density at the mean, times the volume of the normal around it."""
        log_volume = 0.5 * len(self.mean) * LOG_2PI - 0.5 * np.linalg.slogdet(self.precision)[1]
        return float(self.log_joint(self.mean) + log_volume)

    def predictive(self, x: Float[np.ndarray, "m k"]) -> ExactPrediction:
        design = self.features(x)
        spread = np.einsum("mi,ij,mj->m", design, self.covariance, design)
        return ExactPrediction(design @ self.mean, spread, np.full(len(x), self.noise_scale**2))


def gaussian_mean(*, num_examples: int = 20) -> LinearGaussian:
    """The mean of a normal distribution whose scale is known: one parameter, a constant network.

    >>> problem = gaussian_mean()
    >>> problem.mean.shape, problem.covariance.shape
    ((1,), (1, 1))
    """
    rng = np.random.default_rng(1)
    noise_scale, prior_scale = 0.5, 2.0
    y = single(1.3 + noise_scale * rng.normal(size=num_examples))
    model = Model(Function(jnp.zeros(1), _constant), likelihoods.Gaussian(noise_scale), priors.Normal(prior_scale))
    x = np.zeros((num_examples, 1))
    return LinearGaussian("gaussian_mean", model, x, y, np.zeros((1, 1)), _ones, noise_scale, prior_scale)


def linear_regression(
    num_features: int = 10,
    *,
    num_examples: int | None = None,
    condition_number: float = 100.0,
    noise_scale: float = 0.5,
    prior_scale: float = 1.0,
) -> LinearGaussian:
    r"""Linear regression with known noise, no intercept, weights in one array.

    Args:
        num_features: d.
        num_examples: rows, by default 20 and 3 per feature.
        condition_number: of $X^\top X / n$, whose largest eigenvalue is 1.
        noise_scale: known standard deviation of the noise.
        prior_scale: standard deviation of the weights.

    >>> problem = linear_regression(3)
    >>> problem.mean.shape, round(problem.log_evidence, 2) < 0
    ((3,), True)
    """
    x, y, x_new = _regression_data(num_features, num_examples, condition_number, noise_scale, 0.0)
    likelihood, prior = likelihoods.Gaussian(noise_scale), priors.Normal(prior_scale)
    model = Model(Function(jnp.zeros(num_features), dot), likelihood, prior)
    name = f"linear_regression({num_features}, condition_number={condition_number:g})"
    return LinearGaussian(name, model, x, y, x_new, _inputs, noise_scale, prior_scale)


def linear_layer(
    num_features: int = 10,
    *,
    num_examples: int | None = None,
    condition_number: float = 100.0,
    noise_scale: float = 0.5,
    prior_scale: float = 1.0,
) -> LinearGaussian:
    """As `linear_regression`, through a network without hidden layers: a weight matrix and a bias."""
    x, y, x_new = _regression_data(num_features, num_examples, condition_number, noise_scale, 0.7)
    likelihood, prior = likelihoods.Gaussian(noise_scale), priors.Normal(prior_scale)
    model = Model(MLP(in_size=num_features, hidden=(), out_size=1, key=0), likelihood, prior)
    name = f"linear_layer({num_features}, condition_number={condition_number:g})"
    return LinearGaussian(name, model, x, y, x_new, _inputs_and_one, noise_scale, prior_scale)


def correlated_normal(dim: int = 2, correlation: float = 0.75) -> LinearGaussian:
    r"""A normal posterior with unit variances, one correlation between all pairs, and means from -1 to 1.

    It is a regression with a flat prior and unit noise, whose design is a root of the precision:
    $X^\top X = \Sigma^{-1}$.

    >>> correlated_normal(3, 0.75).covariance.round(3).tolist()
    [[1.0, 0.75, 0.75], [0.75, 1.0, 0.75], [0.75, 0.75, 1.0]]
    """
    if not 0 <= correlation < 1:
        raise ValueError(f"correlation must be in [0, 1), got {correlation}")
    covariance = (1 - correlation) * np.eye(dim) + correlation
    x = single(np.linalg.cholesky(np.linalg.inv(covariance)).T)
    y = single(x @ np.linspace(-1, 1, dim))
    model = Model(Function(jnp.zeros(dim), dot), likelihoods.Gaussian(1.0), priors.Flat())
    name = f"correlated_normal({dim}, {correlation:g})"
    return LinearGaussian(name, model, x, y, np.eye(dim), _inputs, 1.0, np.inf)


def _regression_data(
    num_features: int, num_examples: int | None, condition_number: float, noise_scale: float, intercept: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs with the wanted spectrum, targets, and inputs for predictions."""
    if condition_number < 1:
        raise ValueError(f"condition_number must be >= 1, got {condition_number}")
    num_examples = 20 + 3 * num_features if num_examples is None else num_examples
    if num_examples < num_features:
        raise ValueError(f"num_examples must be at least num_features={num_features}, got {num_examples}")
    rng = np.random.default_rng(num_features)
    left = np.linalg.qr(rng.normal(size=(num_examples, num_features)))[0]
    right = np.linalg.qr(rng.normal(size=(num_features, num_features)))[0]
    root = np.sqrt(num_examples) * (np.geomspace(1, 1 / np.sqrt(condition_number), num_features) * right.T).T
    x = single(left @ root)
    truth = rng.normal(size=num_features)
    y = single(intercept + x @ truth + noise_scale * rng.normal(size=num_examples))
    x_new = single(rng.normal(size=(5, num_features)) @ root / np.sqrt(num_examples))
    return x, y, x_new
