"""What exists, when to use it, and what it costs: the list behind `marginax methods` and `marginax demo`."""

from dataclasses import dataclass

from marginax.infer.dropout.concrete_dropout import ConcreteDropout
from marginax.infer.dropout.dropconnect import DropConnect
from marginax.infer.dropout.gaussian_dropout import GaussianDropout
from marginax.infer.dropout.mc_dropout import MCDropout
from marginax.infer.dropout.stochastic_activations import StochasticActivations
from marginax.infer.ensembles import AnchoredEnsemble, DeepEnsemble
from marginax.infer.laplace.laplace import Laplace
from marginax.infer.map import MAP, MLE
from marginax.infer.mcmc.adjusted_mclmc import AdjustedMCLMC
from marginax.infer.mcmc.hmc import HMC
from marginax.infer.mcmc.mala import MALA
from marginax.infer.mcmc.mclmc import MCLMC
from marginax.infer.mcmc.metropolis import MetropolisHastings
from marginax.infer.mcmc.nuts import NUTS
from marginax.infer.mcmc.tempering import ParallelTempering
from marginax.infer.method import AbstractMethod
from marginax.infer.mile import MILE
from marginax.infer.sgmcmc.cyclical import CyclicalSGMCMC
from marginax.infer.sgmcmc.psgld import PreconditionedSGLD
from marginax.infer.sgmcmc.sghmc import SGHMC
from marginax.infer.sgmcmc.sgld import SGLD
from marginax.infer.sgmcmc.sgnht import SGNHT
from marginax.infer.svgd import SVGD
from marginax.infer.swag import SWAG
from marginax.infer.vi.bayes_by_backprop import BayesByBackprop
from marginax.infer.vi.ivon import IVON
from marginax.infer.vi.variational_dropout import VariationalDropout
from marginax.infer.vi.vi import VI


@dataclass(frozen=True)
class Entry:
    """A method with its defaults, in words."""

    name: str
    method: AbstractMethod
    use_when: str
    cost: str


def catalogue() -> tuple[Entry, ...]:
    """Every method, from the cheapest to the most exact.

    >>> [entry.name for entry in catalogue()][:2]
    ['MLE', 'MAP']
    """
    entries = (
        (MLE(), "you want the classical fit to compare with; a point", "1 training run"),
        (MAP(), "you want one good network; a point, and a start for others", "1 training run"),
        (Laplace(), "you have a trained network and want its uncertainty", "MAP and one epoch more"),
        (SWAG(), "you train by SGD anyway, and the data come in batches", "MAP and 100 epochs more"),
        (DeepEnsemble(), "you want good predictions with little thought", "10 training runs"),
        (AnchoredEnsemble(), "an ensemble that is Bayesian: exact for linear models", "10 training runs"),
        (MCDropout(), "you train with dropout anyway: uncertainty for free", "1 training run"),
        (GaussianDropout(), "as MC dropout, with smoother noise", "1 training run"),
        (ConcreteDropout(), "as MC dropout, with rates that are learned", "1 training run"),
        (DropConnect(), "as MC dropout, with weights dropped in place of units", "1 training run"),
        (StochasticActivations(), "random units, learned: few more unknowns than MAP", "1 training run"),
        (VI(), "a normal posterior of independent weights, trained", "20,000 steps of two MAP steps each"),
        (BayesByBackprop(), "variational inference as published in 2015; many weights to prune", "20,000 steps"),
        (VariationalDropout(), "weights that are not needed should go", "20,000 steps"),
        (IVON(), "variational inference for large networks", "1 training run"),
        (SVGD(), "an ensemble whose members keep apart", "20 training runs"),
        (SGLD(), "large data: the simplest sampler on minibatches", "MAP and 6,000 steps per chain"),
        (PreconditionedSGLD(), "large data, and layers of very different scale", "MAP and 6,000 steps per chain"),
        (SGHMC(), "large data: the sampler on minibatches to begin with", "MAP and 6,000 steps per chain"),
        (SGNHT(), "as SGHMC, when the noise of batches is felt", "MAP and 6,000 steps per chain"),
        (CyclicalSGMCMC(), "large data, and several modes from one chain", "MAP and 8,000 steps per chain"),
        (MILE(), "tabular data: the best predictions for the time", "10 training runs and 6,000 gradients each"),
        (MCLMC(), "the posterior to a small, known error, soon", "14,000 gradients per chain"),
        (MALA(), "exact, one gradient a step; for teaching and tiny models", "12,000 gradients per chain"),
        (MetropolisHastings(), "exact without gradients; tiny models", "60,000 densities per chain"),
        (HMC(), "exact; as NUTS, with trajectories of tuned length", "10^4 to 10^5 gradients per chain"),
        (AdjustedMCLMC(), "exact, and many dimensions", "10^4 to 10^5 gradients per chain"),
        (NUTS(), "small data and network, and you want the posterior itself", "10^4 to 10^6 gradients per chain"),
        (ParallelTempering(), "exact, and modes far apart", "8 replicas, 240,000 gradients per chain"),
    )
    return tuple(Entry(type(method).__name__, method, use_when, cost) for method, use_when, cost in entries)
