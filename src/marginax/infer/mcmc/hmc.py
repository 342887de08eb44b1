r"""Hamiltonian Monte Carlo (Duane et al., 1987; Neal, 2011): exact, full batch.

A velocity is drawn, the leapfrog integrator carries the chain along a trajectory of length $t \sim U(0, 2 T)$, and the
end is accepted with probability $\min(1, e^{H - H'})$. Warm-up tunes the step size, the scale, and the path length $T$
by ascending the change of the squared distance from the centre, $\tfrac14 E[(|z' - c|^2 - |z - c|^2)^2]$ (ChEES;
Hoffman, Radul & Sountsov, 2021), here within each chain, so that chains stay independent.
"""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from marginax._kernels.random import normal, uniform
from marginax.infer.catalogue import register_method
from marginax.infer.flat import Density, Vector
from marginax.infer.mcmc.adaptation import Adaptation, MetricSqrt, choose, metric_settled, solve_sqrt
from marginax.infer.mcmc.integrators import HMCState, IntegratorState, accept, integrate
from marginax.infer.mcmc.sampler import AbstractSampler, SamplerInfo, Tuning, info_of
from marginax.infer.method import check_count

_ACCEPT, _LENGTH = 1, 2  # streams of random numbers within a move


@register_method(
    "method/hmc",
    gives="draws of the posterior itself",
    use_when="exact; as NUTS, with trajectories of tuned length",
    cost="10^4 to 10^5 gradients per chain",
    order=260,
)
class HMC(AbstractSampler):
    """Hamiltonian Monte Carlo with window adaptation of step size and scale, and tuned path length.

    Takes what every `AbstractSampler` takes, and:

    Args:
        path_length: mean length of trajectories in units of the posterior's scale, or None to tune it in warm-up.
        max_leapfrog: most leapfrog steps of a trajectory.
    """

    path_length: float | None = None
    max_leapfrog: int = 512

    def __check_init__(self):
        check_count("max_leapfrog", self.max_leapfrog)
        if self.path_length is not None and not self.path_length > 0:
            raise ValueError(f"path_length must be > 0 or None, got {self.path_length}")

    lockstep: ClassVar[bool] = False  # trajectories differ in length

    def first_extra(self, state: HMCState) -> "PathLength":
        """One unit of scale, or what the user says."""
        return first_path_length(state.position, 1.0 if self.path_length is None else self.path_length)

    def move(
        self, density: Density, state: HMCState, tuning: Tuning, *, key: PRNGKeyArray
    ) -> tuple[HMCState, SamplerInfo, "Jump"]:
        """A trajectory of random length, accepted or not."""
        length = 2.0 * uniform(key, 0, stream=_LENGTH) * tuning.extra.path_length
        num_steps = jnp.clip(jnp.ceil(length / tuning.step_size), 1, self.max_leapfrog).astype(jnp.int32)
        start = IntegratorState(state, normal(key, state.position.shape, state.position.dtype))
        end = integrate(density, start, tuning.step_size, tuning.metric_sqrt, num_steps)
        new, went = accept(start, end, uniform(key, 0, stream=_ACCEPT))
        jump = Jump(state.position, end.state.position, end.velocity, went.acceptance, num_steps * tuning.step_size)
        return new, info_of(new, went, tuning, num_steps), jump

    def learn(self, extra: "PathLength", noted: "Jump", adaptation: Adaptation) -> "PathLength":
        """Tune the path length, unless it was given."""
        if self.path_length is not None:
            return extra
        return tune_path_length(extra, noted, adaptation, self.num_warmup, self.max_leapfrog)


class PathLength(eqx.Module):
    """A path length that climbs the ChEES criterion by Adam, and the centre that it is measured from."""

    log_path: Float[Array, ""]
    log_average: Float[Array, ""]
    slope: Float[Array, ""]
    square: Float[Array, ""]
    count: Int[Array, ""]
    centre: Vector

    @property
    def path_length(self) -> Float[Array, ""]:
        """Averaged over the recent past."""
        return jnp.exp(self.log_average)


class Jump(eqx.Module):
    """From where to where a trajectory went, and how fast it was at its end."""

    start: Vector
    end: Vector
    velocity: Vector
    acceptance: Float[Array, ""]
    length: Float[Array, ""]


def first_path_length(position: Vector, path_length: Array | float) -> PathLength:
    """Nothing learned yet."""
    log_path = jnp.log(jnp.asarray(path_length, position.dtype))
    zero = jnp.zeros_like(log_path)
    return PathLength(log_path, log_path, zero, zero, jnp.zeros((), jnp.int32), position)


def tune_path_length(
    state: PathLength, jump: Jump, adaptation: Adaptation, num_warmup: int, max_steps: int
) -> PathLength:
    """One step of stochastic ascent.

    It begins again when the metric changes, and with it the unit of length: a path that is long for the new metric
    would be many periods long, where the criterion is flat. After the last window, which refines the metric, too little
    of the warm-up is left for that.
    """
    climbed = _climb(state, jump, adaptation.metric_sqrt, adaptation.trial_step_size, max_steps)
    begin_again = adaptation.window_ended & ~metric_settled(adaptation, num_warmup)
    return choose(begin_again, first_path_length(climbed.centre, 1.0), climbed)


def _climb(state: PathLength, jump: Jump, metric_sqrt: MetricSqrt, step_size: Array, max_steps: int) -> PathLength:
    before, after = (solve_sqrt(metric_sqrt, end - state.centre) for end in (jump.start, jump.end))
    change = jnp.vdot(after, after) - jnp.vdot(before, before)
    slope = jump.acceptance * jump.length * change * jnp.vdot(after, jump.velocity)
    slope = jnp.where(jnp.isfinite(slope) & (jump.acceptance > 0), slope, 0.0)
    count = state.count + 1
    time = count.astype(slope.dtype)
    first = 0.9 * state.slope + 0.1 * slope
    second = 0.95 * state.square + 0.05 * slope**2
    step = 0.3 * time**-0.5 * (first / (1 - 0.9**time)) / (jnp.sqrt(second / (1 - 0.95**time)) + 1e-12)
    log_path = jnp.clip(state.log_path + step, jnp.log(step_size), jnp.log(0.5 * max_steps * step_size))
    share = jnp.maximum(time**-0.5, 0.02)
    average = share * log_path + (1 - share) * state.log_average
    centre = state.centre + 0.04 * (jump.start - state.centre)
    return PathLength(log_path, average, first, second, count, centre)
