"""Models: likelihoods, priors, which weights are random, and their log density."""

from marginax.model import likelihoods, priors
from marginax.model.model import Model, Params
from marginax.model.subset import AbstractSubset, All, LastLayer, Paths

__all__ = ["AbstractSubset", "All", "LastLayer", "Model", "Params", "Paths", "likelihoods", "priors"]
