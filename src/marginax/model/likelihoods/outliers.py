r"""Targets of which some are grossly wrong: a normal and a wider one around the same mean (Tukey, 1960)."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PRNGKeyArray

from marginax.files import register
from marginax.model.beta import Beta
from marginax.model.distribution import AbstractDistribution, as_floating
from marginax.model.distributions import LogNormal, Normal
from marginax.model.likelihoods.abstract import AbstractLikelihood, Unknowns
from marginax.model.likelihoods.mixture_density import NormalMixture
from marginax.model.likelihoods.real import Gaussian
from marginax.model.numpyro_distribution import from_numpyro
from marginax.model.scale import FromNetwork, Positive, check_scale, initial_log_scale, log_prior_of_log

_NUM_NODES = 201
_FAR = 9.0  # standard deviations of the wide component that are integrated over, to each side


@register("distribution/contaminated_normal")
class ContaminatedNormal(AbstractDistribution):
    """A normal, and with a chance whose logit is `logit_share` a wider one around the same mean.

    >>> seen = ContaminatedNormal(0.0, 1.0, 10.0, jnp.log(1 / 9))  # one in ten
    >>> print(seen.variance.round(2), seen.label_errors(jnp.array([0.0, 5.0])).round(3))
    10.9 [0.011 1.   ]
    """

    loc: Array = eqx.field(converter=as_floating)
    scale: Array = eqx.field(converter=as_floating)
    wide_scale: Array = eqx.field(converter=as_floating)
    logit_share: Array = eqx.field(converter=as_floating)

    @property
    def mixture(self) -> NormalMixture:
        """The two components along a last axis: clean and wide."""
        logits = jnp.stack([jax.nn.log_sigmoid(-self.logit_share), jax.nn.log_sigmoid(self.logit_share)], axis=-1)
        shape = jnp.broadcast_shapes(self.loc.shape, self.scale.shape, self.wide_scale.shape)
        scales = [jnp.broadcast_to(each, shape) for each in (self.scale, self.wide_scale)]
        return NormalMixture(
            jnp.broadcast_to(logits, (*shape, 2)),
            jnp.broadcast_to(self.loc[..., None], (*shape, 2)),
            jnp.stack(scales, axis=-1),
        )

    @property
    def mean(self) -> Array:
        return self.mixture.mean

    @property
    def variance(self) -> Array:
        return self.mixture.variance

    def log_prob(self, value: ArrayLike) -> Array:
        return self.mixture.log_prob(value)

    def cdf(self, value: ArrayLike) -> Array:
        return self.mixture.cdf(value)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        return self.mixture.sample(key, shape)

    def affine(self, shift: ArrayLike, factor: ArrayLike) -> "ContaminatedNormal":
        factor = jnp.asarray(factor)
        scale, wide_scale = jnp.abs(factor) * self.scale, jnp.abs(factor) * self.wide_scale
        return ContaminatedNormal(shift + factor * self.loc, scale, wide_scale, self.logit_share)

    def hidden_logits(self, value: ArrayLike) -> Array:
        """Of being clean and of being an outlier."""
        found = self.mixture
        parts = Normal(found.loc, found.scale).log_prob(jnp.asarray(value)[..., None])
        return jax.nn.log_softmax(found.logits, axis=-1) + parts

    def label_errors(self, value: ArrayLike) -> Array:
        return jax.nn.softmax(self.hidden_logits(value), axis=-1)[..., 1]


@register("likelihood/outliers")
class Outliers(AbstractLikelihood):
    r"""Normal targets, a share $w$ of which has a gross error: $y \sim (1 - w)\, N(f, s^2) + w\, N(f, s^2 + v^2)$.

    Each target of a row has its own chance of a gross error. Predictions are of targets without one,
    `posterior.predict_observed(x)` is of targets as they would be seen, and `posterior.label_errors(x, y)` says of each
    target how probable it is that it is an outlier.

    Args:
        likelihood: `Gaussian(...)` of the targets that are right.
        share: $w$: a number between 0 and 1 if it is known, `mx.priors.Beta(a, b)` if it is to be learned.
        width: $v$, the standard deviation of gross errors: a number, or a distribution to learn it from. The default
            suits standardised targets.

    >>> import marginax as mx
    >>> likelihood = Outliers(mx.likelihoods.Gaussian(scale=1.0), share=0.1, width=10.0)
    >>> print(likelihood.log_prob(jnp.zeros((2, 1)), jnp.array([0.0, 8.0]), {}).round(3))
    [-1.013 -5.846]
    """

    likelihood: AbstractLikelihood = eqx.field(default_factory=Gaussian)
    share: float | Beta | Array = eqx.field(default_factory=lambda: Beta(1.0, 9.0))
    width: float | Positive | Array = eqx.field(default_factory=lambda: LogNormal(1.0, 0.5), converter=from_numpyro)

    may_be_wrong: ClassVar[bool] = True

    def __check_init__(self):
        if not isinstance(self.likelihood, Gaussian):
            raise TypeError(f"likelihood must be mx.likelihoods.Gaussian(...), got {self.likelihood!r}")
        share = self.share
        if not isinstance(share, Beta):
            if isinstance(share, bool) or not isinstance(share, int | float | jax.Array):
                raise TypeError(f"share must be a number between 0 and 1, or mx.priors.Beta(a, b), got {share!r}")
            if not isinstance(share, Tracer) and not bool(0 < share < 1):
                raise ValueError(f"share must be > 0 and < 1, got {share}")
        if isinstance(self.width, FromNetwork):
            raise TypeError(f"width must be a positive number or a distribution, got {self.width!r}")
        check_scale(self.width, name="width")

    @property
    def _gaussian(self) -> Gaussian:
        return self.likelihood  # pyright: ignore[reportReturnType]

    def num_targets(self, output_size: int) -> int:
        return self.likelihood.num_targets(output_size)

    def check(self, output_size: int, y: np.ndarray) -> None:
        self.likelihood.check(output_size, y)

    def init(self, output_size: int) -> Unknowns:
        """Those of the clean targets; the logit of the share and the log width at the middle of their priors."""
        found = dict(self.likelihood.init(output_size))
        if isinstance(self.share, Beta):
            found["logit_share"] = jnp.log(self.share.a) - jnp.log(self.share.b)
        if isinstance(self.width, Positive):
            found["log_width"] = initial_log_scale(self.width, ())
        return found

    def log_prior(self, unknowns: Unknowns) -> Float[Array, ""]:
        total = self.likelihood.log_prior(unknowns)
        if isinstance(self.share, Beta):
            total = total + self.share.log_prob_of_logit(unknowns["logit_share"])
        if isinstance(self.width, Positive):
            total = total + log_prior_of_log(self.width, unknowns["log_width"])
        return total

    def distribution(self, output: Float[Array, "*n k"], unknowns: Unknowns) -> Normal:
        """Of a target without a gross error."""
        return self._gaussian.distribution(output, unknowns)

    def marginal(self, mean: Float[Array, "n k"], covariance: Float[Array, "n k k"], unknowns: Unknowns) -> Any:
        """Of a target without a gross error."""
        return self.likelihood.marginal(mean, covariance, unknowns)

    def observed(self, output: Float[Array, "*n k"], unknowns: Unknowns) -> ContaminatedNormal:
        clean = self.distribution(output, unknowns)
        if isinstance(self.share, Beta):
            logit = unknowns["logit_share"]
        else:
            logit = jnp.log(self.share) - jnp.log1p(-jnp.asarray(self.share))
        width = jnp.exp(unknowns["log_width"]) if isinstance(self.width, Positive) else self.width
        wide = jnp.sqrt(jnp.square(clean.scale) + jnp.square(width))
        return ContaminatedNormal(clean.loc, clean.scale, wide, jnp.broadcast_to(logit, clean.loc.shape))

    def log_prob(self, output: Float[Array, "n k"], y: Array, unknowns: Unknowns) -> Float[Array, " n"]:
        """Both components summed out, target by target."""
        y = y[:, None] if y.ndim == 1 else y
        return jnp.sum(self.observed(output, unknowns).log_prob(y), axis=-1)

    def fisher(self, output: Float[Array, "n k"], unknowns: Unknowns) -> Float[Array, "n k k"]:
        """Diagonal: scores of a mean are odd and those of a scale are even. By the trapezoidal rule in arcsinh y."""
        seen = self.observed(output, unknowns)
        scale, wide, share = seen.scale[..., None], seen.wide_scale[..., None], seen.logit_share[..., None]
        reach = jnp.arcsinh(_FAR * wide / scale)
        nodes = reach * jnp.linspace(-1, 1, _NUM_NODES, dtype=output.dtype)
        z = scale * jnp.sinh(nodes)
        spacing = scale * jnp.cosh(nodes) * 2 * reach / (_NUM_NODES - 1)
        centred = ContaminatedNormal(jnp.zeros_like(z), *(jnp.broadcast_to(a, z.shape) for a in (scale, wide, share)))
        clean, outlier = jnp.moveaxis(jax.nn.softmax(centred.hidden_logits(z), axis=-1), -1, 0)
        weights = jnp.exp(centred.log_prob(z)) * spacing
        of_loc = z * (clean / scale**2 + outlier / wide**2)
        diagonal = jnp.sum(weights * of_loc**2, axis=-1)
        if isinstance(self._gaussian.scale, FromNetwork):
            of_scale = clean * (z**2 / scale**3 - 1 / scale) + outlier * scale * (z**2 / wide**4 - 1 / wide**2)
            slope = self._gaussian.scale.slope(output[..., seen.loc.shape[-1] :])
            diagonal = jnp.concatenate([diagonal, slope**2 * jnp.sum(weights * of_scale**2, axis=-1)], axis=-1)
        return jax.vmap(jnp.diag)(diagonal)

    def fisher_root(self, output: Float[Array, " k"], unknowns: Unknowns) -> Float[Array, "k m"]:
        """The information is diagonal."""
        return jnp.sqrt(self.fisher(output[None], unknowns)[0])
