"""Ready networks, and doors for the user's own."""

from marginax._kernels.examples_last import call_batched
from marginax.nets.adapters import Function, as_network, fan_in, is_weight, reinitialise, takes_key
from marginax.nets.convolution import Conv2d, avg_pool2d, conv2d, max_pool2d
from marginax.nets.initialisers import Initialiser, glorot, he, lecun
from marginax.nets.layers import LayerKind, is_layer, kind_of, layer_shapes, layers_of, register_layer, replace_layers
from marginax.nets.lenet import LeNet
from marginax.nets.mlp import MLP
from marginax.nets.noise import (
    AbstractNoise,
    ConcreteFactor,
    Dropout,
    FlipoutPerturbation,
    GaussianFactor,
    LocalNormal,
    Perturbed,
    WeightDropout,
)

__all__ = [
    "MLP",
    "AbstractNoise",
    "ConcreteFactor",
    "Conv2d",
    "Dropout",
    "FlipoutPerturbation",
    "Function",
    "GaussianFactor",
    "Initialiser",
    "LayerKind",
    "LeNet",
    "LocalNormal",
    "Perturbed",
    "WeightDropout",
    "as_network",
    "avg_pool2d",
    "call_batched",
    "conv2d",
    "fan_in",
    "glorot",
    "he",
    "is_layer",
    "is_weight",
    "kind_of",
    "layer_shapes",
    "layers_of",
    "lecun",
    "max_pool2d",
    "register_layer",
    "reinitialise",
    "replace_layers",
    "takes_key",
]
