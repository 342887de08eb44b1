"""Continual learning: tasks one after the other, without the data of those before."""

from marginax.continual.carrying import AbstractCarrying, AllData, AsPrior, AsStart
from marginax.continual.coresets import AbstractCoreset, KCentreCoreset, RandomCoreset
from marginax.continual.heads import MultiHead
from marginax.continual.learning import ContinualResult, learn
from marginax.continual.tasks import Task, permuted_tasks, split_tasks

__all__ = [
    "AbstractCarrying",
    "AbstractCoreset",
    "AllData",
    "AsPrior",
    "AsStart",
    "ContinualResult",
    "KCentreCoreset",
    "MultiHead",
    "RandomCoreset",
    "Task",
    "learn",
    "permuted_tasks",
    "split_tasks",
]
