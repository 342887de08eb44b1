"""Curvature of the log likelihood, and the structured normal distributions that it gives.

In: `kind.of_batch(Point(...))` is the curvature of a batch, `structure.add` sums it, `output_jacobian` gives the
derivatives of outputs. Out: `structure.finalise` gives a curvature, and that, with a prior, a covariance.
"""

from marginax.curvature.batch import AbstractBatchCurvature, Point
from marginax.curvature.blocks import BlockCovariance, BlockCurvature, FixedCovariance, SubsetCovariance
from marginax.curvature.cost import Cost, check_memory, estimate
from marginax.curvature.dense import BlockDiagonal, Dense, DenseCovariance, DenseCurvature
from marginax.curvature.diagonal import Diagonal, DiagonalCovariance, DiagonalCurvature, SingleWeights
from marginax.curvature.hooks import Plan, output_jacobian, plan_for
from marginax.curvature.jacobians import Jacobian
from marginax.curvature.kinds import GGN, AbstractKind, EmpiricalFisher, Hessian, MonteCarloFisher
from marginax.curvature.kronecker import EKFAC, Kronecker, KroneckerCovariance, KroneckerCurvature
from marginax.curvature.low_rank import FunctionSpace, LowRank, LowRankCovariance, ReducedCovariance, ReducedCurvature
from marginax.curvature.operators import AbstractCovariance, AbstractCurvature, KeptCovariance
from marginax.curvature.structure import AbstractStructure, Extent

__all__ = [
    "EKFAC",
    "GGN",
    "AbstractBatchCurvature",
    "AbstractCovariance",
    "AbstractCurvature",
    "AbstractKind",
    "AbstractStructure",
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
    "FixedCovariance",
    "FunctionSpace",
    "Hessian",
    "Jacobian",
    "KeptCovariance",
    "Kronecker",
    "KroneckerCovariance",
    "KroneckerCurvature",
    "LowRank",
    "LowRankCovariance",
    "MonteCarloFisher",
    "Plan",
    "Point",
    "ReducedCovariance",
    "ReducedCurvature",
    "SingleWeights",
    "SubsetCovariance",
    "check_memory",
    "estimate",
    "output_jacobian",
    "plan_for",
]
