r"""Prior precision and noise chosen by the data, after the fact.

The evidence has its maximum over a factor $\tau$ of the prior's precision $\Lambda$ where

$\tau\, \hat\theta^\top \Lambda \hat\theta = \gamma = d - \tau\, \mathrm{tr}(\Sigma \Lambda)$

with $\gamma$ the number of directions that the data determine, and over the noise where
$\sigma^2 = \mathrm{RSS} / (N - \gamma)$: a fixed point that needs the variances of the weights only (MacKay, 1992).
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from marginax.files import register
from marginax.infer.method import check_count
from marginax.model import AbstractModel, Model, Params, require_network
from marginax.model.priors import FanIn, Normal, Rescaled
from marginax.model.scale import Positive
from marginax.posterior import AbstractTuning, Gaussian, Mode

_covariance = eqx.filter_jit(Mode.covariance)
_LIMIT = 18.0  # factors stay within exp(-18) and exp(18)


class AbstractGrouping(eqx.Module):
    """Which leaves share a factor."""

    @abc.abstractmethod
    def groups(self, paths: list[str]) -> list[int]:
        """A number from 0 for each leaf."""


@register("tuning/whole_network")
class WholeNetwork(AbstractGrouping):
    """One factor for all weights."""

    def groups(self, paths: list[str]) -> list[int]:
        return [0] * len(paths)


@register("tuning/per_layer")
class PerLayer(AbstractGrouping):
    """One factor for each layer, weight and bias together.

    >>> PerLayer().groups(["layers/0/weight", "layers/0/bias", "layers/1/weight"])
    [0, 0, 1]
    """

    def groups(self, paths: list[str]) -> list[int]:
        parents = [path.rpartition("/")[0] for path in paths]
        order = list(dict.fromkeys(parents))
        return [order.index(parent) for parent in parents]


class Factors(eqx.Module):
    """What multiplies the precisions of the prior, by leaf, and that of the noise; logs."""

    prior: Float[Array, " leaves"]
    noise: Float[Array, ""]


class Residuals(eqx.Module):
    """Of targets with normal noise; tempered ones count for less, both here and there.

    Args:
        misfit: sum of their squares in units of the noise.
        num: how many.
    """

    misfit: Float[Array, ""]
    num: Float[Array, ""]


@register("tuning/evidence")
class Evidence(AbstractTuning):
    """The factors of largest evidence. Needs normal priors with fixed scales.

    Args:
        groups: leaves that share a factor: `PerLayer()` or `WholeNetwork()`.
        noise: whether the level of normal noise is tuned too, where the likelihood has one that is learned.
        num_steps: of the fixed point.
    """

    groups: AbstractGrouping = eqx.field(default_factory=PerLayer)
    noise: bool = False
    num_steps: int = 50

    def __check_init__(self):
        if not isinstance(self.groups, AbstractGrouping):
            raise TypeError(f"groups must be mx.infer.PerLayer() or WholeNetwork(), got {self.groups!r}")
        check_count("num_steps", self.num_steps)

    def tune(self, posterior: Gaussian) -> Gaussian:
        assert posterior.mode is not None
        check_tunable(posterior.model, posterior.mode.moves)
        model: Any = posterior.model
        return apply_factors(posterior, _factors(self, model, posterior.mean, posterior.mode))

    def factors(self, model: Model, params: Params, mode: Mode) -> Factors:
        """Logs of the factors that the fixed point finds; may be traced."""
        leaves = jax.tree.leaves(params.network)
        numbers = self.groups.groups([leaf.path for leaf, flag in zip(model.leaves, mode.moves, strict=True) if flag])
        following, num_groups = iter(numbers), max(numbers) + 1
        by_leaf = jnp.array([next(following) if flag else 0 for flag in mode.moves])
        sizes, places = [leaf.size for leaf in leaves], mode.places(params.network)
        groups = jnp.repeat(by_leaf, jnp.array(sizes), total_repeat_length=sum(sizes))[places]
        weights = jnp.concatenate([leaf.ravel() for leaf in leaves])[places]
        precision = mode.precision(model, params)
        residuals = _residuals(model, params, mode) if self.noise else None

        def by_group(values: Array) -> Array:
            return jax.ops.segment_sum(values, groups, num_groups)

        size, length = by_group(jnp.ones_like(weights)), by_group(precision * weights**2)

        def step(_: Any, logs: tuple[Array, Array]) -> tuple[Array, Array]:
            prior, noise = logs
            scaled = precision * jnp.exp(prior)[groups]
            variances = mode.curvature.scaled(jnp.exp(noise)).covariance(scaled).variances()
            known = jnp.clip(size - by_group(scaled * variances), 1e-6 * size, size)
            prior = _towards(prior, jnp.log(known) - jnp.log(length + 1e-30))
            if residuals is not None:
                left = jnp.maximum(residuals.num - known.sum(), 0.05 * residuals.num)
                noise = _towards(noise, jnp.log(left) - jnp.log(residuals.misfit + 1e-30))
            return prior, noise

        start = jnp.zeros(num_groups, weights.dtype), jnp.zeros((), weights.dtype)
        prior, noise = jax.lax.fori_loop(0, self.num_steps, step, start)
        return Factors(jnp.where(jnp.array(mode.moves), prior[by_leaf], 0.0), noise)


_factors = eqx.filter_jit(Evidence.factors)


class HeldOut(AbstractTuning):
    """One factor for all weights: that of the best predictions of data that were not trained on.

    Args:
        data: a pair (x, y), in the units of the training data.
        factors: of the precision, to choose from.
    """

    data: tuple[Any, Any]
    factors: np.ndarray

    def __init__(self, data: tuple[Any, Any], factors: Any = None):
        """Check the data; 17 factors from 1e-4 to 1e4 by default."""
        if not isinstance(data, tuple | list) or len(data) != 2:
            raise ValueError(f"data must be a pair (x, y), got {type(data).__name__}")
        self.data = (data[0], data[1])
        self.factors = np.logspace(-4, 4, 17) if factors is None else np.atleast_1d(np.asarray(factors, float))
        if not np.all(self.factors > 0):
            raise ValueError(f"factors must be > 0, got {factors!r}")

    def tune(self, posterior: Gaussian) -> Gaussian:
        assert posterior.mode is not None
        moves, (x, y) = posterior.mode.moves, self.data
        best, chosen = -np.inf, posterior
        for factor in self.factors:
            logs = jnp.where(jnp.array(moves), float(np.log(factor)), 0.0)
            candidate = apply_factors(posterior, Factors(logs, jnp.zeros(())))
            score = float(np.mean(candidate.predict(x).log_prob(np.asarray(y))))
            if score > best:
                best, chosen = score, candidate
        return chosen


def _towards(old: Array, new: Array) -> Array:
    """Half of the way, within limits, and nowhere if the way is not known."""
    return jnp.where(jnp.isfinite(new), jnp.clip(0.5 * (old + new), -_LIMIT, _LIMIT), old)


def apply_factors(posterior: Gaussian, factors: Factors) -> Gaussian:
    """The posterior under the rescaled prior and noise; its mean stays."""
    assert posterior.mode is not None
    model: Any = posterior.model
    new_model = with_factors(model, factors.prior)
    mean, mode = rescale_noise(model, posterior.mean, posterior.mode, factors.noise)
    new = (new_model, mean, mode, _covariance(mode, new_model, mean))
    return eqx.tree_at(lambda p: (p.model, p.mean, p.mode, p.covariance), posterior, new)


def with_factors(model: Any, log_factors: Float[Array, " leaves"]) -> Any:
    """The model with the precisions of its prior multiplied; factors of factors multiply."""
    prior, before = model.prior, {}
    if prior.has_centre:
        raise ValueError(
            f"prior {type(prior).__name__} lies around given weights and has a width of its own: give FromPosterior "
            "scale=, or a distribution of it"
        )
    if isinstance(prior, Rescaled):
        prior, before = prior.prior, prior.log_factors
    logs = {leaf.path: log + before.get(leaf.path, 0.0) for leaf, log in zip(model.leaves, log_factors, strict=True)}
    return eqx.tree_at(lambda m: m.prior, model, Rescaled(prior, logs))


def rescale_noise(model: Model, params: Params, mode: Mode, log_factor: Float[Array, ""]) -> tuple[Params, Mode]:
    """Parameters and mode when the precision of the noise is multiplied."""
    noise, residuals = model.likelihood.noise(params.likelihood), _residuals(model, params, mode)
    if noise is None or residuals is None:
        return params, mode
    factor = jnp.exp(log_factor)
    log_likelihood = mode.log_likelihood + 0.5 * (residuals.misfit * (1 - factor) + residuals.num * log_factor)
    unknowns = model.likelihood.with_noise(params.likelihood, noise.log_scale - 0.5 * log_factor)
    curvature = mode.curvature.scaled(factor)
    new = eqx.tree_at(lambda m: (m.curvature, m.log_likelihood), mode, (curvature, log_likelihood))
    return Params(params.network, unknowns, params.prior), new


def _residuals(model: Model, params: Params, mode: Mode) -> Residuals | None:
    """Read off the log likelihood, where the noise is normal and its level learned."""
    noise = model.likelihood.noise(params.likelihood)
    if noise is None:
        return None
    constant = noise.power * (mode.num_examples * jnp.sum(noise.log_scale + 0.5 * jnp.log(2 * jnp.pi)))
    num = noise.power * (mode.num_examples * noise.log_scale.size)
    return Residuals(-2.0 * (mode.log_likelihood + constant), num)


def check_tunable(model: AbstractModel, moves: tuple[bool, ...]) -> None:
    """Raise unless the priors that matter are normal with fixed scales."""
    require_network(model, "tuning")
    assert isinstance(model, Model)
    for leaf, asked in zip(model.leaves, moves, strict=True):
        prior: Any = model.prior.prior.at(leaf.path) if isinstance(model.prior, Rescaled) else model.prior.at(leaf.path)
        scale = getattr(prior, "scale", None)
        learned = isinstance(scale, Positive) or (isinstance(scale, FanIn) and isinstance(scale.gain, Positive))
        if asked and (not isinstance(prior, Normal) or learned):
            raise ValueError(
                f"prior at {leaf.path} must be mx.priors.Normal with a fixed scale to be tuned by evidence, got {prior}"
            )
