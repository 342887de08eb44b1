"""Inference: the protocol, the driver, and one file per method.

Modules are discovered: what they register in files, methods and the choices that methods take, is exported here.
`__init__.pyi` is the same list for type checkers; `python -m tests.infer.test_catalogue` writes it anew.
"""

import importlib
import pkgutil

from marginax.infer.catalogue import is_public, register_method
from marginax.infer.fit import fit, resume, use_cores
from marginax.infer.hooks import AbstractHook, Event, Verdict
from marginax.infer.laplace.tuning import HeldOut
from marginax.infer.method import AbstractMethod, Phase
from marginax.infer.optimisers import AbstractOptimiser
from marginax.infer.sgmcmc.diffusion import AbstractStochasticSampler
from marginax.model import LargestVariance

__all__ = [
    "AbstractHook",
    "AbstractMethod",
    "AbstractOptimiser",
    "AbstractStochasticSampler",
    "Event",
    "HeldOut",
    "LargestVariance",
    "Phase",
    "Verdict",
    "fit",
    "register_method",
    "resume",
    "use_cores",
]

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    for _name, _value in vars(importlib.import_module(_module.name)).items():
        if getattr(_value, "__module__", None) == _module.name and is_public(_value):
            globals()[_name] = _value
            __all__ += [_name]
