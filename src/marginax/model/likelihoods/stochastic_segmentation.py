r"""Masks whose pixels belong together: a low-rank normal of all logits of an image (Monteiro et al., 2020).

$\eta \mid x \sim N(\mu(x),\; P(x) P(x)^\top + D(x)), \quad y_i \mid \eta \sim \mathrm{Bernoulli}(\sigma(\eta_i))$

$\log p(y \mid x) \approx \log \frac1S \sum_s \prod_i p(y_i \mid \eta^{(s)}_i)$, which is no more than it in
expectation and rises to it with S. Diagonal D and columns of P come from the network, a map of channels each.
"""

from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Num, PRNGKeyArray
from jaxtyping import Key as KeyOf

from marginax._kernels.random import normal
from marginax.files import register
from marginax.model.distribution import AbstractDistribution
from marginax.model.likelihoods.abstract import AbstractLikelihood, Unknowns, check_width
from marginax.model.likelihoods.discrete import check_counts
from marginax.model.outcome import Outcome

_WIDE = 2.0  # standard deviation of a logit above which the logistic side is the smoother one to integrate


class LowRankLogits(AbstractDistribution):
    """Yes-or-no labels whose logits are jointly normal: given the logits they are independent.

    Args:
        mean_logits: means of the logits.
        log_diagonal: log variances of what is each label's own.
        factors: columns of what labels share.
        num_mc: draws of logits to estimate a joint probability by.
    """

    outcome: ClassVar[Outcome] = Outcome.LABELS
    mean_logits: Float[Array, "*n d"]
    log_diagonal: Float[Array, "*n d"]
    factors: Float[Array, "*n r d"]
    num_mc: int = eqx.field(static=True)

    def draw_logits(self, key: PRNGKeyArray, num: int) -> Float[Array, "num *n d"]:
        """Independent draws of all logits together."""
        dims, rank = self.mean_logits.shape[:-1], self.factors.shape[-2]
        own = normal(key, (num, *self.mean_logits.shape), self.mean_logits.dtype)
        drawn = self.mean_logits + jnp.exp(0.5 * self.log_diagonal) * own
        if not rank:
            return drawn
        shared = normal(key, (num, *dims, rank), self.mean_logits.dtype, stream=1)
        return drawn + jnp.einsum("...r,...rd->...d", shared, self.factors)

    def estimate_log_prob(self, value: Num[Array, "*n d"], key: PRNGKeyArray) -> Float[Array, "*n"]:
        """Log of the mean probability of all labels of a row over draws of the logits."""
        logits = self.draw_logits(key, self.num_mc)
        # logits are the same for all values: of several masks of an image, only the first term has to be computed
        explained = jnp.einsum("s...d,...d->s...", logits, jnp.asarray(value, logits.dtype))
        joint = explained - jnp.sum(jax.nn.softplus(logits), axis=-1)
        return jax.nn.logsumexp(joint, axis=0) - jnp.log(self.num_mc)

    def log_prob(self, value: Num[Array, "*n d"]) -> Float[Array, "*n 1"]:
        """The same by draws that are always the same."""
        return self.estimate_log_prob(value, jax.random.key(0))[..., None]

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Int[Array, "..."]:
        """Draw logits, then labels."""
        for_logits, for_labels = jax.random.split(key)
        num = int(np.prod(shape))
        logits = self.draw_logits(for_logits, num).reshape(*shape, *self.mean_logits.shape)
        return jax.random.bernoulli(for_labels, jax.nn.sigmoid(logits)).astype(jnp.int32)

    def sample_logits(self, key: PRNGKeyArray) -> Float[Array, "*n d"]:
        """One draw of all logits together."""
        return self.draw_logits(key, 1)[0]

    @property
    def logits(self) -> Float[Array, "*n d"]:
        """Of each label alone: that of its marginal probability."""
        variance = jnp.exp(self.log_diagonal) + jnp.sum(self.factors**2, axis=-2)
        return marginal_logit(self.mean_logits, jnp.sqrt(variance))

    @property
    def mean(self) -> Float[Array, "*n d"]:
        """Marginal probability of each label to be 1."""
        return jax.nn.sigmoid(self.logits)

    @property
    def variance(self) -> Float[Array, "*n d"]:
        """p (1 - p)."""
        return self.mean * (1 - self.mean)


@register("likelihood/stochastic_segmentation")
class StochasticSegmentation(AbstractLikelihood):
    r"""A mask as a whole: the network gives $2 + \text{rank}$ channels, which are mean, log diagonal and factors.

    The network is called per image and gives maps (2 + rank, height, width), as `mx.nets.UNet` does, or vectors with
    the channels in this order. Targets are masks (n, height, width) of 0 and 1. For several masks of an image, see
    `Graders`. Predictions sample whole masks: `posterior.predict(x).sample(16, key=0)` has axes (sample, image, pixel).

    The log likelihood is estimated by draws of logits, fresh ones in every step of `MAP`, `DeepEnsemble`, dropout and
    `VI`. Methods that want a function and not an estimate (HMC) always have the same ones for a row of the data.

    Args:
        rank: columns of the factor; 0 for pixels that have nothing in common.
        num_mc: draws of the logits of an image.

    >>> import marginax as mx
    >>> likelihood = StochasticSegmentation(rank=3, num_mc=5)
    >>> net = mx.nets.UNet((1, 8, 8), (4, 8), out_channels=2 + likelihood.rank, groups=4, key=0)
    >>> x, masks = np.zeros((6, 1, 8, 8)), np.ones((6, 8, 8))
    >>> posterior = mx.fit(mx.Model(net, likelihood), (x, masks), mx.infer.MAP(num_epochs=1), key=0)
    >>> posterior.predict(x).sample(16, key=0).shape
    (16, 6, 64)
    """

    rank: int = eqx.field(default=10, static=True)
    num_mc: int = eqx.field(default=20, static=True)

    flattens: ClassVar[bool] = True
    is_estimated: ClassVar[bool] = True

    def __check_init__(self):
        for name, least in (("rank", 0), ("num_mc", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be an int >= {least}, got {value!r}")

    def num_targets(self, output_size: int) -> int:
        """Pixels."""
        if output_size % (2 + self.rank):
            raise ValueError(
                f"network must give 2 + rank = {2 + self.rank} numbers for every pixel (mean, log diagonal, factors), "
                f"got {output_size} outputs: use out_channels={2 + self.rank}"
            )
        return output_size // (2 + self.rank)

    def outcome(self, output_size: int) -> Outcome:
        return Outcome.LABELS

    def check(self, output_size: int, y: np.ndarray) -> None:
        check_width(output_size, self.num_targets(output_size), y)
        check_counts(y, 1, "StochasticSegmentation()")

    def distribution(self, output: Float[Array, "*n k"], unknowns: Unknowns) -> LowRankLogits:
        maps = output.reshape(*output.shape[:-1], 2 + self.rank, -1)
        return LowRankLogits(maps[..., 0, :], maps[..., 1, :], maps[..., 2:, :], self.num_mc)

    def log_prob(self, output: Float[Array, "n k"], y: Num[Array, "n *d"], unknowns: Unknowns) -> Float[Array, " n"]:
        """Estimated by the same draws for every row."""
        keys = jnp.broadcast_to(jax.random.key(0), output.shape[:1])
        return self.estimate_log_prob(output, y, unknowns, keys)

    def estimate_log_prob(
        self, output: Float[Array, "n k"], y: Num[Array, "n *d"], unknowns: Unknowns, keys: KeyOf[Array, " n"]
    ) -> Float[Array, " n"]:
        y = y[:, None] if y.ndim == 1 else y
        return jax.vmap(lambda d, y, key: d.estimate_log_prob(y, key))(self.distribution(output, unknowns), y, keys)


def marginal_logit(mean: Float[Array, "..."], scale: Float[Array, "..."]) -> Float[Array, "..."]:
    r"""The logit of $E\,\sigma(\eta)$ with normal $\eta$.

    By the trapezoidal rule over the normal where it is narrow, else over the logistic distribution of which $\sigma$ is
    the distribution function, $E\,\Phi((\mu - L) / s)$: both converge exponentially, to about 1e-8.

    >>> print(marginal_logit(jnp.array([0.0, 1.0, 1.0]), jnp.array([3.0, 0.0, 4.0])).round(3))
    [0.    1.    0.366]
    """
    narrow, wide = jnp.minimum(scale, _WIDE), jnp.maximum(scale, _WIDE)
    z, logistic = np.arange(-8.0, 8.01, 0.5), np.arange(-40.0, 40.1, 1.0)
    z_weights = -0.5 * z**2 - np.logaddexp.reduce(-0.5 * z**2)
    logistic_weights = logistic - 2 * np.logaddexp(0, logistic)
    logistic_weights -= np.logaddexp.reduce(logistic_weights)

    def over_normal(sign: int) -> Array:
        return _log_mean(lambda at: jax.nn.log_sigmoid(sign * (mean + narrow * at)), z, z_weights, mean)

    def over_logistic(sign: int) -> Array:
        return _log_mean(
            lambda at: jax.scipy.special.log_ndtr(sign * (mean - at) / wide), logistic, logistic_weights, mean
        )

    return jnp.where(scale <= _WIDE, over_normal(1) - over_normal(-1), over_logistic(1) - over_logistic(-1))


def _log_mean(log_function: Callable[[Array], Array], nodes: np.ndarray, log_weights: np.ndarray, like: Array) -> Array:
    """Log of a weighted mean over nodes, one at a time: arrays are large."""

    def add(total: Array, node: tuple[Array, Array]) -> tuple[Array, None]:
        return jnp.logaddexp(total, log_function(node[0]) + node[1]), None

    pairs = jnp.asarray(nodes, like.dtype), jnp.asarray(log_weights, like.dtype)
    return jax.lax.scan(add, jnp.full_like(like, -jnp.inf), pairs)[0]
