"""Pictures: one function each; it takes an Axes and returns it."""

from marginax.plot.bands import plot_band
from marginax.plot.chains import plot_autocorrelation, plot_energy, plot_rank, plot_trace
from marginax.plot.trajectories import plot_trajectories

__all__ = ["plot_autocorrelation", "plot_band", "plot_energy", "plot_rank", "plot_trace", "plot_trajectories"]
