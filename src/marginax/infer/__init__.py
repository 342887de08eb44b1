"""Inference: the protocol, the driver, and one file per method."""

from marginax.infer._method import AbstractMethod, Phase
from marginax.infer.ensembles import AnchoredEnsemble, DeepEnsemble
from marginax.infer.fit import fit, resume, use_cores
from marginax.infer.hooks import AbstractHook, EarlyStopping, Event, Verdict
from marginax.infer.laplace import Laplace
from marginax.infer.map import MAP, MLE
from marginax.infer.nuts import NUTS
from marginax.infer.optimisers import LBFGS, SGD, AbstractOptimiser, Adam, Constant, Cosine

__all__ = [
    "LBFGS",
    "MAP",
    "MLE",
    "NUTS",
    "SGD",
    "AbstractHook",
    "AbstractMethod",
    "AbstractOptimiser",
    "Adam",
    "AnchoredEnsemble",
    "Constant",
    "Cosine",
    "DeepEnsemble",
    "EarlyStopping",
    "Event",
    "Laplace",
    "Phase",
    "Verdict",
    "fit",
    "resume",
    "use_cores",
]
