"""Variational autoencoders and their relatives."""

from marginax.latent.vae.bounds import ELBO, IWAE, MIWAE, Renyi
from marginax.latent.vae.conditional_prior import ConditionalPrior
from marginax.latent.vae.entries import ContinuousBernoulli, SharedScale
from marginax.latent.vae.gradients import DoublyReparameterised, Reparameterised, Resampled, StickingTheLanding
from marginax.latent.vae.ladder import LadderVAE
from marginax.latent.vae.latent_posteriors import CouplingFlow, DiagonalNormal, FullNormal, StraightThrough
from marginax.latent.vae.latent_priors import MixtureOfNormals, StandardNormal, UniformClasses, VampPrior
from marginax.latent.vae.latent_unet import LatentUNet
from marginax.latent.vae.probabilistic_unet import ProbabilisticUNet
from marginax.latent.vae.semi_supervised import SemiSupervisedVAE
from marginax.latent.vae.vae import VAE

__all__ = [
    "ELBO",
    "IWAE",
    "MIWAE",
    "VAE",
    "ConditionalPrior",
    "ContinuousBernoulli",
    "CouplingFlow",
    "DiagonalNormal",
    "DoublyReparameterised",
    "FullNormal",
    "LadderVAE",
    "LatentUNet",
    "MixtureOfNormals",
    "ProbabilisticUNet",
    "Renyi",
    "Reparameterised",
    "Resampled",
    "SemiSupervisedVAE",
    "SharedScale",
    "StandardNormal",
    "StickingTheLanding",
    "StraightThrough",
    "UniformClasses",
    "VampPrior",
]
