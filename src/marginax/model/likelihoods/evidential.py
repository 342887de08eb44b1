r"""Evidential heads: one network that gives the parameters of a distribution over distributions.

They are offered because they are asked for, and are marked as what they are. The loss is **no likelihood of data**, and
what comes out is no posterior: `is_density` is False, `posterior.summary()` says so, and `loo` refuses. What the head
calls epistemic is set by the loss, and not by how much was seen: minimisers need not have any spread, or keep one with
endless data (Bengs, Huellermeier & Waegeman, 2022; Meinert, Gawlikowski & Lavin, 2023; Shen et al., 2024). So it is not
the `epistemic` part of a prediction, which is that between networks; ask the likelihood for `claimed_epistemic`.
"""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.scipy.special import digamma, gammaln
from jaxtyping import Array, Float, Num

from marginax.files import register
from marginax.model import distributions as dist
from marginax.model.likelihoods.abstract import AbstractLikelihood, Unknowns, check_width
from marginax.model.likelihoods.discrete import Categorical
from marginax.model.outcome import Outcome

_CAVEAT = (
    "evidential heads have no posterior: what they claim to be epistemic follows from their loss and need not shrink "
    "with data (Bengs et al., 2022)"
)


def _check_weight(weight: Any) -> None:
    if not isinstance(weight, Tracer) and not 0 <= weight < float("inf"):
        raise ValueError(f"weight must be >= 0 and finite, got {weight}")


@register("likelihood/evidential_categorical")
class EvidentialCategorical(AbstractLikelihood):
    r"""Classes by a Dirichlet distribution of their probabilities (Sensoy, Kaplan & Kandemir, 2018).

    $\alpha = 1 + \mathrm{softplus}(f)$; the loss of a label is the expected squared error of the probabilities and a
    divergence that takes away evidence for the other classes:
    $\sum_k E[(y_k - p_k)^2] + w\, \mathrm{KL}(\mathrm{Dir}(\tilde\alpha) \,\|\, \mathrm{Dir}(1))$ with
    $\tilde\alpha = y + (1 - y)\,\alpha$. The paper raises w from 0 to 1 over ten epochs; here it is a number.

    Args:
        weight: w, >= 0.

    >>> likelihood = EvidentialCategorical()
    >>> output = jnp.array([[-50.0, -50.0], [50.0, -50.0]])  # no evidence, and much for the first
    >>> print(likelihood.claimed_epistemic(output).round(2))
    [1.   0.04]
    """

    weight: float | Array = 0.1

    is_density: ClassVar[bool] = False
    caveat: ClassVar[str | None] = _CAVEAT

    def __check_init__(self):
        _check_weight(self.weight)

    def num_targets(self, output_size: int) -> int:
        if output_size < 2:
            raise ValueError(f"network must give at least 2 outputs for EvidentialCategorical(), got {output_size}")
        return 1

    def outcome(self, output_size: int) -> Outcome:
        return Outcome.CLASS

    def check(self, output_size: int, y: np.ndarray) -> None:
        Categorical().check(output_size, y)

    def concentration(self, output: Float[Array, "*n k"]) -> Float[Array, "*n k"]:
        r"""$\alpha$ of the Dirichlet distribution."""
        return 1.0 + jax.nn.softplus(output)

    def claimed_epistemic(self, output: Float[Array, "*n k"]) -> Float[Array, "*n"]:
        r"""$K / \sum_k \alpha_k$, which the paper calls uncertainty: 1 without evidence."""
        return output.shape[-1] / jnp.sum(self.concentration(output), axis=-1)

    def distribution(self, output: Float[Array, "*n k"], unknowns: Unknowns) -> dist.Categorical:
        """With the mean of the probabilities."""
        return dist.Categorical(jnp.log(self.concentration(output)))

    def log_prob(self, output: Float[Array, "n k"], y: Num[Array, " n"], unknowns: Unknowns) -> Float[Array, " n"]:
        """Minus the loss: no log probability."""
        alpha = self.concentration(output)
        total = jnp.sum(alpha, axis=-1, keepdims=True)
        probs, label = alpha / total, jax.nn.one_hot(y.astype(jnp.int32), output.shape[-1], dtype=output.dtype)
        error = jnp.sum((label - probs) ** 2 + probs * (1.0 - probs) / (total + 1.0), axis=-1)
        return -error - self.weight * divergence_from_uniform(label + (1.0 - label) * alpha)


def divergence_from_uniform(alpha: Float[Array, "*n k"]) -> Float[Array, "*n"]:
    """Of a Dirichlet distribution from the uniform one.

    >>> divergence_from_uniform(jnp.ones(3)).item()
    0.0
    """
    total = jnp.sum(alpha, axis=-1)
    log_density = gammaln(total) - gammaln(float(alpha.shape[-1])) - jnp.sum(gammaln(alpha), axis=-1)
    return log_density + jnp.sum((alpha - 1.0) * (digamma(alpha) - digamma(total)[..., None]), axis=-1)


@register("likelihood/evidential_gaussian")
class EvidentialGaussian(AbstractLikelihood):
    r"""Numbers by a normal-inverse-gamma distribution of mean and variance (Amini et al., 2020).

    Four outputs for each target, $\gamma$, $\nu$, $\alpha > 1$, $\beta$, all first ones first; what is predicted is
    Student's t with $2\alpha$ degrees of freedom, and the loss its negative log density and
    $w\, |y - \gamma|\, (2\nu + \alpha)$, which depends on the scale of y: standardise it.

    Args:
        weight: w, >= 0; 0.01 in the paper.

    >>> EvidentialGaussian().num_targets(8)
    2
    """

    weight: float | Array = 0.01

    is_density: ClassVar[bool] = False
    caveat: ClassVar[str | None] = _CAVEAT

    def __check_init__(self):
        _check_weight(self.weight)

    def num_targets(self, output_size: int) -> int:
        if output_size % 4:
            raise ValueError(f"network gives {output_size} outputs, but EvidentialGaussian() needs four per target")
        return output_size // 4

    def check(self, output_size: int, y: np.ndarray) -> None:
        check_width(output_size, self.num_targets(output_size), y)

    def normal_inverse_gamma(self, output: Float[Array, "*n k"]) -> tuple[Array, Array, Array, Array]:
        r"""$\gamma, \nu, \alpha, \beta$ for every target."""
        location, *others = jnp.split(output, 4, axis=-1)
        tiny = jnp.finfo(output.dtype).eps
        nu, alpha, beta = (jax.nn.softplus(other) + tiny for other in others)
        return location, nu, 1.0 + alpha, beta

    def claimed_epistemic(self, output: Float[Array, "*n k"]) -> Float[Array, "*n targets"]:
        r"""$\beta / (\nu (\alpha - 1))$, the variance of the mean, in squared units of y as the network sees it."""
        _, nu, alpha, beta = self.normal_inverse_gamma(output)
        return beta / (nu * (alpha - 1.0))

    def distribution(self, output: Float[Array, "*n k"], unknowns: Unknowns) -> dist.StudentT:
        """Mean and variance integrated out."""
        location, nu, alpha, beta = self.normal_inverse_gamma(output)
        return dist.StudentT(2.0 * alpha, location, jnp.sqrt(beta * (1.0 + nu) / (nu * alpha)))

    def log_prob(self, output: Float[Array, "n k"], y: Num[Array, "n *d"], unknowns: Unknowns) -> Float[Array, " n"]:
        """Minus the loss: no log probability, but for a weight of 0."""
        y = y[:, None] if y.ndim == 1 else y
        location, nu, alpha, _ = self.normal_inverse_gamma(output)
        penalty = jnp.abs(y - location) * (2.0 * nu + alpha)
        return jnp.sum(self.distribution(output, unknowns).log_prob(y) - self.weight * penalty, axis=-1)
