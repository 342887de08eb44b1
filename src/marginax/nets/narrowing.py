r"""The same network with fewer units: a member of a packed ensemble (Laurent et al., 2023).

A packed ensemble is one wide network whose layers are products of blocks, one for each member; block by block, these
are narrower networks that have nothing in common. `mx.infer.DeepEnsemble` trains many networks as one batched product,
so a packed ensemble of M members and width $\alpha$ is `DeepEnsemble(M)` of `narrowed(network, alpha / M)`.
"""

import math
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array

from marginax.nets.initialisers import Initialiser


def narrowed(network: Any, fraction: float) -> Any:
    """The network with this fraction of its hidden units and feature maps, of which there is at least one.

    Its weights are the first of each layer, as much larger as fresh ones of the smaller shape would be.

    Args:
        network: an `MLP`, a `LeNet`, or another that has a method `narrowed(fraction)`.
        fraction: in (0, 1]; widths are rounded up.

    >>> from marginax.nets import MLP
    >>> [layer.weight.shape for layer in narrowed(MLP(3, (50, 20), 1, key=0), 2 / 4).layers]
    [(25, 3), (10, 25), (1, 10)]
    """
    if not 0 < fraction <= 1:
        raise ValueError(f"fraction must be in (0, 1], got {fraction}")
    if not callable(getattr(network, "narrowed", None)):
        raise TypeError(
            f"network must be an mx.nets.MLP, an mx.nets.LeNet or have a method narrowed(fraction), got "
            f"{type(network).__name__}: build it with fewer units instead"
        )
    return network.narrowed(fraction)


def narrowed_width(width: int, fraction: float) -> int:
    """A fraction of a width, rounded up.

    >>> narrowed_width(400, 2 / 4), narrowed_width(50, 1 / 3), narrowed_width(2, 0.01)
    (200, 17, 1)
    """
    return max(1, math.ceil(width * fraction - 1e-9))


def cut_layer(layer: Any, num_outputs: int, num_inputs: int, initialiser: Initialiser) -> Any:
    """The first units of a layer, with weights as large as fresh ones of their shape would be."""
    shape = (num_outputs, num_inputs, *layer.weight.shape[2:])
    growth = initialiser.scale(shape) / initialiser.scale(layer.weight.shape)
    weight = layer.weight[:num_outputs, :num_inputs] * growth
    bias = None if layer.bias is None else layer.bias[:num_outputs]
    if isinstance(layer, eqx.nn.Linear):  # which has its sizes in fields, too
        layer = eqx.filter_eval_shape(
            eqx.nn.Linear, num_inputs, num_outputs, use_bias=bias is not None, key=jax.random.key(0)
        )
    return eqx.tree_at(lambda at: (at.weight, at.bias), layer, (weight, bias), is_leaf=lambda node: node is None)


def cut_norm(norm: Any, size: int) -> Any:
    """A normalisation of the first units."""
    values: list[Array] = [leaf[:size] for leaf in jax.tree.leaves(norm)]
    return jax.tree.unflatten(jax.tree.structure(eqx.filter_eval_shape(type(norm), size)), values)
