"""Ready networks, and doors for the user's own."""

from marginax.nets.adapters import Function, as_network, fan_in, reinitialise, takes_key
from marginax.nets.batched import call_batched
from marginax.nets.convolution import Conv2d, avg_pool2d, conv2d, max_pool2d
from marginax.nets.initialisers import Initialiser, glorot, he, lecun
from marginax.nets.lenet import LeNet
from marginax.nets.mlp import MLP

__all__ = [
    "MLP",
    "Conv2d",
    "Function",
    "Initialiser",
    "LeNet",
    "as_network",
    "avg_pool2d",
    "call_batched",
    "conv2d",
    "fan_in",
    "glorot",
    "he",
    "lecun",
    "max_pool2d",
    "reinitialise",
    "takes_key",
]
