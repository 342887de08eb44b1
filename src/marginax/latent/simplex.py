"""Conjugate priors of probabilities that sum to one: Dirichlet, and sticks that are broken."""

import jax
import jax.numpy as jnp
from jax.scipy.special import digamma, gammaln
from jaxtyping import Array, Float, PRNGKeyArray

from marginax._kernels.gamma import log_gamma
from marginax.files import register
from marginax.latent.family import AbstractFamily, check_positive, tiny


@register("latent/dirichlet")
class Dirichlet(AbstractFamily):
    r"""$\pi \sim \text{Dirichlet}(\alpha, \dots, \alpha)$; small $\alpha$ leaves components empty that are not needed.

    Points are the logarithms of the odds against the last probability. Leading axes are independent.

    Args:
        concentration: $\alpha$, by default one over the number of probabilities.

    >>> belief = Dirichlet(1.0).conjugate(jnp.array([3.0, 0.0]))
    >>> belief.tolist(), float(jnp.exp(Dirichlet(1.0).natural(Dirichlet(1.0).centre(belief)))[0].round(3))
    ([4.0, 1.0], 0.8)
    """

    concentration: float | Array | None = None

    def __check_init__(self):
        if self.concentration is not None:
            check_positive("concentration", self.concentration)

    def _prior(self, num: int) -> float | Array:
        return 1.0 / num if self.concentration is None else self.concentration

    def conjugate(self, statistics: Float[Array, "*b k"]) -> Float[Array, "*b k"]:
        return self._prior(statistics.shape[-1]) + statistics

    def maximise(self, statistics: Float[Array, "*b k"]) -> Float[Array, "*b m"]:
        logs = jnp.log(statistics + tiny(statistics.dtype))
        return logs[..., :-1] - logs[..., -1:]

    def natural(self, params: Float[Array, "*b m"]) -> Float[Array, "*b k"]:
        """Log probabilities."""
        return jax.nn.log_softmax(jnp.concatenate([params, jnp.zeros_like(params, shape=(*params.shape[:-1], 1))], -1))

    def expected_natural(self, belief: Float[Array, "*b k"]) -> Float[Array, "*b k"]:
        return digamma(belief) - digamma(jnp.sum(belief, -1, keepdims=True))

    def divergence(self, belief: Float[Array, "*b k"]) -> Float[Array, ""]:
        prior = jnp.broadcast_to(jnp.asarray(self._prior(belief.shape[-1]), belief.dtype), belief.shape)
        gained = jnp.sum((belief - prior) * self.expected_natural(belief), -1)
        return jnp.sum(gained + _log_normaliser(belief) - _log_normaliser(prior))

    def log_prior(self, params: Float[Array, "*b m"]) -> Float[Array, ""]:
        logs = self.natural(params)
        prior = jnp.broadcast_to(jnp.asarray(self._prior(logs.shape[-1]), logs.dtype), logs.shape)
        return jnp.sum(jnp.sum(prior * logs, -1) + _log_normaliser(prior))

    def draw(self, belief: Float[Array, "*b k"], *, key: PRNGKeyArray) -> Float[Array, "*b m"]:
        logs = log_gamma(key, belief)
        return logs[..., :-1] - logs[..., -1:]

    def centre(self, belief: Float[Array, "*b k"]) -> Float[Array, "*b m"]:
        return self.maximise(belief)


@register("latent/stick_breaking")
class StickBreaking(AbstractFamily):
    r"""$\pi_k = v_k \prod_{j<k} (1 - v_j)$ with $v_k \sim \text{Beta}(1, \alpha)$ and $v_K = 1$.

    The truncated Dirichlet process (Blei & Jordan, 2006): weights decay, and K is only the most that are used. Points
    are the logits of the $v_k$.

    Args:
        concentration: $\alpha$; the number of components in use grows with $\alpha \log N$.

    >>> weights = StickBreaking(1.0)
    >>> jnp.exp(weights.natural(jnp.zeros(2))).tolist()
    [0.5, 0.25, 0.25]
    """

    concentration: float | Array = 1.0

    def __check_init__(self):
        check_positive("concentration", self.concentration)

    def conjugate(self, statistics: Float[Array, " k"]) -> dict[str, Float[Array, " m"]]:
        return {"broken": 1.0 + statistics[:-1], "left": self.concentration + _rest(statistics)}

    def maximise(self, statistics: Float[Array, " k"]) -> Float[Array, " m"]:
        counts = statistics + tiny(statistics.dtype)
        return jnp.log(counts[:-1]) - jnp.log(_rest(counts))

    def natural(self, params: Float[Array, " m"]) -> Float[Array, " k"]:
        """Log probabilities."""
        return _sticks(jax.nn.log_sigmoid(params), jax.nn.log_sigmoid(-params))

    def expected_natural(self, belief: dict[str, Float[Array, " m"]]) -> Float[Array, " k"]:
        both = digamma(belief["broken"] + belief["left"])
        return _sticks(digamma(belief["broken"]) - both, digamma(belief["left"]) - both)

    def divergence(self, belief: dict[str, Float[Array, " m"]]) -> Float[Array, ""]:
        pairs = jnp.stack([belief["broken"], belief["left"]], -1)
        prior = jnp.broadcast_to(self._prior(pairs.dtype), pairs.shape)
        logs = digamma(pairs) - digamma(jnp.sum(pairs, -1, keepdims=True))
        return jnp.sum(jnp.sum((pairs - prior) * logs, -1) + _log_normaliser(pairs) - _log_normaliser(prior))

    def log_prior(self, params: Float[Array, " m"]) -> Float[Array, ""]:
        logs = jnp.stack([jax.nn.log_sigmoid(params), jax.nn.log_sigmoid(-params)], -1)
        prior = self._prior(params.dtype)
        return jnp.sum(jnp.sum(prior * logs, -1) + _log_normaliser(prior))

    def draw(self, belief: dict[str, Float[Array, " m"]], *, key: PRNGKeyArray) -> Float[Array, " m"]:
        first, second = jax.random.split(key)
        return log_gamma(first, belief["broken"]) - log_gamma(second, belief["left"])

    def centre(self, belief: dict[str, Float[Array, " m"]]) -> Float[Array, " m"]:
        return jnp.log(belief["broken"]) - jnp.log(belief["left"])

    def _prior(self, dtype: jnp.dtype) -> Float[Array, " 2"]:
        return jnp.stack([jnp.ones((), dtype), jnp.asarray(self.concentration, dtype)])


def _log_normaliser(concentration: Float[Array, "*b k"]) -> Float[Array, "*b"]:
    """Of the Dirichlet density: the log of one over the integral."""
    return gammaln(jnp.sum(concentration, -1)) - jnp.sum(gammaln(concentration), -1)


def _rest(counts: Float[Array, " k"]) -> Float[Array, " m"]:
    """What comes after each but the last."""
    return jnp.cumsum(counts[::-1])[::-1][1:]


def _sticks(broken: Float[Array, " m"], left: Float[Array, " m"]) -> Float[Array, " k"]:
    """Log weights from the logs of what is broken off and of what is left."""
    before = jnp.concatenate([jnp.zeros(1, left.dtype), jnp.cumsum(left)])
    return before + jnp.concatenate([broken, jnp.zeros(1, broken.dtype)])
