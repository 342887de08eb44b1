"""Curvature of the log likelihood, and the structured normal distributions that it gives."""

from marginax.curvature.blocks import BlockCovariance, FixedCovariance, KroneckerCovariance, SubsetCovariance
from marginax.curvature.cost import Cost, check_memory, estimate
from marginax.curvature.covariances import (
    AbstractCovariance,
    DenseCovariance,
    DiagonalCovariance,
    KeptCovariance,
    LowRankCovariance,
    ReducedCovariance,
)
from marginax.curvature.hooks import Plan, plan_for, pull_back
from marginax.curvature.jacobians import Jacobian
from marginax.curvature.kinds import (
    GGN,
    AbstractKind,
    BatchCurvature,
    EmpiricalFisher,
    Hessian,
    MonteCarloFisher,
)
from marginax.curvature.kronecker import EKFAC, Kronecker
from marginax.curvature.results import (
    AbstractCurvature,
    BlockCurvature,
    DenseCurvature,
    DiagonalCurvature,
    FactoredCurvature,
    ReducedCurvature,
)
from marginax.curvature.structures import (
    AbstractStructure,
    BlockDiagonal,
    Dense,
    Diagonal,
    Extent,
    FunctionSpace,
    LowRank,
)

__all__ = [
    "EKFAC",
    "GGN",
    "AbstractCovariance",
    "AbstractCurvature",
    "AbstractKind",
    "AbstractStructure",
    "BatchCurvature",
    "BlockCovariance",
    "BlockCurvature",
    "BlockDiagonal",
    "Cost",
    "Dense",
    "DenseCovariance",
    "DenseCurvature",
    "Diagonal",
    "DiagonalCovariance",
    "DiagonalCurvature",
    "EmpiricalFisher",
    "Extent",
    "FactoredCurvature",
    "FixedCovariance",
    "FunctionSpace",
    "Hessian",
    "Jacobian",
    "KeptCovariance",
    "Kronecker",
    "KroneckerCovariance",
    "LowRank",
    "LowRankCovariance",
    "MonteCarloFisher",
    "Plan",
    "ReducedCovariance",
    "ReducedCurvature",
    "SubsetCovariance",
    "check_memory",
    "estimate",
    "plan_for",
    "pull_back",
]
