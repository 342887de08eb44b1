"""Ready networks, and doors for the user's own."""

from marginax._kernels.examples_last import call_batched
from marginax.nets.adapters import Function, as_network, fan_in, is_weight, reinitialise, takes_key
from marginax.nets.augmented import AbstractAverage, Augmented, Logits, Probabilities
from marginax.nets.conv_coders import ConvDecoder, ConvEncoder
from marginax.nets.convolution import Conv2d, avg_pool2d, conv2d, max_pool2d
from marginax.nets.initialisers import Initialiser, glorot, he, lecun
from marginax.nets.intercept import Intercept
from marginax.nets.layers import (
    LayerKind,
    is_layer,
    kind_of,
    layer_paths,
    layer_shapes,
    layers_in_loops,
    layers_of,
    register_layer,
    replace_layers,
)
from marginax.nets.lenet import LeNet
from marginax.nets.linear import Pointwise
from marginax.nets.low_rank import LowRankAdapted
from marginax.nets.mlp import MLP
from marginax.nets.narrowing import narrowed
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
from marginax.nets.normalisation import (
    AbstractNormalisation,
    FilterResponse,
    FilterResponseNorm,
    GroupNormalisation,
    ThresholdedLinear,
)
from marginax.nets.random_features import RandomFeatures
from marginax.nets.rank_one import RankOneFactors, rank_one_layers
from marginax.nets.recurrent import GRU, LSTM, AbstractRecurrent
from marginax.nets.residual import AbstractResidual
from marginax.nets.resnet import ResNet, WideResNet
from marginax.nets.sequences import Embedding, SequenceInput
from marginax.nets.spectral import ResidualMLP, SpectralNormalised
from marginax.nets.steps import Columns, Patches
from marginax.nets.temporal import CausalConvolution, TemporalConvolution
from marginax.nets.torch import (
    TorchNetwork,
    from_torch,
    load_safetensors,
    load_state_dict,
    state_dict,
    to_torch,
)
from marginax.nets.transformer import Transformer
from marginax.nets.unet import UNet
from marginax.nets.with_head import WithHead

__all__ = [
    "GRU",
    "LSTM",
    "MLP",
    "AbstractAverage",
    "AbstractNoise",
    "AbstractNormalisation",
    "AbstractRecurrent",
    "AbstractResidual",
    "Augmented",
    "CausalConvolution",
    "Columns",
    "ConcreteFactor",
    "Conv2d",
    "ConvDecoder",
    "ConvEncoder",
    "Dropout",
    "Embedding",
    "FilterResponse",
    "FilterResponseNorm",
    "FlipoutPerturbation",
    "Function",
    "GaussianFactor",
    "GroupNormalisation",
    "Initialiser",
    "Intercept",
    "LayerKind",
    "LeNet",
    "LocalNormal",
    "Logits",
    "LowRankAdapted",
    "Patches",
    "Perturbed",
    "Pointwise",
    "Probabilities",
    "RandomFeatures",
    "RankOneFactors",
    "ResNet",
    "ResidualMLP",
    "SequenceInput",
    "SpectralNormalised",
    "TemporalConvolution",
    "ThresholdedLinear",
    "TorchNetwork",
    "Transformer",
    "UNet",
    "WeightDropout",
    "WideResNet",
    "WithHead",
    "as_network",
    "avg_pool2d",
    "call_batched",
    "conv2d",
    "fan_in",
    "from_torch",
    "glorot",
    "he",
    "is_layer",
    "is_weight",
    "kind_of",
    "layer_paths",
    "layer_shapes",
    "layers_in_loops",
    "layers_of",
    "lecun",
    "load_safetensors",
    "load_state_dict",
    "max_pool2d",
    "narrowed",
    "rank_one_layers",
    "register_layer",
    "reinitialise",
    "replace_layers",
    "state_dict",
    "takes_key",
    "to_torch",
]
