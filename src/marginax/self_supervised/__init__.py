"""Self-supervised learning: models whose targets come from the inputs, and whose posterior is the prior of a task."""

from marginax.self_supervised.contrastive import Contrastive
from marginax.self_supervised.masked import MaskedReconstruction
from marginax.self_supervised.model import SelfSupervised
from marginax.self_supervised.objective import AbstractObjective
from marginax.self_supervised.vicreg import VICReg

__all__ = ["AbstractObjective", "Contrastive", "MaskedReconstruction", "SelfSupervised", "VICReg"]
