r"""Linear regression whose noise scale is unknown, by one-dimensional quadrature.

The textbook form ties the prior of the weights to the noise, which makes them jointly normal-inverse-gamma and the
marginal of the weights a Student t. Our priors of weights and noise are independent, as in every model of the library,
so given $\log s$ the weights are normal in closed form, and the rest is an integral over $\log s$: the marginal of the
weights is a scale mixture of normals, heavier in the tails than a normal, exact to the precision of the quadrature.
"""

from dataclasses import dataclass
from functools import cached_property

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from marginax.model import Model, likelihoods, priors
from marginax.nets import Function
from marginax.testing.linear import dot
from marginax.testing.problem import LOG_2PI, AbstractProblem, ExactPrediction, log_normal, moments, single

_NUM_NODES = 801
_NEGLIGIBLE = 45.0  # nats below the top


@dataclass(frozen=True, eq=False)
class _Nodes:
    """Values of log s with posterior weights, and the normal of the weights at each."""

    log_scale: Float[np.ndarray, " k"]
    weights: Float[np.ndarray, " k"]
    means: Float[np.ndarray, "k d"]
    covariances: Float[np.ndarray, "k d d"]
    log_evidence: float


@dataclass(frozen=True, eq=False, repr=False)
class LinearUnknownNoise(AbstractProblem):
    r"""$y \sim N(Xw, s^2)$, $w \sim N(0, \tau^2)$, $\log s \sim N(\mu, \sigma^2)$; coordinates are $(w, \log s)$.

    Attributes:
        name: of the problem.
        model: a linear network with learned noise.
        x: inputs.
        y: targets.
        x_new: inputs for predictions.
        prior_scale: $\tau$.
        log_scale_loc: $\mu$.
        log_scale_scale: $\sigma$.
    """

    name: str
    model: Model
    x: Float[np.ndarray, "n d"]
    y: Float[np.ndarray, " n"]
    x_new: Float[np.ndarray, "m d"]
    prior_scale: float
    log_scale_loc: float
    log_scale_scale: float

    def log_joint(self, theta: Float[np.ndarray, "*s e"]) -> Float[np.ndarray, "*s"]:
        """The density of log s itself, which is that of s times the Jacobian s."""
        weights, log_scale = theta[..., :-1], theta[..., -1]
        log_likelihood = log_normal(self.y, weights @ self.x.T, np.exp(log_scale)[..., None]).sum(-1)
        log_prior = log_normal(weights, 0.0, self.prior_scale).sum(-1)
        log_prior += log_normal(log_scale, self.log_scale_loc, self.log_scale_scale)
        return np.asarray(log_likelihood + log_prior)

    def _given(self, log_scale: Float[np.ndarray, " k"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Means, covariances and log marginal densities of (y, log s) at values of log s."""
        eye = np.eye(self.x.shape[1])
        inverse = np.exp(-2 * log_scale)[:, None, None]
        precision = inverse * (self.x.T @ self.x) + eye / self.prior_scale**2
        covariances = np.linalg.inv(precision)
        means = np.einsum("kij,j->ki", inverse * covariances, self.x.T @ self.y)
        at_mean = self.log_joint(np.concatenate([means, log_scale[:, None]], axis=1))
        log_volume = 0.5 * len(eye) * LOG_2PI - 0.5 * np.linalg.slogdet(precision)[1]
        return means, covariances, at_mean + log_volume

    @cached_property
    def _nodes(self) -> _Nodes:
        wide = np.linspace(-12, 12, 2401) * self.log_scale_scale + self.log_scale_loc
        density = self._given(wide)[2]
        inside = wide[density > density.max() - _NEGLIGIBLE]
        log_scale = np.linspace(inside[0], inside[-1], _NUM_NODES)
        means, covariances, density = self._given(log_scale)
        top = density.max()
        weights = np.exp(density - top) * (log_scale[1] - log_scale[0])
        total = weights.sum()
        return _Nodes(log_scale, weights / total, means, covariances, float(top + np.log(total)))

    @property
    def log_evidence(self) -> float:
        return self._nodes.log_evidence

    @cached_property
    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        nodes = self._nodes
        points = np.concatenate([nodes.means, nodes.log_scale[:, None]], axis=1)
        mean, covariance = moments(points, nodes.weights)
        covariance[:-1, :-1] += np.einsum("k,kij->ij", nodes.weights, nodes.covariances)
        return mean, covariance

    @property
    def mean(self) -> Float[np.ndarray, " e"]:
        return self._moments[0]

    @property
    def covariance(self) -> Float[np.ndarray, "e e"]:
        return self._moments[1]

    @cached_property
    def mode(self) -> Float[np.ndarray, " e"]:
        """The joint mode: the best log s when the weights follow it, by zooming in."""
        grid = self._nodes.log_scale
        for _ in range(12):
            points = np.concatenate([self._given(grid)[0], grid[:, None]], axis=1)
            best = int(np.clip(self.log_joint(points).argmax(), 1, len(grid) - 2))
            grid = np.linspace(grid[best - 1], grid[best + 1], 101)
        centre = grid[50:51]
        return np.concatenate([self._given(centre)[0][0], centre])

    def predictive(self, x: Float[np.ndarray, "m d"]) -> ExactPrediction:
        """Moments of a scale mixture of normals."""
        weight_covariance = self.covariance[:-1, :-1]
        spread = np.einsum("mi,ij,mj->m", x, weight_covariance, x)
        noise = self._nodes.weights @ np.exp(2 * self._nodes.log_scale)
        return ExactPrediction(x @ self.mean[:-1], spread, np.full(len(x), noise))


def linear_regression_unknown_noise(num_features: int = 3, *, num_examples: int = 15) -> LinearUnknownNoise:
    """Linear regression with the default learned noise of `mx.likelihoods.Gaussian()`.

    >>> problem = linear_regression_unknown_noise()
    >>> problem.mean.shape  # three weights and log s
    (4,)
    """
    rng = np.random.default_rng(4)
    x = single(rng.normal(size=(num_examples, num_features)))
    y = single(x @ rng.normal(size=num_features) + 0.4 * rng.normal(size=num_examples))
    x_new = single(rng.normal(size=(5, num_features)))
    likelihood = likelihoods.Gaussian(likelihoods.LogNormal(-1.0, 1.0))
    model = Model(Function(jnp.zeros(num_features), dot), likelihood, priors.Normal(2.0))
    name = f"linear_regression_unknown_noise({num_features})"
    return LinearUnknownNoise(name, model, x, y, x_new, 2.0, -1.0, 1.0)
