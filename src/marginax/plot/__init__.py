"""Pictures: one function each; it takes an Axes and returns it."""

from marginax.plot.bands import plot_band

__all__ = ["plot_band"]
