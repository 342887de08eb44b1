r"""MIMO (Havasi et al., 2021): members that live in one network, each with an input and an output of its own.

The network has M inputs and M outputs: its first layer adds up $\sum_m W_m x_m$, its last has a part for every member,
and all between is shared. In training the inputs are M independent orders of the batch, and output m is to say the
target of input m; at prediction all inputs are the same x, and the M outputs are averaged.

With all inputs the same, the first layer is $\sum_m W_m$: member m is an ordinary network, with this first layer and
part m of the last, and the posterior is the mixture of those. Each $\sqrt{M} W_m$ has the prior of the first layer, so
that the sum of normal ones has that prior (see `shared_weights`). With one member it is MAP.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from marginax._kernels.examples_last import map_examples
from marginax._kernels.random import derive
from marginax.data import Batch
from marginax.infer.catalogue import register_method
from marginax.infer.members.shared_weights import AbstractSharedWeights, member_at
from marginax.model import Model, Params
from marginax.nets import layer_paths, layers_of, replace_layers
from marginax.nets.ends import ends_of


class Ends(eqx.Module):
    """The first and the last layer of every member.

    Args:
        inputs: weights $W_m$ of the first layer; like the others, with an axis (member,).
        outputs: weights of the last.
        bias: of the last; None if it has none that is random.
        first: number of the first layer.
        last: number of the last.
    """

    inputs: Array
    outputs: Array
    bias: Array | None
    first: int = eqx.field(static=True)
    last: int = eqx.field(static=True)


@register_method(
    "method/mimo",
    gives="members that share all but their inputs and outputs",
    use_when="an ensemble in the spare room of one wide network, trained at once",
    cost="1 training run",
    order=56,
)
class MIMO(AbstractSharedWeights):
    """An ensemble in one network with several inputs and outputs.

    For networks that take their input in by one layer and give it by another: multilayer perceptrons, convolutional
    networks. The first layer does the work of `num_members`; members have to share the units of one network, which must
    be wide enough for them.

    Takes what every `AbstractSharedWeights` takes, and:

    Args:
        repetition: fraction of the rows of a batch for which all inputs are the same, as they are at prediction. With
            0 members are as different as can be, and each has the least of the network: small ones need more.
    """

    num_members: int = 3
    repetition: float = eqx.field(default=0.6, static=True)

    def __check_init__(self):
        if not 0 <= self.repetition <= 1:
            raise ValueError(f"repetition must be in [0, 1], got {self.repetition}")

    def first_own(self, model: Model, params: Params, batch: Batch, *, key: PRNGKeyArray) -> Ends:
        """The first member has the layers of the network, the others fresh ones."""
        first, last = ends_of(model.network, batch.x.shape[1:], batch.x.dtype)
        paths = layer_paths(model.network)
        if first == last:
            raise ValueError(f"network must have two layers or more for MIMO, got one, {paths[first]}: choose MAP()")
        for index in (first, last):
            if layers_of(params.network)[index].weight is None:
                raise ValueError(f"subset must have random weights in {paths[index]} for MIMO: choose BatchEnsemble()")
        all_layers = [layers_of(params.network)]
        for m in range(1, self.num_members):
            all_layers.append(layers_of(model.reinitialise(params, key=derive(key, m)).network))
        inputs = jnp.stack([layers[first].weight for layers in all_layers]) / jnp.sqrt(self.num_members)
        outputs = jnp.stack([layers[last].weight for layers in all_layers])
        biases = [layers[last].bias for layers in all_layers]
        return Ends(inputs, outputs, None if biases[0] is None else jnp.stack(biases), first, last)

    def members(self, model: Model, params: Params, own: Ends) -> Params:
        """Networks for M times the same input."""
        together = jnp.sum(own.inputs, axis=0)
        return jax.vmap(lambda one: _with_ends(params, together, one))(own)

    def log_prior(self, model: Model, params: Params, own: Ends, first: Int[Array, ""]) -> Float[Array, ""]:
        one = member_at(own, first)
        return model.log_prior(_with_ends(params, jnp.sqrt(self.num_members) * one.inputs, one))

    def log_likelihood(
        self, model: Model, params: Params, own: Ends, batch: Batch, first: Int[Array, ""], *, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        """Every member sees every row of the batch, each in an order of its own."""
        orders = independent_orders(batch.size, self.num_members - 1, self.repetition, key=derive(key, 2))
        outputs = joint_outputs(model.network_of(params), own, batch.x, orders)
        found = []
        for m in range(self.num_members):
            # row i stood where the order of the member has it
            output = outputs[:, m] if m == 0 else outputs[jnp.argsort(orders[m - 1]), m]
            found.append(model.log_likelihood_of(lambda x, key, y=output: y, params, batch, key=derive(key, 1)))
        return batch.total(sum(found[1:], found[0]) / self.num_members)


def independent_orders(size: int, num: int, repetition: float, *, key: PRNGKeyArray) -> list[Int[Array, " b"]]:
    """Orders of a batch in which a fraction of the rows, by chance the same in all, stay where they are."""
    moved = jax.random.permutation(derive(key, 0), size)[: round((1.0 - repetition) * size)]
    mixed = [jax.random.permutation(derive(key, m), moved) for m in range(1, num + 1)]
    return [jnp.arange(size).at[moved].set(rows) for rows in mixed]


def joint_outputs(
    network: Any, own: Ends, x: Float[Array, "b ..."], orders: list[Int[Array, " b"]]
) -> Float[Array, "b member k"]:
    """Outputs of all members at each place of the batch, where member m > 0 has the input `x[orders[m - 1]]`."""
    others = tuple(jnp.moveaxis(x[order], 0, -1) for order in orders)
    return map_examples(_joint, (network, own), x, others).reshape(len(x), 1 + len(orders), -1)


def _joint(parts: tuple[Any, Ends], x: Array, others: tuple[Array, ...]) -> Array:
    network, own = parts
    layers = layers_of(network)
    layers[own.first] = _Inputs(layers[own.first], own.inputs, others)
    layers[own.last] = _Outputs(layers[own.last], own.outputs, own.bias)
    return replace_layers(network, layers)(x)


class _Inputs(eqx.Module):
    """The first layer, with an input for every member."""

    layer: Any
    weights: Array
    others: tuple[Array, ...]

    def __call__(self, x: Array, *, key: Any = None) -> Array:
        y = eqx.tree_at(lambda at: at.weight, self.layer, self.weights[0])(x)
        silent = self.layer.bias if self.layer.bias is None else jnp.zeros_like(self.layer.bias)
        for weight, other in zip(self.weights[1:], self.others, strict=True):
            y = y + _with_values(self.layer, weight, silent)(other.reshape(x.shape))
        return y


class _Outputs(eqx.Module):
    """The last layer, with outputs for every member, one after the other."""

    layer: Any
    weights: Array
    biases: Array | None

    def __call__(self, x: Array, *, key: Any = None) -> Array:
        biases = [self.layer.bias] * len(self.weights) if self.biases is None else self.biases
        outputs = [_with_values(self.layer, *one)(x) for one in zip(self.weights, biases, strict=True)]
        return jnp.concatenate([jnp.atleast_1d(y) for y in outputs])


def _with_values(layer: Any, weight: Array | None, bias: Array | None) -> Any:
    return eqx.tree_at(lambda at: (at.weight, at.bias), layer, (weight, bias), is_leaf=lambda node: node is None)


def _with_ends(params: Params, inputs: Array, one: Ends) -> Params:
    """The parameters with this first layer, and the last layer of a member."""
    layers = layers_of(params.network)
    layers[one.first] = _with_values(layers[one.first], inputs, layers[one.first].bias)
    layers[one.last] = _with_values(layers[one.last], one.outputs, one.bias)
    return eqx.tree_at(lambda p: p.network, params, replace_layers(params.network, layers))
