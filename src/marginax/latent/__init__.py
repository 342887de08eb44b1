"""Models with unobserved parts: mixtures and their relatives, whose updates are in closed form, and neural processes.

The former run under `mx.infer.EM` and `mx.infer.CoordinateAscent`, and all through their density under every method.
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
from marginax.latent.normals import Normals, NormalWishart
from marginax.latent.pca import PCA
from marginax.latent.regression import LinearRegression, LogisticRegression
from marginax.latent.simplex import Dirichlet, StickBreaking
from marginax.latent.sizes import SizeChoice, choose_size

__all__ = [
    "CNP",
    "HMM",
    "LDA",
    "PCA",
    "AttentiveNP",
    "BetaBinomial",
    "Categoricals",
    "ConvCNP",
    "ConvolutionalEncoder",
    "CrossAttention",
    "DeepSet",
    "Diagonal",
    "Dirichlet",
    "DirichletMultinomial",
    "Full",
    "GammaPoisson",
    "GaussianMixture",
    "LatentEncoder",
    "LatentNP",
    "LinearRegression",
    "LogisticRegression",
    "Mixture",
    "NeuralProcess",
    "NormalWishart",
    "Normals",
    "Poissons",
    "SizeChoice",
    "Spherical",
    "StickBreaking",
    "Tied",
    "choose_size",
]
