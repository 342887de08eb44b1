r"""Structured approximations of the generalised Gauss-Newton matrix $\sum_n J_n^\top F_n J_n$ over linear layers.

$J_n$ is the Jacobian of the outputs at example n and $F_n$ the Fisher information of the likelihood there. For a
linear layer with input $a_n$ and pulled-back columns $g_{nc}$ of a root of $F_n$, its block is
$\sum_{nc} (g_{nc} g_{nc}^\top) \otimes (a_n a_n^\top)$; the structures differ in what they keep of it.
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from marginax.curvature.covariances import (
    AbstractCovariance,
    BlockCovariance,
    DiagonalCovariance,
    FixedCovariance,
    KroneckerCovariance,
)
from marginax.curvature.taps import is_linear, linear_layers, listen
from marginax.data import Batch
from marginax.files import register
from marginax.model import Model, Params


class LayerSums(eqx.Module):
    """What is summed over the data for one linear layer; unused parts are empty."""

    inputs: Array
    outputs: Array
    weight: Array
    count: Array


class AbstractStructure(eqx.Module):
    """Which part of the curvature is kept: sums over the data, then a covariance."""

    @abc.abstractmethod
    def empty(self, num_inputs: int, num_outputs: int) -> LayerSums:
        """Sums before the first batch."""

    @abc.abstractmethod
    def add(
        self, sums: LayerSums, a: Float[Array, "n i"], g: Float[Array, "n k o"], weights: Float[Array, " n"]
    ) -> LayerSums:
        """Sums after a batch of layer inputs and pulled-back columns."""

    @abc.abstractmethod
    def weight_covariance(self, sums: LayerSums, precision: Array) -> AbstractCovariance:
        """Covariance of the layer's raveled weight, given the prior precision of its entries."""

    @abc.abstractmethod
    def bias_covariance(self, sums: LayerSums, precision: Array) -> AbstractCovariance:
        """Covariance of the layer's bias."""


@register
class Kronecker(AbstractStructure):
    r"""Kronecker factors (KFAC; Martens & Grosse, 2015): $\frac1N \sum a a^\top \otimes \sum g g^\top$ per weight."""

    def empty(self, num_inputs: int, num_outputs: int) -> LayerSums:
        """Two square matrices."""
        nothing = jnp.zeros((0,))
        inputs, outputs = jnp.zeros((num_inputs, num_inputs)), jnp.zeros((num_outputs, num_outputs))
        return LayerSums(inputs, outputs, nothing, jnp.zeros(()))

    def add(self, sums: LayerSums, a: Array, g: Array, weights: Array) -> LayerSums:
        """Second moments of inputs and of gradients."""
        inputs = sums.inputs + (a * weights[:, None]).T @ a
        flat = (g * jnp.sqrt(weights)[:, None, None]).reshape(-1, g.shape[-1])
        return LayerSums(inputs, sums.outputs + flat.T @ flat, sums.weight, sums.count + weights.sum())

    def weight_covariance(self, sums: LayerSums, precision: Array) -> AbstractCovariance:
        """Eigenvalues multiply; the prior adds to them."""
        outputs, left = jnp.linalg.eigh(sums.outputs)
        inputs, right = jnp.linalg.eigh(sums.inputs / sums.count)
        total = jnp.maximum(outputs, 0)[:, None] * jnp.maximum(inputs, 0)[None, :] + jnp.mean(precision)
        return KroneckerCovariance(left, right, total**-0.5)

    def bias_covariance(self, sums: LayerSums, precision: Array) -> AbstractCovariance:
        """As a weight whose input is 1."""
        outputs, left = jnp.linalg.eigh(sums.outputs)
        total = jnp.maximum(outputs, 0)[:, None] + jnp.mean(precision)
        return KroneckerCovariance(left, jnp.ones((1, 1)), total**-0.5)


@register
class Diagonal(AbstractStructure):
    """The diagonal alone: every weight by itself."""

    def empty(self, num_inputs: int, num_outputs: int) -> LayerSums:
        """One number per weight and per bias."""
        nothing = jnp.zeros((0,))
        return LayerSums(nothing, jnp.zeros(num_outputs), jnp.zeros((num_outputs, num_inputs)), jnp.zeros(()))

    def add(self, sums: LayerSums, a: Array, g: Array, weights: Array) -> LayerSums:
        """Squares."""
        squares = jnp.sum(g**2, axis=1) * weights[:, None]
        return LayerSums(
            sums.inputs, sums.outputs + squares.sum(0), sums.weight + squares.T @ a**2, sums.count + weights.sum()
        )

    def weight_covariance(self, sums: LayerSums, precision: Array) -> AbstractCovariance:
        """Inverse of the diagonal."""
        return DiagonalCovariance(((sums.weight + precision) ** -0.5).ravel())

    def bias_covariance(self, sums: LayerSums, precision: Array) -> AbstractCovariance:
        """Inverse of the diagonal."""
        return DiagonalCovariance((sums.outputs + precision) ** -0.5)


def start_sums(structure: AbstractStructure, model: Model) -> list[LayerSums]:
    """Empty sums for every linear layer; an error if random weights live anywhere else."""
    layers = linear_layers(model.network)
    nodes = jax.tree_util.tree_leaves_with_path(model.network, is_leaf=is_linear)
    places = [jax.tree_util.keystr(path, simple=True, separator="/") for path, node in nodes if is_linear(node)]
    for leaf in model.leaves:
        if not any(leaf.path.startswith(f"{place}/") for place in places):
            raise ValueError(
                f"structure {type(structure).__name__}() handles linear layers, but the weight {leaf.path!r} is not in "
                "one: choose subset=mx.LastLayer() or another method"
            )
    return [structure.empty(layer.weight.shape[1], layer.weight.shape[0]) for layer in layers]


def add_batch(
    structure: AbstractStructure,
    sums: list[LayerSums],
    model: Model,
    params: Params,
    batch: Batch,
    weights: Float[Array, " n"],
) -> list[LayerSums]:
    """Sums after a batch whose rows count with these weights."""
    network = eqx.nn.inference_mode(model.network_of(params))

    def root(output: Array) -> Array:
        information = model.likelihood.fisher(output[None], params.likelihood)[0]
        values, vectors = jnp.linalg.eigh(information)
        return vectors * jnp.sqrt(jnp.maximum(values, 0))

    inputs, columns = jax.vmap(lambda x: listen(network, x, root))(batch.x)
    return [structure.add(s, a, g, weights) for s, a, g in zip(sums, inputs, columns, strict=True)]


@eqx.filter_jit
def covariance_of(structure: AbstractStructure, sums: list[LayerSums], model: Model, params: Params) -> BlockCovariance:
    """Posterior covariance over the raveled parameters; unknowns besides the weights stay at their mode."""
    precision = prior_precision(model, params)
    blocks: list[AbstractCovariance] = []
    by_layer = iter(sums)
    for node in jax.tree.leaves(precision.network, is_leaf=is_linear):
        if not is_linear(node):
            continue
        total = next(by_layer)
        if node.weight is not None:
            blocks.append(structure.weight_covariance(total, node.weight))
        if node.bias is not None:
            blocks.append(structure.bias_covariance(total, node.bias))
    rest = sum(leaf.size for leaf in jax.tree.leaves((params.likelihood, params.prior)))
    return BlockCovariance((*blocks, FixedCovariance(rest)) if rest else tuple(blocks))


def prior_precision(model: Model, params: Params) -> Params:
    """Minus the second derivative of the log prior of every weight (priors act on each weight by itself)."""

    def slope(network):
        return jax.grad(lambda n: model.log_prior(Params(n, params.likelihood, params.prior)))(network)

    ones = jax.tree.map(jnp.ones_like, params.network)
    _, bend = jax.jvp(slope, (params.network,), (ones,))
    return Params(jax.tree.map(jnp.negative, bend), {}, {})
