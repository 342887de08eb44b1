"""A posterior made of one network (or a few) with noise inside: dropout and its relatives."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PRNGKeyArray, PyTree

from marginax._kernels.random import derive
from marginax.data import DataSpec
from marginax.files import register
from marginax.model import Model, Params
from marginax.nets import AbstractNoise, Perturbed
from marginax.posterior.posterior import DEFAULT_NUM_SAMPLES, AbstractPosterior, stack_of, take
from marginax.posterior.record import FitRecord
from marginax.predict import AbstractFunctions


class NoisyFunctions(AbstractFunctions):
    """Networks with noise inside, each with its noise held fixed.

    The weights are not part of a draw, so what comes before the first layer with noise is the same for all draws, and
    computed once.

    Args:
        model: the model whose parameters these are.
        params: weights; every leaf has an axis (chain,).
        noise: a rule for each layer.
        draws: which chain, and the key of its noise.
        log_weights: of the draws.
    """

    model: Model
    params: Params
    noise: tuple[AbstractNoise | None, ...]
    draws: tuple[Array, Key[Array, "*draws"]]
    log_weights: np.ndarray | None = None

    def distribution(self, draw: tuple[Array, PRNGKeyArray], x: Array) -> Any:
        """The likelihood's, at the outputs of the network."""
        chain, key = draw
        params, noise = at_chain((self.params, self.noise), 0 if stack_of(self.params) == 1 else chain)
        output = self.model.output_of(noisy_network(self.model, params, noise, key), x)
        return self.model.likelihood.distribution(output, params.likelihood)

    def networks(self) -> eqx.Module:
        """The functions as networks, stacked."""

        def one(draw: tuple[Array, PRNGKeyArray]) -> PyTree:
            params, noise = at_chain((self.params, self.noise), draw[0])
            return eqx.filter(noisy_network(self.model, params, noise, draw[1]), eqx.is_array)

        params, noise = at_chain((self.params, self.noise), 0)
        static = eqx.filter(noisy_network(self.model, params, noise, self.draws[1][0]), _is_static)
        return eqx.combine(jax.vmap(one)(self.draws), static)


@register("posterior/stochastic")
class Stochastic(AbstractPosterior):
    """Networks that are random themselves: a draw is a network whose noise is fixed, the same for every input.

    Args:
        model: the model whose parameters these are.
        params: weights; every leaf has an axis (chain,).
        noise: a rule for each layer (arrays in it have an axis (chain,)); () if the network brings its own dropout.
        spec: shapes and scaling of the data.
        record: the story of the fit.
        key: seed of predictions.
    """

    model: Model
    params: Params
    noise: tuple[AbstractNoise | None, ...]
    spec: DataSpec | None = None
    record: FitRecord = eqx.field(default_factory=FitRecord)
    key: PRNGKeyArray | None = None

    @property
    def num_chains(self) -> int:
        """Networks that are in it."""
        return stack_of(self.params)

    @property
    def is_point(self) -> bool:
        """Never: noise has spread."""
        return False

    def describe(self) -> str:
        kinds = {type(rule).__name__ for rule in self.noise if rule is not None} or {"its own dropout"}
        networks = "a network" if self.num_chains == 1 else f"{self.num_chains} networks"
        return f"{networks} with noise inside ({', '.join(sorted(kinds))})"

    def sample_params(self, num: int, *, key: PRNGKeyArray) -> Params:
        """Weights before the noise, chains in random order."""
        order = jnp.tile(jax.random.permutation(key, self.num_chains), -(-num // self.num_chains))[:num]
        return take(self.params, np.asarray(order))

    def draw(self, num: int, *, key: PRNGKeyArray) -> eqx.Module:
        return self.functions(num, key=key).networks()

    def functions(self, num: int | None = None, *, key: PRNGKeyArray) -> NoisyFunctions:
        """Fresh noise for the chains in turn, 100 draws unless told otherwise."""
        num = max(DEFAULT_NUM_SAMPLES, self.num_chains) if num is None else num
        keys = jax.vmap(lambda i: derive(key, i))(jnp.arange(num))
        return NoisyFunctions(self.model, self.params, self.noise, (jnp.arange(num) % self.num_chains, keys))

    def mean_params(self) -> Params:
        """Weights before the noise."""
        return super().mean_params() if self.num_chains > 1 else take(self.params, 0)

    def starting_points(self, num: int) -> Params:
        return take(self.params, np.linspace(0, self.num_chains - 1, num).round().astype(int))


def noisy_network(
    model: Model, params: Params, noise: tuple[AbstractNoise | None, ...], key: PRNGKeyArray
) -> Perturbed:
    """One network with its noise fixed."""
    network = model.network_of(params)
    return Perturbed(eqx.nn.inference_mode(network) if noise else network, noise, key)


def at_chain(tree: PyTree, chain: Array | int) -> PyTree:
    """One chain of what is stacked; numbers are the same for all."""
    return jax.tree.map(
        lambda leaf: jnp.asarray(leaf)[chain] if eqx.is_array_like(leaf) and np.ndim(leaf) else leaf, tree
    )


def _is_static(leaf: Any) -> bool:
    return not eqx.is_array(leaf)
