"""Models with unobserved parts, whose updates are in closed form: mixtures and their relatives.

They run under `mx.infer.EM` and `mx.infer.CoordinateAscent`, and through their density under every method.
"""

from marginax.latent.coins import BetaBinomial, DirichletMultinomial, GammaPoisson
from marginax.latent.counts import Categoricals, Poissons
from marginax.latent.covariances import Diagonal, Full, Spherical, Tied
from marginax.latent.hmm import HMM
from marginax.latent.lda import LDA
from marginax.latent.mixture import GaussianMixture, Mixture
from marginax.latent.normals import Normals, NormalWishart
from marginax.latent.pca import PCA
from marginax.latent.regression import LinearRegression, LogisticRegression
from marginax.latent.simplex import Dirichlet, StickBreaking
from marginax.latent.sizes import SizeChoice, choose_size

__all__ = [
    "HMM",
    "LDA",
    "PCA",
    "BetaBinomial",
    "Categoricals",
    "Diagonal",
    "Dirichlet",
    "DirichletMultinomial",
    "Full",
    "GammaPoisson",
    "GaussianMixture",
    "LinearRegression",
    "LogisticRegression",
    "Mixture",
    "NormalWishart",
    "Normals",
    "Poissons",
    "SizeChoice",
    "Spherical",
    "StickBreaking",
    "Tied",
    "choose_size",
]
