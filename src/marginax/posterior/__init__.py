"""Posteriors: distributions over networks, their files, and their export."""

from marginax.posterior.draws import Draws
from marginax.posterior.gaussian import Gaussian, Mixture
from marginax.posterior.posterior import AbstractPosterior
from marginax.posterior.record import FitRecord, describe
from marginax.posterior.storage import load
from marginax.posterior.summary import Summary

__all__ = ["AbstractPosterior", "Draws", "FitRecord", "Gaussian", "Mixture", "Summary", "describe", "load"]
