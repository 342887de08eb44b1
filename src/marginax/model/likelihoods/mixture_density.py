r"""Targets with several peaks: the network gives a mixture of normals (Bishop, 1994)."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PRNGKeyArray

from marginax.files import register
from marginax.model.distribution import AbstractDistribution, as_floating
from marginax.model.distributions import Normal
from marginax.model.likelihoods.abstract import AbstractLikelihood, Unknowns, check_width

_NUM_NODES = 40  # of Gauss and Hermite's rule, for each component


@register("distribution/normal_mixture")
class NormalMixture(AbstractDistribution):
    """A mixture of normals; the last axis of the parameters runs over its components.

    >>> NormalMixture(jnp.zeros(2), jnp.array([-1.0, 1.0]), jnp.ones(2)).variance.item()  # 1 within, 1 between
    2.0
    """

    logits: Array = eqx.field(converter=as_floating)
    loc: Array = eqx.field(converter=as_floating)
    scale: Array = eqx.field(converter=as_floating)

    @property
    def weights(self) -> Array:
        """Of the components."""
        return jax.nn.softmax(self.logits, axis=-1)

    @property
    def mean(self) -> Array:
        return jnp.sum(self.weights * self.loc, axis=-1)

    @property
    def variance(self) -> Array:
        away = self.loc - self.mean[..., None]
        return jnp.sum(self.weights * (jnp.square(self.scale) + jnp.square(away)), axis=-1)

    def log_prob(self, value: ArrayLike) -> Array:
        parts = Normal(self.loc, self.scale).log_prob(jnp.asarray(value)[..., None])
        return jax.nn.logsumexp(jax.nn.log_softmax(self.logits, axis=-1) + parts, axis=-1)

    def cdf(self, value: ArrayLike) -> Array:
        return jnp.sum(self.weights * ndtr((jnp.asarray(value)[..., None] - self.loc) / self.scale), axis=-1)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        choosing, drawing = jax.random.split(key)
        full = (*shape, *self.logits.shape[:-1])
        chosen = jax.random.categorical(choosing, self.logits, shape=full)[..., None]
        loc, scale = (jnp.broadcast_to(leaf, (*full, leaf.shape[-1])) for leaf in (self.loc, self.scale))
        noise = jax.random.normal(drawing, full, self.loc.dtype)
        picked = (jnp.take_along_axis(leaf, chosen, axis=-1)[..., 0] for leaf in (loc, scale))
        return next(picked) + next(picked) * noise

    def affine(self, shift: ArrayLike, factor: ArrayLike) -> "NormalMixture":
        shift, factor = jnp.asarray(shift)[..., None], jnp.asarray(factor)[..., None]
        return NormalMixture(self.logits, shift + factor * self.loc, jnp.abs(factor) * self.scale)


@register("likelihood/mixture_density")
class MixtureDensity(AbstractLikelihood):
    r"""$y \sim \sum_k w_k(x)\, N(\mu_k(x), s_k(x)^2)$: the network gives 3 K outputs per target.

    Those are, for each target, K logits of the weights, K means and K raw scales (through a softplus). Means start
    spread over the range of standardised targets, so that components are told apart from the first step.

    Args:
        num_components: K.
        min_scale: smallest scale of a component, > 0, which keeps one from collapsing onto a single target.

    >>> MixtureDensity(num_components=2).num_targets(6)
    1
    """

    num_components: int = eqx.field(default=3, static=True)
    min_scale: float = 1e-2

    def __check_init__(self):
        num = self.num_components
        if isinstance(num, bool) or not isinstance(num, int) or num < 1:
            raise ValueError(f"num_components must be an int >= 1, got {num!r}")
        if not self.min_scale > 0:
            raise ValueError(f"min_scale must be > 0, got {self.min_scale}")

    def num_targets(self, output_size: int) -> int:
        per_target = 3 * self.num_components
        if output_size % per_target or not output_size:
            raise ValueError(
                f"network gives {output_size} outputs, but {self.num_components} components take {per_target} a target"
            )
        return output_size // per_target

    def check(self, output_size: int, y: np.ndarray) -> None:
        check_width(output_size, self.num_targets(output_size), y)

    def distribution(self, output: Float[Array, "*n k"], unknowns: Unknowns) -> NormalMixture:
        num = self.num_components
        logits, loc, raw = jnp.split(output.reshape(*output.shape[:-1], -1, 3 * num), 3, axis=-1)
        start = jnp.linspace(-1, 1, num, dtype=output.dtype) if num > 1 else 0.0
        return NormalMixture(logits, loc + start, jax.nn.softplus(raw) + self.min_scale)

    def fisher(self, output: Float[Array, "n k"], unknowns: Unknowns) -> Float[Array, "n k k"]:
        """The mean of squared scores, by Gauss and Hermite's rule around every component."""
        nodes, chances = (jnp.asarray(each, output.dtype) for each in np.polynomial.hermite_e.hermegauss(_NUM_NODES))
        chances = chances / jnp.sum(chances)

        def of_target(output: Float[Array, " m"]) -> Float[Array, "m m"]:
            mixture = self.distribution(output, unknowns)
            y = mixture.loc[0][:, None] + mixture.scale[0][:, None] * nodes
            weights = mixture.weights[0][:, None] * chances
            scores = jax.vmap(jax.grad(lambda f, y: self.distribution(f, unknowns).log_prob(y)[0]), (None, 0))(
                output, y.reshape(-1, 1)
            )
            return jnp.einsum("s,si,sj->ij", weights.ravel(), scores, scores)

        def one(output: Float[Array, " k"]) -> Float[Array, "k k"]:
            blocks = jax.vmap(of_target)(output.reshape(-1, 3 * self.num_components))
            return jax.scipy.linalg.block_diag(*blocks)

        return jax.vmap(one)(output)
