"""Models: likelihoods, priors, which weights are random, and their log density."""

from marginax.model import likelihoods, priors
from marginax.model.abstract import AbstractModel, require_network
from marginax.model.density import Density
from marginax.model.gaussian_process import GaussianProcess
from marginax.model.model import Model, Params
from marginax.model.outcome import Outcome
from marginax.model.program import Program
from marginax.model.subset import AbstractSubset, All, LargestVariance, LastLayer, Paths

__all__ = [
    "AbstractModel",
    "AbstractSubset",
    "All",
    "Density",
    "GaussianProcess",
    "LargestVariance",
    "LastLayer",
    "Model",
    "Outcome",
    "Params",
    "Paths",
    "Program",
    "likelihoods",
    "priors",
    "require_network",
]
