"""Priors: what we believe about weights before data.

A prior gives the log density of one leaf (one weight matrix, one bias) at a time, so that it can be chosen per leaf
with `ByPath`. Scales are a number, `FanIn(gain)` (the default: weights shrink with the width of their layer, so that
functions stay on the same scale whatever the width), or a distribution: then the scale is a hyperparameter that is
inferred with the weights, one per leaf.
"""

import abc
import math
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from marginax.files import register
from marginax.model import distributions as dist
from marginax.model.beta import Beta
from marginax.model.conjugate_priors import LogGamma, LogitBeta
from marginax.model.distributions import Gamma, HalfCauchy, HalfNormal, InverseGamma, LogNormal
from marginax.model.numpyro_distribution import from_numpyro
from marginax.model.prior import AbstractPrior, Hyper, Leaf
from marginax.model.rescaled import Rescaled
from marginax.model.scale import Positive, check_scale, initial_log_scale, log_prior_of_log

__all__ = [
    "AbstractPrior",
    "Beta",
    "ByPath",
    "FanIn",
    "Flat",
    "Gamma",
    "HalfCauchy",
    "HalfNormal",
    "Horseshoe",
    "InverseGamma",
    "Laplace",
    "Leaf",
    "LogGamma",
    "LogNormal",
    "LogitBeta",
    "Normal",
    "Rescaled",
    "ScaleMixture",
    "StudentT",
    "default_prior",
]


@register("prior/fan_in")
class FanIn(eqx.Module):
    r"""A scale of gain / sqrt(fan-in) for weights and `bias` for biases.

    Args:
        gain: a number, or a distribution to infer it from.
        bias: scale of vectors that have no fan-in.
    """

    gain: float | Positive | Array = eqx.field(default=1.0, converter=from_numpyro)
    bias: float | Array = 1.0

    def __check_init__(self):
        check_scale(self.gain, name="gain")
        check_scale(self.bias, name="bias")

    def at(self, leaf: Leaf) -> float:
        """The factor that multiplies the gain at a leaf."""
        return 1.0 if leaf.fan_in is None else 1.0 / math.sqrt(leaf.fan_in)


PriorScale = float | FanIn | Positive | Array


def hyperprior_of(scale: PriorScale, leaf: Leaf) -> Positive | None:
    """The distribution from which the scale of a leaf is learned, if it is."""
    if isinstance(scale, Positive):
        return scale
    if isinstance(scale, FanIn) and isinstance(scale.gain, Positive) and leaf.fan_in is not None:
        return scale.gain
    return None


def scale_at(scale: PriorScale, leaf: Leaf, hyper: Hyper) -> Array | float:
    """The scale of a leaf, given its hyperparameters."""
    if isinstance(scale, FanIn):
        if leaf.fan_in is None:
            return scale.bias
        gain = jnp.exp(hyper["log_scale"]) if isinstance(scale.gain, Positive) else scale.gain
        return gain * scale.at(leaf)
    return jnp.exp(hyper["log_scale"]) if isinstance(scale, Positive) else scale


def check_prior_scale(scale: object) -> None:
    """Refuse what is no scale of a prior."""
    if not isinstance(scale, FanIn):
        check_scale(scale)


class AbstractWithScale(AbstractPrior):
    """Priors whose width may be learned, one for each leaf."""

    scale: eqx.AbstractVar[PriorScale]

    def init(self, leaf: Leaf) -> Hyper:
        """The log scale of the leaf, where it is learned."""
        prior = hyperprior_of(self.scale, leaf)
        return {} if prior is None else {"log_scale": initial_log_scale(prior, ())}

    def log_hyperprior(self, leaf: Leaf, hyper: Hyper) -> Float[Array, ""]:
        prior = hyperprior_of(self.scale, leaf)
        return jnp.zeros(()) if prior is None else log_prior_of_log(prior, hyper["log_scale"])

    def sample_hyper(self, leaf: Leaf, *, key: PRNGKeyArray) -> Hyper:
        """The log of a scale from its prior."""
        prior = hyperprior_of(self.scale, leaf)
        return {} if prior is None else {"log_scale": jnp.log(prior.sample(key))}


class AbstractScaled(AbstractWithScale):
    """Priors that are a standard shape times a scale."""

    @abc.abstractmethod
    def shape_at(self, scale: Array | float) -> dist.Normal | dist.Laplace | dist.StudentT:
        """The distribution of one weight with this scale."""

    def log_prob(self, value: Array, leaf: Leaf, hyper: Hyper) -> Float[Array, ""]:
        return jnp.sum(self.shape_at(scale_at(self.scale, leaf, hyper)).log_prob(value))

    def sample(self, leaf: Leaf, hyper: Hyper, *, key: PRNGKeyArray) -> Array:
        return self.shape_at(scale_at(self.scale, leaf, hyper)).sample(key, leaf.shape)


def _fan_in() -> FanIn:
    return FanIn()


def _expected_normal(mean: Array, scale: Array, width: Array | float) -> Float[Array, ""]:
    return jnp.sum(dist.Normal(0.0, width).log_prob(mean) - 0.5 * (scale / width) ** 2)


@register("prior/normal")
class Normal(AbstractScaled):
    r"""Independent $N(0, s^2)$ on every weight; with MAP this is weight decay.

    Args:
        scale: $s$: a number, `FanIn()` (default), or a distribution (a hyperprior). The default of `mx.Model` is
            wider, `FanIn(2.8)`.

    >>> float(Normal(scale=2.0).log_prob(jnp.zeros(3), Leaf("bias", (3,), None), {}).round(4))
    -4.8362
    """

    scale: PriorScale = eqx.field(default_factory=_fan_in, converter=from_numpyro)

    def __check_init__(self):
        check_prior_scale(self.scale)

    def shape_at(self, scale: Array | float) -> dist.Normal:
        return dist.Normal(0.0, scale)

    def expected_log_prob(self, mean: Array, scale: Array, leaf: Leaf, hyper: Hyper) -> Float[Array, ""]:
        """The log density at the mean, less what the spread costs."""
        return _expected_normal(mean, scale, scale_at(self.scale, leaf, hyper))


def default_prior() -> Normal:
    r"""What `mx.Model` and the estimators believe unless told otherwise: normal, with a scale of 2.8 / sqrt(fan-in).

    Chosen on validation rows of two moons, a sine, ten points and five UCI sets with 40 and with all rows, none of them
    reported: with a gain of 1 or 2 networks underfit two moons (MAP .935 of labels right at 2, .967 at 2.8), with 4
    samplers go astray where rows are few (MILE on 40 rows of five sets: RMSE .71 to .54, .73 to .64, .41 to .37, .84
    to .58 and 1.32 to .73 from 4 to 2.8). Mean-field posteriors of some thousand weights ignore 100 rows below 3.5.
    """
    return Normal(FanIn(2.8))


@register("prior/laplace")
class Laplace(AbstractScaled):
    """Double-exponential: its mode is sparse (lasso)."""

    scale: PriorScale = eqx.field(default_factory=_fan_in, converter=from_numpyro)

    def __check_init__(self):
        check_prior_scale(self.scale)

    def shape_at(self, scale: Array | float) -> dist.Laplace:
        return dist.Laplace(0.0, scale)

    def expected_log_prob(self, mean: Array, scale: Array, leaf: Leaf, hyper: Hyper) -> Float[Array, ""]:
        """By the mean of a folded normal; of weights that are known (scale 0), by their size."""
        width = scale_at(self.scale, leaf, hyper)
        spread = jnp.where(scale > 0, scale, 1.0)
        ratio = mean / (spread * math.sqrt(2.0))
        folded = spread * math.sqrt(2.0 / math.pi) * jnp.exp(-(ratio**2)) + mean * jax.scipy.special.erf(ratio)
        size = jnp.where(scale > 0, folded, jnp.abs(mean))
        return jnp.sum(-size / width - jnp.log(2.0 * width))


@register("prior/student_t")
class StudentT(AbstractScaled):
    """Heavy tails: most weights near zero, a few far out."""

    df: float = 4.0
    scale: PriorScale = eqx.field(default_factory=_fan_in, converter=from_numpyro)

    def __check_init__(self):
        if not self.df > 0:
            raise ValueError(f"df must be > 0, got {self.df}")
        check_prior_scale(self.scale)

    def shape_at(self, scale: Array | float) -> dist.StudentT:
        return dist.StudentT(self.df, 0.0, scale)


@register("prior/scale_mixture")
class ScaleMixture(AbstractPrior):
    r"""Two Gaussians, one wide and one narrow (Blundell et al., 2015): $\pi N(0, s_1^2) + (1-\pi) N(0, s_2^2)$.

    Args:
        weight: $\pi$ in (0, 1).
        wide: $s_1$.
        narrow: $s_2$, smaller than `wide`.
    """

    weight: float = 0.5
    wide: float | Array = 1.0
    narrow: float | Array = math.exp(-6.0)

    def __check_init__(self):
        if not 0 < self.weight < 1:
            raise ValueError(f"weight must be in (0, 1), got {self.weight}")
        check_scale(self.wide, name="wide")
        check_scale(self.narrow, name="narrow")
        if not self.narrow < self.wide:
            raise ValueError(f"narrow must be below wide, got {self.narrow} and {self.wide}")

    def log_prob(self, value: Array, leaf: Leaf, hyper: Hyper) -> Float[Array, ""]:
        """Log of the two-component density, summed; relative to the wide one, whose log is simple."""
        gap = 0.5 * (1.0 / self.narrow**2 - 1.0 / self.wide**2)
        height = (1.0 - self.weight) * self.wide / (self.weight * self.narrow)
        ratio = jnp.log(1.0 + height * jnp.exp(-gap * value**2))
        return jnp.sum(jnp.log(self.weight) + dist.Normal(0.0, self.wide).log_prob(value) + ratio)

    def sample(self, leaf: Leaf, hyper: Hyper, *, key: PRNGKeyArray) -> Array:
        """Choose a component per weight, then draw."""
        choice, noise = jax.random.split(key)
        scale = jnp.where(jax.random.bernoulli(choice, self.weight, leaf.shape), self.wide, self.narrow)
        return scale * jax.random.normal(noise, leaf.shape)


@register("prior/horseshoe")
class Horseshoe(AbstractPrior):
    r"""The horseshoe (Carvalho, Polson & Scott, 2010): $w \sim N(0, \lambda^2\tau^2)$, both scales half-Cauchy.

    Local scales $\lambda$ (one per weight) and a global $\tau$ (one per leaf) are inferred with the weights.

    Args:
        scale: scale of the global half-Cauchy; small values say that few weights matter.
    """

    scale: float | Array = 0.1

    def __check_init__(self):
        check_scale(self.scale)

    def init(self, leaf: Leaf) -> Hyper:
        """All scales at their medians."""
        return {"log_local": jnp.zeros(leaf.shape), "log_global": jnp.log(jnp.asarray(self.scale, float))}

    def log_hyperprior(self, leaf: Leaf, hyper: Hyper) -> Float[Array, ""]:
        """Half-Cauchy densities of both scales, in log coordinates."""
        local = log_prior_of_log(HalfCauchy(1.0), hyper["log_local"])
        return local + log_prior_of_log(HalfCauchy(self.scale), hyper["log_global"])

    def sample_hyper(self, leaf: Leaf, *, key: PRNGKeyArray) -> Hyper:
        local, overall = jax.random.split(key)
        return {
            "log_local": jnp.log(HalfCauchy(1.0).sample(local, leaf.shape)),
            "log_global": jnp.log(HalfCauchy(self.scale).sample(overall)),
        }

    def log_prob(self, value: Array, leaf: Leaf, hyper: Hyper) -> Float[Array, ""]:
        """Normal given the scales."""
        log_scale = hyper["log_local"] + hyper["log_global"]
        return jnp.sum(dist.Normal(0.0, jnp.exp(log_scale)).log_prob(value))

    def expected_log_prob(self, mean: Array, scale: Array, leaf: Leaf, hyper: Hyper) -> Float[Array, ""]:
        """As for a normal prior, given the scales."""
        return _expected_normal(mean, scale, jnp.exp(hyper["log_local"] + hyper["log_global"]))

    def sample(self, leaf: Leaf, hyper: Hyper, *, key: PRNGKeyArray) -> Array:
        """Normal given the scales."""
        return jnp.exp(hyper["log_local"] + hyper["log_global"]) * jax.random.normal(key, leaf.shape)


@register("prior/flat")
class Flat(AbstractPrior):
    """No preference: the posterior mode is the maximum of the likelihood. Improper, so it cannot be sampled."""

    def log_prob(self, value: Array, leaf: Leaf, hyper: Hyper) -> Float[Array, ""]:
        return jnp.zeros((), value.dtype)

    def expected_log_prob(self, mean: Array, scale: Array, leaf: Leaf, hyper: Hyper) -> Float[Array, ""]:
        return self.log_prob(mean, leaf, hyper)

    def sample(self, leaf: Leaf, hyper: Hyper, *, key: PRNGKeyArray) -> Array:
        """Refuse: there is nothing to draw from."""
        raise ValueError(f"prior Flat() at {leaf.path} is improper and cannot be sampled: choose another prior")


@register("prior/by_path")
class ByPath(AbstractPrior):
    """A prior per leaf, by glob patterns on its path; the first pattern that matches decides.

    Args:
        rules: pattern -> prior in the order in which they are tried, as a dict or as pairs, for example
            {"layers/0/*": Horseshoe(), "*/bias": Normal(1.0)}.
        default: for leaves that no pattern matches.

    >>> prior = ByPath({"layers/0/*": Laplace(1.0), "*": Flat()})
    >>> prior.at("layers/0/bias"), prior.at("layers/1/bias")
    (Laplace(scale=1.0), Flat())
    """

    patterns: tuple[str, ...] = eqx.field(static=True)  # apart from the priors: JAX sorts the keys of a dict
    priors: tuple[AbstractPrior, ...]
    default: AbstractPrior

    def __init__(
        self,
        rules: Mapping[str, AbstractPrior] | Iterable[tuple[str, AbstractPrior]],
        default: AbstractPrior | None = None,
    ):
        """Check the rules and keep their order."""
        pairs: tuple[tuple[str, AbstractPrior], ...]
        pairs = tuple(rules.items()) if isinstance(rules, Mapping) else tuple(rules)  # pyright: ignore[reportAssignmentType]
        for pattern, prior in pairs:
            if not isinstance(pattern, str) or not isinstance(prior, AbstractPrior):
                raise TypeError(f"rules must be patterns and priors, got {pattern!r}: {prior!r}")
        self.patterns = tuple(pattern for pattern, _ in pairs)
        self.priors = tuple(prior for _, prior in pairs)
        self.default = Normal() if default is None else default

    def at(self, path: str) -> AbstractPrior:
        """The first match, or the default."""
        return self._rule(path)[1].at(path)

    def check_leaves(self, leaves: list[Leaf]) -> None:
        """Every pattern must decide about some leaf."""
        paths, decided = [leaf.path for leaf in leaves], {pattern: [] for pattern in (*self.patterns, None)}
        for leaf in leaves:
            decided[self._rule(leaf.path)[0]].append(leaf)
        for pattern, prior in (*zip(self.patterns, self.priors, strict=True), (None, self.default)):
            if prior.couples_weights:
                raise ValueError(
                    f"{type(prior).__name__} in ByPath must say something of each leaf by itself: "
                    "use family=mx.priors.DiagonalNormal()"
                )
            if pattern is None or decided[pattern]:
                prior.check_leaves(decided[pattern])
            elif any(fnmatchcase(path, pattern) for path in paths):
                raise ValueError(
                    f"prior pattern {pattern!r} decides about no leaf: patterns before it match first; order them from "
                    "the particular to the general"
                )
            else:
                raise ValueError(f"prior pattern {pattern!r} matches no leaf of the network; its leaves are {paths}")

    @property
    def has_centre(self) -> bool:
        return any(prior.has_centre for prior in (*self.priors, self.default))

    def varies_within(self, path: str) -> bool:
        return self._rule(path)[1].varies_within(path)

    def _rule(self, path: str) -> tuple[str | None, AbstractPrior]:
        for pattern, prior in zip(self.patterns, self.priors, strict=True):
            if fnmatchcase(path, pattern):
                return pattern, prior
        return None, self.default

    def log_prob(self, value: Array, leaf: Leaf, hyper: Hyper) -> Float[Array, ""]:
        return self.at(leaf.path).log_prob(value, leaf, hyper)

    def sample(self, leaf: Leaf, hyper: Hyper, *, key: PRNGKeyArray) -> Array:
        return self.at(leaf.path).sample(leaf, hyper, key=key)
