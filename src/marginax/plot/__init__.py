"""Pictures: one function each; it takes an Axes and returns it."""

from marginax.plot.bands import plot_band
from marginax.plot.calibration import plot_coverage, plot_ood, plot_pit, plot_reliability
from marginax.plot.cases import plot_cases, plot_class_cases
from marginax.plot.chains import plot_autocorrelation, plot_energy, plot_rank, plot_trace
from marginax.plot.comparison import draw_comparison, plot_boundary, plot_pareto
from marginax.plot.decisions import plot_group_coverage, plot_risk_coverage, plot_set_sizes
from marginax.plot.label_errors import plot_annotators, plot_label_errors
from marginax.plot.latents import latent_map
from marginax.plot.learning import plot_learning_curves
from marginax.plot.regret import plot_regret
from marginax.plot.trajectories import plot_trajectories
from marginax.plot.weights import plot_signal_to_noise, plot_weights

__all__ = [
    "draw_comparison",
    "latent_map",
    "plot_annotators",
    "plot_autocorrelation",
    "plot_band",
    "plot_boundary",
    "plot_cases",
    "plot_class_cases",
    "plot_coverage",
    "plot_energy",
    "plot_group_coverage",
    "plot_label_errors",
    "plot_learning_curves",
    "plot_ood",
    "plot_pareto",
    "plot_pit",
    "plot_rank",
    "plot_regret",
    "plot_reliability",
    "plot_risk_coverage",
    "plot_set_sizes",
    "plot_signal_to_noise",
    "plot_trace",
    "plot_trajectories",
    "plot_weights",
]
