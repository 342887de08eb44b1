"""A sampler whose step size is given instead of learned, and whose moves are noted, path and all."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from marginax._kernels.random import normal, uniform
from marginax.data import Batch
from marginax.infer import HMC, MALA, MCLMC, NUTS, AbstractMethod, MetropolisHastings, ParallelTempering, Phase
from marginax.infer.chain import AbstractChain
from marginax.infer.flat import Density, ravel
from marginax.infer.mcmc import nuts
from marginax.infer.mcmc.adaptation import first_step_size
from marginax.infer.mcmc.integrators import HMCState, IntegratorState, leapfrog, state_at
from marginax.infer.mcmc.sampler import AbstractSampler
from marginax.infer.method import State, check_count, params_of
from marginax.model import AbstractModel
from marginax.model.abstract import Params

MAX_LEAPFROG = 32  # of a trajectory that is drawn
MAX_TREE_DEPTH = 5


class Move(eqx.Module):
    """What a step did.

    The path has the start at [0]. Of a tree, `path` are the points of the orbit after the start, then those before it,
    and `doublings` the number of leaves that each doubling added, negative where it went back in time.
    """

    log_density: Array
    position: Float[Array, " d"]
    acceptance: Array
    accepted: Array
    diverging: Array
    num_gradients: Array
    path: Float[Array, "p d"]
    energy: Float[Array, " p"]
    num_points: Int[Array, ""]
    doublings: Int[Array, " depth"]


class FixedStep(AbstractChain):
    """A sampler that learns nothing: its step size is given, its metric is the unit, and every state is kept.

    Args:
        inner: the sampler; one on minibatches has its own step size.
        step_size: of the leapfrog integrator, or of the proposal.
        num_samples: steps of each chain.

    >>> import marginax as mx
    >>> normal = mx.Density(lambda w: -0.5 * jnp.sum(w**2), jnp.zeros(2))
    >>> mx.fit(normal, None, FixedStep(MALA(), step_size=0.5, num_samples=50), key=0).params.shape
    (4, 50, 2)
    """

    inner: AbstractMethod
    step_size: float = 0.25
    num_samples: int = 1000
    thin: int = 1
    num_warmup: int = 0

    def __check_init__(self):
        check_count("num_samples", self.num_samples)
        if isinstance(self.step_size, float) and not self.step_size > 0:
            raise ValueError(f"step_size must be > 0, got {self.step_size}")

    @property
    def batch_size(self) -> None:
        return

    @property
    def needs_full_batch(self) -> bool:
        return True

    @property
    def lockstep(self) -> bool:
        return self.inner.lockstep

    def init(self, model: AbstractModel, params: Params, batch: Batch, *, key: PRNGKeyArray) -> State:
        """The sampler's own start, with the step size in place."""
        state, method = self.inner.init(model, params, batch, key=key), self.inner
        if isinstance(method, AbstractSampler):
            return eqx.tree_at(lambda s: s.adaptation.step, state, first_step_size(self.step_size))
        if isinstance(method, ParallelTempering):
            sizes = jax.vmap(first_step_size)(jnp.full(method.num_temperatures, self.step_size))
            warm = jnp.full_like(state.count, method.num_warmup)
            return eqx.tree_at(lambda s: (s.step_sizes, s.count), state, (sizes, warm))
        if isinstance(method, MCLMC):
            here = HMC().density(model, batch, params)(ravel(params))
            step = jnp.full_like(state.tuning.step_size, self.step_size)
            return eqx.tree_at(lambda s: (s.log_density, s.gradient, s.tuning.step_size), state, (*here, step))
        return state

    def phases(self, num_examples: int, batch_size: int) -> tuple[Phase, ...]:
        return (Phase("sample", self.num_samples, self.step, params_of),)

    def step(self, model: AbstractModel, state: State, batch: Batch, *, key: PRNGKeyArray) -> tuple[State, Move]:
        """A step of the sampler, and what it did."""
        method: Any = self.inner
        step = getattr(method, "sample_step", method.step)
        if isinstance(method, ParallelTempering):
            step = method.step
        new, info = step(model, state, batch, key=key)
        position = ravel(new.params)
        path, energy, num_points, doublings = self._path(model, state, batch, info, key)
        accepted = jnp.any(position != ravel(state.params))
        found = getattr(info, "acceptance", None)
        diverging = getattr(info, "diverging", None)
        move = Move(
            log_density=info.log_density,
            position=position,
            acceptance=jnp.ones(()) if found is None else found,
            accepted=accepted,
            diverging=jnp.zeros((), bool) if diverging is None else diverging,
            num_gradients=_num_gradients(method, info),
            path=path,
            energy=energy,
            num_points=num_points,
            doublings=doublings,
        )
        return new, move

    def _path(self, model: Any, state: Any, batch: Batch, info: Any, key: PRNGKeyArray) -> tuple[Array, ...]:
        method = self.inner
        none = jnp.zeros(MAX_TREE_DEPTH, jnp.int32)
        if not isinstance(method, HMC | MALA | NUTS | MetropolisHastings):
            start = ravel(state.params)
            return start[None], jnp.zeros(1), jnp.zeros((), jnp.int32), none
        density = method.density(model, batch, state.params)
        here = HMCState(ravel(state.params), state.log_density, state.gradient)
        noise, step_size = normal(key, here.position.shape, here.position.dtype), jnp.asarray(self.step_size)
        start = IntegratorState(here, noise)
        if isinstance(method, MetropolisHastings):
            end = state_at(density, here.position + step_size * noise)
            path, energy = jnp.stack([here.position, end.position]), -jnp.stack([here.log_density, end.log_density])
            return path, energy, jnp.ones((), jnp.int32), none
        if isinstance(method, MALA):
            return *orbit(density, start, step_size, 1), jnp.ones((), jnp.int32), none
        if isinstance(method, HMC):
            return *orbit(density, start, step_size, MAX_LEAPFROG), info.num_leapfrog, none
        most = 2**MAX_TREE_DEPTH - 1
        (path, energy), (back, back_energy) = (orbit(density, start, s * step_size, most) for s in (1.0, -1.0))
        doublings = tree_doublings(key, info.num_leapfrog)
        path, energy = jnp.concatenate([path, back[1:]]), jnp.concatenate([energy, back_energy[1:]])
        return path, energy, info.num_leapfrog, doublings


def _num_gradients(method: Any, info: Any) -> Array:
    if isinstance(method, ParallelTempering):
        return jnp.asarray(method.num_temperatures * (method.num_leapfrog + 1))  # one to begin with
    if isinstance(method, MCLMC):
        return jnp.asarray(2)
    found = getattr(info, "num_leapfrog", None)
    return jnp.ones((), jnp.int32) if found is None else found


def orbit(density: Density, start: IntegratorState, step_size: Array, num_steps: int) -> tuple[Array, Array]:
    """Positions and energies along a trajectory, the start first."""
    unit = jnp.ones_like(start.velocity)

    def step(at: IntegratorState, _: None) -> tuple[IntegratorState, tuple[Array, Array]]:
        new = leapfrog(density, at, step_size, unit)
        return new, (new.state.position, new.energy)

    _, (positions, energies) = jax.lax.scan(step, start, None, length=num_steps)
    path = jnp.concatenate([start.state.position[None], positions])
    return path, jnp.concatenate([start.energy[None], energies])


def tree_doublings(key: PRNGKeyArray, num_leaves: Int[Array, ""]) -> Int[Array, " depth"]:
    """How many leaves each doubling of a tree added, negative where it went back in time."""
    depths = jnp.arange(MAX_TREE_DEPTH)
    added = jnp.clip(num_leaves - (2**depths - 1), 0, 2**depths)
    forward = jax.vmap(lambda depth: uniform(key, depth, stream=nuts._DIRECTIONS) < 0.5)(depths)
    return jnp.where(forward, added, -added)
