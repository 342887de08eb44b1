"""Neural processes: regression from a few points of a function, learned from many other functions."""

from marginax.latent.neural_process.convolution import ConvolutionalEncoder
from marginax.latent.neural_process.encoders import CrossAttention, DeepSet, LatentEncoder
from marginax.latent.neural_process.kinds import CNP, AttentiveNP, ConvCNP, LatentNP
from marginax.latent.neural_process.process import NeuralProcess

__all__ = [
    "CNP",
    "AttentiveNP",
    "ConvCNP",
    "ConvolutionalEncoder",
    "CrossAttention",
    "DeepSet",
    "LatentEncoder",
    "LatentNP",
    "NeuralProcess",
]
