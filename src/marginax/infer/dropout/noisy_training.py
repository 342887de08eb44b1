"""Methods that put noise into a network and train what is disturbed: what they share.

A rule per layer says how its inputs are disturbed; it may have parameters that are trained with the weights. The
objective is a bound on the evidence: the expected log likelihood under the noise, estimated with fresh noise for every
example, less what the noise and the weights cost.
"""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from marginax.data import Batch
from marginax.infer.method import Infos
from marginax.infer.training import AbstractOptimised
from marginax.model import Model, Params
from marginax.nets import AbstractNoise, layers_of
from marginax.posterior import AbstractPosterior, Stochastic

Rules = tuple[AbstractNoise | None, ...]


class NoisyState(eqx.Module):
    """Weights, parameters of the noise, and the optimiser's memory."""

    params: Params
    noise: PyTree
    optimiser: PyTree


class NoisyInfo(eqx.Module):
    """The objective and its parts."""

    elbo: Array
    log_likelihood: Array
    penalty: Array


class AbstractNoisyTraining(AbstractOptimised):
    """Trains a network with noise inside; it says which noise, and what it costs."""

    # ---- what a method says

    @abc.abstractmethod
    def rules(self, model: Model, noise: PyTree) -> Rules:
        """How each layer is disturbed; () leaves it to the network's own dropout."""

    def final_rules(self, model: Model, noise: PyTree) -> Rules:
        """The same after training."""
        return self.rules(model, noise)

    def first_noise(self, model: Model) -> PyTree:
        """Parameters of the noise at the start."""
        return ()

    def log_prior(self, model: Model, params: Params, noise: PyTree) -> Float[Array, ""]:
        """What weights and noise cost: a log density, or minus a divergence."""
        return model.log_prior(params)

    def log_likelihood(
        self, model: Model, params: Params, rules: Rules, batch: Batch, *, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        """The log likelihood of all data, estimated from a batch with fresh noise for every example."""
        return batch.total(model.log_likelihood(params, batch, key=key, noise=rules or None))

    # ---- the protocol

    needs_layers: ClassVar[bool] = True

    supports_dynamic_size: ClassVar[bool] = True  # the size only sets the scale and the length of the schedule

    def init(self, model: Model, params: Params, batch: Batch, *, key: PRNGKeyArray) -> NoisyState:
        noise = self.first_noise(model)
        return NoisyState(params, noise, self.first_memory((params, noise)))

    def step(self, model: Model, state: NoisyState, batch: Batch, *, key: PRNGKeyArray) -> tuple[NoisyState, NoisyInfo]:
        def loss(trained: tuple[Params, PyTree]) -> tuple[Float[Array, ""], NoisyInfo]:
            params, noise = trained
            log_likelihood = self.log_likelihood(model, params, self.rules(model, noise), batch, key=key)
            log_prior = self.log_prior(model, params, noise)
            total = log_likelihood + log_prior
            return -total / batch.num_examples, NoisyInfo(total, log_likelihood, -log_prior)

        trained = (state.params, state.noise)
        gradient, info = jax.grad(loss, has_aux=True)(trained)
        (params, noise), memory = self.descend(gradient, state.optimiser, trained, batch)
        return NoisyState(params, noise, memory), info

    def posterior(self, model: Model, state: NoisyState, draws: PyTree, infos: Infos) -> AbstractPosterior:
        return Stochastic(model=model, params=state.params, noise=self.final_rules(model, state.noise))


def noisy_layers(model: Model) -> list[bool]:
    """Which layers get noise on their inputs: those with random weights, but not the first, unless it is alone."""
    layers = layers_of(model.network)
    if not layers:
        raise ValueError(
            "network has no layers that can be disturbed (eqx.nn.Linear, eqx.nn.Conv or mx.nets.Conv2d): "
            "give it dropout of its own, or choose VI()"
        )
    random = [bool(jax.tree.leaves(layer)) for layer in layers_of(eqx.filter(model.network, model.is_random()))]
    return random if len(layers) == 1 else [i > 0 and flag for i, flag in enumerate(random)]


def has_own_noise(network: Any) -> bool:
    """Whether the network, or a part of it, brings dropout of its own."""

    def is_noisy(node: Any) -> bool:
        if isinstance(node, eqx.nn.Dropout):
            return bool(np.any(np.asarray(node.p) > 0))
        return isinstance(node, eqx.Module) and getattr(node, "stochastic", False) is True

    return any(map(is_noisy, jax.tree.leaves(network, is_leaf=is_noisy)))
