r"""Coins, counters and a die: priors whose posteriors are known in closed form.

Networks give logits and log rates, so the conjugate priors are those of `mx.priors.LogitBeta` and `LogGamma`: a weight
whose logistic function has a beta distribution, or whose exponential has a gamma distribution. All moments are
polygamma functions, all evidences ratios of gamma functions.
"""

import abc
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from scipy.special import betaln, digamma, expit, gammaln, log_softmax, polygamma, softmax

from marginax.model import Model, likelihoods, priors
from marginax.nets import Function
from marginax.testing.linear import dot
from marginax.testing.problem import AbstractProblem, ExactPrediction


@dataclass(frozen=True, eq=False, repr=False)
class AbstractConjugate(AbstractProblem):
    """Rows that each belong to one of several groups, x saying to which (one-hot).

    Attributes:
        name: of the problem.
        model: a network with one output per group, or per class.
        x: groups.
        y: observations.
        x_new: every group once.
    """

    name: str
    model: Model
    x: Float[np.ndarray, "n d"]
    y: Int[np.ndarray, " n"]
    x_new: Float[np.ndarray, "m d"]

    @property
    @abc.abstractmethod
    def mean(self) -> Float[np.ndarray, " d"]:
        """By digamma functions."""

    @property
    @abc.abstractmethod
    def covariance(self) -> Float[np.ndarray, "d d"]:
        """By trigamma functions."""

    @property
    def _sums(self) -> Float[np.ndarray, " d"]:
        return self.x.T @ self.y

    @property
    def _counts(self) -> Float[np.ndarray, " d"]:
        return self.x.sum(axis=0)


@dataclass(frozen=True, eq=False, repr=False)
class BetaBinomial(AbstractConjugate):
    r"""Coins: $p_i \sim \text{Beta}(a_i, b_i)$; coordinates are the logits.

    Attributes:
        heads: $a$, one for each coin.
        tails: $b$.
    """

    heads: Float[np.ndarray, " d"]
    tails: Float[np.ndarray, " d"]

    @cached_property
    def _posterior(self) -> tuple[np.ndarray, np.ndarray]:
        return self.heads + self._sums, self.tails + self._counts - self._sums

    def log_joint(self, theta: Float[np.ndarray, "*s d"]) -> Float[np.ndarray, "*s"]:
        """The density of the logit, which is that of the probability times p (1 - p)."""
        heads, tails = self._posterior
        log_density = -heads * np.logaddexp(0, -theta) - tails * np.logaddexp(0, theta) - betaln(self.heads, self.tails)
        return np.asarray(log_density.sum(-1))

    @property
    def log_evidence(self) -> float:
        return float((betaln(*self._posterior) - betaln(self.heads, self.tails)).sum())

    @property
    def mean(self) -> Float[np.ndarray, " d"]:
        """Difference of digamma functions."""
        heads, tails = self._posterior
        return digamma(heads) - digamma(tails)

    @property
    def covariance(self) -> Float[np.ndarray, "d d"]:
        heads, tails = self._posterior
        return np.diag(polygamma(1, heads) + polygamma(1, tails))

    @property
    def mode(self) -> Float[np.ndarray, " d"]:
        heads, tails = self._posterior
        return np.log(heads / tails)

    def conditional_mean(self, output: Float[np.ndarray, "*s m k"]) -> Float[np.ndarray, "*s m"]:
        return expit(output[..., 0])

    def predictive(self, x: Float[np.ndarray, "m d"]) -> ExactPrediction:
        heads, tails = (x @ part for part in self._posterior)
        mean = heads / (heads + tails)
        epistemic = mean * (1 - mean) / (heads + tails + 1)
        return ExactPrediction(mean, epistemic, mean * (1 - mean) - epistemic)


@dataclass(frozen=True, eq=False, repr=False)
class GammaPoisson(AbstractConjugate):
    r"""Counters: $\lambda_i \sim \text{Gamma}(\alpha_i, \beta)$; coordinates are the log rates.

    Attributes:
        concentration: $\alpha$, one for each counter.
        rate: $\beta$.
    """

    concentration: Float[np.ndarray, " d"]
    rate: float

    @cached_property
    def _posterior(self) -> tuple[np.ndarray, np.ndarray]:
        return self.concentration + self._sums, self.rate + self._counts

    @property
    def _constant(self) -> float:
        prior = self.concentration * np.log(self.rate) - gammaln(self.concentration)
        return float(prior.sum() - gammaln(self.y + 1.0).sum())

    def log_joint(self, theta: Float[np.ndarray, "*s d"]) -> Float[np.ndarray, "*s"]:
        """The density of the log rate, which is that of the rate times the rate."""
        concentration, rate = self._posterior
        return np.asarray((concentration * theta - rate * np.exp(theta)).sum(-1) + self._constant)

    @property
    def log_evidence(self) -> float:
        concentration, rate = self._posterior
        return float((gammaln(concentration) - concentration * np.log(rate)).sum() + self._constant)

    @property
    def mean(self) -> Float[np.ndarray, " d"]:
        """Digamma less the log rate."""
        concentration, rate = self._posterior
        return digamma(concentration) - np.log(rate)

    @property
    def covariance(self) -> Float[np.ndarray, "d d"]:
        return np.diag(polygamma(1, self._posterior[0]))

    @property
    def mode(self) -> Float[np.ndarray, " d"]:
        concentration, rate = self._posterior
        return np.log(concentration / rate)

    def conditional_mean(self, output: Float[np.ndarray, "*s m k"]) -> Float[np.ndarray, "*s m"]:
        return np.exp(output[..., 0])

    def predictive(self, x: Float[np.ndarray, "m d"]) -> ExactPrediction:
        """Mean and variance of a gamma distribution; a count is as variable as it is large."""
        concentration, rate = (x @ part for part in self._posterior)
        return ExactPrediction(concentration / rate, concentration / rate**2, concentration / rate)


@dataclass(frozen=True, eq=False, repr=False)
class DirichletMultinomial(AbstractConjugate):
    r"""A die: $p \sim \text{Dirichlet}(\alpha)$; coordinates are logits.

    Logits with independent log-gamma priors, $e^{\eta_k} \sim \text{Gamma}(\alpha_k, 1)$, have such a softmax, and
    their sum $\sum_k e^{\eta_k}$ is independent of it: data change the one and not the other. Row i of a prediction
    asks for the probability of class i.

    Attributes:
        concentration: $\alpha$.
    """

    concentration: Float[np.ndarray, " k"]

    @cached_property
    def _posterior(self) -> np.ndarray:
        return self.concentration + np.bincount(self.y, minlength=len(self.concentration))

    def log_joint(self, theta: Float[np.ndarray, "*s k"]) -> Float[np.ndarray, "*s"]:
        prior = self.concentration * theta - np.exp(theta) - gammaln(self.concentration)
        thrown = (self._posterior - self.concentration) * log_softmax(theta, axis=-1)
        return np.asarray((prior + thrown).sum(-1))

    @property
    def log_evidence(self) -> float:
        prior, posterior = self.concentration, self._posterior
        parts = (gammaln(posterior) - gammaln(prior)).sum()
        return float(parts + gammaln(prior.sum()) - gammaln(posterior.sum()))

    @property
    def mean(self) -> Float[np.ndarray, " k"]:
        """Of a log probability and the log of the sum."""
        return digamma(self._posterior) - digamma(self._posterior.sum()) + digamma(self.concentration.sum())

    @property
    def covariance(self) -> Float[np.ndarray, "k k"]:
        """Log probabilities are anticorrelated, the log of the sum is shared."""
        shared = polygamma(1, self.concentration.sum()) - polygamma(1, self._posterior.sum())
        return np.diag(polygamma(1, self._posterior)) + shared

    @property
    def mode(self) -> Float[np.ndarray, " k"]:
        return np.log(self._posterior * self.concentration.sum() / self._posterior.sum())

    def conditional_mean(self, output: Float[np.ndarray, "*s m k"]) -> Float[np.ndarray, "*s m"]:
        """The probability of class i in row i."""
        return np.diagonal(softmax(output, axis=-1), axis1=-2, axis2=-1)

    def predictive(self, x: Float[np.ndarray, "m d"]) -> ExactPrediction:
        """Mean and variance of the classes that x asks for."""
        mean = x @ self._posterior / self._posterior.sum()
        epistemic = mean * (1 - mean) / (self._posterior.sum() + 1)
        return ExactPrediction(mean, epistemic, mean * (1 - mean) - epistemic)


def beta_binomial() -> BetaBinomial:
    """Three coins, flipped 2, 10 and 30 times, with different priors.

    >>> problem = beta_binomial()
    >>> problem.predictive(problem.x_new).mean.round(2).tolist()
    [0.5, 0.38, 0.73]
    """
    heads, tails = np.array([1.0, 2.0, 0.5]), np.array([1.0, 4.0, 0.5])
    x, y = _groups((2, 10, 30)), np.concatenate([[1, 0], np.arange(10) < 4, np.arange(30) < 21.5]).astype(int)
    prior = priors.LogitBeta(jnp.asarray(heads), jnp.asarray(tails))
    model = Model(Function(jnp.zeros(3), dot), likelihoods.Bernoulli(), prior)
    return BetaBinomial("beta_binomial()", model, x, y, np.eye(3), heads, tails)


def gamma_poisson() -> GammaPoisson:
    """Three counters, read 2, 5 and 20 times.

    >>> problem = gamma_poisson()
    >>> problem.predictive(problem.x_new).mean.round(2).tolist()
    [0.8, 2.18, 4.05]
    """
    concentration, rate = np.array([1.0, 2.0, 4.0]), 0.5
    y = np.concatenate([[1, 0], [3, 1, 2, 0, 4], np.arange(20) % 5 + 2 - (np.arange(20) < 1)]).astype(int)
    prior = priors.LogGamma(jnp.asarray(concentration), rate)
    model = Model(Function(jnp.zeros(3), dot), likelihoods.Poisson(), prior)
    return GammaPoisson("gamma_poisson()", model, _groups((2, 5, 20)), y, np.eye(3), concentration, rate)


def dirichlet_multinomial() -> DirichletMultinomial:
    """A die with four faces, one of which never came up in twelve throws.

    >>> problem = dirichlet_multinomial()
    >>> problem.predictive(problem.x_new).mean.round(2).tolist()
    [0.38, 0.32, 0.22, 0.08]
    """
    concentration = np.array([1.0, 2.0, 2.0, 1.5])
    y = np.repeat([0, 1, 2], [6, 4, 2])
    y = np.concatenate([y[::2], y[1::2]])
    prior = priors.LogGamma(jnp.asarray(concentration), 1.0)
    model = Model(Function(jnp.zeros(4), _same_logits), likelihoods.Categorical(), prior)
    return DirichletMultinomial("dirichlet_multinomial()", model, np.ones((len(y), 4)), y, np.eye(4), concentration)


def _groups(sizes: tuple[int, ...]) -> Float[np.ndarray, "n d"]:
    return np.repeat(np.eye(len(sizes)), sizes, axis=0)


def _same_logits(logits: Any, x: Any) -> Any:
    return logits
