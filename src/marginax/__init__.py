"""marginax: Bayesian deep learning on JAX.

Take a network, say what you believe (likelihood and prior), choose a method, get a posterior over networks whose
predictions carry honest uncertainty.
"""

from types import ModuleType

from marginax import curvature, data, infer, nets, posterior, predict
from marginax._extras import require
from marginax.files import register, register_function, register_on_demand
from marginax.infer import LargestVariance, fit, resume, use_cores
from marginax.model import All, Density, LastLayer, Model, Paths, likelihoods, priors
from marginax.posterior import load

__version__ = "0.1.0"

# They bring SciPy and friends, so they wait until somebody asks.
_ON_DEMAND = ("calibrate", "decide", "estimators", "evaluate", "plot", "report", "testing")


for _name in ("estimators", "evaluate", "decide", "calibrate"):
    register_on_demand(lambda name=_name: require(f"marginax.{name}"))


def __getattr__(name: str) -> ModuleType:
    if name in _ON_DEMAND:
        return require(f"marginax.{name}")
    raise AttributeError(f"module 'marginax' has no attribute {name!r}")


__all__ = [
    "All",
    "Density",
    "LargestVariance",
    "LastLayer",
    "Model",
    "Paths",
    "curvature",
    "data",
    "fit",
    "infer",
    "likelihoods",
    "load",
    "nets",
    "posterior",
    "predict",
    "priors",
    "register",
    "register_function",
    "resume",
    "use_cores",
]
