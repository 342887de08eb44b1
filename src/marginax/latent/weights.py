r"""Weights of regressions with normal noise, one regression for each of D columns.

$y_{id} \sim N(w_d^\top \phi_i, 1/\tau), \quad w_d \mid \tau \sim N(0, (\tau P_0)^{-1}), \quad
\tau \sim \text{Gamma}(a_0, b_0)$ or known.

Given $\sum_i \phi \phi^\top$, $\sum_i y \phi$ and $\sum_i y^2$ the posterior is normal-gamma (normal where the noise is
known), and what follows from it is a formula (Bishop, 2006, section 3.3 and exercises 3.12 and 3.23).
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import digamma, gammaln
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from marginax._kernels.gamma import log_gamma
from marginax.latent.family import AbstractFamily
from marginax.latent.normals import LOG_2PI
from marginax.model.abstract import Params


class RegressionWeights(AbstractFamily):
    r"""Normal weights, and the precision of the noise.

    A point is {"weights": (D, r), "log_precision": ()}, the latter where the noise is unknown.

    Args:
        shrinkage: $P_0$, the precision of weights in units of the noise's: a number or one for each feature.
        noise_scale: $\tau^{-1/2}$ where it is known, else None.
        shape: $a_0$.
        rate: $b_0$.
    """

    shrinkage: float | Array
    noise_scale: float | Array | None
    shape: float | Array = 1.0
    rate: float | Array = 1.0

    @property
    def is_known(self) -> bool:
        """Whether the noise is."""
        return self.noise_scale is not None

    def conjugate(self, statistics: PyTree) -> PyTree:
        precision = statistics["second"] + jnp.diag(self._prior(statistics["first"]))
        mean = jnp.linalg.solve(precision, statistics["first"][..., None])[..., 0]
        belief = {"mean": mean, "precision": precision}
        if self.is_known:
            return belief
        left = 0.5 * (statistics["square"] - jnp.sum(mean * statistics["first"]))
        return belief | {"a": self.shape + 0.5 * statistics["count"], "b": self.rate + jnp.maximum(left, 0.0)}

    def maximise(self, statistics: PyTree) -> Params:
        small = 1e-10 * jnp.eye(statistics["second"].shape[-1], dtype=statistics["second"].dtype)
        weights = jnp.linalg.solve(statistics["second"] + small, statistics["first"][..., None])[..., 0]
        left = statistics["square"] - jnp.sum(weights * statistics["first"])
        least = 1e-10 * statistics["square"] + 1e-30
        return self._point(weights, jnp.log(statistics["count"]) - jnp.log(jnp.maximum(left, least)))

    def natural(self, params: Params) -> PyTree:
        weights, log_tau = params["weights"], self._log_precision(params)
        tau = jnp.exp(log_tau)
        second = tau * weights[:, :, None] * weights[:, None, :]
        return {"first": tau * weights, "second": second, "precision": tau, "log_precision": log_tau}

    def expected_natural(self, belief: PyTree) -> PyTree:
        tau, log_tau = self.expected_precision(belief)
        mean, covariance = belief["mean"], jnp.linalg.inv(belief["precision"])
        second = tau * mean[:, :, None] * mean[:, None, :] + covariance
        return {"first": tau * mean, "second": second, "precision": tau, "log_precision": log_tau}

    def divergence(self, belief: PyTree) -> Float[Array, ""]:
        mean, precision = belief["mean"], belief["precision"]
        prior, (tau, _) = self._prior(mean), self.expected_precision(belief)
        trace = jnp.sum(prior * jnp.diagonal(jnp.linalg.inv(precision), axis1=1, axis2=2), -1)
        logs = jnp.linalg.slogdet(precision)[1] - jnp.sum(jnp.log(prior))
        total = 0.5 * jnp.sum(trace - mean.shape[1] + logs + tau * jnp.sum(prior * mean**2, -1))
        if self.is_known:
            return total
        a, b, a0, b0 = belief["a"], belief["b"], jnp.asarray(self.shape, mean.dtype), jnp.asarray(self.rate, mean.dtype)
        gained = (a - a0) * digamma(a) - gammaln(a) + gammaln(a0) + a0 * (jnp.log(b) - jnp.log(b0))
        return total + gained + a * (b0 - b) / b

    def log_prior(self, params: Params) -> Float[Array, ""]:
        weights, log_tau = params["weights"], self._log_precision(params)
        prior = self._prior(weights)
        logs = 0.5 * (log_tau + jnp.log(prior) - LOG_2PI)
        total = jnp.sum(logs - 0.5 * jnp.exp(log_tau) * prior * weights**2)
        if self.is_known:
            return total
        a, b = jnp.asarray(self.shape, weights.dtype), jnp.asarray(self.rate, weights.dtype)
        return total + a * jnp.log(b) - gammaln(a) + a * log_tau - b * jnp.exp(log_tau)

    def draw(self, belief: PyTree, *, key: PRNGKeyArray) -> Params:
        for_tau, for_weights = jax.random.split(key)
        log_tau = self.expected_precision(belief)[1]
        if not self.is_known:
            log_tau = log_gamma(for_tau, belief["a"]) - jnp.log(belief["b"])
        noise = jax.random.normal(for_weights, belief["mean"].shape, belief["mean"].dtype)
        root = jnp.swapaxes(jnp.linalg.cholesky(belief["precision"]), 1, 2)
        away = jax.scipy.linalg.solve_triangular(root, noise[..., None])[..., 0]
        return self._point(belief["mean"] + jnp.exp(-0.5 * log_tau) * away, log_tau)

    def centre(self, belief: PyTree) -> Params:
        return self._point(belief["mean"], jnp.log(self.expected_precision(belief)[0]))

    def expected_precision(self, belief: PyTree) -> tuple[Array, Array]:
        """Expectations of the noise's precision and of its logarithm."""
        if self.is_known:
            log_tau = self._log_precision({"weights": belief["mean"]})
            return jnp.exp(log_tau), log_tau
        return belief["a"] / belief["b"], digamma(belief["a"]) - jnp.log(belief["b"])

    def _log_precision(self, params: Params) -> Array:
        if not self.is_known:
            return params["log_precision"]
        return -2.0 * jnp.log(jnp.asarray(self.noise_scale, params["weights"].dtype))

    def _point(self, weights: Array, log_tau: Array) -> Params:
        return {"weights": weights} if self.is_known else {"weights": weights, "log_precision": log_tau}

    def _prior(self, like: Any) -> Float[Array, " r"]:
        return jnp.broadcast_to(jnp.asarray(self.shrinkage, like.dtype), (like.shape[-1],))
