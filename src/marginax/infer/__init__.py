"""Inference: the protocol, the driver, and one file per method."""

from marginax.infer._adaptation import DenseScale, DiagonalScale
from marginax.infer._method import AbstractMethod, Phase
from marginax.infer._stochastic import AbstractStochasticSampler, ControlVariates, Decreasing
from marginax.infer.adjusted_mclmc import AdjustedMCLMC
from marginax.infer.cyclical import CyclicalSGMCMC
from marginax.infer.ensembles import AnchoredEnsemble, DeepEnsemble
from marginax.infer.fit import fit, resume, use_cores
from marginax.infer.hmc import HMC
from marginax.infer.hooks import AbstractHook, EarlyStopping, Event, Verdict
from marginax.infer.laplace import Laplace
from marginax.infer.mala import MALA
from marginax.infer.map import MAP, MLE
from marginax.infer.mclmc import MCLMC
from marginax.infer.metropolis import MetropolisHastings
from marginax.infer.mile import MILE
from marginax.infer.nuts import NUTS
from marginax.infer.optimisers import LBFGS, SGD, AbstractOptimiser, Adam, Constant, Cosine
from marginax.infer.psgld import PreconditionedSGLD
from marginax.infer.sghmc import SGHMC
from marginax.infer.sgld import SGLD, MinibatchMetropolis
from marginax.infer.sgnht import SGNHT
from marginax.infer.tempering import ParallelTempering

__all__ = [
    "HMC",
    "LBFGS",
    "MALA",
    "MAP",
    "MCLMC",
    "MILE",
    "MLE",
    "NUTS",
    "SGD",
    "SGHMC",
    "SGLD",
    "SGNHT",
    "AbstractHook",
    "AbstractMethod",
    "AbstractOptimiser",
    "AbstractStochasticSampler",
    "Adam",
    "AdjustedMCLMC",
    "AnchoredEnsemble",
    "Constant",
    "ControlVariates",
    "Cosine",
    "CyclicalSGMCMC",
    "Decreasing",
    "DeepEnsemble",
    "DenseScale",
    "DiagonalScale",
    "EarlyStopping",
    "Event",
    "Laplace",
    "MetropolisHastings",
    "MinibatchMetropolis",
    "ParallelTempering",
    "Phase",
    "PreconditionedSGLD",
    "Verdict",
    "fit",
    "resume",
    "use_cores",
]
