"""Models with unobserved parts, whose updates are in closed form: mixtures and their relatives.

They run under `mx.infer.EM` and `mx.infer.CoordinateAscent`, and through their density under every method.
"""

from marginax.latent.counts import Categoricals, Poissons
from marginax.latent.covariances import Diagonal, Full, Spherical, Tied
from marginax.latent.mixture import GaussianMixture, Mixture
from marginax.latent.normals import Normals, NormalWishart
from marginax.latent.simplex import Dirichlet, StickBreaking

__all__ = [
    "Categoricals",
    "Diagonal",
    "Dirichlet",
    "Full",
    "GaussianMixture",
    "Mixture",
    "NormalWishart",
    "Normals",
    "Poissons",
    "Spherical",
    "StickBreaking",
    "Tied",
]
