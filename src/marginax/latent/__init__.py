"""Models with unobserved parts.

Mixtures and their relatives have updates in closed form: they run under `mx.infer.EM` and `mx.infer.CoordinateAscent`,
and through their density under every method. Variational autoencoders have a bound for a density, neural processes the
density of some points given others, neural statisticians a bound for a set of examples: they run under every method
that needs no layers, such as `mx.infer.MAP`, `DeepEnsemble`, `VI` and `SGHMC`.
"""

from marginax.latent.coins import BetaBinomial, DirichletMultinomial, GammaPoisson
from marginax.latent.counts import Categoricals, Poissons
from marginax.latent.covariances import Diagonal, Full, Spherical, Tied
from marginax.latent.hmm import HMM
from marginax.latent.lda import LDA
from marginax.latent.mixture import GaussianMixture, Mixture
from marginax.latent.neural_process import (
    CNP,
    AttentiveNP,
    ConvCNP,
    ConvolutionalEncoder,
    CrossAttention,
    DeepSet,
    LatentEncoder,
    LatentNP,
    NeuralProcess,
)
from marginax.latent.neural_statistician import NeuralStatistician
from marginax.latent.normals import Normals, NormalWishart
from marginax.latent.pca import PCA
from marginax.latent.regression import LinearRegression, LogisticRegression
from marginax.latent.simplex import Dirichlet, StickBreaking
from marginax.latent.sizes import SizeChoice, choose_size
from marginax.latent.vae import (
    ELBO,
    IWAE,
    MIWAE,
    VAE,
    ConditionalPrior,
    ContinuousBernoulli,
    CouplingFlow,
    DiagonalNormal,
    DoublyReparameterised,
    FullNormal,
    LadderVAE,
    LatentUNet,
    MixtureOfNormals,
    ProbabilisticUNet,
    Renyi,
    Reparameterised,
    Resampled,
    SemiSupervisedVAE,
    SharedScale,
    StandardNormal,
    StickingTheLanding,
    StraightThrough,
    UniformClasses,
    VampPrior,
)

__all__ = [
    "CNP",
    "ELBO",
    "HMM",
    "IWAE",
    "LDA",
    "MIWAE",
    "PCA",
    "VAE",
    "AttentiveNP",
    "BetaBinomial",
    "Categoricals",
    "ConditionalPrior",
    "ContinuousBernoulli",
    "ConvCNP",
    "ConvolutionalEncoder",
    "CouplingFlow",
    "CrossAttention",
    "DeepSet",
    "Diagonal",
    "DiagonalNormal",
    "Dirichlet",
    "DirichletMultinomial",
    "DoublyReparameterised",
    "Full",
    "FullNormal",
    "GammaPoisson",
    "GaussianMixture",
    "LadderVAE",
    "LatentEncoder",
    "LatentNP",
    "LatentUNet",
    "LinearRegression",
    "LogisticRegression",
    "Mixture",
    "MixtureOfNormals",
    "NeuralProcess",
    "NeuralStatistician",
    "NormalWishart",
    "Normals",
    "Poissons",
    "ProbabilisticUNet",
    "Renyi",
    "Reparameterised",
    "Resampled",
    "SemiSupervisedVAE",
    "SharedScale",
    "SizeChoice",
    "Spherical",
    "StandardNormal",
    "StickBreaking",
    "StickingTheLanding",
    "StraightThrough",
    "Tied",
    "UniformClasses",
    "VampPrior",
    "choose_size",
]
