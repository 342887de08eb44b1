r"""Metropolis-adjusted microcanonical sampler (Robnik, Cohn-Gordon & Seljak, 2025): exact, full batch.

A direction is drawn, the chain glides along it at unit speed for a path of random length, and the end is accepted with
probability $\min(1, e^{-\Delta E})$, where $\Delta E$ is the integrator's error of energy along the way. Lengths are
measured so that they compare with those of `HMC`, whose speed is $\sqrt d$.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from marginax._kernels.random import normal, uniform
from marginax.infer.catalogue import register_method
from marginax.infer.flat import Density
from marginax.infer.mcmc.adaptation import Adaptation, choose
from marginax.infer.mcmc.hmc import Jump, PathLength, first_path_length, tune_path_length
from marginax.infer.mcmc.integrators import HMCState, IntegratorState, acceptance_of, isokinetic_step, unit
from marginax.infer.mcmc.sampler import AbstractSampler, SamplerInfo, Tuning
from marginax.infer.method import check_count

_ACCEPT, _LENGTH = 1, 2  # streams of random numbers within a move


@register_method(
    "method/adjusted_mclmc",
    gives="draws of the posterior itself",
    use_when="exact, and many dimensions",
    cost="10^4 to 10^5 gradients per chain",
    order=270,
)
class AdjustedMCLMC(AbstractSampler):
    """Microcanonical trajectories with an accept step, window adaptation and tuned path length.

    Takes what every `AbstractSampler` takes, and:

    Args:
        path_length: mean length of trajectories in units of the posterior's scale, or None to tune it in warm-up.
        max_steps: most steps of a trajectory, each of two gradients.
    """

    target_acceptance: float = 0.9
    path_length: float | None = None
    max_steps: int = 256

    def __check_init__(self):
        check_count("max_steps", self.max_steps)
        if self.path_length is not None and not self.path_length > 0:
            raise ValueError(f"path_length must be > 0 or None, got {self.path_length}")

    lockstep: ClassVar[bool] = False  # trajectories differ in length

    def first_extra(self, state: HMCState) -> PathLength:
        """One unit of scale, or what the user says."""
        if state.position.size < 2:
            raise ValueError("AdjustedMCLMC needs a model of at least 2 random parameters: its directions are a sphere")
        return first_path_length(state.position, 1.0 if self.path_length is None else self.path_length)

    def move(
        self, density: Density, state: HMCState, tuning: Tuning, *, key: PRNGKeyArray
    ) -> tuple[HMCState, SamplerInfo, Jump]:
        """A trajectory of random length, accepted or not."""
        length = 2.0 * uniform(key, 0, stream=_LENGTH) * tuning.extra.path_length
        num_steps = jnp.clip(jnp.ceil(length / tuning.step_size), 1, self.max_steps).astype(jnp.int32)
        speed = jnp.sqrt(jnp.asarray(state.position.size, state.position.dtype))
        start = IntegratorState(state, unit(normal(key, state.position.shape, state.position.dtype)))

        def advance(_: Array, carry: tuple[IntegratorState, Array]) -> tuple[IntegratorState, Array]:
            integrator_state, error = isokinetic_step(density, carry[0], tuning.step_size * speed, tuning.metric_sqrt)
            return integrator_state, carry[1] + error

        end, error = jax.lax.fori_loop(0, num_steps, advance, (start, jnp.zeros_like(state.log_density)))
        acceptance, diverging = acceptance_of(error)
        new = choose(uniform(key, 0, stream=_ACCEPT) < acceptance, end.state, state)
        info = SamplerInfo(
            log_density=new.log_density,
            acceptance=acceptance,
            step_size=tuning.step_size,
            diverging=diverging,
            num_leapfrog=2 * num_steps,
        )
        jump = Jump(state.position, end.state.position, speed * end.velocity, acceptance, num_steps * tuning.step_size)
        return new, info, jump

    def learn(self, extra: PathLength, noted: Jump, adaptation: Adaptation) -> PathLength:
        """Tune the path length, unless it was given."""
        if self.path_length is not None:
            return extra
        return tune_path_length(extra, noted, adaptation, self.num_warmup, self.max_steps)
