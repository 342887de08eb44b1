"""The neural statistician: a latent context for a set of examples, as one for the drawings of one character."""

from marginax.latent.neural_statistician.statistician import NeuralStatistician

__all__ = ["NeuralStatistician"]
