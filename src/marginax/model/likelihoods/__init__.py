"""Likelihoods: what a network's output says about the target.

A likelihood reads raw outputs of shape (n, output_size) and gives, per example, a log probability, and for
prediction a distribution. Its own unknowns (a noise scale) are unconstrained parameters that are inferred with the
weights. Scales are a number (known), a distribution (learned, with that prior) or `FromNetwork()`.
"""

import importlib
import inspect
import pkgutil

from marginax.model.distributions import LogNormal
from marginax.model.likelihoods.abstract import AbstractLikelihood
from marginax.model.likelihoods.custom import Custom, Tempered
from marginax.model.likelihoods.discrete import Bernoulli, Categorical, Poisson
from marginax.model.likelihoods.from_distribution import FromDistribution, Output
from marginax.model.likelihoods.real import Gaussian, Laplace, StudentT
from marginax.model.scale import FromNetwork
from marginax.model.transitions import FullTransition, KnownTransition, PerClassTransition, SymmetricTransition

__all__ = [
    "AbstractLikelihood",
    "Bernoulli",
    "Categorical",
    "Custom",
    "FromDistribution",
    "FromNetwork",
    "FullTransition",
    "Gaussian",
    "KnownTransition",
    "Laplace",
    "LogNormal",
    "Output",
    "PerClassTransition",
    "Poisson",
    "StudentT",
    "SymmetricTransition",
    "Tempered",
]


def _found() -> dict[str, type[AbstractLikelihood]]:
    """The likelihoods of every file here, by name: a new one is exported by being there."""
    modules = [importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, AbstractLikelihood) and not inspect.isabstract(value)
    }


globals().update(_found())
__all__ += sorted(_found().keys() - set(__all__))  # pyright: ignore[reportUnsupportedDunderAll]
