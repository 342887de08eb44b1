"""Inference: the protocol, the driver, and one file per method."""

from marginax.infer._adaptation import DenseScale, DiagonalScale
from marginax.infer._method import AbstractMethod, Phase
from marginax.infer._stochastic import AbstractStochasticSampler, ControlVariates, Decreasing
from marginax.infer.adjusted_mclmc import AdjustedMCLMC
from marginax.infer.bayes_by_backprop import BayesByBackprop
from marginax.infer.concrete_dropout import ConcreteDropout
from marginax.infer.cyclical import CyclicalSGMCMC
from marginax.infer.divergences import ClosedForm, Halving, MonteCarlo, StickingTheLanding, Uniform
from marginax.infer.dropconnect import DropConnect
from marginax.infer.ensembles import AnchoredEnsemble, DeepEnsemble
from marginax.infer.estimators import Flipout, LocalReparameterisation, Reparameterisation
from marginax.infer.families import Flow, FullRank, LowRank, MeanField
from marginax.infer.fit import fit, resume, use_cores
from marginax.infer.gaussian_dropout import GaussianDropout
from marginax.infer.hmc import HMC
from marginax.infer.hooks import AbstractHook, EarlyStopping, Event, TimeLimit, Verdict
from marginax.infer.ivon import IVON
from marginax.infer.laplace import Laplace, LargestVariance
from marginax.infer.mala import MALA
from marginax.infer.map import MAP, MLE
from marginax.infer.mc_dropout import MCDropout
from marginax.infer.mclmc import MCLMC
from marginax.infer.metropolis import MetropolisHastings
from marginax.infer.mile import MILE
from marginax.infer.nuts import NUTS
from marginax.infer.online import Online
from marginax.infer.optimisers import LBFGS, SGD, AbstractOptimiser, Adam, Constant, Cosine
from marginax.infer.psgld import PreconditionedSGLD
from marginax.infer.sghmc import SGHMC
from marginax.infer.sgld import SGLD, MinibatchMetropolis
from marginax.infer.sgnht import SGNHT
from marginax.infer.stochastic_activations import StochasticActivations
from marginax.infer.svgd import SVGD
from marginax.infer.swag import SWAG
from marginax.infer.tempering import ParallelTempering
from marginax.infer.variational_dropout import LogUniform, VariationalDropout
from marginax.infer.vi import VI
from marginax.posterior.tuning import Evidence, HeldOut, PerLayer, WholeNetwork

__all__ = [
    "HMC",
    "IVON",
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
    "SVGD",
    "SWAG",
    "VI",
    "AbstractHook",
    "AbstractMethod",
    "AbstractOptimiser",
    "AbstractStochasticSampler",
    "Adam",
    "AdjustedMCLMC",
    "AnchoredEnsemble",
    "BayesByBackprop",
    "ClosedForm",
    "ConcreteDropout",
    "Constant",
    "ControlVariates",
    "Cosine",
    "CyclicalSGMCMC",
    "Decreasing",
    "DeepEnsemble",
    "DenseScale",
    "DiagonalScale",
    "DropConnect",
    "EarlyStopping",
    "Event",
    "Evidence",
    "Flipout",
    "Flow",
    "FullRank",
    "GaussianDropout",
    "Halving",
    "HeldOut",
    "Laplace",
    "LargestVariance",
    "LocalReparameterisation",
    "LogUniform",
    "LowRank",
    "MCDropout",
    "MeanField",
    "MetropolisHastings",
    "MinibatchMetropolis",
    "MonteCarlo",
    "Online",
    "ParallelTempering",
    "PerLayer",
    "Phase",
    "PreconditionedSGLD",
    "Reparameterisation",
    "StickingTheLanding",
    "StochasticActivations",
    "TimeLimit",
    "Uniform",
    "VariationalDropout",
    "Verdict",
    "WholeNetwork",
    "fit",
    "resume",
    "use_cores",
]
