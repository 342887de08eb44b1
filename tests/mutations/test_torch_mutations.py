"""Bugs that networks from PyTorch can have, each planted alone and caught by a check of the suite."""

import dataclasses
import importlib

import jax
import jax.numpy as jnp
import pytest
from tests.mutations.bug import Bug, assert_caught
from tests.nets.torch import test_methods as methods
from tests.nets.torch import test_stored as stored

from marginax.nets.torch import operators
from marginax.nets.torch.graph import Graph
from marginax.nets.torch.network import TorchNetwork
from marginax.nets.torch.operators import OPERATORS

RUN, CALL = Graph.run, TorchNetwork._call_layer


def with_operator(name, function):
    return {**OPERATORS, name: function}


def gates_in_another_order(x, starts, weights, *rest, key=None):
    """The forget gate first."""
    swapped = tuple(jnp.concatenate([*jnp.split(w, 4)[1::-1], *jnp.split(w, 4)[2:]]) for w in weights)
    return OPERATORS["lstm.input"](x, starts, swapped, *rest, key=key)


def variance_for_precision(x, weight, bias, mean, variance, *rest):
    return OPERATORS["_native_batch_norm_legit_no_training"](x, weight, bias, mean, 1 / variance, *rest)


def slope_cut(x):
    return jax.lax.stop_gradient(jnp.tanh(x))


def dropout_off(self, inputs, call_layer, key=None):
    return RUN(self, inputs, call_layer, None)


def without_scaling(x, rate, train=True, *, key=None):
    dropped, none = OPERATORS["native_dropout"](x, rate, train, key=key)
    return (dropped if key is None else dropped * (1 - rate)), none


def places_and_features_swapped(self, op, name, x):
    return CALL(self, op, name, jnp.flip(x, -1) if op == "layer.places" else x)


def buffers_are_weights(network):
    return jax.tree.map(lambda leaf: jnp.issubdtype(getattr(leaf, "dtype", jnp.int32), jnp.inexact), network)


def nothing_outside(self):
    return ()


def as_it_was(network, state):
    return dataclasses.replace(network)


BUGS = [
    Bug(
        "gates of an LSTM in another order",
        "marginax.nets.torch.graph",
        "OPERATORS",
        with_operator("lstm.input", gates_in_another_order),
        lambda: stored.check_outputs("lstm"),
    ),
    Bug(
        "normalised by the precision",
        "marginax.nets.torch.graph",
        "OPERATORS",
        with_operator("_native_batch_norm_legit_no_training", variance_for_precision),
        lambda: stored.check_outputs("resnet"),
    ),
    Bug(
        "a slope that is cut",
        "marginax.nets.torch.graph",
        "OPERATORS",
        with_operator("tanh", slope_cut),
        lambda: stored.check_slope("mlp"),
    ),
    Bug("dropout off", Graph, "run", dropout_off, stored.check_dropout_rate),
    Bug(
        "units that are kept do not grow",
        "marginax.nets.torch.graph",
        "OPERATORS",
        with_operator("native_dropout", without_scaling),
        stored.check_dropout_rate,
    ),
    Bug(
        "features in another order",
        TorchNetwork,
        "_call_layer",
        places_and_features_swapped,
        lambda: stored.check_outputs("encoder"),
    ),
    Bug(
        "running statistics trained",
        "marginax.model.model",
        "is_weight",
        buffers_are_weights,
        methods.check_buffers,
    ),
    Bug(
        "no weights outside layers",
        TorchNetwork,
        "weights_outside_layers",
        property(nothing_outside),
        lambda: methods.test_matrices_in_no_layer_are_refused_by_their_paths_where_layers_are_needed(
            "gru", methods.mx.curvature.Kronecker()
        ),
    ),
    Bug(
        "a state dict that is not taken",
        methods.mx.nets,
        "load_state_dict",
        as_it_was,
        stored.check_state_dict,
    ),
]
DEFAULT = ("normalised by the precision", "a slope that is cut")


@pytest.mark.parametrize(
    "bug", [pytest.param(b, id=b.name, marks=[] if b.name in DEFAULT else pytest.mark.slow) for b in BUGS]
)
def test_a_planted_bug_is_caught(bug):
    owner = _module(bug.owner) if isinstance(bug.owner, str) else bug.owner
    failed = pytest.fail.Exception
    assert_caught(dataclasses.replace(bug, owner=owner), bug.check, (AssertionError, failed))


def _module(name):
    return importlib.import_module(name)


def test_the_table_that_bugs_are_planted_in_is_the_one_that_is_used():
    assert _module("marginax.nets.torch.graph").OPERATORS is operators.OPERATORS
