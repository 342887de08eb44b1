r"""Microcanonical Langevin ensembles (MILE; Sommer et al., 2025): an ensemble, each member of which becomes a chain.

Every member is trained on its own share of the rows and goes back to where the rows held out from it were best
explained; from there it becomes a chain of microcanonical Langevin dynamics on all rows. The ensemble finds different
modes, the chains the spread within them.

We differ from the paper in three places: members hold out different rows, and sample with all of them; the held-out
likelihood is known at every step, since it comes with the gradient; and the chains learn the posterior's scale.
"""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from marginax._kernels.random import uniform
from marginax.data import Batch
from marginax.infer.catalogue import register_method
from marginax.infer.flat import Vector, ravel, unravel
from marginax.infer.mcmc.adaptation import choose
from marginax.infer.mcmc.mclmc import MCLMC, MCLMCState
from marginax.infer.method import AbstractRecipe, Phase, check_count
from marginax.infer.optimisers import AbstractOptimiser, Adam, as_optimiser
from marginax.model import AbstractModel
from marginax.model.abstract import Params


class Training(eqx.Module):
    """The optimiser's memory, which rows are held out, and the best that was seen on them."""

    optimiser: PyTree
    held_out: Bool[Array, " n"]
    best: Vector
    score: Float[Array, ""]


class MILEState(eqx.Module):
    """A member: its weights, how its training stands, and the state of its chain (whose weights are these)."""

    params: Params
    training: Training | None
    chain: MCLMCState


class MILEInfo(eqx.Module):
    """Log density of the rows trained on, and mean log likelihood of those held out."""

    log_density: Array
    held_out: Array


@register_method(
    "method/mile",
    gives="an ensemble whose members become chains",
    use_when="tabular data: the best predictions for the time",
    cost="10 training runs and 24,000 gradients each",
    order=220,
)
class MILE(AbstractRecipe):
    """Ensemble trained with early stopping, then microcanonical Langevin chains: strong on tabular data.

    Trains first, unless `init=` gives networks to start the chains from.

    Args:
        num_members: networks, each of which becomes a chain; `num_chains=` of `mx.fit` says the same.
        num_epochs: training steps on all rows.
        optimiser: of the training.
        validation: share of the rows that each member holds out while it trains.
        sampler: budget and tuning of the chains.
    """

    num_members: int = 10
    num_epochs: int | None = 2000
    optimiser: AbstractOptimiser = eqx.field(default_factory=lambda: Adam(learning_rate=1e-2), converter=as_optimiser)
    validation: float = 0.15
    sampler: MCLMC = eqx.field(
        default_factory=lambda: MCLMC(num_warmup=6000, num_samples=100, thin=60, energy_variance=2e-4)
    )

    def __check_init__(self):
        check_count("num_members", self.num_members)
        check_count("num_epochs", self.num_epochs, optional=True)
        if not isinstance(self.optimiser, AbstractOptimiser) or self.optimiser.has_line_search:
            raise TypeError(f"optimiser must be mx.infer.Adam(...), SGD(...) or Optax(...), got {self.optimiser!r}")
        if not 0 < self.validation < 1:
            raise ValueError(f"validation must be in (0, 1), got {self.validation}")
        if not isinstance(self.sampler, MCLMC):
            raise TypeError(f"sampler must be mx.infer.MCLMC(...), got {self.sampler!r}")

    @property
    def inner(self) -> MCLMC:
        return self.sampler

    @property
    def num_chains(self) -> int:
        return self.num_members

    def warm_started(self) -> "MILE":
        return eqx.tree_at(lambda m: m.num_epochs, self, None, is_leaf=lambda leaf: leaf is None)

    def init(self, model: AbstractModel, params: Params, batch: Batch, *, key: PRNGKeyArray) -> MILEState:
        """Hold out some of the rows that say how well one predicts, at least one and not all."""
        chain = _without_params(self.sampler.init(model, params, batch, key=key))
        if self.num_epochs is None:
            return MILEState(params, None, chain)
        draws = jnp.where(model.is_judged(batch), uniform(key, jnp.arange(batch.size)), jnp.inf)
        held_out = (draws < self.validation) & (draws < jnp.max(draws)) | (draws == jnp.min(draws))
        position = ravel(params)
        training = Training(self._optimiser().init(position), held_out, position, jnp.asarray(-jnp.inf))
        return MILEState(params, training, chain)

    def phases(self, num_examples: int, batch_size: int) -> tuple[Phase, ...]:
        """Train, then adapt and sample from where training was best."""
        phases = self.sampler.phases(num_examples, batch_size)
        chains = tuple(replace(phase, enter=_chain, leave=_with_chain) for phase in phases)
        if self.num_epochs is None:
            return chains
        return (Phase("train", self.num_epochs, self.train_step, can_end=True), *chains)

    def train_step(
        self, model: AbstractModel, state: MILEState, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[MILEState, MILEInfo]:
        """Climb on the rows of this member, and look at those held out."""
        assert state.training is not None
        training, num = state.training, batch.num_examples

        def loss(params: Params) -> tuple[Array, Array]:
            each = model.log_likelihood(params, batch, key=key)
            inside = model.log_prior(params) + jnp.sum(jnp.where(training.held_out, 0.0, each))
            outside = jnp.sum(jnp.where(training.held_out, each, 0.0)) / jnp.sum(training.held_out)
            return -inside / num, outside

        (value, score), gradient = jax.value_and_grad(loss, has_aux=True)(state.params)
        position = ravel(state.params)  # one vector, so that the optimiser is a few loops and not a few per leaf
        best = jnp.where(score > training.score, position, training.best)
        updates, memory = self._optimiser().update(ravel(gradient), training.optimiser, position)
        params = unravel(position + updates, state.params)
        new = Training(memory, training.held_out, best, jnp.maximum(score, training.score))
        return MILEState(params, new, state.chain), MILEInfo(-value * num, score)

    def _optimiser(self) -> Any:
        return self.optimiser.build(self.num_epochs or 1)


@eqx.filter_jit
def _chain(states: MILEState) -> MCLMCState:
    """The chains of all members; they begin at the best weights of the training."""
    params = states.params
    if states.training is not None:
        best = jax.vmap(unravel)(states.training.best, params)
        params = jax.vmap(choose)(states.chain.count == 0, best, params)
    return eqx.tree_at(lambda c: c.params, states.chain, params, is_leaf=lambda leaf: leaf is None)


def _with_chain(states: MILEState, chain: MCLMCState) -> MILEState:
    return MILEState(chain.params, states.training, _without_params(chain))


def _without_params(chain: MCLMCState) -> MCLMCState:
    return eqx.tree_at(lambda c: c.params, chain, None)
