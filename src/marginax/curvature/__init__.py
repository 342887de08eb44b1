"""Curvature of the log posterior, and the structured normal distributions that it gives."""

from marginax.curvature.covariances import (
    AbstractCovariance,
    BlockCovariance,
    DenseCovariance,
    DiagonalCovariance,
    FixedCovariance,
    KeptCovariance,
    KroneckerCovariance,
    LowRankCovariance,
)
from marginax.curvature.structures import (
    AbstractStructure,
    Diagonal,
    Kronecker,
    add_batch,
    covariance_of,
    prior_precision,
    start_sums,
)

__all__ = [
    "AbstractCovariance",
    "AbstractStructure",
    "BlockCovariance",
    "DenseCovariance",
    "Diagonal",
    "DiagonalCovariance",
    "FixedCovariance",
    "KeptCovariance",
    "Kronecker",
    "KroneckerCovariance",
    "LowRankCovariance",
    "add_batch",
    "covariance_of",
    "prior_precision",
    "start_sums",
]
