r"""From normal logits to class probabilities.

$\int \mathrm{softmax}(f)\, N(f \mid \mu, \Sigma)\, df$ has no closed form: three ways around that.
"""

import abc
import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import digamma
from jaxtyping import Array, Float

from marginax.files import register
from marginax.predict.classification import ClassSummary, summarise


class AbstractLink(eqx.Module):
    """How class probabilities are averaged over normal logits."""

    @property
    def pair(self) -> tuple[float, float]:
        """What a single logit is multiplied with to become two."""
        return 0.0, 1.0

    @abc.abstractmethod
    def summary(
        self,
        mean: Float[Array, "n k"],
        covariance: Float[Array, "n k k"],
        noise: Float[Array, "s k"],
        log_weight: Float[Array, ""],
        *,
        full: bool,
    ) -> ClassSummary:
        """Averages for n inputs, times a weight.

        Args:
            mean: of the logits.
            covariance: of the logits.
            noise: standard normal, one row for each draw; for what has no formula.
            log_weight: of this normal among others.
            full: whether to keep the covariance of the probabilities.
        """


@register("link/monte_carlo")
class MonteCarlo(AbstractLink):
    """Averages over draws of the logits: right in the limit, and every quantity from the same draws."""

    def summary(self, mean: Array, covariance: Array, noise: Array, log_weight: Array, *, full: bool) -> ClassSummary:
        log_weights = jnp.full(noise.shape[0], log_weight - math.log(noise.shape[0]))
        return summarise(draw_outputs(mean, covariance, noise), log_weights, full=full)


@register("link/probit")
class Probit(AbstractLink):
    r"""$p \approx \mathrm{softmax}\big(\mu / \sqrt{1 + \pi\,\mathrm{diag}\,\Sigma / 8}\big)$ (MacKay, 1992).

    The parts of the uncertainty have no such formula and come from draws.
    """

    def summary(self, mean: Array, covariance: Array, noise: Array, log_weight: Array, *, full: bool) -> ClassSummary:
        drawn = MonteCarlo().summary(mean, covariance, noise, log_weight, full=full)
        variances = jnp.diagonal(covariance, axis1=-2, axis2=-1)
        log_probs = jax.nn.log_softmax(mean / jnp.sqrt(1.0 + math.pi / 8.0 * variances))
        new = (log_probs + log_weight, jnp.exp(log_probs))
        return eqx.tree_at(lambda s: (s.log_probs, s.mean), drawn, new)


@register("link/laplace_bridge")
class LaplaceBridge(AbstractLink):
    """A Dirichlet distribution of the probabilities, by matching in the basis of logits (Hobbhahn et al., 2022).

    All parts of the uncertainty are in closed form. Logits are first conditioned on a sum of zero.
    """

    @property
    def pair(self) -> tuple[float, float]:
        return -0.5, 0.5

    def summary(self, mean: Array, covariance: Array, noise: Array, log_weight: Array, *, full: bool) -> ClassSummary:
        num = mean.shape[-1]
        rows = covariance.sum(-1)
        variances = jnp.diagonal(covariance, axis1=-2, axis2=-1)
        total = jnp.maximum(rows.sum(-1), 1e-6 * variances.sum(-1))[:, None] + jnp.finfo(mean.dtype).tiny
        mean = mean - rows * mean.sum(-1, keepdims=True) / total
        variances = variances - rows**2 / total
        scores = jnp.exp(mean + jax.nn.logsumexp(-mean, axis=-1, keepdims=True))
        alpha = (1.0 - 2.0 / num + scores / num**2) / jnp.maximum(variances, 1e-12)
        count = alpha.sum(-1, keepdims=True)
        probs = alpha / count
        entropy = digamma(count[:, 0] + 1) - jnp.sum(probs * digamma(alpha + 1), axis=-1)
        weight = jnp.exp(log_weight)
        between = None
        if full:
            between = jax.vmap(jnp.diag)(probs) - probs[:, :, None] * probs[:, None, :]
            between = weight * between / (count[..., None] + 1)
        return ClassSummary(
            weight,
            jnp.log(probs) + log_weight,
            weight * entropy,
            probs,
            weight * probs * (1 - probs) / (count + 1),
            between,
        )


def draw_outputs(
    mean: Float[Array, "n k"], covariance: Float[Array, "n k k"], noise: Float[Array, "s k"]
) -> Float[Array, "s n k"]:
    """Normal outputs for all inputs; a draw uses the same noise for each of them."""
    width = mean.shape[-1]
    if width == 1:
        return mean + jnp.sqrt(jnp.maximum(covariance[..., 0], 0.0)) * noise[:, None]
    floor = 1e-6 * jnp.trace(covariance, axis1=-2, axis2=-1) / width + jnp.finfo(mean.dtype).tiny
    root = jnp.linalg.cholesky(covariance + floor[:, None, None] * jnp.eye(width, dtype=mean.dtype))
    return mean + jnp.einsum("nij,sj->sni", root, noise)
