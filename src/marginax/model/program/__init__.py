"""Probabilistic programs of NumPyro: the model, its layout for data of given shapes, its density, draws and guides."""

from marginax.model.program.program import Program

__all__ = ["Program"]
