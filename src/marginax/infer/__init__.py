"""Inference: the protocol, the driver, and one file per method."""

from marginax.infer.dropout.concrete_dropout import ConcreteDropout
from marginax.infer.dropout.dropconnect import DropConnect
from marginax.infer.dropout.gaussian_dropout import GaussianDropout
from marginax.infer.dropout.mc_dropout import MCDropout
from marginax.infer.dropout.stochastic_activations import StochasticActivations
from marginax.infer.ensembles import AnchoredEnsemble, DeepEnsemble
from marginax.infer.fit import fit, resume, use_cores
from marginax.infer.hooks import AbstractHook, EarlyStopping, Event, TimeLimit, Verdict
from marginax.infer.laplace.laplace import Laplace
from marginax.infer.laplace.online import Online
from marginax.infer.laplace.tuning import Evidence, HeldOut, PerLayer, WholeNetwork
from marginax.infer.map import MAP, MLE
from marginax.infer.mcmc.adaptation import DenseMetric, DiagonalMetric
from marginax.infer.mcmc.adjusted_mclmc import AdjustedMCLMC
from marginax.infer.mcmc.hmc import HMC
from marginax.infer.mcmc.mala import MALA
from marginax.infer.mcmc.mclmc import MCLMC
from marginax.infer.mcmc.metropolis import MetropolisHastings
from marginax.infer.mcmc.nuts import NUTS
from marginax.infer.mcmc.tempering import ParallelTempering
from marginax.infer.method import AbstractMethod, Phase
from marginax.infer.mile import MILE
from marginax.infer.optimisers import LBFGS, SGD, AbstractOptimiser, Adam, Constant, Cosine
from marginax.infer.sgmcmc.cyclical import CyclicalSGMCMC
from marginax.infer.sgmcmc.diffusion import AbstractStochasticSampler, ControlVariates, PolynomialDecay
from marginax.infer.sgmcmc.psgld import PreconditionedSGLD
from marginax.infer.sgmcmc.sghmc import SGHMC
from marginax.infer.sgmcmc.sgld import SGLD, MinibatchMetropolis
from marginax.infer.sgmcmc.sgnht import SGNHT
from marginax.infer.svgd import SVGD
from marginax.infer.swag import SWAG
from marginax.infer.vi.bayes_by_backprop import BayesByBackprop
from marginax.infer.vi.divergences import BlundellWeights, ClosedForm, MonteCarlo, StickingTheLanding, Uniform
from marginax.infer.vi.families import Flow, FullRank, LowRank, MeanField
from marginax.infer.vi.gradients import Flipout, LocalReparameterisation, Reparameterisation
from marginax.infer.vi.ivon import IVON
from marginax.infer.vi.variational_dropout import LogUniform, VariationalDropout
from marginax.infer.vi.vi import VI
from marginax.model import LargestVariance

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
    "BlundellWeights",
    "ClosedForm",
    "ConcreteDropout",
    "Constant",
    "ControlVariates",
    "Cosine",
    "CyclicalSGMCMC",
    "DeepEnsemble",
    "DenseMetric",
    "DiagonalMetric",
    "DropConnect",
    "EarlyStopping",
    "Event",
    "Evidence",
    "Flipout",
    "Flow",
    "FullRank",
    "GaussianDropout",
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
    "PolynomialDecay",
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
