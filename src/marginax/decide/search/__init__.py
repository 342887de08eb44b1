"""Bayesian optimisation: where to evaluate a function that is dear to evaluate, to find its minimum."""

from marginax.decide.search.acquisitions import (
    AbstractSearchRule,
    ExpectedImprovement,
    LowerConfidenceBound,
    ThompsonSampling,
)
from marginax.decide.search.searching import Optimised, Search, optimise, resume_optimising
from marginax.decide.search.space import Box
from marginax.decide.search.surrogates import (
    AbstractBelief,
    AbstractSurrogate,
    NetworkSurrogate,
    ProcessSurrogate,
)

__all__ = [
    "AbstractBelief",
    "AbstractSearchRule",
    "AbstractSurrogate",
    "Box",
    "ExpectedImprovement",
    "LowerConfidenceBound",
    "NetworkSurrogate",
    "Optimised",
    "ProcessSurrogate",
    "Search",
    "ThompsonSampling",
    "optimise",
    "resume_optimising",
]
