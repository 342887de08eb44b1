"""Likelihoods: what a network's output says about the target.

A likelihood reads raw outputs of shape (n, output_size) and gives, per example, a log probability, and for
prediction a distribution. Its own unknowns (a noise scale) are unconstrained parameters that are inferred with the
weights. Scales are a number (known), a distribution (learned, with that prior) or `FromNetwork()`.
"""

from marginax.model.distributions import LogNormal
from marginax.model.likelihoods.abstract import AbstractLikelihood
from marginax.model.likelihoods.custom import Custom, Tempered
from marginax.model.likelihoods.discrete import Bernoulli, Categorical, Poisson
from marginax.model.likelihoods.from_distribution import FromDistribution, Output
from marginax.model.likelihoods.real import Gaussian, Laplace, StudentT
from marginax.model.scale import FromNetwork

__all__ = [
    "AbstractLikelihood",
    "Bernoulli",
    "Categorical",
    "Custom",
    "FromDistribution",
    "FromNetwork",
    "Gaussian",
    "Laplace",
    "LogNormal",
    "Output",
    "Poisson",
    "StudentT",
    "Tempered",
]
