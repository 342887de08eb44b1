r"""Parallel tempering (Geyer, 1991; Hukushima & Nemoto, 1996): exact, full batch, for separated modes.

Each chain is a ladder of replicas with targets $p(\theta)\, p(D \mid \theta)^{\beta_k}$, $1 = \beta_1 > \dots >
\beta_K$: the hot ones cross between modes, and neighbours on the ladder are exchanged with probability
$\min(1, e^{(\beta_i - \beta_j)(\ell_j - \ell_i)})$, $\ell$ the log likelihood. Only the replica with $\beta = 1$ is
kept. Replicas move by Hamiltonian trajectories whose step size is learned per temperature. It fits the protocol because
the ladder lives inside the state of one chain.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from marginax._kernels.random import normal, uniform
from marginax.data import Batch
from marginax.infer.catalogue import register_method
from marginax.infer.flat import Density, Vector, ravel, unravel
from marginax.infer.mcmc.adaptation import StepSize, choose, first_step_size, update_step_size
from marginax.infer.mcmc.integrators import Accepted, IntegratorState, accept, integrate, state_at
from marginax.infer.mcmc.sampler import AbstractFullBatchSampler
from marginax.infer.method import check_count
from marginax.model import AbstractModel
from marginax.model.abstract import Params

_ACCEPT, _LENGTH, _SWAP = 1, 2, 3  # streams of random numbers within a step


class TemperingState(eqx.Module):
    """The replica at temperature one, all replicas from cold to hot, and their step sizes."""

    params: Params
    positions: Float[Array, "k d"]
    step_sizes: StepSize
    count: Int[Array, ""]


class TemperingInfo(eqx.Module):
    """Of the cold replica: how its move went. Of the ladder: share of proposed exchanges accepted."""

    log_density: Array
    acceptance: Array
    step_size: Array
    energy: Array
    diverging: Array
    exchanged: Array


@register_method(
    "method/parallel_tempering",
    gives="draws of the posterior itself",
    use_when="exact, and modes far apart",
    cost="8 replicas, 240,000 gradients per chain",
    order=290,
)
class ParallelTempering(AbstractFullBatchSampler):
    """Replicas of a chain at several temperatures, which are exchanged.

    Takes what every `AbstractFullBatchSampler` takes, and:

    Args:
        num_temperatures: replicas of each chain.
        max_temperature: of the likelihood of the hottest replica; the ladder is geometric.
        num_leapfrog: steps of a trajectory.
        target_acceptance: mean acceptance that step sizes aim at.
    """

    num_warmup: int = 1000
    num_samples: int = 1000
    thin: int = 2
    num_temperatures: int = 8
    max_temperature: float = 100.0
    num_leapfrog: int = 10
    target_acceptance: float = 0.8

    def __check_init__(self):
        check_count("num_leapfrog", self.num_leapfrog)
        check_count("num_temperatures", self.num_temperatures, least=2)
        if not self.max_temperature > 1:
            raise ValueError(f"max_temperature must be > 1, got {self.max_temperature}")
        if not 0 < self.target_acceptance < 1:
            raise ValueError(f"target_acceptance must be in (0, 1), got {self.target_acceptance}")

    num_chains: ClassVar[int] = 2  # two, so that they can be compared; each is a whole ladder

    def init(self, model: AbstractModel, params: Params, batch: Batch, *, key: PRNGKeyArray) -> TemperingState:
        position = ravel(params)
        positions = jnp.tile(position, (self.num_temperatures, 1))
        step_sizes = jax.vmap(first_step_size)(jnp.full(self.num_temperatures, 0.1))
        return TemperingState(params, positions, step_sizes, jnp.zeros((), jnp.int32))

    def step(
        self, model: AbstractModel, state: TemperingState, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[TemperingState, TemperingInfo]:
        """Move and exchange; in warm-up, learn step sizes."""
        warm, known = state.count < self.num_warmup, state.step_sizes
        step_sizes = jnp.exp(jnp.where(warm, known.log_step, known.log_average))
        new, info, went = self._step(model, state, batch, step_sizes, key)
        learned = jax.vmap(update_step_size, in_axes=(0, 0, None))(known, went.acceptance, self.target_acceptance)
        return TemperingState(new.params, new.positions, choose(warm, learned, known), new.count), info

    def _step(self, model, state, batch, step_sizes, key) -> tuple[TemperingState, TemperingInfo, Accepted]:
        betas = self.max_temperature ** -jnp.linspace(0.0, 1.0, self.num_temperatures)
        keys = jax.vmap(lambda k: jax.random.fold_in(key, k))(jnp.arange(self.num_temperatures))

        def move(position: Vector, beta: Array, step_size: Array, key: PRNGKeyArray) -> tuple[Vector, Accepted]:
            return self._move(tempered(model, batch, state.params, beta, self.temperature), position, step_size, key)

        positions, went = jax.vmap(move)(state.positions, betas, step_sizes, keys)
        log_likelihoods = jax.vmap(
            lambda position: model.scaled_log_likelihood(unravel(position, state.params), batch)
        )(positions)
        draws = uniform(key, jnp.arange(self.num_temperatures), stream=_SWAP)
        order, exchanged = exchange(betas / self.temperature, log_likelihoods, draws, state.count % 2)
        positions = positions[order]
        params = unravel(positions[0], state.params)
        log_density = model.log_prior(params) + log_likelihoods[order][0]
        cold = jax.tree.map(lambda leaf: leaf[0], went)
        info = TemperingInfo(log_density, cold.acceptance, step_sizes[0], cold.energy, cold.diverging, exchanged)
        return TemperingState(params, positions, state.step_sizes, state.count + 1), info, went

    def _move(self, density: Density, position: Vector, step_size: Array, key: PRNGKeyArray) -> tuple[Vector, Accepted]:
        start = IntegratorState(state_at(density, position), normal(key, position.shape, position.dtype))
        jitter = step_size * (0.5 + uniform(key, 0, stream=_LENGTH))
        end = integrate(density, start, jitter, jnp.ones_like(position), self.num_leapfrog)
        new, went = accept(start, end, uniform(key, 0, stream=_ACCEPT))
        return new.position, went


def tempered(model: AbstractModel, batch: Batch, like: Params, beta: Array, temperature: Array | float) -> Density:
    """Log prior plus beta times log likelihood, over a temperature, and the gradient."""

    def density(vector: Vector) -> tuple[Array, Vector]:
        def value(params: Params) -> Array:
            return model.log_prior(params) + beta * model.scaled_log_likelihood(params, batch)

        found, gradient = jax.value_and_grad(value)(unravel(vector, like))
        return found / temperature, ravel(gradient) / temperature

    return density


def exchange(
    betas: Float[Array, " k"], log_likelihoods: Float[Array, " k"], draws: Float[Array, " k"], parity: Array
) -> tuple[Int[Array, " k"], Float[Array, ""]]:
    """Exchange neighbours: pairs (0, 1), (2, 3), ... or, at odd parity, (1, 2), (3, 4), ...

    Returns:
        The order in which replicas stand afterwards, and the share of pairs that were exchanged.
    """
    size = betas.size
    lower = jnp.arange(size - 1)
    gain = (betas[:-1] - betas[1:]) * (log_likelihoods[1:] - log_likelihoods[:-1])
    paired = lower % 2 == parity
    swap = paired & (jnp.log(draws[:-1]) < gain)
    up = jnp.concatenate([swap, jnp.zeros(1, bool)])
    down = jnp.concatenate([jnp.zeros(1, bool), swap])
    order = jnp.arange(size) + up.astype(jnp.int32) - down.astype(jnp.int32)
    return order, jnp.sum(swap) / jnp.maximum(jnp.sum(paired), 1)
