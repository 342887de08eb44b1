"""Listening in on linear layers: their inputs, and how the outputs of the network depend on theirs.

Each `eqx.nn.Linear` of a network is replaced, for one forward pass, by a stand-in that notes its input and adds a
probe of zeros to its output; the derivative with respect to the probe is the derivative with respect to the layer's
output. The network does not have to know.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree


class _Tap(eqx.Module):
    linear: eqx.nn.Linear
    probe: Array
    tape: list[Array] = eqx.field(static=True)

    def __call__(self, x: Array, *, key: Any = None) -> Array:
        del key
        self.tape.append(x)
        return self.linear(x) + self.probe


def is_linear(node: Any) -> bool:
    """Whether this is a layer that can be listened to."""
    return isinstance(node, eqx.nn.Linear)


def linear_layers(tree: PyTree) -> list[eqx.nn.Linear]:
    """The linear layers of a network, in the order of its fields."""
    return [node for node in jax.tree.leaves(tree, is_leaf=is_linear) if is_linear(node)]


def listen(
    network: Any, x: Array, roots_of: Any
) -> tuple[list[Float[Array, " inputs"]], list[Float[Array, "k outputs"]]]:
    """Inputs of every linear layer at one example, and the pulled-back columns of a matrix at the output.

    Args:
        network: called per example.
        x: one example.
        roots_of: outputs -> matrix R (k, k); columns of R are pulled back to the outputs of every layer.
    """
    layers = linear_layers(network)

    def forward(probes: list[Array]) -> tuple[Array, list[Array]]:
        tape: list[Array] = []
        taps = iter([_Tap(layer, probe, tape) for layer, probe in zip(layers, probes, strict=True)])
        output = jax.tree.map(lambda node: next(taps) if is_linear(node) else node, network, is_leaf=is_linear)(x)
        return jnp.atleast_1d(output), tape

    zeros = [jnp.zeros(layer.weight.shape[0]) for layer in layers]
    output, pull_back, inputs = jax.vjp(forward, zeros, has_aux=True)
    if len(inputs) != len(layers):
        raise ValueError(f"network uses its {len(layers)} linear layers {len(inputs)} times: each must be used once")
    columns = jax.vmap(lambda column: pull_back(column)[0])(roots_of(output).T)
    return inputs, columns
