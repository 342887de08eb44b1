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

for _module in pkgutil.iter_modules(__path__):  # a likelihood is registered in its file, and found
    for _name, _value in vars(importlib.import_module(f"{__name__}.{_module.name}")).items():
        if isinstance(_value, type) and issubclass(_value, AbstractLikelihood) and not inspect.isabstract(_value):
            globals()[_name] = _value
            __all__ += [_name] if _name not in __all__ else []  # pyright: ignore[reportUnsupportedDunderAll]
