"""Curvature, and the structured normal distributions that it gives."""

from marginax.curvature.covariances import (
    AbstractCovariance,
    DenseCovariance,
    DiagonalCovariance,
    LowRankCovariance,
)

__all__ = ["AbstractCovariance", "DenseCovariance", "DiagonalCovariance", "LowRankCovariance"]
