r"""Microcanonical Langevin Monte Carlo (Robnik et al., 2023; 2024): full batch, not adjusted, fast.

The chain moves at unit speed through the coordinates of unit scale and forgets its direction over a path of length
$L$. There is no accept step: the bias is governed by the energy error of a step, whose variance per dimension is held
at `energy_variance`. Warm-up finds, in turn, the step size for that variance, the posterior's scale from the spread of
the chain, and the step size again; $L$ is `path_length` times $\sqrt d$.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from marginax._kernels.random import normal
from marginax.data import Batch
from marginax.infer.catalogue import register_method
from marginax.infer.flat import Vector, density_of, ravel, unravel
from marginax.infer.mcmc.adaptation import (
    DenseMetric,
    DiagonalMetric,
    Metric,
    MetricSqrt,
    Moments,
    add_to_moments,
    check_metric,
    choose,
    metric_sqrt_of,
    no_moments,
    unit_metric_sqrt,
)
from marginax.infer.mcmc.integrators import HMCState, IntegratorState, isokinetic_step, refresh, unit
from marginax.infer.mcmc.sampler import AbstractFullBatchSampler
from marginax.model import AbstractModel
from marginax.model.abstract import Params


class EnergyTuning(eqx.Module):
    """Sums behind the step size that gives the wanted energy error, which grows as the sixth power of the step."""

    step_size: Float[Array, ""]
    weighted: Float[Array, ""]
    weights: Float[Array, ""]
    longest: Float[Array, ""]


class MCLMCState(eqx.Module):
    """Where a chain is, where it is heading, and what its warm-up has learned."""

    params: Params
    log_density: Array
    gradient: Vector
    direction: Vector
    tuning: EnergyTuning
    moments: Moments
    metric_sqrt: MetricSqrt
    count: Int[Array, ""]


class MCLMCInfo(eqx.Module):
    """How each step went.

    The energy error is per square root of the dimension, so that its variance is the target; its excess is its square
    over that target, one on average where warm-up has seen what there is to see.
    """

    log_density: Array
    energy_error: Array
    energy_excess: Array
    step_size: Array


@register_method(
    "method/mclmc",
    gives="draws with a small, known bias",
    use_when="the posterior to a small, known error, soon",
    cost="52,000 gradients per chain",
    order=230,
)
class MCLMC(AbstractFullBatchSampler):
    """Microcanonical Langevin Monte Carlo.

    Takes what every `AbstractFullBatchSampler` takes, and:

    Args:
        energy_variance: wanted variance of a step's energy error per dimension; smaller is more exact and slower.
        path_length: over which the direction is forgotten, in units of the posterior's scale.
        metric: `DiagonalMetric()`, or `DenseMetric()` for up to some hundreds of correlated parameters.
    """

    num_warmup: int = 6000
    num_samples: int = 500
    thin: int = 40
    energy_variance: float = 1e-5
    path_length: float = 1.0
    metric: Metric = eqx.field(default_factory=DiagonalMetric)

    def __check_init__(self):
        check_metric(self.metric)
        for name in ("energy_variance", "path_length"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be > 0, got {getattr(self, name)}")

    def init(self, model: AbstractModel, params: Params, batch: Batch, *, key: PRNGKeyArray) -> MCLMCState:
        """Start where the chain starts, in a random direction; the first step, of length zero, looks around."""
        position = ravel(params)
        if position.size < 2:
            raise ValueError("MCLMC moves on a sphere of directions and needs a model of at least 2 random parameters")
        direction = unit(normal(key, position.shape, position.dtype))
        moments = no_moments(self.metric, position)
        zero = jnp.zeros((), position.dtype)
        return MCLMCState(
            params=params,
            log_density=zero + jnp.nan,  # not known before the first step, and never known where that finds none
            gradient=jnp.zeros_like(position),
            direction=direction,
            tuning=first_tuning(zero),
            moments=moments,
            metric_sqrt=unit_metric_sqrt(self.metric, position),
            count=jnp.zeros((), jnp.int32),
        )

    @property
    def learning_is_costly(self) -> bool:
        return isinstance(self.metric, DenseMetric)

    def step(
        self, model: AbstractModel, state: MCLMCState, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[MCLMCState, MCLMCInfo]:
        """A step; in warm-up, learn the step size, and in the middle of it the scale."""
        new, info, error, sound = self._step(model, state, batch, key)
        size = state.direction.size
        tuning = tune(state.tuning, error, size, self.energy_variance, sound)
        steepness = jnp.linalg.norm(new.gradient) / jnp.sqrt(size)
        careful = first_tuning(0.25 * jnp.sqrt(size) / (1.0 + steepness))
        tuning = choose(state.count == 0, careful, tuning)
        spread_from, spread_until = self.num_warmup // 3, 2 * self.num_warmup // 3
        spreading = (state.count >= spread_from) & (state.count < spread_until)
        moments = choose(spreading & sound, add_to_moments(new.moments, ravel(new.params)), new.moments)
        rescaled = state.count + 1 == spread_until
        metric_sqrt = jnp.where(rescaled, metric_sqrt_of(moments), state.metric_sqrt)
        tuning = choose(rescaled, first_tuning(0.1 * jnp.sqrt(size)), tuning)
        warm = state.count < self.num_warmup
        tuning, moments, metric_sqrt = choose(
            warm, (tuning, moments, metric_sqrt), (state.tuning, state.moments, state.metric_sqrt)
        )
        learned = (tuning, moments, metric_sqrt, state.count + 1)
        return MCLMCState(new.params, new.log_density, new.gradient, new.direction, *learned), info

    def sample_step(
        self, model: AbstractModel, state: MCLMCState, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[MCLMCState, MCLMCInfo]:
        new, info, _, _ = self._step(model, state, batch, key)
        return new, info

    def _step(self, model, state, batch, key) -> tuple[MCLMCState, MCLMCInfo, Array, Array]:
        size = state.direction.size
        start = IntegratorState(HMCState(ravel(state.params), state.log_density, state.gradient), state.direction)
        step_size = state.tuning.step_size
        density = density_of(model, batch, state.params, self.temperature)
        end, error = isokinetic_step(density, start, step_size, state.metric_sqrt)
        error = jnp.where(step_size > 0, error, 0.0)  # before the first step nothing is known to compare with
        sound = jnp.isfinite(error) & jnp.all(jnp.isfinite(end.velocity))
        noise = normal(key, (size,), end.velocity.dtype)
        # A step that blew up is not taken: the chain stays and heads elsewhere.
        end = choose(sound, end, IntegratorState(start.state, unit(noise)))
        direction = refresh(end.velocity, noise, step_size, self.path_length * jnp.sqrt(size))
        log_density = self.temperature * end.state.log_density
        relative = jnp.where(sound, error, 0.0) / jnp.sqrt(size)
        info = MCLMCInfo(log_density, relative, relative**2 / self.energy_variance, step_size)
        params = unravel(end.state.position, state.params)
        learned = (state.tuning, state.moments, state.metric_sqrt, state.count)
        new = MCLMCState(params, end.state.log_density, end.state.gradient, direction, *learned)
        return new, info, error, sound


def first_tuning(step_size: Array) -> EnergyTuning:
    """A guess, and nothing learned."""
    zero = jnp.zeros_like(step_size)
    return EnergyTuning(step_size, zero, zero, zero + jnp.inf)


def tune(state: EnergyTuning, error: Array, size: int, target: Array | float, sound: Array) -> EnergyTuning:
    """Learn from the energy error of one step; those nearest to the wanted one count most."""
    memory, trust = 149.0 / 151.0, 1.5
    excess = error**2 / (size * target) + 1e-8
    weight = jnp.exp(-0.5 * (jnp.log(excess) / (6.0 * trust)) ** 2)
    weighted = memory * state.weighted + weight * excess / state.step_size**6
    weights = memory * state.weights + weight
    fitting = (weighted / weights) ** (-1.0 / 6.0)
    bounded = jnp.clip(fitting, 0.5 * state.step_size, jnp.minimum(1.5 * state.step_size, state.longest))
    calm = EnergyTuning(bounded, weighted, weights, state.longest)
    shorter = 0.8 * state.step_size
    return choose(sound, calm, EnergyTuning(shorter, state.weighted, state.weights, shorter))
