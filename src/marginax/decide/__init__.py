"""What to do with uncertainty: so far, which weights to keep."""

from marginax.decide.pruning import Pruning, PruningRow, compact, prune, signal_to_noise

__all__ = ["Pruning", "PruningRow", "compact", "prune", "signal_to_noise"]
