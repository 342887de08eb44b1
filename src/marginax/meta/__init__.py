"""Meta-learning: what many small tasks have in common, as a prior for the weights of the next one."""

from marginax.meta.hierarchy import Hierarchy
from marginax.meta.maml import MAML
from marginax.meta.queries import AdaptedNetwork

__all__ = ["MAML", "AdaptedNetwork", "Hierarchy"]
