r"""Methods that train the members of an ensemble together, since they share weights: what those have in common.

A member is a network: the shared weights $\theta$ and what is its own, $\phi_m$, give its weights
$w_m = w(\theta, \phi_m)$. The posterior is the uniform mixture of the members, and what is maximised is the mean of
their log densities,

$\frac{1}{M} \sum_m \big[ \log p(D \mid w_m) + \log p(w_m) \big]$

so that data count once, and the prior speaks of the weights that a member has in the end, as it does under every
method. With one member it is MAP.
"""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from marginax._kernels.random import derive
from marginax.data import Batch
from marginax.infer.dropout.noisy_training import has_own_noise
from marginax.infer.method import Infos, check_count
from marginax.infer.training import AbstractOptimised
from marginax.model import Model, Params
from marginax.posterior import AbstractPosterior, Draws


class SharedState(eqx.Module):
    """Shared weights, what is each member's own (leaves have an axis (member,)), and the optimiser's memory."""

    params: Params
    own: PyTree
    optimiser: PyTree


class SharedInfo(eqx.Module):
    """The mean of the members' log densities, estimated."""

    log_density: Array


class AbstractSharedWeights(AbstractOptimised):
    """Trains members that share weights; it says what is their own.

    Args:
        num_members: how many networks.
        num_epochs: passes over the data; by default at least 10 and enough for 4,000 steps.
        batch_size: rows per step, None for all.
        optimiser: `Adam`, `SGD`, `Optax(...)`, or an Optax transformation.
    """

    num_members: int = 4

    def __check_init__(self):
        check_count("num_members", self.num_members)

    # ---- what a method says

    @abc.abstractmethod
    def first_own(self, model: Model, params: Params, batch: Batch, *, key: PRNGKeyArray) -> PyTree:
        """What is the members' own at the start; leaves have an axis (member,)."""

    @abc.abstractmethod
    def members(self, model: Model, params: Params, own: PyTree) -> Params:
        """The parameters of every member as a network by itself; leaves have an axis (member,)."""

    @abc.abstractmethod
    def log_prior(self, model: Model, params: Params, own: PyTree, first: Int[Array, ""]) -> Float[Array, ""]:
        """Mean over the members of their log prior; that of member `first` is an estimate, as cheap as for one."""

    @abc.abstractmethod
    def log_likelihood(
        self, model: Model, params: Params, own: PyTree, batch: Batch, first: Int[Array, ""], *, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        """Mean over the members of the log likelihood of all data, estimated from a batch.

        Args:
            model: of each member.
            params: shared.
            own: of all members.
            batch: rows.
            first: a member, by chance: the one to begin with where rows are dealt to members in turn.
            key: for what else is drawn.
        """

    # ---- the protocol

    needs_layers: ClassVar[bool] = True

    supports_dynamic_size: ClassVar[bool] = True  # the size only sets the scale and the length of the schedule

    def init(self, model: Model, params: Params, batch: Batch, *, key: PRNGKeyArray) -> SharedState:
        if has_own_noise(model.network):
            raise ValueError(
                f"network must have no dropout of its own for {type(self).__name__}: leave it out, or use MCDropout()"
            )
        if model.likelihood.compares_views:  # of one row, which may belong to several members
            raise ValueError(
                f"likelihood must not compare views for {type(self).__name__}, as {type(model.likelihood).__name__} "
                "does: choose DeepEnsemble()"
            )
        own = self.first_own(model, params, batch, key=key)
        return SharedState(params, own, self.first_memory((params, own)))

    def step(
        self, model: Model, state: SharedState, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[SharedState, SharedInfo]:
        first = jax.random.randint(derive(key, 0), (), 0, self.num_members)

        def loss(trained: tuple[Params, PyTree]) -> Float[Array, ""]:
            log_prior = self.log_prior(model, *trained, first)
            log_likelihood = self.log_likelihood(model, *trained, batch, first, key=key)
            return -(log_prior + log_likelihood) / batch.num_examples

        trained = (state.params, state.own)
        value, gradient = jax.value_and_grad(loss)(trained)
        (params, own), memory = self.descend(gradient, state.optimiser, trained, batch)
        return SharedState(params, own, memory), SharedInfo(-value * batch.num_examples)

    def posterior(self, model: Model, state: SharedState, draws: PyTree, infos: Infos) -> AbstractPosterior:
        """The members as draws of each chain."""
        params = _of_chains(self, model, (state.params, state.own))
        return Draws(model=model, params=jax.tree.map(np.asarray, params))


@eqx.filter_jit
def _of_chains(method: AbstractSharedWeights, model: Model, trained: tuple[Params, PyTree]) -> Params:
    """With axes (chain, member)."""
    return jax.vmap(lambda chain: method.members(model, *chain))(trained)


def member_at(own: PyTree, index: Array | int) -> PyTree:
    """What is one member's own."""
    return jax.tree.map(lambda leaf: leaf[index], own)


def spread_out(tree: Any, num: int) -> Any:
    """The same for all members."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num, *leaf.shape)), tree)
