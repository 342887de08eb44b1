r"""SWAG: stochastic weight averaging, and the spread of what is averaged (Maddox et al., 2019).

From a trained network, plain SGD with a constant learning rate wanders about the mode. Snapshots of its weights give
the mean (SWA; Izmailov et al., 2018) and a normal posterior around it,

$q = N\big(\bar w, \tfrac12 \mathrm{diag}(v) + \tfrac{1}{2 (K - 1)} D D^\top\big),$

with v the variance of the snapshots and D the last K deviations from the running mean. Chains give a mixture of such
normals (multi-SWAG; Wilson & Izmailov, 2020). We keep the variance by Welford's recursion, since a difference of two
large moments loses its digits in single precision. The learning rate, which sets how wide the posterior is, follows the
largest curvature of the loss unless it is given.
"""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from marginax.curvature import DiagonalCovariance, LowRankCovariance
from marginax.data import Batch
from marginax.infer.catalogue import register_method
from marginax.infer.flat import ravel, unravel
from marginax.infer.map import MAP
from marginax.infer.mcmc.adaptation import DiagonalMetric, Moments, add_to_moments, no_moments
from marginax.infer.method import AbstractMethod, Infos, NoPosteriorYet, Phase, check_count, mixture_of_chains
from marginax.infer.sgmcmc.diffusion import look_at_curvature
from marginax.infer.training import TrainInfo, begin_by_training, training_memory
from marginax.model import AbstractModel
from marginax.model.abstract import Params
from marginax.posterior import AbstractPosterior, Gaussian

_LEAST_STEPS = 20
_SHARE = 0.1


class SWAGState(eqx.Module):
    """Where SGD is, how it got there, and what its snapshots add up to."""

    params: Params
    training: PyTree
    velocity: Params
    curvature: Array
    moments: Moments
    deviations: Float[Array, "rank d"]
    count: Int[Array, ""]


@register_method(
    "method/swag",
    gives="a normal around the average of SGD's path",
    use_when="you train by SGD anyway, and the data come in batches",
    cost="MAP and 100 epochs more",
    order=40,
)
class SWAG(AbstractMethod):
    """A normal posterior from the path of SGD.

    Trains by MAP first, unless `init=` gives a network or posterior to start from.

    Args:
        rank: snapshots whose deviations make the low-rank part; 0 keeps the diagonal alone.
        num_snapshots: how many are averaged.
        every: steps from one snapshot to the next; by default an epoch, and at least 20 steps.
        learning_rate: of the mean loss per example; the larger, the wider the posterior. By default, a tenth of the
            inverse of the largest curvature.
        momentum: in [0, 1).
        batch_size: of all steps, those of the training too.
        training: how the first mode is found.
    """

    rank: int = 20
    num_snapshots: int = 100
    every: int | None = None
    learning_rate: float | None = None
    momentum: float = 0.9
    batch_size: int | None = 32
    training: MAP | None = eqx.field(default_factory=MAP)

    def __check_init__(self):
        check_count("rank", self.rank, least=0)
        check_count("num_snapshots", self.num_snapshots, least=2)
        check_count("every", self.every, optional=True)
        check_count("batch_size", self.batch_size, optional=True)
        if self.rank == 1:
            raise ValueError("rank must be 0 (diagonal) or at least 2: one deviation says nothing of a spread, got 1")
        if self.learning_rate is not None and not self.learning_rate > 0:
            raise ValueError(f"learning_rate must be > 0 or None, got {self.learning_rate}")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must be in [0, 1), got {self.momentum}")

    @property
    def needs_full_batch(self) -> bool:
        return self.training is not None and self.training.needs_full_batch

    def warm_started(self) -> "SWAG":
        """From a given start there is nothing to train."""
        return self if self.training is None else eqx.tree_at(lambda m: m.training, self, None)

    def init(self, model: AbstractModel, params: Params, batch: Batch, *, key: PRNGKeyArray) -> SWAGState:
        training = None
        if self.training is not None:
            training = training_memory(self.training.init(model, params, batch, key=key))
        vector, zero = ravel(params), jnp.zeros((), jnp.int32)
        moments = no_moments(DiagonalMetric(), vector)
        deviations = jnp.zeros((self.rank, vector.size), vector.dtype)
        rest = jax.tree.map(jnp.zeros_like, params)
        return SWAGState(params, training, rest, jnp.ones(()), moments, deviations, zero)

    def phases(self, num_examples: int, batch_size: int) -> tuple[Phase, ...]:
        phases = () if self.training is None else (begin_by_training(self.training, num_examples, batch_size),)
        if self.learning_rate is None:
            phases += (look_at_curvature(),)
        return (*phases, Phase("collect", self.num_snapshots * self._period(num_examples, batch_size), self.step))

    def step(
        self, model: AbstractModel, state: SWAGState, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[SWAGState, TrainInfo]:
        """A step of SGD; when it is time, a snapshot."""
        num = batch.num_examples
        value, gradient = jax.value_and_grad(lambda p: model.log_density(p, batch, key=key))(state.params)
        # the curvature is that of the whole log density, the rate that of its mean over examples
        rate = _SHARE * num / state.curvature if self.learning_rate is None else self.learning_rate
        velocity = jax.tree.map(lambda v, g: self.momentum * v + g / num, state.velocity, gradient)
        params = jax.tree.map(lambda p, v: p + rate * v, state.params, velocity)
        count = state.count + 1
        due = count % self._period(num, batch.size) == 0
        seen = (state.moments, state.deviations)
        moments, deviations = jax.lax.cond(due, take_snapshot, lambda seen, _: seen, seen, params)
        new = SWAGState(params, state.training, velocity, state.curvature, moments, deviations, count)
        return new, TrainInfo(value)

    def posterior(self, model: AbstractModel, state: SWAGState, draws: PyTree, infos: Infos) -> AbstractPosterior:
        if not np.all(np.asarray(state.moments.count) > 1):
            raise NoPosteriorYet("interrupted before there were two snapshots: there is no posterior yet")
        return mixture_of_chains(partial(_normal, model), state)

    def _period(self, num_examples: int, batch_size: int) -> int:
        return max(-(-num_examples // batch_size), _LEAST_STEPS) if self.every is None else self.every


def take_snapshot(seen: tuple[Moments, Array], params: Params) -> tuple[Moments, Array]:
    """Moments with these weights, and the last deviations from the running mean."""
    (moments, deviations), vector = seen, ravel(params)
    slot = moments.count % max(deviations.shape[0], 1)
    moments = add_to_moments(moments, vector)
    if deviations.shape[0]:
        deviations = jax.lax.dynamic_update_index_in_dim(deviations, vector - moments.mean, slot, 0)
    return moments, deviations


@eqx.filter_jit
def _normal(model: AbstractModel, state: SWAGState) -> AbstractPosterior:
    moments, rank = state.moments, state.deviations.shape[0]
    scale = jnp.sqrt(moments.squares / moments.count)
    mean = unravel(moments.mean, state.params)
    if not rank:
        return Gaussian(model=model, mean=mean, covariance=DiagonalCovariance(scale))
    used = jnp.minimum(moments.count, rank)
    factor = state.deviations.T / jnp.sqrt(2.0 * (used - 1))
    return Gaussian(model=model, mean=mean, covariance=LowRankCovariance(scale * jnp.sqrt(0.5), factor))
