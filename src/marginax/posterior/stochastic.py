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
from marginax.model import AbstractModel
from marginax.model.abstract import Params
from marginax.nets import AbstractNoise, Perturbed
from marginax.posterior.gaussian import DEFAULT_NUM_SAMPLES
from marginax.posterior.posterior import AbstractPosterior, stack_of, take
from marginax.posterior.record import FitRecord


class NoiseDraw(eqx.Module):
    """Which weights, and the key of their noise."""

    chain: Array
    key: Key[Array, "*draws"]


class NoisyModel(eqx.Module):
    """The model with noise in its network; what it is asked about are draws of the noise.

    The weights are not part of a draw, so what comes before the first layer with noise is the same for all draws, and
    computed once.
    """

    model: AbstractModel
    params: Params
    noise: tuple[AbstractNoise | None, ...]

    def predictive(self, draw: NoiseDraw, x: Array, *, key: Any = None) -> Any:
        """The likelihood's distribution at the outputs of a network with its noise held fixed."""
        del key
        chain = 0 if stack_of(self.params) == 1 else draw.chain
        params, noise = at_chain((self.params, self.noise), chain)
        output = self.model.output_of(noisy_network(self.model, params, noise, draw.key), x)
        return self.model.likelihood.distribution(output, params.likelihood)


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

    model: AbstractModel
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
        """Kind and count."""
        kinds = {type(rule).__name__ for rule in self.noise if rule is not None} or {"its own dropout"}
        networks = "a network" if self.num_chains == 1 else f"{self.num_chains} networks"
        return f"{networks} with noise inside ({', '.join(sorted(kinds))})"

    def sample_params(self, num: int, *, key: PRNGKeyArray) -> Params:
        """Weights before the noise, chains in random order."""
        order = jnp.tile(jax.random.permutation(key, self.num_chains), -(-num // self.num_chains))[:num]
        return take(self.params, np.asarray(order))

    def draw_networks(self, num: int, *, key: PRNGKeyArray) -> eqx.Module:
        """Networks with their noise fixed."""
        draws, _ = self.support(num, key=key)

        def one(draw: NoiseDraw) -> PyTree:
            params, noise = at_chain((self.params, self.noise), draw.chain)
            return eqx.filter(noisy_network(self.model, params, noise, draw.key), eqx.is_array)

        params, noise = at_chain((self.params, self.noise), 0)
        static = eqx.filter(noisy_network(self.model, params, noise, draws.key[0]), _is_static)
        return eqx.combine(jax.vmap(one)(draws), static)

    def support(self, num: int | None, *, key: PRNGKeyArray) -> tuple[NoiseDraw, np.ndarray | None]:
        """Fresh noise for the chains in turn, 100 draws unless told otherwise."""
        num = max(DEFAULT_NUM_SAMPLES, self.num_chains) if num is None else num
        keys = jax.vmap(lambda i: derive(key, i))(jnp.arange(num))
        return NoiseDraw(jnp.arange(num) % self.num_chains, keys), None

    def centres(self, num: int) -> Params:
        """The chains' weights, evenly spaced."""
        return take(self.params, np.linspace(0, self.num_chains - 1, num).round().astype(int))

    def predictive_model(self) -> NoisyModel:
        """The model with noise in it."""
        return NoisyModel(self.model, self.params, self.noise)


def noisy_network(
    model: AbstractModel, params: Params, noise: tuple[AbstractNoise | None, ...], key: PRNGKeyArray
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
